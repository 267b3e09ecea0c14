"""What external compilers take: tables of patterns, and rules for single operators. ``relay.op.contrib``."""

from tilewright.relay.op.contrib import ccompiler, dnnl
from tilewright.relay.op.contrib.register import get_pattern_table, register_pattern_table

__all__ = ["ccompiler", "dnnl", "get_pattern_table", "register_pattern_table"]
