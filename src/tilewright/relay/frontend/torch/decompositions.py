"""Which operators torch breaks into smaller ones before they are converted: those that have no converter."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from tilewright.relay.frontend.torch import converters
from tilewright.relay.frontend.torch.registry import find_converter

_FAMILIES = converters.__all__  # whose import registers converters


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return the table for ``ExportedProgram.run_decompositions``: torch's default one, without our operators."""
    table = torch.export.default_decompositions()
    for target in list(table.keys()):
        if _is_converted(target):
            del table[target]
    return table


def functional_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return a plain table for AOTAutograd, whose graphs have none of the composite operators."""
    return {t: rule for t, rule in torch._decomp.core_aten_decompositions().items() if not _is_converted(t)}


@cache
def _is_converted(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload):
        return False
    name, overload = target._schema.name, target._overloadname
    return (find_converter(name, overload) or find_converter(name, overload, complex_numbers=True)) is not None
