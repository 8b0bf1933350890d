"""Structural causal mechanisms: how noise decides which outcome of a row happens."""
