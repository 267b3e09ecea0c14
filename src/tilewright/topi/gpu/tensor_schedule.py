"""Schedule of products on tensor cores.

blockIdx: block of columns, block of rows, batch
  threadIdx: z along the warps' rows, y along their columns, x the threads of a warp
    T_product = 0                                              accumulators
    for step:
      T_rows, T_columns                                        shared memory, loaded by all threads
      for part: T_row_matrices, T_column_matrices              fragments
        for matrix, matrix: T_product += ...                   tensor cores
    for matrix, matrix: T_stored                               shared memory
      what follows the product, and the store
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.autotvm.task.space import ConfigSpace
from tilewright.ir import dtype as dt
from tilewright.tir.expr import IterVar
from tilewright.topi.gpu.contraction import MATRICES, STORED
from tilewright.topi.gpu.stores import axes_by_role, bind_blocks, block_counts, store_of
from tilewright.topi.gpu.tensor_intrin import SIDE, load_matrix, multiply, store_matrix
from tilewright.topi.gpu.tensor_tiles import TensorTile, padded
from tilewright.topi.utils import operations

_WARP = 32


def schedule_tensor_product(s: te.Schedule, cfg: ConfigSpace, product: Any, tensors: Sequence[te.Tensor]) -> None:
    """Schedule one product in its tiles and fragments, and the operation that stores its results."""
    tile = TensorTile(*(int(v) for v in product.attrs["tile"]))
    known = list(operations(list(tensors)))
    stored = next(op for op in known if STORED(op) and product in [t.op for t in op.input_tensors])
    result = next(op for op in known if stored in [t.op for t in op.input_tensors])
    store = s[store_of(s, result, tensors)]
    warp, matrix, threads = _store(store, result, tile)
    out = s[stored]
    out.set_scope("shared")
    out.compute_at(store, matrix)
    out.bind(out.op.axis[3], threads[0])
    out.bind(out.op.axis[4], threads[1])
    factors = [t for t in product.input_tensors if MATRICES(t.op)]
    out.tensorize(out.op.axis[7], store_matrix(stored.output(0).dtype, SIDE, factors[0].dtype))
    sums = s[product]
    sums.set_scope("wmma.accumulator")
    sums.compute_at(store, warp)
    *outer, fy, fx, m, n = product.axis
    step, part, k = product.reduce_axis
    sums.reorder(*outer, step, part, fy, fx, m, n, k)
    for axis in (part, fy, fx):  # fragments are registers: which ones must be known
        sums.unroll(axis)
    inner = [bool(int(t.op.attrs["depth_inner"])) for t in factors]
    sums.tensorize(m, multiply(factors[0].dtype, product.output(0).dtype, (inner[0], inner[1])))
    for factor, scope, depth_inner in zip(factors, ("wmma.matrix_a", "wmma.matrix_b"), inner, strict=True):
        stage = s[factor]
        stage.set_scope(scope)
        stage.compute_at(sums, part)
        stage.unroll(factor.op.axis[5])
        (staged,) = factor.op.input_tensors
        stride = padded(int(staged.shape[4]), dt.nbytes(staged.dtype))
        stage.tensorize(factor.op.axis[6], load_matrix(scope, factor.dtype, stride, depth_inner))
        _stage(s[staged], sums, step, threads, tile)
        if cfg["double_buffer"].val:
            s[staged].double_buffer()


def _store(stage: te.Stage, result: Any, tile: TensorTile) -> tuple[IterVar, IterVar, tuple[IterVar, IterVar, IterVar]]:
    """Split the storing stage; return the loop of the warps, that of a warp's matrices, and the threads."""
    batch, rows, columns = axes_by_role(stage, result)
    cut = []
    for axis, fragments, warps in ((rows, tile.fragments[0], tile.warps_y), (columns, tile.fragments[1], tile.warps_x)):
        rest, place = stage.split(axis, factor=SIDE)
        rest, matrix = stage.split(rest, factor=fragments)
        block, warp = stage.split(rest, factor=warps)
        cut.append((block, warp, matrix, place))
    (m_block, m_warp, m_matrix, m), (n_block, n_warp, n_matrix, n) = cut
    outer = [batch] if batch is not None else []
    stage.reorder(*outer, m_block, n_block, m_warp, n_warp, m_matrix, n_matrix, m, n)
    bind_blocks(stage, [*outer, m_block, n_block], block_counts(result, (tile.rows, tile.columns)))
    extents = (tile.warps_y, tile.warps_x, _WARP)
    z, y, x = (te.thread_axis((0, count), f"threadIdx.{d}") for count, d in zip(extents, "zyx", strict=True))
    stage.bind(m_warp, z)
    stage.bind(n_warp, y)
    for axis in (m_matrix, n_matrix):
        stage.unroll(axis)
    _, lane = stage.split(stage.fuse(m, n), factor=_WARP)
    stage.bind(lane, x)
    return n_warp, n_matrix, (z, y, x)


def _stage(
    stage: te.Stage, product: te.Stage, step: IterVar, threads: tuple[IterVar, IterVar, IterVar], tile: TensorTile
) -> None:
    """Copy a tile of a factor to shared memory by all threads of the block, 16 bytes at a time when aligned."""
    stage.set_scope("shared")
    stage.compute_at(product, step)
    outer, inner = stage.op.axis[3:]
    wide = 16 // dt.nbytes(stage.op.output(0).dtype)
    stage.storage_align(outer, 2 * wide, wide)
    if int(stage.op.attrs["depth_next"]) != int(stage.op.attrs["depth_inner"]):
        stage.reorder(*stage.op.axis[:3], inner, outer)
        outer, inner = inner, outer
    vector, lanes = None, int(stage.op.attrs["lanes"])
    if lanes > 1:
        inner, vector = stage.split(inner, factor=lanes)
    rest, x = stage.split(stage.fuse(outer, inner), factor=_WARP)
    rest, y = stage.split(rest, factor=tile.warps_x)
    _, z = stage.split(rest, factor=tile.warps_y)
    stage.reorder(_, z, y, x)
    for axis, thread in zip((z, y, x), threads, strict=True):
        stage.bind(axis, thread)
    if vector is not None:
        stage.vectorize(vector)
