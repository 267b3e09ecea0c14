"""Reductions over axes (reduce.py) and positions of extremes (arg_reduce.py)."""
