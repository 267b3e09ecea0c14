"""``tvm.ir.adt``: the names of Relay's data types (``relay/adt.py``), loaded with Relay on use."""

from __future__ import annotations

from typing import Any

from tilewright.ir.json_schema import CLASSES


def __getattr__(name: str) -> Any:
    if name in ("Constructor", "TypeData"):
        return CLASSES[f"relay.{name}"].load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
