"""Mixtures of experts: products of rows, which lie group by group, with the matrix of their group."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.linear import product
from tilewright.relay.frontend.torch.registry import converter

_ROWS = 16  # of a block, which one matrix is loaded for


@converter("_grouped_mm")
def convert_grouped_mm(
    ctx: TorchContext, x: RelayExpr, weight: RelayExpr, ends: RelayExpr | None = None, bias: Any = None,
    out_dtype: Any = None,
) -> RelayExpr:  # fmt: skip
    """Products of groups of rows, each with a matrix of its own; of batches where there are no groups."""
    if (ctx.rank(x), ctx.rank(weight), ends) == (3, 3, None) and bias is None:
        return product(ctx, x, weight)
    if ctx.rank(x) != 2 or ctx.rank(weight) != 3 or ends is None or bias is not None:
        ctx.unsupported("groups of other dimensions than the rows of a matrix, and a bias")
    return convert_groups(ctx, x, weight, ends)


@converter("transformers::grouped_mm_fallback")
def convert_groups(ctx: TorchContext, x: RelayExpr, weight: RelayExpr, ends: RelayExpr) -> RelayExpr:
    """Products of x (rows, inner) with weight (groups, inner, columns): group g ends before row ``ends[g]``.

    Rows after the last group give zeros.
    """
    groups, rows, ends = ctx.extent(weight, 0), ctx.dims(x)[0], ctx.cast(ends, "int64")
    if rows == 0:
        return ctx.full(ctx.result_dims(), 0, ctx.result_dtype())
    places = _counted(ctx, ctx.dim_size(x, 0))
    if is_number(rows) and rows <= 2 * groups:
        found = _row_by_row(ctx, x, weight, _group_of(ctx, places, ends, groups))
    else:
        found = _by_blocks(ctx, x, weight, ends, places)
    last = relay_op.take(ends, const(groups - 1, "int64"), axis=0)
    inside = typed(relay_op.expand_dims(relay_op.less(places, last), axis=1))
    return relay_op.where(inside, found, ctx.number(0, ctx.dtype(found)))


def _counted(ctx: TorchContext, count: Any) -> RelayExpr:
    """Return the numbers from 0 to before ``count``."""
    if is_number(count):
        return const(np.arange(count))
    found: RelayExpr = ctx.part("Range", [ctx.scalar(v) for v in (0, count, 1)])
    return found


def _group_of(ctx: TorchContext, places: RelayExpr, ends: RelayExpr, groups: int) -> RelayExpr:
    """Return the group of each place; the last one of those after it."""
    after = relay_op.greater_equal(relay_op.expand_dims(places, axis=1), ends)
    passed = relay_op.sum(relay_op.cast(after, "int64"), axis=[1])
    return typed(relay_op.minimum(passed, const(groups - 1, "int64")))


def _row_by_row(ctx: TorchContext, x: RelayExpr, weight: RelayExpr, group: RelayExpr) -> RelayExpr:
    """Few rows: each with a copy of its matrix."""
    row = typed(relay_op.expand_dims(x, axis=1))
    return typed(relay_op.squeeze(product(ctx, row, typed(relay_op.take(weight, group, axis=0))), axis=[1]))


def _by_blocks(ctx: TorchContext, x: RelayExpr, weight: RelayExpr, ends: RelayExpr, places: RelayExpr) -> RelayExpr:
    """Many rows: in blocks of rows of one group, the last block of a group filled up; a block has a copy of its matrix.

    Row r of group g is row ``r - shifts[g]`` of the blocks.
    """
    groups, (inner, columns) = ctx.extent(weight, 0), ctx.dims(weight)[1:]
    size = const(_ROWS, "int64")
    starts = _after_zero(ends, groups)
    counts = relay_op.add(relay_op.subtract(ends, starts), const(_ROWS - 1, "int64"))
    block_ends = typed(relay_op.cumsum(relay_op.floor_divide(counts, size), axis=0))
    shifts = relay_op.subtract(starts, relay_op.multiply(_after_zero(block_ends, groups), size))

    def shifted(by: Any, group: RelayExpr) -> RelayExpr:
        return typed(relay_op.take(by, group, axis=0))

    blocks = _counted(ctx, _number_of_blocks(ctx, x, groups))
    owner = _group_of(ctx, blocks, block_ends, groups)
    first = relay_op.add(relay_op.multiply(blocks, size), shifted(shifts, owner))
    rows = relay_op.add(relay_op.expand_dims(first, axis=1), const(np.arange(_ROWS)))
    data = typed(relay_op.take(x, ctx.reshape(typed(rows), [-1]), axis=0, mode="clip"))
    made = product(ctx, typed(relay_op.reshape(data, newshape=(-1, _ROWS, inner))), shifted(weight, owner))
    flat = relay_op.reshape(made, newshape=(-1, columns))
    own = relay_op.subtract(places, shifted(shifts, _group_of(ctx, places, ends, groups)))
    return typed(relay_op.take(flat, own, axis=0, mode="clip"))


def _after_zero(ends: RelayExpr, groups: int) -> RelayExpr:
    """Return where groups begin, from where they end."""
    before = relay_op.strided_slice(ends, [0], [groups - 1], axes=[0])
    return typed(relay_op.concatenate([const(np.zeros(1, "int64")), before], axis=0))


def _number_of_blocks(ctx: TorchContext, x: RelayExpr, groups: int) -> Any:
    """Return the most blocks that the rows of ``x`` fill: each group may have one that is not full."""
    rows = ctx.dim_size(x, 0)
    if is_number(rows):
        return rows // _ROWS + groups
    full = relay_op.floor_divide(ctx.scalar(rows), const(_ROWS, "int64"))
    return typed(relay_op.add(full, const(groups, "int64")))
