"""Winograd convolution of channel-packed data: 3x3 windows, stride 1, for a fraction of the multiplications.

A tile of m x m results comes of alpha x alpha inputs (alpha = m + 2) as ``A^T [(G g G^T) * (B^T d B)] A``: products are
taken at alpha * alpha positions, each a matrix product over the input channels (Lavin and Gray, "Fast algorithms for
convolutional neural networks", 2015). m = 4 needs a quarter of the direct method's multiplications, m = 2 needs 4 / 9.

All steps run in one kernel over blocks of tiles, so that what passes between them stays in the core's own caches::

    for each block of tiles, and part of the output channels    (parallel)
        V = B^T d B                                             of all input channels
        for each group of output channels
            M[i, j] = V[i, j] * U[i, j]                         register tiles as in ``conv2d``
            out = epilogue(A^T M A)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import autotvm, te, tir
from tilewright.autotvm.space import ConfigSpace, OtherOptionEntity
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.features import CpuFeatures, features
from tilewright.target.target import Target
from tilewright.topi.cpu.common import create_schedule, find_anchor, inline_injective, output_tensors
from tilewright.topi.cpu.conv2d import padding_of, same_shape, schedule_padding, unroll_and_vectorize
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.tiling import choose_tile, divisors_up_to, step_registers, tile_cost, tile_rate
from tilewright.topi.nn.conv import output_extent, pad_spatial
from tilewright.topi.utils import InvalidShapeError, get_const_tuple, get_pad_tuple

Array = np.ndarray[Any, Any]
Matrix = tuple[tuple[float, ...], ...]

# Of the cost model, in vector multiply-adds at the machine's peak: bytes that come meanwhile from the last-level cache
# and from memory, and the work of both transforms on one position of one tile and vector (measured).
_CACHE_BYTES = 13.0
_MEMORY_BYTES = 5.0
_TRANSFORM = 7.0
_CLEAR_GAIN = 1.15  # by how much Winograd must be faster than the direct way, its weights being larger
_PARALLEL_BLOCKS = 4  # blocks that an image is cut into at least, for several threads

# For each m: B^T (alpha x alpha), G (alpha x 3) and A^T (m x alpha), from the points 0, 1, -1, (2, -2,) infinity.
_MATRICES: dict[int, tuple[Matrix, Matrix, Matrix]] = {
    2: (
        ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1)),
        ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
        ((1, 1, 1, 0), (0, 1, -1, 1)),
    ),
    4: (
        (
            (4, 0, -5, 0, 1, 0),
            (0, -4, -4, 1, 1, 0),
            (0, 4, -4, -1, 1, 0),
            (0, -2, -1, 2, 1, 0),
            (0, 2, -1, -2, 1, 0),
            (0, 4, 0, -5, 0, 1),
        ),
        (
            (1 / 4, 0, 0),
            (-1 / 6, -1 / 6, -1 / 6),
            (-1 / 6, 1 / 6, -1 / 6),
            (1 / 24, 1 / 12, 1 / 6),
            (1 / 24, -1 / 12, 1 / 6),
            (0, 0, 1),
        ),
        ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    ),
}


def transform_weight(weight: Array, tile_size: int) -> Array:
    """``G g G^T`` of weights (O, I, 3, 3, ...): (alpha, alpha, O, I, ...), computed in double precision."""
    g = np.array(_MATRICES[tile_size][1])
    result = np.einsum("ay,bx,OIyx...->abOI...", g, g, weight.astype(np.float64), optimize=True)
    return np.ascontiguousarray(result, dtype=weight.dtype)


def convolve_tiles(data: Array, weight: Array, padding: Sequence[int], tile_size: int) -> Array:
    """What ``conv2d_NCHWc_winograd`` computes, on numpy arrays of the same shapes."""
    m, alpha = tile_size, tile_size + 2
    transform_in, transform_out = (np.array(_MATRICES[m][k], data.dtype) for k in (0, 2))
    top, left, bottom, right = padding
    h, w = data.shape[2] + top + bottom - 2, data.shape[3] + left + right - 2
    more_h, more_w = -h % m, -w % m
    data = np.pad(data, [(0, 0), (0, 0), (top, bottom + more_h), (left, right + more_w), (0, 0)])
    tiles = np.lib.stride_tricks.sliding_window_view(data, (alpha, alpha), (2, 3))[:, :, ::m, ::m]
    inputs = np.einsum("ip,jq,bCyxcpq->ijbCyxc", transform_in, transform_in, tiles, optimize=True)
    products = np.einsum("ijbCyxc,ijOCco->bOyxijo", inputs, weight, optimize=True)
    result = np.einsum("pi,qj,bOyxijo->bOypxqo", transform_out, transform_out, products, optimize=True)
    b, chunks, rows, _, columns, _, lanes = result.shape
    cropped = result.reshape(b, chunks, rows * m, columns * m, lanes)[:, :, :h, :w]
    return np.ascontiguousarray(cropped, dtype=data.dtype)


def winograd_weight_transform(weight: te.Tensor, tile_size: int) -> te.Tensor:
    """``transform_weight`` as a computation."""
    matrix, alpha = _MATRICES[tile_size][1], tile_size + 2

    def body(i: PrimExpr, j: PrimExpr, *rest: PrimExpr) -> Any:
        o, c, *blocks = rest
        rows = [_row_of(matrix, j, [weight(o, c, y, x, *blocks) for x in range(3)]) for y in range(3)]
        return _row_of(matrix, i, rows)

    shape = get_const_tuple(weight.shape)
    return te.compute((alpha, alpha, *shape[:2], *shape[4:]), body, name="winograd_weight", tag="injective")


@dataclass(frozen=True)
class Blocking:
    """Extents in tiles of a block and of a register tile, registers of channels, and parts of the channels.

    ``cost`` is the modelled time of one thread in vector multiply-adds at the machine's peak.
    """

    block_h: int
    block_w: int
    rows: int
    columns: int
    vectors: int
    parts: int
    cost: float

    def __str__(self) -> str:
        registers = f"{self.rows} x {self.columns} x {self.vectors}"
        return f"{self.block_h} x {self.block_w} in registers of {registers}, {self.parts} parts"


def choose_blocking(
    cpu: CpuFeatures, tile_size: int, tiles: tuple[int, int], in_channels: int, out_chunks: int, batch: int = 1
) -> Blocking:
    """Register tiles that lose least at the image's edges, and blocks of them whose inputs fit the second-level cache.

    Parameters
    ----------
    tiles : tiles along the height and the width of an image
    out_chunks : output channels, in vector registers
    """
    positions = (tile_size + 2) ** 2
    (tiles_h, tiles_w), count = tiles, tiles[0] * tiles[1]
    candidates: list[tuple[float, tuple[int, int, int]]] = []
    for vectors in divisors_up_to(out_chunks, 4):
        limit = max(1, (cpu.vector_registers - step_registers(cpu)) // vectors - 1)
        for columns in range(1, min(tiles_w, limit) + 1):
            for rows in range(1, min(tiles_h, limit // columns) + 1):
                padded = _rounded(tiles_h, rows) * _rounded(tiles_w, columns)
                rate = tile_rate(rows * columns, vectors)
                candidates.append((padded / count * rate, (rows, columns, vectors)))
    time, register_tile = min(candidates)
    work = _Work(cpu, positions, tiles, in_channels, out_chunks, batch, time)
    return min((_block(work, register_tile, cpu.l2_bytes * times // 8) for times in (5, 20, 80)), key=lambda b: b.cost)


@dataclass(frozen=True)
class _Work:
    """What ``_block`` divides; ``time`` is that of one multiply-add, with what is wasted at the edges."""

    cpu: CpuFeatures
    positions: int
    tiles: tuple[int, int]
    in_channels: int
    out_chunks: int
    batch: int
    time: float


def _block(work: _Work, register_tile: tuple[int, int, int], limit: int) -> Blocking:
    """The largest block of register tiles (rows, columns, vectors) whose transformed inputs take ``limit`` bytes."""
    cpu, (tiles_h, tiles_w), (rows, columns, vectors) = work.cpu, work.tiles, register_tile
    lanes, count = cpu.lanes(32), work.batch * tiles_h * tiles_w
    budget = limit // (work.positions * work.in_channels * 4)
    block_w = _grow(tiles_w, columns, budget // rows)
    block_h = _grow(tiles_h, rows, budget // block_w)
    blocks = work.batch * (_rounded(tiles_h, block_h) // block_h) * (_rounded(tiles_w, block_w) // block_w)
    parts = 1
    while blocks * parts < _PARALLEL_BLOCKS and (work.out_chunks // vectors) % (parts * 2) == 0:
        parts *= 2
    products = work.positions * count * work.in_channels * work.out_chunks * work.time
    weight_bytes = work.positions * work.in_channels * work.out_chunks * lanes * 4
    input_bytes = work.positions * work.in_channels * block_h * block_w * 4
    again = (blocks - 1) * weight_bytes * _time_of_bytes(cpu, weight_bytes)
    again += blocks * (work.out_chunks // vectors) * input_bytes * _time_of_bytes(cpu, input_bytes)
    moved = count * (work.in_channels / lanes * parts + work.out_chunks) * work.positions * _TRANSFORM
    cost = max(products, again) + weight_bytes / _MEMORY_BYTES + moved
    return Blocking(block_h, block_w, rows, columns, vectors, parts, cost)


def _time_of_bytes(cpu: CpuFeatures, size: int) -> float:
    """Time to read a byte of ``size`` bytes that are read again and again; 0 in the core's own caches."""
    if size <= cpu.l2_bytes * 5 // 8:
        return 0.0
    return 1 / _CACHE_BYTES if size <= cpu.l3_bytes // 2 else 1 / _MEMORY_BYTES


def direct_cost(cpu: CpuFeatures, channels: tuple[int, int, int], out: tuple[int, int], window: int) -> float:
    """Modelled time of the direct convolution on one thread, in vector multiply-adds at the machine's peak.

    Parameters
    ----------
    channels : (batch, input channels that each output channel sums, output channels)
    out : height and width of the output
    window : elements of the kernel's window
    """
    lanes = cpu.lanes(32)
    batch, in_channels, out_channels = channels
    chunks = max(1, out_channels // lanes)
    tile = choose_tile(cpu, out[1], divisors_up_to(chunks, 4))
    work = window * in_channels * chunks
    return batch * work * out[0] * out[1] * tile_cost(out[1], tile) + work * lanes * 4 / _MEMORY_BYTES


def choose_winograd_tile(
    channels: tuple[int, int, int], out: tuple[int, int], dtype: str, tile_sizes: Sequence[int], target: Target
) -> int | None:
    """Which of ``tile_sizes`` computes a 3x3 convolution fastest by the model; None when that is no clear gain.

    Parameters
    ----------
    channels : (batch, input channels, output channels)
    out : height and width of the output
    """
    cpu = features(target)
    lanes = cpu.lanes(32)
    batch, in_channels, out_channels = channels
    if dtype != "float32" or in_channels % lanes or out_channels % lanes or min(*out, batch) < 1:
        return None
    chunks = out_channels // lanes
    direct = direct_cost(cpu, channels, out, 9)
    costs = {
        m: choose_blocking(cpu, m, (-(-out[0] // m), -(-out[1] // m)), in_channels, chunks, batch).cost
        for m in tile_sizes
    }
    best = min(costs, key=lambda m: costs[m], default=None)
    return best if best is not None and costs[best] * _CLEAR_GAIN < direct else None


def _rounded(extent: int, step: int) -> int:
    return -(-extent // step) * step


def _grow(extent: int, step: int, limit: int) -> int:
    """The largest multiple of ``step`` that divides the rounded extent and is at most ``limit``."""
    steps = _rounded(extent, step) // step
    return step * max((d for d in range(1, steps + 1) if steps % d == 0 and d * step <= limit), default=1)


def _combine(row: Sequence[float], terms: Sequence[Any]) -> Any:
    """The sum of ``terms`` weighted with ``row``, written without products with 0 and 1."""
    result: Any = None
    for factor, term in sorted(zip(row, terms, strict=True), key=lambda pair: pair[0] < 0):
        if not factor:
            continue
        product = term if abs(factor) == 1 else term * ops.const(abs(factor), "float32")
        if result is None:
            result = product if factor > 0 else ops.const(0, "float32") - product
        else:
            result = result + product if factor > 0 else result - product
    return result


def _row_of(matrix: Matrix, index: Any, terms: Sequence[Any]) -> Any:
    """Row ``index`` of the matrix times ``terms``; unrolling decides which."""
    rows = [_combine(row, terms) for row in matrix]
    result = rows[-1]
    for k in range(len(rows) - 2, -1, -1):
        result = tir.Select(ops.as_expr(index) == k, rows[k], result)
    return result


@autotvm.register_topi_compute("conv2d_NCHWc_winograd.x86")
def conv2d_NCHWc_winograd(
    cfg: ConfigSpace, data: te.Tensor, weight: te.Tensor, padding: Any, tile_size: int
) -> te.Tensor:
    """Convolution, 3x3 with stride 1, of data (n, C, h, w, c) with transformed weights (alpha, alpha, O, C, c, o)."""
    m, alpha = tile_size, tile_size + 2
    transform_in, _, transform_out = _MATRICES[m]
    n, in_chunks, h, w, in_block = get_const_tuple(data.shape)
    found_alpha, _, out_chunks, weight_chunks, weight_block, out_block = get_const_tuple(weight.shape)
    if found_alpha != alpha or (weight_chunks, weight_block) != (in_chunks, in_block):
        raise InvalidShapeError(
            f"conv2d_NCHWc_winograd: data {get_const_tuple(data.shape)} and transformed weights "
            f"{get_const_tuple(weight.shape)} do not fit for tiles of {m} x {m}"
        )
    top, left, bottom, right = get_pad_tuple(padding, (3, 3))
    oh = int(output_extent(h, 3, 1, 1, top, bottom))
    ow = int(output_extent(w, 3, 1, 1, left, right))
    tiles_h, tiles_w = -(-oh // m), -(-ow // m)
    batch = n if isinstance(n, int) else 1
    blocking = choose_blocking(features(), m, (tiles_h, tiles_w), in_chunks * in_block, out_chunks, batch)
    cfg["blocking"] = OtherOptionEntity(blocking)
    tiles_h, tiles_w = _rounded(tiles_h, blocking.block_h), _rounded(tiles_w, blocking.block_w)
    more_h, more_w = tiles_h * m + 2 - h - top, tiles_w * m + 2 - w - left
    padded = pad_spatial(data, (2, 3), (top, left), (more_h, more_w), "data_pad")

    columns = te.compute(
        (n, in_chunks, tiles_h, tiles_w, alpha, alpha, in_block),
        lambda b, ic, y, x, i, j, c: _row_of(
            transform_in, i, [padded(b, ic, y * m + k, x * m + j, c) for k in range(alpha)]
        ),
        name="winograd_input_columns",
    )
    inputs = te.compute(
        (n, in_chunks, alpha, alpha, tiles_h, tiles_w, in_block),
        lambda b, ic, i, j, y, x, c: _row_of(transform_in, j, [columns(b, ic, y, x, i, k, c) for k in range(alpha)]),
        name="winograd_input",
    )
    ico, ici = te.reduce_axis((0, in_chunks), name="ic_outer"), te.reduce_axis((0, in_block), name="ic_inner")
    products = te.compute(
        (n, out_chunks, alpha, alpha, tiles_h, tiles_w, out_block),
        lambda b, oc, i, j, y, x, o: te.sum(
            inputs(b, ico, i, j, y, x, ici) * weight(i, j, oc, ico, ici, o), axis=[ico, ici]
        ),
        name="winograd_products",
    )
    rows = te.compute(
        (n, out_chunks, tiles_h, tiles_w, m, alpha, out_block),
        lambda b, oc, y, x, i, j, o: _row_of(transform_out, i, [products(b, oc, k, j, y, x, o) for k in range(alpha)]),
        name="winograd_output_rows",
    )

    def body(b: PrimExpr, oc: PrimExpr, y: PrimExpr, x: PrimExpr, o: PrimExpr) -> Any:
        at = (b, oc, tir.indexdiv(y, m), tir.indexdiv(x, m), tir.indexmod(y, m))
        return _row_of(transform_out, tir.indexmod(x, m), [rows(*at, k, o) for k in range(alpha)])

    return te.compute(
        (n, out_chunks, oh, ow, out_block),
        body,
        name="conv2d_NCHWc_winograd",
        tag="conv2d_NCHWc_winograd",
        attrs={"tile_size": tile_size},
    )


@autotvm.register_topi_schedule("conv2d_NCHWc_winograd.x86")
def schedule_conv2d_NCHWc_winograd(cfg: ConfigSpace, outs: Any) -> te.Schedule:
    """Schedule ``conv2d_NCHWc_winograd`` with injective computes after it, which run on each tile as it is done."""
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = find_anchor(tensors, lambda op: op.tag == "conv2d_NCHWc_winograd")
    assert anchor is not None
    rows = anchor.input_tensors[0]
    products = rows.op.input_tensors[0]
    inputs = next(t for t in products.op.input_tensors if t.op.name == "winograd_input")
    columns = inputs.op.input_tensors[0]
    padded = padding_of(columns.op)
    inline_injective(s, tensors, keep=[op for op in (padded, anchor, rows.op, inputs.op, columns.op) if op is not None])
    last = tensors[0].op
    if last is not anchor and not same_shape(last, anchor):
        schedule_injective_from_existing(s, tensors[0])
        last = anchor
    m = int(anchor.attrs["tile_size"])
    if last is not anchor:
        s[anchor].set_scope("local")
    _schedule_steps(s, cfg["blocking"].val, m, s[last], anchor, rows, products, inputs, columns)
    if padded is not None:
        schedule_padding(s, padded)
    return s


def _schedule_steps(
    s: te.Schedule,
    blocking: Blocking,
    m: int,
    out: te.Stage,
    anchor: Any,
    rows: te.Tensor,
    products: te.Tensor,
    inputs: te.Tensor,
    columns: te.Tensor,
) -> None:
    fused_tail = s[anchor] is not out
    sums = s.cache_write(products, "local")
    n, oc, oh, ow, lanes = out.op.axis
    block_h, inner_h = out.split(oh, factor=blocking.block_h * m)
    block_w, inner_w = out.split(ow, factor=blocking.block_w * m)
    tile_h, y = out.split(inner_h, factor=m)
    tile_w, x = out.split(inner_w, factor=m)
    part, group = out.split(oc, nparts=blocking.parts)
    group, chunk = out.split(group, factor=blocking.vectors)
    out.reorder(n, block_h, block_w, part, group, chunk, tile_h, tile_w, y, x, lanes)
    fused = out.fuse(n, block_h, block_w, part)
    out.parallel(fused)
    unroll_and_vectorize(out, [y, x], lanes)
    if fused_tail:
        step = s[anchor]
        step.compute_at(out, tile_w)
        unroll_and_vectorize(step, list(step.op.axis[2:4]), step.op.axis[4])
    step = s[rows]
    step.set_scope("local")
    step.compute_at(out, tile_w)
    unroll_and_vectorize(step, list(step.op.axis[4:6]), step.op.axis[6])

    product = s[products]
    product.compute_at(out, group)
    b, pc, i, j, ph, pw, lanes = product.op.axis
    ph, row = product.split(ph, factor=blocking.rows)
    pw, column = product.split(pw, factor=blocking.columns)
    product.reorder(i, j, b, ph, pw, pc, row, column, lanes)
    unroll_and_vectorize(product, [pc, row, column], lanes)
    tile = s[sums]
    tile.compute_at(product, pw)
    b, tc, ti, tj, th, tw, lanes = tile.op.axis
    ico, ici = tile.op.reduce_axis
    tile.reorder(ti, tj, b, ico, ici, th, tw, tc, lanes)
    unroll_and_vectorize(tile, [th, tw, tc], lanes)

    step = s[inputs]
    step.compute_at(out, fused)
    b, ic, i, j, th, tw, lanes = step.op.axis
    step.reorder(b, ic, th, tw, i, j, lanes)
    unroll_and_vectorize(step, [i, j], lanes)
    column_step = s[columns]
    column_step.set_scope("local")
    column_step.compute_at(step, tw)
    unroll_and_vectorize(column_step, list(column_step.op.axis[4:6]), column_step.op.axis[6])
