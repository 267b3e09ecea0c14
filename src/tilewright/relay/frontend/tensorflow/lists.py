"""Lists of tensors: tensor arrays, and the tensor lists of TensorFlow 2.

While the indices that are written and read are known, a list is a list of expressions, whose shapes may differ. In a
loop that is decided when the model runs, it is one tensor (n, ...) whose rows are the elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dimensions import element, is_number
from tilewright.relay.frontend.dynamic import filled, integer, runtime_extent
from tilewright.relay.frontend.tensorflow.context import NodeContext


@dataclass(frozen=True)
class TensorList:
    """A list: its elements, where these are known one by one; else its rows; else its length alone."""

    dtype: str
    shape: tuple[int | None, ...] | None = None
    items: tuple[RelayExpr | None, ...] | None = None
    rows: RelayExpr | None = None
    length: RelayExpr | None = None

    @property
    def is_settled(self) -> bool:
        """Return whether the type of the elements is known."""
        return self.rows is not None or any(i is not None for i in self.items or ())


def reserved(ctx: NodeContext, dtype: str, shape: tuple[int | None, ...] | None, length: RelayExpr) -> TensorList:
    """Return a list of so many elements that are not written yet."""
    known = ctx.constant_or_none(length)
    if known is None:
        return TensorList(dtype, shape, length=typed(relay_op.cast(relay_op.reshape(length, ()), "int64")))
    count = int(known.reshape(-1)[0])
    ctx.write_out(max(count, 0), f"a list of {count} tensors")
    return TensorList(dtype, shape, items=(None,) * max(count, 0))


def of_rows(ctx: NodeContext, rows: RelayExpr) -> TensorList:
    """Return the list of the slices of a tensor along its first axis."""
    return TensorList(ctx.dtype(rows), rows=typed(rows))


def with_item(ctx: NodeContext, given: TensorList, index: RelayExpr, value: RelayExpr) -> TensorList:
    """Return the list with one element replaced."""
    place = ctx.constant_or_none(index)
    if place is not None and given.items is not None:
        at = int(place.reshape(-1)[0])
        if not 0 <= at < len(given.items):
            if at < 0:
                ctx.fail(f"the element {at} of a list of {len(given.items)}")
            given = replace(given, items=given.items + (None,) * (at + 1 - len(given.items)))  # one that grows
        items = list(given.items or ())
        items[at] = value
        return replace(given, items=tuple(items))
    rows = stacked(ctx, given, value)
    places = relay_op.reshape(relay_op.cast(index, "int64"), (1, 1))
    made = ctx.part("ScatterND", [rows, typed(places), typed(relay_op.expand_dims(value, axis=0))])
    return TensorList(given.dtype, given.shape, rows=made)


def item(ctx: NodeContext, given: TensorList, index: RelayExpr) -> RelayExpr:
    """Return one element."""
    place = ctx.constant_or_none(index)
    if place is not None and given.items is not None:
        at = int(place.reshape(-1)[0])
        if not 0 <= at < len(given.items):
            ctx.fail(f"the element {at} of a list of {len(given.items)}")
        found = given.items[at]
        return found if found is not None else _zeros(ctx, given, _element_type(ctx, given, None))
    return taken(ctx, given, relay_op.reshape(index, ()))


def taken(ctx: NodeContext, given: TensorList, indices: RelayExpr) -> RelayExpr:
    """Return the elements at indices, along new leading axes."""
    return typed(relay_op.take(stacked(ctx, given), relay_op.cast(indices, "int64"), axis=0))


def count(ctx: NodeContext, given: TensorList) -> RelayExpr:
    """Return the number of elements, in int32."""
    if given.items is not None:
        return const(np.array(len(given.items), "int32"))
    if given.rows is None:
        assert given.length is not None
        return typed(relay_op.cast(given.length, "int32"))
    extent = ctx.dims(given.rows)[0]
    return const(np.array(extent, "int32")) if is_number(extent) else typed(runtime_extent(given.rows, 0, "int32"))


def stacked(ctx: NodeContext, given: TensorList, like: RelayExpr | None = None) -> RelayExpr:
    """Return the elements along a new first axis; those not written are 0. ``like`` is one of them."""
    if given.rows is not None:
        return given.rows
    type_ = _element_type(ctx, given, like)
    if given.items is None:
        assert given.length is not None
        return _empty_rows(type_, given.length)
    if not given.items:
        return _empty_rows(type_, integer(0))
    if all(i is None for i in given.items) and not type_.is_dynamic:
        return typed(relay_op.zeros((len(given.items), *type_.concrete_shape), given.dtype))
    return typed(relay_op.stack([i if i is not None else _zeros(ctx, given, type_) for i in given.items], axis=0))


def joined(ctx: NodeContext, given: TensorList) -> tuple[RelayExpr, RelayExpr]:
    """Return the elements along their first axis, and the extent of each in that, in int64."""
    if given.items is not None and given.items:
        parts = [i if i is not None else _zeros(ctx, given, _element_type(ctx, given, None)) for i in given.items]
        lengths = [ctx.dims(p)[0] for p in parts]
        whole = typed(relay_op.concatenate(parts, axis=0)) if len(parts) > 1 else parts[0]
        if all(map(is_number, lengths)):
            return whole, const(np.array(lengths, "int64"))
        return whole, typed(relay_op.stack([runtime_extent(p, 0) for p in parts], axis=0))
    rows = stacked(ctx, given)
    number, length, *_ = (runtime_extent(rows, axis) for axis in (0, 1))
    lengths_of = relay_op.broadcast_to(length, (int(ctx.dims(rows)[0]),)) if is_number(ctx.dims(rows)[0]) else filled(
        length, [None], relay_op.reshape(number, (1,)), "int64"
    )  # fmt: skip
    return typed(relay_op.reshape(rows, (-3, -2))), typed(lengths_of)


def split(ctx: NodeContext, given: TensorList, value: RelayExpr, lengths: Sequence[int]) -> TensorList:
    """Return the list of pieces of a tensor along its first axis."""
    ends = np.cumsum([0, *lengths])
    pieces = [typed(relay_op.strided_slice(value, [int(a)], [int(b)], axes=[0])) for a, b in itertools.pairwise(ends)]
    return replace(given, items=tuple(pieces), rows=None)


def _element_type(ctx: NodeContext, given: TensorList, like: RelayExpr | None) -> TensorType:
    """Return the type of the elements: of one that was written, or as the list was declared."""
    for value in (*(given.items or ()), like):
        if value is not None:
            return ctx.tensor_type(value)
    if given.shape is not None and None not in given.shape:
        return TensorType(given.shape, given.dtype)
    ctx.unsupported("a list whose elements have a shape that is not known before one is written; state element_shape")


def _zeros(ctx: NodeContext, given: TensorList, type_: TensorType) -> RelayExpr:
    if not type_.is_dynamic:
        return typed(relay_op.zeros(type_.concrete_shape, given.dtype))
    like = next((i for i in given.items or () if i is not None), None)
    if like is None:
        ctx.unsupported("an element that was not written, of a shape that is known when the model runs")
    return typed(relay_op.zeros_like(like))


def _empty_rows(type_: TensorType, length: RelayExpr) -> RelayExpr:
    dims = [element(d) for d in type_.shape]
    extents = [integer(d) if is_number(d) else integer(0) for d in dims]
    shape = relay_op.stack([length, *extents], axis=0)
    fill = const(np.zeros((), type_.dtype), type_.dtype)
    return typed(filled(fill, [None, *(d if is_number(d) else None for d in dims)], shape, type_.dtype))


def as_tensors(ctx: NodeContext, values: Sequence[Any]) -> list[RelayExpr]:
    """Return values that control flow carries as tensors."""
    return [typed(stacked(ctx, v) if isinstance(v, TensorList) else v) for v in values]


def like_values(values: Sequence[RelayExpr], kinds: Sequence[Any]) -> list[Any]:
    """Return tensors as what they stand for."""
    return [
        TensorList(k.dtype, k.shape, rows=typed(v)) if isinstance(k, TensorList) else typed(v)
        for v, k in zip(values, kinds, strict=True)
    ]


__all__ = [
    "TensorList", "as_tensors", "count", "item", "joined", "like_values", "of_rows", "reserved",
    "split", "stacked", "taken", "with_item",
]  # fmt: skip
