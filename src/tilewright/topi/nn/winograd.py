"""Winograd convolution of channel-packed data: windows with stride 1 for a fraction of the multiplications.

A tile of results comes of a few more inputs as ``A^T [(G g G^T) * (B^T d B)] A``: products are taken at each position
of the inputs, each a matrix product over the input channels (Lavin and Gray, "Fast algorithms for convolutional neural
networks", 2015). For 3x3 windows, tiles of 2x2 need 4 / 9 of the direct method's multiplications, 4x4 a quarter, and
6x6 a fifth, with larger rounding errors and transforms. ``winograd_forms`` has the transforms, and cuts other windows:
1x7 ones take 4 / 7 with tiles of 1x3.

A convolution with dilation d x d is a batch of d * d convolutions without, of the grids of every d-th row and column.
Padding gathers the elements of each grid, and the last step scatters its results.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi.kinds import CONV2D_NCHWC_DILATED, CONV2D_NCHWC_WINOGRAD, PAD
from tilewright.topi.nn.conv import inside, output_extent, pad_spatial, per_dim
from tilewright.topi.nn.linear_forms import row_of, weighted_sum
from tilewright.topi.nn.winograd_forms import Form, winograd_form, winograd_tiles
from tilewright.topi.utils import InvalidShapeError, get_const_tuple, get_pad_tuple, rounded, simplify, steps_over

Array = np.ndarray[Any, Any]


def transform_weight(weight: Array, tile_size: int) -> Array:
    """Return ``G g G^T`` of each group of taps of weights (O, I, kh, kw, ...), computed in double precision.

    (O, *inputs, groups * I, ...) as of ``winograd_form``. Missing taps of the last group are 0.
    """
    out, channels, kh, kw, *blocks = weight.shape
    form = winograd_form((kh, kw), tile_size)
    height, width = form.height, form.width
    missing = [(0, height.reach + 1 - kh), (0, width.reach + 1 - kw)]
    taps = np.pad(weight.astype(np.float64), [(0, 0), (0, 0), *missing, *[(0, 0)] * len(blocks)])
    taps = taps.reshape(out, channels, height.groups, height.taps, width.groups, width.taps, *blocks)
    g, h = np.array(height.weight_transform), np.array(width.weight_transform)
    result = np.einsum("ay,bx,OIgyhx...->OabghI...", g, h, taps, optimize=True)
    return np.ascontiguousarray(result.reshape(out, *form.inputs, form.groups * channels, *blocks), dtype=weight.dtype)


def convolve_tiles(
    data: Array,
    weight: Array,
    padding: Sequence[int],
    tile_size: int,
    dilation: Sequence[int] = (1, 1),
    window: tuple[int, int] = (3, 3),
    groups: int = 1,
) -> Array:
    """Compute ``conv2d_NCHWc_winograd`` on numpy arrays of the same shapes."""
    if groups > 1:
        parts = zip(np.split(data, groups, axis=1), np.split(weight, groups), strict=True)
        results = [convolve_tiles(x, w, padding, tile_size, dilation, window) for x, w in parts]
        return np.concatenate(results, axis=1)
    top, left, bottom, right = padding
    data = np.pad(data, [(0, 0), (0, 0), (top, bottom), (left, right), (0, 0)])
    n, (dh, dw) = data.shape[0], dilation
    h, w = data.shape[2] - (window[0] - 1) * dh, data.shape[3] - (window[1] - 1) * dw
    if (dh, dw) != (1, 1):
        result = np.zeros((n, weight.shape[0], h, w, weight.shape[5]), data.dtype)
        for y, x in itertools.product(range(min(dh, h)), range(min(dw, w))):
            grid = data[:, :, y::dh, x::dw]
            result[:, :, y::dh, x::dw] = convolve_tiles(grid, weight, (0, 0, 0, 0), tile_size, window=window)
        return result
    form = winograd_form(window, tile_size)
    height, width = form.height, form.width
    rows, columns = rounded(h, height.results), rounded(w, width.results)
    more = [(0, rows + height.reach - data.shape[2]), (0, columns + width.reach - data.shape[3])]
    data = np.pad(data, [(0, 0), (0, 0), *more, (0, 0)])
    tiles = [
        np.lib.stride_tricks.sliding_window_view(
            data[:, :, y : y + rows + height.taps - 1, x : x + columns + width.taps - 1], form.inputs, (2, 3)
        )[:, :, :: height.results, :: width.results]
        for y in range(0, height.reach + 1, height.taps)
        for x in range(0, width.reach + 1, width.taps)
    ]
    transforms = [np.array(split.input_transform, data.dtype) for split in (height, width)]
    inputs = np.einsum("ip,jq,bCyxcpq->ijbCyxc", *transforms, np.concatenate(tiles, axis=1), optimize=True)
    products = np.einsum("ijbCyxc,OijCco->bOyxijo", inputs, weight, optimize=True)
    transforms = [np.array(split.output_transform, data.dtype) for split in (height, width)]
    result = np.einsum("pi,qj,bOyxijo->bOypxqo", *transforms, products, optimize=True)
    cropped = result.reshape(n, -1, rows, columns, weight.shape[5])[:, :, :h, :w]
    return np.ascontiguousarray(cropped, dtype=data.dtype)


def winograd_weight_transform(weight: te.Tensor, tile_size: int) -> te.Tensor:
    """Compute ``transform_weight`` as a tensor expression, also in double precision; in float32 of half precision."""
    out, channels, kh, kw, *blocks = get_const_tuple(weight.shape)
    form = winograd_form((kh, kw), tile_size)
    height, width = form.height, form.width
    dtype = "float32" if dt.is_half(weight.dtype) else weight.dtype

    def tap(o: PrimExpr, channel: PrimExpr, y: PrimExpr, x: PrimExpr, *at: PrimExpr) -> PrimExpr:
        value = ops.cast("float64", weight(o, channel, y, x, *at))
        if height.reach < kh and width.reach < kw:
            return value
        return tir.if_then_else(tir.all(y < kh, x < kw), value, ops.const(0, "float64"))

    columns = te.compute(
        (out, form.inputs[0], height.groups, width.groups, width.taps, channels, *blocks),
        lambda o, i, g, h, x, *at: row_of(
            height.weight_transform,
            i,
            [tap(o, at[0], g * height.taps + y, h * width.taps + x, *at[1:]) for y in range(height.taps)],
            _by_parity,
        ),
        name="winograd_weight_columns",
    )

    def body(o: PrimExpr, i: PrimExpr, j: PrimExpr, channel: PrimExpr, *at: PrimExpr) -> PrimExpr:
        group, channel = tir.indexdiv(channel, channels), tir.indexmod(channel, channels)
        g, h = tir.indexdiv(group, width.groups), tir.indexmod(group, width.groups)
        terms = [columns(o, i, g, h, x, channel, *at) for x in range(width.taps)]
        return ops.cast(dtype, row_of(width.weight_transform, j, terms, _by_parity))

    return te.compute((out, *form.inputs, form.groups * channels, *blocks), body, name="winograd_weight")


def _by_parity(row: Sequence[float], terms: Sequence[Any]) -> Any:
    """Return the weighted sum as even terms plus or minus odd ones, which the rows of points p and -p share."""
    even = weighted_sum(row[::2], terms[::2])
    sign = next((1 if factor > 0 else -1 for factor in row[1::2] if factor), 1)
    odd = weighted_sum([sign * factor for factor in row[1::2]], terms[1::2])
    if even is None or odd is None:
        return weighted_sum(row, terms)
    return even + odd if sign > 0 else even - odd


def _by_pairs(row: Sequence[float], terms: Sequence[Any]) -> Any:
    """Return the weighted sum through sums and differences of the terms of points p and -p, which rows share."""
    last = len(terms) - 1
    if not last:
        return terms[0]
    pairs = [terms[k] + terms[k + 1] if row[k] == row[k + 1] else terms[k] - terms[k + 1] for k in range(1, last, 2)]
    return weighted_sum([row[0], *row[1:last:2], row[last]], [terms[0], *pairs, terms[last]])


def conv2d_NCHWc_winograd(
    data: te.Tensor,
    weight: te.Tensor,
    padding: Any,
    tile_size: int,
    dilation: Any = 1,
    window: tuple[int, int] = (3, 3),
    groups: int = 1,
    block: tuple[int, int] = (1, 1),
) -> te.Tensor:
    """Compute the stride-1 convolution of data (n, C, h, w, c) with transformed weights (O, *inputs, C', c, o).

    C' are the C / ``groups`` of a group of channels, once for each group of taps. ``block``: rows and columns of tiles
    in a block; whole blocks are computed.
    """
    kh, kw = int(window[0]), int(window[1])
    form = winograd_form((kh, kw), tile_size)
    height, width = form.height, form.width
    n, in_chunks, h, w, in_block = get_const_tuple(data.shape)
    out_chunks, *inputs_shape, weight_chunks, weight_block, out_block = get_const_tuple(weight.shape)
    each = in_chunks // groups
    fits = in_chunks % groups == 0 and out_chunks % groups == 0
    if not fits or (*inputs_shape, weight_chunks, weight_block) != (*form.inputs, form.groups * each, in_block):
        raise InvalidShapeError(
            f"conv2d_NCHWc_winograd: data {get_const_tuple(data.shape)} and transformed weights "
            f"{get_const_tuple(weight.shape)} do not fit for a window of {kh} x {kw} and tiles of {form}"
        )
    dh, dw = per_dim(dilation, 2)
    top, left, bottom, right = get_pad_tuple(padding, ((kh - 1) * dh + 1, (kw - 1) * dw + 1))
    oh, ow = get_const_tuple((output_extent(h, kh, 1, dh, top, bottom), output_extent(w, kw, 1, dw, left, right)))
    tiles = winograd_tiles(form, (oh, ow), (dh, dw))
    tiles_h, tiles_w = get_const_tuple([simplify(rounded(t, step)) for t, step in zip(tiles, block, strict=True)])
    extents = tiles_h * height.results + height.reach, tiles_w * width.results + width.reach
    padded = _grids(data, (dh, dw), (top, left), extents)
    inputs = _transformed_inputs(padded, form, groups, (tiles_h, tiles_w))
    n = padded.shape[0]
    ico, ici = te.reduce_axis((0, weight_chunks), name="ic_outer"), te.reduce_axis((0, in_block), name="ic_inner")

    def product(b: PrimExpr, oc: PrimExpr, y: PrimExpr, i: PrimExpr, j: PrimExpr, x: PrimExpr, o: PrimExpr) -> PrimExpr:
        ic = ico if groups == 1 else tir.indexdiv(oc, out_chunks // groups) * weight_chunks + ico
        return te.sum(inputs(b, ic, y, i, j, x, ici) * weight(oc, i, j, ico, ici, o), axis=[ico, ici])

    products = te.compute((n, out_chunks, tiles_h, *form.inputs, tiles_w, out_block), product, name="winograd_products")
    rows = te.compute(
        (n, out_chunks, tiles_h, tiles_w, height.results, width.inputs, out_block),
        lambda b, oc, y, x, i, j, o: row_of(
            height.output_transform, i, [products(b, oc, y, k, j, x, o) for k in range(height.inputs)], _by_pairs
        ),
        name="winograd_output_rows",
    )

    def body(b: PrimExpr, oc: PrimExpr, y: PrimExpr, x: PrimExpr, o: PrimExpr) -> Any:
        tile_row, tile_column = tir.indexdiv(y, height.results), tir.indexdiv(x, width.results)
        at = (b, oc, tile_row, tile_column, tir.indexmod(y, height.results))
        terms = [rows(*at, k, o) for k in range(width.inputs)]
        return row_of(width.output_transform, tir.indexmod(x, width.results), terms, _by_pairs)

    out = te.compute(
        (n, out_chunks, steps_over(oh, dh), steps_over(ow, dw), out_block),
        body,
        name="conv2d_NCHWc_winograd",
        tag=CONV2D_NCHWC_WINOGRAD,
        attrs={"tile": form.results, "dilation": (dh, dw)},
    )
    if (dh, dw) == (1, 1):
        return out
    return te.compute(
        (data.shape[0], out_chunks, oh, ow, out_block),
        lambda b, oc, y, x, o: out(
            (b * dh + tir.indexmod(y, dh)) * dw + tir.indexmod(x, dw), oc, tir.indexdiv(y, dh), tir.indexdiv(x, dw), o
        ),
        name="conv2d_NCHWc_dilated",
        tag=CONV2D_NCHWC_DILATED,
    )


def _transformed_inputs(padded: te.Tensor, form: Form, groups: int, tiles: tuple[int, int]) -> te.Tensor:
    """Compute ``B^T d B`` of all tiles (n, C', rows of tiles, *inputs, columns of tiles, c).

    C' are, for each group of channels and in it for each group of taps, the chunks of the group's channels.
    """
    height, width = form.height, form.width
    n, in_chunks, _, _, block = get_const_tuple(padded.shape)
    each = in_chunks // groups
    of_group = each * form.groups

    def element(b: PrimExpr, ic: PrimExpr, y: PrimExpr, x: PrimExpr, c: PrimExpr) -> PrimExpr:
        first, chunk = 0 if groups == 1 else tir.indexdiv(ic, of_group) * each, tir.indexmod(ic, each)
        taps = tir.indexdiv(ic if groups == 1 else tir.indexmod(ic, of_group), each)
        row = y + tir.indexdiv(taps, width.groups) * height.taps
        return padded(b, first + chunk, row, x + tir.indexmod(taps, width.groups) * width.taps, c)

    columns = te.compute(
        (n, groups * of_group, *tiles, *form.inputs, block),
        lambda b, ic, y, x, i, j, c: row_of(
            height.input_transform,
            i,
            [element(b, ic, y * height.results + k, x * width.results + j, c) for k in range(height.inputs)],
            _by_parity,
        ),
        name="winograd_input_columns",
    )
    return te.compute(
        (n, groups * of_group, tiles[0], *form.inputs, tiles[1], block),
        lambda b, ic, y, i, j, x, c: row_of(
            width.input_transform, j, [columns(b, ic, y, x, i, k, c) for k in range(width.inputs)], _by_parity
        ),
        name="winograd_input",
    )


def _grids(data: te.Tensor, dilation: tuple[int, int], before: tuple[int, int], extents: tuple[int, int]) -> te.Tensor:
    """Gather the grids (n * dh * dw, C, *extents, c) of every ``dilation``-th row and column of the padded data."""
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

    return te.compute((n * dh * dw, chunks, *extents, block), body, name="data_pad", tag=PAD)
