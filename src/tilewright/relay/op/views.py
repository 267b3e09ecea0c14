"""Operators that need not move data: reshapes, and concatenation and splitting as parts of one buffer.

Along the outermost axis with an extent (every axis before it is 1), the inputs of a concatenation lie one behind the
other in memory: if each input is written to its place in the result, the concatenation is free. The same holds for the
results of a split of that axis, and for a slice of it with stride 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeGuard

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op.transform.slicing import slices_of

ALIGNMENT = 64  # bytes: where a tensor may begin


def is_reshape(expr: RelayExpr) -> TypeGuard[Call]:
    """Return whether ``expr`` calls an operator that returns its first argument's elements in order, in another
    shape.
    """
    return isinstance(expr, Call) and isinstance(expr.op, Op) and bool(expr.op.get_attr("TReshapeOp"))


@dataclass(frozen=True)
class View:
    """Byte ranges of parts in the whole: of the inputs of a concatenation in its result (``joins``), or of the results
    of a split or slice in its input.
    """

    joins: bool
    offsets: tuple[int, ...]


def tensor_bytes(type_: TensorType) -> int:
    """Return the size in bytes of a tensor of known shape."""
    return math.prod(type_.concrete_shape) * dt.nbytes(type_.dtype)


def view_of(expr: RelayExpr) -> View | None:
    """Return how ``expr``, a typed call of an operator, can be done without moving data; None where it cannot."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return None
    match expr.op.name:
        case "concatenate":
            return _join(expr.attrs, expr.args[0].checked_type, expr.checked_type)
        case "split":
            return _split(expr.attrs, expr.args[0].checked_type, expr.checked_type)
        case "strided_slice" if len(expr.args) == 1:
            return _slice(expr.attrs, expr.args[0].checked_type)
    return None


def _join(attrs: Any, parts: Type, whole: Type) -> View | None:
    if not isinstance(parts, TupleType) or not isinstance(whole, TensorType) or not _outermost(whole, attrs.axis):
        return None
    return _in_turn(True, parts)


def _split(attrs: Any, whole: Type, parts: Type) -> View | None:
    if not isinstance(parts, TupleType) or not isinstance(whole, TensorType) or not _outermost(whole, attrs.axis):
        return None
    return _in_turn(False, parts)


def _slice(attrs: Any, whole: Type) -> View | None:
    if not isinstance(whole, TensorType) or whole.is_dynamic:
        return None
    shape = whole.concrete_shape
    ranges = [part.indices(extent) for part, extent in zip(slices_of(shape, attrs), shape, strict=True)]
    cut = [i for i, (r, extent) in enumerate(zip(ranges, shape, strict=True)) if r != (0, extent, 1)]
    if len(cut) > 1 or (cut and (ranges[cut[0]][2] != 1 or not _outermost(whole, cut[0]))):
        return None
    row = tensor_bytes(whole) // max(shape[cut[0]], 1) if cut else 0
    offset = ranges[cut[0]][0] * row if cut else 0
    return View(False, (offset,)) if offset % ALIGNMENT == 0 else None


def _outermost(whole: TensorType, axis: int) -> bool:
    """Return whether tensors joined along ``axis`` lie one behind the other in memory."""
    return not whole.is_dynamic and all(extent == 1 for extent in whole.concrete_shape[: axis % len(whole.shape)])


def _in_turn(joins: bool, parts: TupleType) -> View | None:
    offsets, end = [], 0
    for part in parts.fields:
        if not isinstance(part, TensorType) or part.is_dynamic or end % ALIGNMENT:
            return None
        offsets.append(end)
        end += tensor_bytes(part)
    return View(joins, tuple(offsets))
