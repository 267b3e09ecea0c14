"""Converters by the names of ATen's operators.

``@converter("add")`` serves every overload of ``aten::add`` that has no converter of its own; ``"add.Scalar"`` one
overload, ``"torchvision::nms"`` an operator of another library. A converter gets the arguments in the order of the
operator's schema, without those that say where a tensor lies (``UNUSED``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Converter = Callable[..., Any]

_CONVERTERS: dict[str, Converter] = {}
_OF_COMPLEX: dict[str, Converter] = {}
_REFUSED: dict[str, str] = {}
UNUSED = frozenset({"layout", "device", "pin_memory", "memory_format", "non_blocking", "generator", "sparse_grad"})


def _full(name: str) -> str:
    return name if "::" in name else f"aten::{name}"


def converter(*names: str, in_float32: bool = False) -> Callable[[Converter], Converter]:
    """Register a converter for operators, or overloads, of these names.

    ``in_float32``: an operator that becomes several is computed in float32 where its operands are float16 or bfloat16,
    and its results are rounded once.
    """

    def register(function: Converter) -> Converter:
        made = _widened(function) if in_float32 else function
        for name in names:
            _CONVERTERS[_full(name)] = made
        return function

    return register


def of_complex(*names: str) -> Callable[[Converter], Converter]:
    """Register a converter for operators where an operand or a result has complex numbers."""

    def register(function: Converter) -> Converter:
        _OF_COMPLEX.update({_full(name): function for name in names})
        return function

    return register


def _widened(function: Converter) -> Converter:
    def convert(ctx: Any, *args: Any) -> Any:
        wide, narrow = ctx.in_float32(args)
        made = function(ctx, *wide)
        return made if narrow is None else ctx.rounded(made, narrow)

    return convert


def simple(**table: Any) -> None:
    """Register operators whose tensors are the operands of Relay's: ``simple(relu=relay.nn.relu)``."""
    for name, build in table.items():
        converter(name)(lambda ctx, *args, build=build: build(*args))


def refuse(reason: str, *names: str) -> None:
    """State why operators have no converter."""
    _REFUSED.update({_full(name): reason for name in names})


def find_converter(name: str, overload: str, complex_numbers: bool = False) -> Converter | None:
    """Return the converter of ``aten::add``, ``Tensor``: with ``complex_numbers``, the one for these."""
    table = _OF_COMPLEX if complex_numbers else _CONVERTERS
    return table.get(f"{name}.{overload}") or table.get(name)


def reason_of_refusal(name: str, overload: str) -> str | None:
    """Return why an operator has no converter, where that is stated."""
    return _REFUSED.get(f"{name}.{overload}") or _REFUSED.get(name)


def supported_operators() -> list[str]:
    """Return the names of operators and overloads that have a converter, sorted."""
    return sorted({*_CONVERTERS, *_OF_COMPLEX})


def forget(*names: str) -> None:
    """Remove converters that were registered for one import."""
    for name in names:
        _CONVERTERS.pop(_full(name), None)
