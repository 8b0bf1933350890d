"""Counterfactuals of each mechanism, scored against the truth."""
