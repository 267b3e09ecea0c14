"""Schedule of ``contraction.contract``: blocks of results, tiles of both factors in shared memory.

blockIdx: block of columns, block of rows, batch
  threadIdx: x along the columns, y along the rows
    T_product = 0                                             registers
    for step:
      T_rows, T_columns                                       shared memory, loaded by all threads
      for k, row piece, row, column piece, column: T_product += T_rows * T_columns
    what follows the product, and the store
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.autotvm.task.space import ConfigSpace
from tilewright.te.schedule.stage import AttachType
from tilewright.tir.expr import IterVar
from tilewright.topi.gpu.contraction import COLUMN_TILE, PRODUCT, ROW_TILE, TENSOR_PRODUCT
from tilewright.topi.gpu.kernels import schedule_rest
from tilewright.topi.gpu.stores import axes_by_role, bind_blocks, block_counts, store_of
from tilewright.topi.gpu.tensor_schedule import schedule_tensor_product
from tilewright.topi.gpu.tiles import Tile
from tilewright.topi.kinds import DEFORMABLE_SAMPLES, Kind
from tilewright.topi.utils import as_list, operations

TRANSFORM = Kind("gpu_winograd_transform")  # operations that take a tile of Winograd's to a thread
PART = Kind("gpu_winograd_part")  # what these have in registers
BACK = Kind("injective,gpu_winograd_back")


def schedule_contraction(cfg: ConfigSpace, outs: Any) -> te.Schedule:
    """Schedule the contraction in ``outs``, and the computes before and after it."""
    tensors = as_list(outs)
    s = te.create_schedule([t.op for t in tensors])
    for op in list(operations(tensors)):
        if PRODUCT(op):
            schedule_product(s, cfg, op, tensors)
        elif TENSOR_PRODUCT(op):
            schedule_tensor_product(s, cfg, op, tensors)
    for op in list(operations(tensors)):
        if TRANSFORM(op):
            schedule_transform(s, op)
        elif BACK(op):
            schedule_back(s, op, tensors)
        elif DEFORMABLE_SAMPLES(op):
            s[op].compute_inline()
    schedule_rest(s, tensors)
    return s


def schedule_transform(s: te.Schedule, op: Any) -> None:
    """Schedule Winograd's transforms of weights and images: a tile per thread, intermediates in registers."""
    stage = s[op]
    i, j, *outer = op.axis
    stage.reorder(*outer, i, j)
    thread = _thread_for(stage, outer)
    for axis in (i, j):
        stage.unroll(axis)
    _in_registers(s, op, stage, thread)


def schedule_back(s: te.Schedule, op: Any, tensors: Sequence[te.Tensor]) -> None:
    """Schedule Winograd's inverse transform and the computes after the convolution: a tile per thread."""
    store = store_of(s, op, tensors)
    stage = s[store]
    down, across = (2, 3) if int(op.attrs["first"]) else (1, 2)
    axes = list(store.axis)
    places = []
    for axis, size in zip((down, across), op.attrs["tile"], strict=True):
        axes[axis], place = stage.split(axes[axis], factor=int(size))
        places.append(place)
    stage.reorder(*axes, *places)
    thread = _thread_for(stage, axes)
    for place in places:
        stage.unroll(place)
    _in_registers(s, op, stage, thread)


def _in_registers(s: te.Schedule, op: Any, stage: te.Stage, thread: IterVar) -> None:
    """Compute the intermediates of a transform in the loop ``thread`` of ``stage``."""
    pending = [t.op for t in op.input_tensors]
    while pending:
        part = pending.pop()
        if PART(part) and s[part].attach_type is AttachType.ROOT:
            s[part].set_scope("local")
            s[part].compute_at(stage, thread)
            for axis in part.axis:
                s[part].unroll(axis)
            pending += [t.op for t in part.input_tensors]


def _thread_for(stage: te.Stage, axes: Sequence[IterVar], threads: int = 64) -> IterVar:
    """Bind each iteration of the outermost loops ``axes``, fused, to a thread; return the loop of the threads."""
    block, thread = stage.split(stage.fuse(*axes), factor=threads)
    stage.bind(block, te.thread_axis("blockIdx.x"))
    stage.bind(thread, te.thread_axis("threadIdx.x"))
    return thread


def schedule_product(s: te.Schedule, cfg: ConfigSpace, product: Any, tensors: Sequence[te.Tensor]) -> None:
    """Schedule one product in its tiles, and the operation that stores its results."""
    tile = Tile(*(int(v) for v in product.attrs["tile"]))
    result = next(op for op in operations(list(tensors)) if product in [t.op for t in op.input_tensors])
    store = store_of(s, result, tensors)
    thread, threads = _store_tiles(s[store], result, tile)
    stage = s[product]
    stage.set_scope("local")
    stage.compute_at(s[store], thread)
    step = _accumulate(stage, cfg)
    for t in product.input_tensors:
        _stage_tile(s[t], stage, step, threads, tile, cfg)


def _store_tiles(stage: te.Stage, result: Any, tile: Tile) -> tuple[IterVar, tuple[IterVar, IterVar]]:
    """Split the storing stage into blocks and threads; return the innermost thread's loop, and the threads."""
    batch, rows, columns = axes_by_role(stage, result)
    m_block, m_thread, m_inner = _cut(stage, rows, tile.pieces[0], tile.threads[0], tile.row_piece)
    n_block, n_thread, n_inner = _cut(stage, columns, tile.pieces[1], tile.threads[1], tile.column_piece)
    outer = [batch] if batch is not None else []
    stage.reorder(*outer, m_block, n_block, m_thread, n_thread, *m_inner, *n_inner)
    bind_blocks(stage, [*outer, m_block, n_block], block_counts(result, (tile.rows, tile.columns)))
    ty, tx = (te.thread_axis((0, n), f"threadIdx.{d}") for n, d in zip(tile.threads, "yx", strict=True))
    stage.bind(m_thread, ty)
    stage.bind(n_thread, tx)
    return n_thread, (ty, tx)


def _cut(
    stage: te.Stage, axis: IterVar, pieces: int, threads: int, piece: int
) -> tuple[IterVar, IterVar, list[IterVar]]:
    """Split an axis into blocks, threads, and a thread's pieces and elements."""
    rest, inner = stage.split(axis, factor=piece)
    rest, thread = stage.split(rest, factor=threads)
    block, outer = stage.split(rest, factor=pieces)
    return block, thread, [outer, inner]


def _accumulate(stage: te.Stage, cfg: ConfigSpace) -> IterVar:
    """Order the loops of the product in registers; return the loop over the steps."""
    batch, m_block, m_piece, m_thread, m, n_block, n_piece, n_thread, n = stage.op.axis
    step, k = stage.op.reduce_axis
    stage.reorder(batch, m_block, n_block, m_thread, n_thread, step, k, m_piece, m, n_piece, n)
    for axis in (m_piece, m, n_piece, n):
        stage.unroll(axis)
    return step


def _stage_tile(
    stage: te.Stage, product: te.Stage, step: IterVar, threads: tuple[IterVar, IterVar], tile: Tile, cfg: ConfigSpace
) -> None:
    """Copy a tile of a factor to shared memory: consecutive threads load consecutive global elements, 16 bytes each."""
    assert ROW_TILE(stage.op) or COLUMN_TILE(stage.op)
    stage.set_scope("shared")
    stage.compute_at(product, step)
    batch, block, steps, depth, place = stage.op.axis
    if int(stage.op.attrs["depth_next"]):
        stage.storage_align(depth, 8, 4)  # threads that write neighbours along the depth write to different banks
        outer, vector = stage.split(depth, factor=int(stage.op.attrs["lanes"]))
        stage.reorder(batch, block, steps, place, outer, vector)
        flat = stage.fuse(place, outer)
    else:
        flat, vector = stage.fuse(depth, place), None
    count = tile.threads[0] * tile.threads[1]
    _, rest = stage.split(flat, factor=count)
    y, x = stage.split(rest, factor=tile.threads[1])
    stage.bind(y, threads[0])
    stage.bind(x, threads[1])
    if vector is not None:
        stage.vectorize(vector)
    if cfg["double_buffer"].val:
        stage.double_buffer()
