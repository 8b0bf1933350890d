"""Guessing what the columns of a log are, for a draft of its study file."""
