"""How tensors lie in memory, and the operators whose results follow from that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch._prims_common import is_contiguous_or_false

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.registry import converter


def order_of_strides(value: torch.Tensor) -> tuple[int, ...] | None:
    """Return the dimensions of a dense tensor from the largest stride to the smallest; None where that is their order.

    Also None for a tensor with gaps, or of sizes that only the data tell: a copy in order of its dimensions stands for
    it then.
    """
    if is_contiguous_or_false(value):
        return None
    sizes, strides = ([_example(n) for n in numbers] for numbers in (value.shape, value.stride()))
    if None in sizes or None in strides:
        return None
    order = tuple(sorted(range(value.dim()), key=lambda i: (-strides[i], -sizes[i])))  # type: ignore[operator]
    return order if is_contiguous_or_false(value.permute(order)) else None


def _example(number: int | torch.SymInt) -> int | None:
    """Return a number, or what a symbolic one is in the example inputs."""
    return number if isinstance(number, int) else number.node.hint


def back(order: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that undoes ``order``."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _order(ctx: TorchContext, x: RelayExpr) -> tuple[int, ...]:
    """Return the dimensions of the first operand by their strides; it has to be all of its memory."""
    value = ctx.node.args[0].meta.get("val") if isinstance(ctx.node.args[0], torch.fx.Node) else None
    rows = tuple(range(ctx.rank(x)))
    if not isinstance(value, torch.Tensor) or is_contiguous_or_false(value):
        return rows
    order = order_of_strides(value)
    if order is None:
        ctx.unsupported("a tensor that has gaps in memory")
    return order


def _places(ctx: TorchContext, x: RelayExpr, size: Sequence[Any], stride: Sequence[Any], offset: Any) -> Any:
    """Return the places in memory of the elements of a view, as numbers."""
    offset = offset or 0
    if not all(map(is_number, (*size, *stride, offset, *ctx.dims(x)))):
        ctx.unsupported("sizes and strides that are not known while compiling")
    places = np.full(tuple(size), offset, "int64")
    for axis, step in enumerate(stride):
        places += (np.arange(size[axis]) * step).reshape([-1 if i == axis else 1 for i in range(len(size))])
    if places.size and int(places.max()) >= math.prod(ctx.shape(x)):
        ctx.unsupported("memory beyond the tensor's own elements")
    return places


def _are_all(places: Any, count: int) -> bool:
    """Return whether places are all of the memory, in its order."""
    return places.size == count and np.array_equal(places.reshape(-1), np.arange(count))


@converter("as_strided", "as_strided_copy")
def convert_as_strided(
    ctx: TorchContext, x: RelayExpr, size: Sequence[Any], stride: Sequence[Any], offset: Any = None
) -> RelayExpr:
    """Elements at strides of the memory."""
    places = _places(ctx, x, size, stride, offset)
    count = math.prod(ctx.shape(x))
    flat = ctx.reshape(ctx.permute(x, _order(ctx, x)), [count])
    return ctx.reshape(flat, size) if _are_all(places, count) else relay_op.take(flat, const(places), axis=0)


@converter("as_strided_scatter")
def convert_as_strided_scatter(
    ctx: TorchContext, x: RelayExpr, source: RelayExpr, size: Sequence[Any], stride: Sequence[Any], offset: Any = None
) -> RelayExpr:
    """The data with those elements replaced that lie at strides of the memory."""
    places, order = _places(ctx, x, size, stride, offset), _order(ctx, x)
    count, ordered = math.prod(ctx.shape(x)), [ctx.shape(x)[axis] for axis in order]
    made = ctx.reshape(ctx.cast(source, ctx.dtype(x)), [-1])
    if not _are_all(places, count):
        flat = ctx.reshape(ctx.permute(x, order), [count])
        made = ctx.part("ScatterElements", [flat, typed(const(places.reshape(-1))), made])
    return ctx.permute(ctx.reshape(made, ordered), back(order))
