"""Passes that make kernels of operators, and what is noted on the kernels."""
