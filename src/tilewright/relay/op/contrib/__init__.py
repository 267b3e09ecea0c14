"""``relay.op.contrib``: which operators and patterns external compilers take."""

from __future__ import annotations

from tilewright.ir.load_on_use import load_on_use
from tilewright.relay.op.contrib.register import COMPILERS, Refusal, get_pattern_table, register_pattern_table

__all__ = ["Refusal", "ccompiler", "dnnl", "get_pattern_table", "register_pattern_table"]


__getattr__, __dir__ = load_on_use(__name__, [f".{name}" for name in COMPILERS])
