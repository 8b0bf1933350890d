"""The value of a policy on a log: estimates, intervals, warnings and checks."""
