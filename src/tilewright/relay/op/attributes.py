"""Conversion of arguments and attribute values to Python numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import FloatImm, IntImm, PrimExpr
from tilewright.ir.prim_ops import whole
from tilewright.relay.expr import Call, Constant, TupleWrapper, const
from tilewright.relay.expr import Tuple as TupleExpr
from tilewright.runtime.ndarray import NDArray

Operand = RelayExpr | TupleWrapper | NDArray | np.ndarray[Any, Any] | float  # numbers become constants
Ints = int | Sequence[int]  # one number, or several
Floats = float | Sequence[float]
Axes = Ints | None
Shape = RelayExpr | Sequence[PrimExpr | int] | PrimExpr | int
PerAxis = tuple[int, ...]  # a field with a number for each spatial dimension; builders take one for all
SomeAxes = tuple[int, ...] | None  # a field of axes, None for all; builders take none, too
Pairs = tuple[tuple[int, int], ...]  # a field of (before, after); builders take one number for both
Extents = tuple[Any, ...]  # as PerAxis, of dimensions
OutputSize = tuple[int, ...]  # as PerAxis, and none for the input's
Padding = tuple[int, ...]  # a field with padding before and after each; builders take fewer


def number(value: Any) -> Any:
    """Return a literal, a numpy number or a scalar constant as a Python number; return other expressions unchanged."""
    if isinstance(value, (IntImm, FloatImm)):
        return value.value
    if isinstance(value, Constant) and not value.data.shape:
        return value.data.numpy().item()
    if isinstance(value, np.generic):
        return value.item()
    return value


def whole_int(value: Any) -> int:
    """Return a whole number of any type as an int; raise TilewrightError for one such as 2.5."""
    return int(whole(number(value)))


def ints(values: Any) -> tuple[int, ...]:
    """Return numbers, or one number, as a tuple of ints."""
    if isinstance(values, (list, tuple, np.ndarray)):
        return tuple(whole_int(v) for v in values)
    return (whole_int(values),)


def floats(values: Any) -> tuple[float, ...]:
    """Return numbers, or one number, as a tuple of floats."""
    if isinstance(values, (list, tuple, np.ndarray)):
        return tuple(float(number(v)) for v in values)
    return (float(number(values)),)


def dims(values: Any) -> tuple[Any, ...]:
    """Return a shape: known dimensions as ints, others as expressions. Constants of rank 1 are read."""
    if isinstance(values, RelayExpr):
        return static_ints(values, "the shape")
    if isinstance(values, (list, tuple, np.ndarray)):
        return tuple(whole(number(v)) for v in values)
    return (whole(number(values)),)


def axes(values: Any) -> Any:
    """None, an int, or a tuple of ints."""
    if values is None or isinstance(values, (int, np.integer, IntImm)):
        return number(values)
    return ints(values)


def static_ints(value: Any, what: str) -> tuple[int, ...]:
    """Return the ints of a list or of a constant of rank 0 or 1.

    Raises:
        UnsupportedError: the value is computed at run time.
    """
    if isinstance(value, Constant):
        return tuple(int(v) for v in value.data.numpy().reshape(-1))
    if isinstance(value, RelayExpr):
        raise UnsupportedError(f"{what} is computed by the model itself; fold it to a constant (FoldConstant) first")
    return ints(value)


def computed(*values: Any) -> bool:
    """Return whether the program computes one of the values; the operator is then one of ``relay.op.dyn``."""
    return any(isinstance(value, RelayExpr) and not isinstance(value, Constant) for value in values)


def pair(values: Any, count: int = 2) -> tuple[int, ...]:
    """Return ``count`` ints: one for each dimension, or one int for all of them."""
    found = ints(values)
    if len(found) == 1:
        return found * count
    if len(found) != count:
        raise TilewrightError(f"expected 1 or {count} values, got {found}")
    return found


def padding(values: Any, rank: int = 2) -> tuple[int, ...]:
    """Return the padding before and after ``rank`` dimensions, from 1 value, one for each dimension, or one for
    each side.
    """
    found = ints(values)
    if len(found) == 1:
        return found * (2 * rank)
    if len(found) == rank:
        return found * 2
    if len(found) != 2 * rank:
        raise TilewrightError(f"padding has {len(found)} values; expected 1, {rank} or {2 * rank}: {found}")
    return found


def pairs(values: Any) -> tuple[tuple[int, int], ...]:
    """Return (before, after) of each dimension, from one number or two for each, or from a constant."""
    if isinstance(values, RelayExpr):
        flat = static_ints(values, "the value")
        return tuple((flat[2 * i], flat[2 * i + 1]) for i in range(len(flat) // 2))
    return tuple((w[0], w[-1]) for w in (ints(p) for p in values))


def operand(value: Any, dtype: str | None = None) -> RelayExpr:
    """Return an argument as an expression: tuple results become tuples, numbers become constants."""
    if isinstance(value, RelayExpr):
        return value
    if isinstance(value, TupleWrapper):
        return value.astuple()
    return const(value, dtype)


def tuple_operand(values: Any) -> RelayExpr:
    """Return a tuple argument, given as a list of expressions or a tuple expression."""
    if isinstance(values, TupleWrapper):
        return values.astuple()
    if isinstance(values, RelayExpr):
        return values
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"expected a list or tuple of expressions, got a {type(values).__name__}")
    return TupleExpr([operand(v) for v in values])


def call(name: str, args: Sequence[Any], attrs: Any = None) -> Call:
    """Return a call of the operator ``name``; numbers among ``args`` become constants."""
    return Call(Op.get(name), [operand(a) for a in args], attrs)


def is_expr(value: Any) -> bool:
    """Return whether ``value`` is computed at run time."""
    return isinstance(value, (RelayExpr, PrimExpr)) and not isinstance(value, (IntImm, FloatImm))
