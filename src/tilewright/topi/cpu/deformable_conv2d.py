"""Schedule of deformable convolution: the samples of a row of the result, kept in cache, and their products."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.autotvm.task.choices import choose
from tilewright.tir.expr import IterVar
from tilewright.topi.cpu.common import (
    constant_extent,
    create_schedule,
    find_anchor,
    machine,
    output_tensors,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.compute.deformable_conv2d import KERNEL, PIXELS, SAMPLES, TABLES
from tilewright.topi.cpu.extern import schedule_extern
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.loops import split_vector, unroll_and_vectorize
from tilewright.topi.cpu.model.tiling import choose_tile
from tilewright.topi.kinds import DEFORMABLE_VECTORS
from tilewright.topi.utils import operations

_TYPICAL_COLUMNS = 64  # of results whose extents are not known


def schedule_deformable_conv2d(outs: Any) -> te.Schedule:
    """Schedule ``deformable_conv2d_packed``: threads take rows of the result."""
    tensors = output_tensors(outs)
    vec = find_anchor(tensors, DEFORMABLE_VECTORS)
    if vec is None:
        return schedule_extern(outs)
    s = create_schedule(tensors)
    named = {op.name: op for op in operations(tensors) if isinstance(op, te.ComputeOp)}
    if any(constant_extent(a) == 0 for op in named.values() for a in (*op.axis, *op.reduce_axis)):
        return s
    out = s[tensors[0]]
    row = _schedule_rows(out, constant_extent(vec.axis[-1]) or 1, worth_threads(vec))
    _schedule_products(s, vec, out, row)
    _schedule_samples(s, named[SAMPLES], out, row)
    for name in TABLES:
        table = s[named[name]]
        table.compute_at(out, row)
        column = table.op.axis[-1]
        split_vector(table, column, constant_extent(column), vector_lanes("float32"))
    schedule_injective_from_existing(s, named[PIXELS].output(0))
    packed = s[named[KERNEL]]
    packed.vectorize(packed.op.axis[-1])
    if worth_threads(packed.op):
        packed.parallel(packed.fuse(*packed.op.axis[:2]))
    return s


def _schedule_rows(out: te.Stage, lanes: int, parallel: bool) -> IterVar:
    """Loop over rows of the result, and over the unpacked channels within each; return the loop over rows."""
    axes = list(out.op.axis)
    if out.op.name.endswith("nhwc"):
        row, (x, c) = out.fuse(*axes[:2]), axes[2:]
        split_vector(out, c, constant_extent(c), vector_lanes(out.op.output(0).dtype))
    else:
        n, c, y, x = axes
        block, channel = out.split(c, factor=lanes)
        out.reorder(n, y, block, channel, x)
        row = out.fuse(n, y)
        split_vector(out, x, constant_extent(x), vector_lanes(out.op.output(0).dtype))
    if parallel:
        out.parallel(row)
    return row


def _schedule_products(s: te.Schedule, vec: Any, out: te.Stage, row: IterVar) -> None:
    """Schedule tiles of columns times a block of channels, summed in registers."""
    cpu = machine()
    columns, lanes = constant_extent(vec.axis[-2]) or _TYPICAL_COLUMNS, constant_extent(vec.axis[-1]) or 1
    registers = -(-lanes // vector_lanes(vec.output(0).dtype))
    best = choose_tile(cpu, columns, [1], registers).spatial
    most = max(1, cpu.vector_registers // registers - 1)
    tile = choose("tile_columns", sorted({min(columns, n) for n in (1, 2, 3, 4, 6, 8, 12, 14) if n <= most}), best)
    sums, products = s.cache_write(vec.output(0), "local"), s[vec.output(0)]
    products.compute_at(out, row)
    *_, x, o = products.op.axis
    tiles, within = products.split(x, factor=tile)
    if columns % tile:
        products.pragma(tiles, "loop_partition_hint", 1)
    unroll_and_vectorize(products, [within], o)
    inner = s[sums]
    inner.compute_at(products, tiles)
    *outer, x, o = inner.op.axis
    inner.reorder(*outer, *inner.op.reduce_axis, x, o)
    unroll_and_vectorize(inner, [x], o)


def _schedule_samples(s: te.Schedule, taken: Any, out: te.Stage, row: IterVar) -> None:
    """Schedule the samples in vectors of channels."""
    stage = s[taken]
    stage.compute_at(out, row)
    *_, c = taken.axis
    split_vector(stage, c, constant_extent(c), vector_lanes(taken.output(0).dtype))
