"""Schedules of products of float32 in AMX's tiles (``float_tiles``): the parts of the data, and dense layers of them.

::

    for each block of rows, of some hundreds                     (parallel)
        for each chunk of the sum whose data the second cache holds
            parts = split and pack the data
            for each block of 32 columns
                sums += product of tiles
        epilogue(sums)

Where the blocks of rows do not keep the cores busy, these share ranges of columns, and all data is split before.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.tir.expr import IterVar
from tilewright.topi.cpu.byte_tiles import BLOCK
from tilewright.topi.cpu.common import constant_extent, machine, measured, worth_threads
from tilewright.topi.cpu.float_tiles import PartsProduct, parts_intrinsic
from tilewright.topi.cpu.loops import fuse_all
from tilewright.topi.nn.float_parts import STEP
from tilewright.topi.utils import get_const_tuple, largest_divisor

_BLOCKS_OF_CORE = 4  # blocks of rows for each core, from which on an uneven number is as good


def schedule_parts_of_data(s: te.Schedule, op: Any, lanes: int, at: tuple[te.Stage, Any] | None) -> None:
    """Compute all parts of ``lanes`` numbers from one load, in the loop ``at``; None: all before, in parallel."""
    stage = s[op]
    tile, step, part, row, depth = op.axis
    vector, lane = stage.split(depth, factor=lanes)
    stage.reorder(tile, step, row, vector, part, lane)
    stage.unroll(vector)
    stage.unroll(part)
    stage.vectorize(lane)
    stage.pragma(step, "loop_partition_hint", 1)
    if at is not None:
        stage.compute_at(*at)
    elif worth_threads(op):
        stage.parallel(tile)


def shares_blocks(blocks: int) -> bool:
    """Return whether the cores share ``blocks`` blocks of rows, so that each splits the data that it multiplies."""
    cores = machine().cores
    return blocks % cores == 0 or blocks >= _BLOCKS_OF_CORE * cores


def schedule_dense_of_parts(s: te.Schedule, anchor: Any, last: Any, chunk: int, emulated: bool = False) -> None:
    """Schedule the product ``anchor`` of ``nn.float_parts.dense_of_parts``, its data, and ``last``, which reads it.

    ``chunk``: numbers of the sum that are added up for all columns of a task before the next.
    """
    data = anchor.input_tensors[0]
    _, _, parts, height, _ = get_const_tuple(data.shape)
    blocks, block, inner = (constant_extent(axis) or 1 for axis in (*anchor.axis[:2], anchor.reduce_axis[0]))
    rows, columns = (constant_extent(axis) or 1 for axis in last.axis)
    in_blocks, chunked = shares_blocks(blocks), chunk < inner
    width = _task_columns(columns, 1 if in_blocks else machine().cores) if chunked else BLOCK
    out = s[last]
    m_outer, task = _schedule_result(out, min(block, rows), width, not in_blocks)
    if worth_threads(anchor, measured().threads.least_products):
        out.parallel(m_outer if in_blocks else task)
    sums, (k,) = s[anchor], anchor.reduce_axis
    sums.set_scope("local")
    sums.compute_at(out, task)
    _, row, column = anchor.axis
    n_block, column = sums.split(column, factor=BLOCK)
    order, at = [n_block, row, column], (out, m_outer) if in_blocks else None
    if chunked:
        k_outer, k = sums.split(k, factor=chunk)
        order, at = [k_outer, *order], (sums, k_outer) if in_blocks and width >= columns else at
    sums.reorder(*order, k)
    schedule_parts_of_data(s, data.op, STEP, at)
    of = PartsProduct(block // height, height, min(chunk, inner), parts)
    sums.tensorize(row, parts_intrinsic(of, emulated))


def _schedule_result(out: te.Stage, rows: int, width: int, shares_columns: bool) -> tuple[IterVar, IterVar]:
    """Split the loops of the result; return that of blocks of rows, and that of a block of sums."""
    m, n = out.op.axis
    m_outer, m_inner = out.split(m, factor=rows)
    n_outer, n_inner = out.split(n, factor=width)
    out.reorder(m_outer, n_outer, m_inner, n_inner)
    partial = [axis for axis, whole, factor in ((m_outer, m, rows), (n_outer, n, width))
               if (constant_extent(whole) or 1) % factor]  # fmt: skip
    for axis in partial:
        out.pragma(axis, "loop_partition_hint", 1)
    out.vectorize(out.split(n_inner, factor=BLOCK)[1] if width > BLOCK else n_inner)
    task = fuse_all(out, [m_outer, n_outer]) if shares_columns and not partial else n_outer
    assert task is not None
    return m_outer, task


def _task_columns(columns: int, tasks: int) -> int:
    """Return the columns of a task whose data is read in chunks: whole blocks, and so many tasks or more."""
    blocks, rest = divmod(columns, BLOCK)
    return BLOCK * (largest_divisor(blocks, max(1, blocks // tasks)) if not rest else 1)
