"""Models of the dynamics learned from a log, planning in them, and policies."""
