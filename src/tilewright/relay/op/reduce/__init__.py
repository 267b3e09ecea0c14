"""Reductions over axes (reduce.py) and positions of extremes (arg_reduce.py)."""

from tilewright.relay.op.reduce import arg_reduce, reduce  # noqa: F401
