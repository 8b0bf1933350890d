"""Models of the dynamics, learned from a log, and policies on them."""
