"""Causal mechanisms: how an observed outcome determines the counterfactual of a row."""
