"""Expressions for shapes that are known at run time: reshapes, broadcasts and slices over named dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import Add, ArithExpr, DimVar, FloorDiv, FloorMod, IntImm, Max, Min, Mul, PrimExpr, Sub
from tilewright.ir.type import TensorType
from tilewright.ir.walk import post_order
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Var, const
from tilewright.relay.frontend.dimensions import as_dim, element, is_number, relay_shape, same_element
from tilewright.relay.op.attributes import call
from tilewright.relay.op.dyn import iota, with_dims
from tilewright.relay.op.relations import dim_add
from tilewright.relay.op.tensor.creation import InitOpAttrs
from tilewright.relay.op.transform.reshape import ReshapeAttrs
from tilewright.relay.type_infer import infer_expr

if TYPE_CHECKING:
    from tilewright.relay.frontend.context import ConverterContext

FAR = np.iinfo(np.int32).max


def integer(value: int, dtype: str = "int64") -> RelayExpr:
    """Return a scalar."""
    return const(np.array(value, dtype), dtype)


def vector(values: Sequence[int]) -> RelayExpr:
    """Return a constant vector."""
    return const(np.array(values, "int64"), "int64")


def runtime_shape(data: RelayExpr) -> RelayExpr:
    """Return the shape, in int64."""
    return relay_op.shape_of(data, "int64")


def runtime_extent(data: RelayExpr, axis: int, dtype: str = "int64") -> RelayExpr:
    """Return one dimension as a scalar."""
    axis %= len(infer_expr(data).checked_type.shape)  # type: ignore[attr-defined]
    extent = relay_op.take(runtime_shape(data), integer(axis, "int32"))
    return extent if dtype == "int64" else relay_op.cast(extent, dtype)


_ARITHMETIC: dict[type, Callable[..., RelayExpr]] = {
    Add: relay_op.add, Sub: relay_op.subtract, Mul: relay_op.multiply, FloorDiv: relay_op.floor_divide,
    FloorMod: relay_op.floor_mod, Max: relay_op.maximum, Min: relay_op.minimum,
}  # fmt: skip


def runtime_dim(inputs: Iterable[Var], dim: PrimExpr) -> RelayExpr | None:
    """Return an expression over the inputs' named dimensions as an int64 scalar; None where these do not determine
    it.
    """
    known: dict[PrimExpr, RelayExpr | None] = {}
    for var in inputs:
        assert isinstance(var.checked_type, TensorType)
        for axis, own in enumerate(var.checked_type.shape):
            if isinstance(own, DimVar) and own not in known:
                known[own] = runtime_extent(var, axis)
    for part in post_order([dim], lambda e: (e.a, e.b) if isinstance(e, ArithExpr) else ()):
        if isinstance(part, IntImm):
            known[part] = integer(part.value)
        elif isinstance(part, ArithExpr) and type(part) in _ARITHMETIC:
            a, b = known.get(part.a), known.get(part.b)
            known[part] = None if a is None or b is None else _ARITHMETIC[type(part)](a, b)
    return known.get(dim)


def same_dims(found: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Return whether dimensions are the expected ones, as far as these are known."""
    return len(found) == len(wanted) and all(
        w is None or w is f or (is_number(w) and w == f) for f, w in zip(found, wanted, strict=True)
    )


def reshape_to(
    ctx: ConverterContext, data: RelayExpr, dims: Sequence[Any], shape: RelayExpr | None = None, allowzero: bool = False
) -> RelayExpr:
    """Reshape ``data`` to the dimensions ``dims`` (elements), which the vector ``shape`` holds at run time."""
    codes = relay_shape(ctx.dims(data), dims)
    if codes is not None:
        made = infer_expr(relay_op.reshape(data, newshape=codes))
        if shape is None or same_dims(ctx.dims(made), dims):
            return made
    if shape is None:
        ctx.unsupported(f"its result would have {len(dims)} dimensions that are not known before the model runs")
    attrs = ReshapeAttrs(tuple(as_dim(d) for d in dims), allowzero)
    return call("dyn.reshape", [data, relay_op.cast(shape, "int64")], attrs)


def broadcast_elements(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    """Return the dimensions of two broadcast shapes; None where they depend on unknown numbers."""
    rank = max(len(a), len(b))
    found = []
    for x, y in zip([1] * (rank - len(a)) + list(a), [1] * (rank - len(b)) + list(b), strict=True):
        if is_number(x) and x == 1:
            found.append(y)
        elif (is_number(y) and y == 1) or x is y:
            found.append(x)
        else:
            found.append(x if is_number(x) else y if is_number(y) else None)
    return found


def broadcast_shape(a: RelayExpr, rank_a: int, b: RelayExpr, rank_b: int) -> RelayExpr:
    """Return the dimensions of two broadcast shapes, vectors of so many int64, as a vector at run time."""
    rank = max(rank_a, rank_b)
    a, b = (
        relay_op.concatenate([vector([1] * (rank - own)), shape], axis=0) if own < rank else shape
        for shape, own in ((a, rank_a), (b, rank_b))
    )
    return relay_op.where(relay_op.equal(a, vector([1])), b, a)


def expand_to(ctx: ConverterContext, data: RelayExpr, wanted: Sequence[Any], shape: RelayExpr) -> RelayExpr:
    """Broadcast ``data`` with the shape in the vector ``shape``, both ways."""
    own = ctx.dims(data)
    dims = broadcast_elements(own, wanted)
    if all(map(is_number, dims)) and all(map(is_number, own)):
        return relay_op.broadcast_to(data, dims)
    if len(dims) == len(own) and all(d is not None and (d is o or d == o) for d, o in zip(dims, own, strict=True)):
        return data
    if (repeats := _repeats(own, wanted)) is not None:
        for axis, count in repeats:
            data = relay_op.repeat(data, count, axis)
        return data
    full = broadcast_shape(relay_op.cast(shape, "int64"), len(wanted), runtime_shape(data), len(own))
    return call("dyn.broadcast_to", [data, full], InitOpAttrs(tuple(as_dim(d) for d in dims)))


def _repeats(own: Sequence[Any], wanted: Sequence[Any]) -> list[tuple[int, int]] | None:
    """Return axes of 1 and the numbers that they are broadcast to, if nothing else is broadcast."""
    pairs = list(zip(own[len(own) - len(wanted) :], wanted, strict=True)) if len(wanted) <= len(own) else [(None, None)]
    if not all(same_element(o, w) or (is_number(w) and (w == 1 or (is_number(o) and o == 1))) for o, w in pairs):
        return None
    first_axis = len(own) - len(wanted)
    return [(first_axis + i, int(w)) for i, (o, w) in enumerate(pairs) if not same_element(o, w) and w != 1]


def known_dims(data: RelayExpr, dims: Sequence[Any]) -> RelayExpr:
    """Return ``data`` with unknown dimensions set to ``dims``."""
    data = infer_expr(data)
    found = [element(d) for d in data.checked_type.shape]  # type: ignore[attr-defined]
    if not any(f is None and d is not None for f, d in zip(found, dims, strict=True)):
        return data
    return with_dims(data, [as_dim(d) for d in dims])


def first(data: RelayExpr, count: RelayExpr, axis: int = 0) -> RelayExpr:
    """Return the first entries of an axis, as many as the int64 vector ``count`` of one element says."""
    return relay_op.strided_slice(data, vector([0]), count, vector([1]), axes=[axis])


def filled(value: RelayExpr, dims: Sequence[Any], shape: RelayExpr, dtype: str) -> RelayExpr:
    """Return a tensor of one value, of the shape in the vector ``shape``."""
    return call("dyn.full", [value, relay_op.cast(shape, "int64")], InitOpAttrs(tuple(map(as_dim, dims)), dtype))


def counted(count: RelayExpr, dims: Sequence[Any] = (None,)) -> RelayExpr:
    """Return 0, 1, ... in int64, as many as the scalar ``count`` says."""
    return known_dims(iota(relay_op.cast(count, "int64")), dims)


def low_of(dim: Any) -> int:
    """Return the least number that an element may be."""
    return int(dim) if is_number(dim) else dim.low if isinstance(dim, DimVar) else 0


def high_of(dim: Any) -> int | None:
    """Return the greatest number that an element may be."""
    return int(dim) if is_number(dim) else dim.high if isinstance(dim, DimVar) else None


def slice_length(start: Any, stop: Any, step: Any, extent: Any) -> Any:
    """Return the number of elements of a slice, as an element; None where it is unknown."""
    if extent is None or not is_number(step) or step != 1 or not is_number(start) or stop is None:
        return None
    if is_number(stop) and stop >= FAR:
        stop = extent
    if is_number(stop) and stop < 0:
        stop = element(dim_add(extent, int(stop)))
    if start < 0:
        if stop is extent and low_of(extent) >= -start:
            return -start
        return None
    inside = stop is extent or (high_of(stop) is not None and high_of(stop) <= low_of(extent))  # type: ignore[operator]
    if not inside and not (not is_number(stop) and is_number(extent)):
        less = element(dim_add(extent, -1))
        inside = stop is less or (not is_number(stop) and stop is element(dim_add(extent, (-1))))
    if not inside or (low_of(stop) < start and not (stop is extent and low_of(extent) >= start)):
        return None
    return stop if start == 0 else element(dim_add(stop, -int(start)))


def joined(x: RelayExpr, counts: Sequence[int]) -> RelayExpr:
    """Join each group of ``counts`` neighbouring axes into one axis, an empty group into an axis of 1."""
    left = list(counts)
    for place, count in enumerate(counts):
        if count == 0:
            x = relay_op.expand_dims(x, axis=sum(left[:place]))
            left[place] = 1
        for _ in range(count - 1):  # -3 joins two axes, 0 keeps one, -2 all that follow
            x = relay_op.reshape(x, newshape=(*([0] * sum(left[:place])), -3, -2))
            left[place] -= 1
    return x
