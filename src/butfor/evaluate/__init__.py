"""What a policy is worth on a log, how sure that is, and reasons to doubt it."""
