"""Schedules of products of float32 in AMX's tiles (``float_tiles``): the parts of the data, and dense layers of them.

::

    parts = split and pack the data                                  (parallel)
    for each block of rows, of some hundreds
        for each range of columns                                    (parallel)
            for each chunk of the sum whose data the second cache holds
                for each block of 32 columns
                    sums += product of tiles
            epilogue(sums)
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.topi.cpu.byte_tiles import BLOCK
from tilewright.topi.cpu.common import constant_extent, machine, measured, worth_threads
from tilewright.topi.cpu.float_tiles import PartsProduct, parts_intrinsic
from tilewright.topi.cpu.loops import fuse_all
from tilewright.topi.utils import get_const_tuple, largest_divisor


def schedule_parts_of_data(s: te.Schedule, op: Any) -> None:
    """Compute all parts of a vector from one load, tiles of rows in parallel."""
    stage = s[op]
    tile, step, part, row, depth = op.axis
    stage.reorder(tile, step, row, part, depth)
    stage.unroll(part)
    stage.vectorize(depth)
    stage.pragma(step, "loop_partition_hint", 1)
    if worth_threads(op):
        stage.parallel(tile)


def schedule_dense_of_parts(s: te.Schedule, anchor: Any, last: Any, chunk: int, emulated: bool = False) -> None:
    """Schedule the product ``anchor`` of ``nn.float_parts.dense_of_parts``, its data, and ``last``, which reads it.

    ``chunk``: numbers of the sum that are added up for all columns of a task before the next.
    """
    data = anchor.input_tensors[0]
    schedule_parts_of_data(s, data.op)
    _, _, parts, height, _ = get_const_tuple(data.shape)
    block, inner = constant_extent(anchor.axis[1]) or 1, constant_extent(anchor.reduce_axis[0]) or 1
    out, (m, n) = s[last], last.axis
    rows, columns = constant_extent(m) or 1, constant_extent(n) or 1
    width = _task_columns(columns) if chunk < inner else BLOCK
    chunked = width > BLOCK
    m_outer, m_inner = out.split(m, factor=min(block, rows))
    n_outer, n_inner = out.split(n, factor=width)
    out.reorder(m_outer, n_outer, m_inner, n_inner)
    partial = [axis for axis, extent, factor in ((m_outer, rows, min(block, rows)), (n_outer, columns, width))
               if extent % factor]  # fmt: skip
    for axis in partial:
        out.pragma(axis, "loop_partition_hint", 1)
    task = n_outer if partial else fuse_all(out, [m_outer, n_outer])
    assert task is not None
    if worth_threads(anchor, measured().threads.least_products):
        out.parallel(task)
    out.vectorize(out.split(n_inner, factor=BLOCK)[1] if chunked else n_inner)
    sums = s[anchor]
    sums.set_scope("local")
    sums.compute_at(out, task)
    _, row, column = anchor.axis
    (k,) = anchor.reduce_axis
    n_block, column = sums.split(column, factor=BLOCK)
    if chunked:
        k_outer, k = sums.split(k, factor=chunk)
        sums.reorder(k_outer, n_block, row, column, k)
    else:
        sums.reorder(n_block, row, column, k)
    of = PartsProduct(block // height, height, chunk if chunked else inner, parts)
    sums.tensorize(row, parts_intrinsic(of, emulated))


def _task_columns(columns: int) -> int:
    """Return the columns of a task whose data is read in chunks: whole blocks, at least a task for each core."""
    blocks, rest = divmod(columns, BLOCK)
    return BLOCK * (largest_divisor(blocks, max(1, blocks // machine().cores)) if not rest else 1)
