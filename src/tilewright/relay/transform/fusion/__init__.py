"""Passes that form kernels from operators, and their annotations."""
