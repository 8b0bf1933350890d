"""Slow checks against theory and published numbers: `make verify`."""
