"""Winograd convolution of channel-packed data: 3x3 windows, stride 1, for a fraction of the multiplications.

A tile of m x m results comes of alpha x alpha inputs (alpha = m + 2) as ``A^T [(G g G^T) * (B^T d B)] A``: products are
taken at alpha * alpha positions, each a matrix product over the input channels (Lavin and Gray, "Fast algorithms for
convolutional neural networks", 2015). m = 2 needs 4 / 9 of the direct method's multiplications, m = 4 a quarter, and
m = 6 a fifth, with larger rounding errors and transforms.

All steps run in one kernel over blocks of tiles, so that what passes between them stays in the core's own caches::

    for each block of tiles and part of the output channels     (parallel)
        V = B^T d B                                             of all input channels
        for each group of output channels
            M[i, j] = V[i, j] * U[i, j]                         register tiles as in ``conv2d``
            out = epilogue(A^T M A)

Parts of the channels share out large weights: each core reads its own only. They transform the same inputs again, which
costs less than fetching V from another core. ``winograd_ways`` decides.

A convolution with dilation d x d is d * d ones without, of the grids of every d-th row and column: images of a batch.
Padding gathers a grid's elements, and results are written back to where they belong.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import autotvm, te, tir
from tilewright.autotvm.space import ConfigSpace, OtherOptionEntity
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.features import features
from tilewright.topi.cpu.common import (
    PREFETCH_STEPS,
    TUNING_CANDIDATES,
    constant_extent,
    create_schedule,
    find_anchor,
    inline_injective,
    output_tensors,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.conv2d import padding_of, same_shape, unroll_and_vectorize
from tilewright.topi.cpu.conv2d_cost import Blocking, rounded, winograd_tiles, winograd_ways
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.linear_forms import Matrix, row_of, weighted_sum
from tilewright.topi.nn.conv import inside, output_extent, pad_spatial, per_dim
from tilewright.topi.utils import InvalidShapeError, get_const_tuple, get_pad_tuple

Array = np.ndarray[Any, Any]

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
    6: (
        (
            (1, 0, -21 / 4, 0, 21 / 4, 0, -1, 0),
            (0, 1, 1, -17 / 4, -17 / 4, 1, 1, 0),
            (0, -1, 1, 17 / 4, -17 / 4, -1, 1, 0),
            (0, 1 / 2, 1 / 4, -5 / 2, -5 / 4, 2, 1, 0),
            (0, -1 / 2, 1 / 4, 5 / 2, -5 / 4, -2, 1, 0),
            (0, 2, 4, -5 / 2, -5, 1 / 2, 1, 0),
            (0, -2, 4, 5 / 2, -5, -1 / 2, 1, 0),
            (0, -1, 0, 21 / 4, 0, -21 / 4, 0, 1),
        ),
        (
            (1, 0, 0),
            (-2 / 9, -2 / 9, -2 / 9),
            (-2 / 9, 2 / 9, -2 / 9),
            (1 / 90, 1 / 45, 2 / 45),
            (1 / 90, -1 / 45, 2 / 45),
            (32 / 45, 16 / 45, 8 / 45),
            (32 / 45, -16 / 45, 8 / 45),
            (0, 0, 1),
        ),
        (
            (1, 1, 1, 1, 1, 1, 1, 0),
            (0, 1, -1, 2, -2, 1 / 2, -1 / 2, 0),
            (0, 1, 1, 4, 4, 1 / 4, 1 / 4, 0),
            (0, 1, -1, 8, -8, 1 / 8, -1 / 8, 0),
            (0, 1, 1, 16, 16, 1 / 16, 1 / 16, 0),
            (0, 1, -1, 32, -32, 1 / 32, -1 / 32, 1),
        ),
    ),
}
TILE_SIZES = tuple(_MATRICES)


def transform_weight(weight: Array, tile_size: int) -> Array:
    """``G g G^T`` of weights (O, I, 3, 3, ...): (O, alpha, alpha, I, ...), computed in double precision."""
    g = np.array(_MATRICES[tile_size][1])
    result = np.einsum("ay,bx,OIyx...->OabI...", g, g, weight.astype(np.float64), optimize=True)
    return np.ascontiguousarray(result, dtype=weight.dtype)


def convolve_tiles(
    data: Array, weight: Array, padding: Sequence[int], tile_size: int, dilation: Sequence[int] = (1, 1)
) -> Array:
    """What ``conv2d_NCHWc_winograd`` computes, on numpy arrays of the same shapes."""
    if tuple(dilation) != (1, 1):
        top, left, bottom, right = padding
        data = np.pad(data, [(0, 0), (0, 0), (top, bottom), (left, right), (0, 0)])
        (n, _, h, w, _), (dh, dw) = data.shape, dilation
        result = np.zeros((n, weight.shape[0], h - 2 * dh, w - 2 * dw, weight.shape[5]), data.dtype)
        for y, x in itertools.product(range(min(dh, h - 2 * dh)), range(min(dw, w - 2 * dw))):
            grid = data[:, :, y::dh, x::dw]
            result[:, :, y::dh, x::dw] = convolve_tiles(grid, weight, (0, 0, 0, 0), tile_size)
        return result
    m, alpha = tile_size, tile_size + 2
    transform_in, transform_out = (np.array(_MATRICES[m][k], data.dtype) for k in (0, 2))
    top, left, bottom, right = padding
    h, w = data.shape[2] + top + bottom - 2, data.shape[3] + left + right - 2
    more_h, more_w = -h % m, -w % m
    data = np.pad(data, [(0, 0), (0, 0), (top, bottom + more_h), (left, right + more_w), (0, 0)])
    tiles = np.lib.stride_tricks.sliding_window_view(data, (alpha, alpha), (2, 3))[:, :, ::m, ::m]
    inputs = np.einsum("ip,jq,bCyxcpq->ijbCyxc", transform_in, transform_in, tiles, optimize=True)
    products = np.einsum("ijbCyxc,OijCco->bOyxijo", inputs, weight, optimize=True)
    result = np.einsum("pi,qj,bOyxijo->bOypxqo", transform_out, transform_out, products, optimize=True)
    b, chunks, rows, _, columns, _, lanes = result.shape
    cropped = result.reshape(b, chunks, rows * m, columns * m, lanes)[:, :, :h, :w]
    return np.ascontiguousarray(cropped, dtype=data.dtype)


def winograd_weight_transform(weight: te.Tensor, tile_size: int) -> te.Tensor:
    """``transform_weight`` as a computation, in double precision too."""
    matrix, alpha = _MATRICES[tile_size][1], tile_size + 2
    out, channels, _, _, *blocks = get_const_tuple(weight.shape)
    columns = te.compute(
        (out, alpha, 3, channels, *blocks),
        lambda o, i, x, *at: row_of(
            matrix, i, [ops.cast("float64", weight(o, at[0], y, x, *at[1:])) for y in range(3)], _by_parity
        ),
        name="winograd_weight_columns",
    )
    return te.compute(
        (out, alpha, alpha, channels, *blocks),
        lambda o, i, j, *at: ops.cast(
            weight.dtype, row_of(matrix, j, [columns(o, i, x, *at) for x in range(3)], _by_parity)
        ),
        name="winograd_weight",
    )


def schedule_winograd_weight_transform(outs: Any) -> te.Schedule:
    """Schedule ``winograd_weight_transform``: all positions of a window at a time, in vectors of the last dimension."""
    out = output_tensors(outs)[0]
    s = create_schedule([out])
    if 0 in get_const_tuple(out.shape):
        return s
    columns, stage, lanes = out.op.input_tensors[0], s[out], vector_lanes(out.dtype)
    o, i, j, *outer = stage.op.axis
    vector = []
    if (constant_extent(outer[-1]) or 0) % lanes == 0:
        *rest, last = outer
        block, within = stage.split(last, factor=lanes)
        outer, vector = [*rest, block], [within]
    stage.reorder(o, *outer, i, j, *vector)
    step = s[columns]
    step.set_scope("local")
    step.compute_at(stage, outer[-1])
    for each, unrolled in (stage, [i, j]), (step, list(step.op.axis[1:3])):
        for axis in unrolled:
            each.unroll(axis)
    if vector:
        stage.vectorize(vector[0])
        step.vectorize(step.op.axis[-1])
    if worth_threads(stage.op):
        stage.parallel(o)
    return s


def _by_parity(row: Sequence[float], terms: Sequence[Any]) -> Any:
    """The weighted sum as even terms plus or minus odd ones, which the rows of points p and -p have in common."""
    even = weighted_sum(row[::2], terms[::2])
    sign = next((1 if factor > 0 else -1 for factor in row[1::2] if factor), 1)
    odd = weighted_sum([sign * factor for factor in row[1::2]], terms[1::2])
    if even is None or odd is None:
        return weighted_sum(row, terms)
    return even + odd if sign > 0 else even - odd


def _by_pairs(row: Sequence[float], terms: Sequence[Any]) -> Any:
    """The weighted sum through sums and differences of the terms of points p and -p, which rows have in common."""
    last = len(terms) - 1
    pairs = [terms[k] + terms[k + 1] if row[k] == row[k + 1] else terms[k] - terms[k + 1] for k in range(1, last, 2)]
    return weighted_sum([row[0], *row[1:last:2], row[last]], [terms[0], *pairs, terms[last]])


@autotvm.register_topi_compute("conv2d_NCHWc_winograd.x86")
def conv2d_NCHWc_winograd(
    cfg: ConfigSpace, data: te.Tensor, weight: te.Tensor, padding: Any, tile_size: int, dilation: Any = 1
) -> te.Tensor:
    """Convolution, 3x3 with stride 1, of data (n, C, h, w, c) with transformed weights (O, alpha, alpha, C, c, o)."""
    m, alpha = tile_size, tile_size + 2
    transform_in, _, transform_out = _MATRICES[m]
    n, in_chunks, h, w, in_block = get_const_tuple(data.shape)
    out_chunks, found_alpha, _, weight_chunks, weight_block, out_block = get_const_tuple(weight.shape)
    if found_alpha != alpha or (weight_chunks, weight_block) != (in_chunks, in_block):
        raise InvalidShapeError(
            f"conv2d_NCHWc_winograd: data {get_const_tuple(data.shape)} and transformed weights "
            f"{get_const_tuple(weight.shape)} do not fit for tiles of {m} x {m}"
        )
    dh, dw = per_dim(dilation, 2)
    top, left, bottom, right = get_pad_tuple(padding, (2 * dh + 1, 2 * dw + 1))
    oh = int(output_extent(h, 3, 1, dh, top, bottom))
    ow = int(output_extent(w, 3, 1, dw, left, right))
    tiles_h, tiles_w = winograd_tiles(m, (oh, ow), (dh, dw))
    batch = n if isinstance(n, int) else 1
    ways = winograd_ways(features(), m, (oh, ow), in_chunks * in_block, out_chunks, batch, (dh, dw))
    cfg.define_knob("blocking", [way.extents for way in ways[:TUNING_CANDIDATES]])
    if cfg.is_fallback:
        cfg["blocking"] = OtherOptionEntity(ways[0].extents)
    blocking = Blocking(*cfg["blocking"].val)
    tiles_h, tiles_w = rounded(tiles_h, blocking.block_h), rounded(tiles_w, blocking.block_w)
    padded = _grids(data, (dh, dw), (top, left), (tiles_h * m + 2, tiles_w * m + 2))
    n = padded.shape[0]

    columns = te.compute(
        (n, in_chunks, tiles_h, tiles_w, alpha, alpha, in_block),
        lambda b, ic, y, x, i, j, c: row_of(
            transform_in, i, [padded(b, ic, y * m + k, x * m + j, c) for k in range(alpha)], _by_parity
        ),
        name="winograd_input_columns",
    )
    inputs = te.compute(
        (n, in_chunks, tiles_h, alpha, alpha, tiles_w, in_block),
        lambda b, ic, y, i, j, x, c: row_of(
            transform_in, j, [columns(b, ic, y, x, i, k, c) for k in range(alpha)], _by_parity
        ),
        name="winograd_input",
    )
    ico, ici = te.reduce_axis((0, in_chunks), name="ic_outer"), te.reduce_axis((0, in_block), name="ic_inner")
    products = te.compute(
        (n, out_chunks, tiles_h, alpha, alpha, tiles_w, out_block),
        lambda b, oc, y, i, j, x, o: te.sum(
            inputs(b, ico, y, i, j, x, ici) * weight(oc, i, j, ico, ici, o), axis=[ico, ici]
        ),
        name="winograd_products",
    )
    rows = te.compute(
        (n, out_chunks, tiles_h, tiles_w, m, alpha, out_block),
        lambda b, oc, y, x, i, j, o: row_of(
            transform_out, i, [products(b, oc, y, k, j, x, o) for k in range(alpha)], _by_pairs
        ),
        name="winograd_output_rows",
    )

    def body(b: PrimExpr, oc: PrimExpr, y: PrimExpr, x: PrimExpr, o: PrimExpr) -> Any:
        at = (b, oc, tir.indexdiv(y, m), tir.indexdiv(x, m), tir.indexmod(y, m))
        return row_of(transform_out, tir.indexmod(x, m), [rows(*at, k, o) for k in range(alpha)], _by_pairs)

    out = te.compute(
        (n, out_chunks, -(-oh // dh), -(-ow // dw), out_block),
        body,
        name="conv2d_NCHWc_winograd",
        tag="conv2d_NCHWc_winograd",
        attrs={"tile_size": tile_size, "dilation": (dh, dw)},
    )
    if (dh, dw) == (1, 1):
        return out
    return te.compute(
        (data.shape[0], out_chunks, oh, ow, out_block),
        lambda b, oc, y, x, o: out(
            (b * dh + tir.indexmod(y, dh)) * dw + tir.indexmod(x, dw), oc, tir.indexdiv(y, dh), tir.indexdiv(x, dw), o
        ),
        name="conv2d_NCHWc_dilated",
        tag="injective,conv2d_NCHWc_dilated",
    )


def _grids(data: te.Tensor, dilation: tuple[int, int], before: tuple[int, int], extents: tuple[int, int]) -> te.Tensor:
    """The grids (n * dh * dw, C, *extents, c) of rows and columns that lie ``dilation`` apart in the padded data."""
    n, chunks, h, w, block = get_const_tuple(data.shape)
    (dh, dw), (top, left) = dilation, before
    if dilation == (1, 1):
        return pad_spatial(data, (2, 3), before, (extents[0] - h - top, extents[1] - w - left), "data_pad")

    def body(b: PrimExpr, ic: PrimExpr, y: PrimExpr, x: PrimExpr, c: PrimExpr) -> PrimExpr:
        row = y * dh + tir.indexmod(tir.indexdiv(b, dw), dh) - top
        column = x * dw + tir.indexmod(b, dw) - left
        where = inside((row, column), (h, w), before, (1, 1))
        value = data(tir.indexdiv(b, dh * dw), ic, row, column, c)
        return tir.if_then_else(where, value, ops.const(0, data.dtype))

    return te.compute((n * dh * dw, chunks, *extents, block), body, name="data_pad", tag="injective,pad")


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
    result = find_anchor(tensors, lambda op: op is anchor or "conv2d_NCHWc_dilated" in op.tag)
    last: Any = tensors[0].op
    separate = last is not result and not same_shape(last, result)
    kept = (padded, anchor, rows.op, inputs.op, columns.op, result if separate else None)
    inline_injective(s, tensors, keep=[op for op in kept if op is not None])
    if separate:
        schedule_injective_from_existing(s, tensors[0])
        last = result
    if last is not anchor:
        s[anchor].set_scope("local")
    _schedule_steps(s, Blocking(*cfg["blocking"].val), s[last], anchor, rows, products, inputs, columns, padded)
    return s


def _schedule_steps(
    s: te.Schedule,
    blocking: Blocking,
    out: te.Stage,
    anchor: Any,
    rows: te.Tensor,
    products: te.Tensor,
    inputs: te.Tensor,
    columns: te.Tensor,
    padded: Any,
) -> None:
    fused_tail = s[anchor] is not out
    sums = s.cache_write(products, "local")
    m, (dh, dw) = int(anchor.attrs["tile_size"]), anchor.attrs["dilation"]
    n, oc, oh, ow, lanes = out.op.axis
    grids = []
    if (dh, dw) != (1, 1):
        oh, grid_h = out.split(oh, factor=dh)
        ow, grid_w = out.split(ow, factor=dw)
        grids = [grid_h, grid_w]
    block_h, inner_h = out.split(oh, factor=blocking.block_h * m)
    block_w, inner_w = out.split(ow, factor=blocking.block_w * m)
    tile_h, y = out.split(inner_h, factor=m)
    tile_w, x = out.split(inner_w, factor=m)
    part, group = out.split(oc, nparts=blocking.parts)
    group, chunk = out.split(group, factor=blocking.vectors)
    out.reorder(n, *grids, block_h, block_w, part, group, chunk, tile_h, tile_w, y, x, lanes)
    fused = out.fuse(n, *grids, block_h, block_w, part)
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
    b, pc, ph, i, j, pw, lanes = product.op.axis
    ph, row = product.split(ph, factor=blocking.rows)
    pw, column = product.split(pw, factor=blocking.columns)
    product.reorder(i, j, b, ph, pw, pc, row, column, lanes)
    unroll_and_vectorize(product, [pc, row, column], lanes)
    tile = s[sums]
    tile.compute_at(product, pw)
    b, tc, th, ti, tj, tw, lanes = tile.op.axis
    ico, ici = tile.op.reduce_axis
    tile.reorder(ti, tj, b, ico, ici, th, tw, tc, lanes)
    tile.prefetch(tile.op.input_tensors[1], ici, PREFETCH_STEPS)
    unroll_and_vectorize(tile, [th, tw, tc], lanes)

    step = s[inputs]
    b, ic, th, i, j, tw, lanes = step.op.axis
    step.reorder(b, ic, th, tw, i, j, lanes)
    step.compute_at(out, fused)
    if padded is not None:
        s[padded].compute_at(step, th)
        s[padded].vectorize(padded.axis[-1])
    unroll_and_vectorize(step, [i, j], lanes)
    column_step = s[columns]
    column_step.set_scope("local")
    column_step.compute_at(step, tw)
    unroll_and_vectorize(column_step, list(column_step.op.axis[4:6]), column_step.op.axis[6])
