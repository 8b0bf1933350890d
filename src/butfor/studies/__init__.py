"""Experiments in the sepsis simulator, each written up as an article."""
