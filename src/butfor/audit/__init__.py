"""The audit: all results about a policy on a log, in one object and one folder."""
