"""The audit: everything that is known about a policy on a log, in one object and one folder."""
