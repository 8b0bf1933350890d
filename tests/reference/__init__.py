"""Slow, plain-Python twins of the compiled kernels."""
