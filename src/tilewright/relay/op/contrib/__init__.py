"""``relay.op.contrib``: which operators and patterns external compilers take."""

from __future__ import annotations

import importlib
from typing import Any

from tilewright.relay.op.contrib.register import COMPILERS, Refusal, get_pattern_table, register_pattern_table

__all__ = ["Refusal", "ccompiler", "dnnl", "get_pattern_table", "register_pattern_table"]


def __getattr__(name: str) -> Any:
    if name in COMPILERS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
