"""The table of all operators and intrinsics by name (``ir.op`` defines its entries)."""

from __future__ import annotations

from typing import Any

from tilewright.ir.errors import TilewrightError

OPERATORS: dict[str, Any] = {}


def find_op(name: str) -> Any:
    """Return the operator ``name``; raises TilewrightError when there is none."""
    op = OPERATORS.get(name)
    if op is None:
        raise TilewrightError(f"operator {name!r} is not registered")
    return op
