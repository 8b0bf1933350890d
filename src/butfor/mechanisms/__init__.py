"""Causal mechanisms: how a counterfactual row follows from what was observed."""
