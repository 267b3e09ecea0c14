"""Winograd's convolutions on GPUs, of data in NCHW or NHWC with neighbouring windows (see ``topi.nn.winograd``).

Four kernels: the weights transformed (none where they come so), the image's tiles transformed, one product for each of
their positions, and the products transformed back together with what follows the convolution. Transforms take a tile
to a thread, in registers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.autotvm.task.space import ConfigSpace
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import tag
from tilewright.topi.gpu.contraction import BATCH, COLUMNS, ROWS, Axis, Contraction, contract
from tilewright.topi.gpu.contraction_schedule import BACK, PART, TRANSFORM
from tilewright.topi.gpu.templates import template
from tilewright.topi.nn.conv import inside, output_extent, per_dim
from tilewright.topi.nn.linear_forms import row_of
from tilewright.topi.nn.winograd_forms import Form, winograd_form, winograd_tiles
from tilewright.topi.utils import InvalidShapeError, get_const_tuple, get_pad_tuple

_TILE = 4  # results of a window of 3 along either dimension: a quarter of the products, and small errors


def fits(window: Sequence[int], strides: Sequence[int], dilation: Sequence[int]) -> bool:
    """Return whether Winograd's method applies: unit strides, and windows no longer than one group of taps."""
    if set(strides) != {1} or set(dilation) != {1} or max(window) < 2:
        return False
    return winograd_form((int(window[0]), int(window[1])), 4).groups == 1


def _weights(kernel: Any, form: Form, channels: tuple[int, int], dtype: str) -> te.Tensor:
    """Compute ``G g G^T`` (rows, columns of a tile, outputs, inputs); ``kernel(o, i, y, x)`` reads a weight."""
    height, width = form.height, form.width
    outputs, inputs = channels
    taps = te.compute(
        (height.inputs, width.taps, outputs, inputs),
        lambda i, x, o, c: row_of(height.weight_transform, i, [kernel(o, c, y, x) for y in range(height.taps)]),
        name="winograd_weight_rows", tag=PART,
    )  # fmt: skip
    return te.compute(
        (height.inputs, width.inputs, outputs, inputs),
        lambda i, j, o, c: row_of(width.weight_transform, j, [taps(i, x, o, c) for x in range(width.taps)]),
        name="winograd_weight", tag=TRANSFORM,
    )  # fmt: skip


def _tiles(pixel: Any, form: Form, shape: tuple[int, int, int, int], dtype: str) -> te.Tensor:
    """Compute ``B^T d B`` (rows, columns of a tile, channels, tiles); ``shape``: images, channels, tiles
    down, across.
    """
    height, width = form.height, form.width
    images, channels, down, across = shape
    count = images * down * across

    def place(p: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        return tir.indexdiv(p, down * across), tir.indexmod(tir.indexdiv(p, across), down), tir.indexmod(p, across)

    def read(i: PrimExpr, j: PrimExpr, c: PrimExpr, p: PrimExpr) -> PrimExpr:
        n, y, x = place(p)
        value: PrimExpr = pixel(n, c, y * height.results + i, x * width.results + j)
        return value

    size = (height.inputs, width.inputs, channels, count)
    taken = te.compute(size, read, name="winograd_pixels", tag=PART)
    rows = te.compute(
        size,
        lambda i, j, c, p: row_of(height.input_transform, i, [taken(k, j, c, p) for k in range(height.inputs)]),
        name="winograd_input_rows", tag=PART,
    )  # fmt: skip
    return te.compute(
        size,
        lambda i, j, c, p: row_of(width.input_transform, j, [rows(i, k, c, p) for k in range(width.inputs)]),
        name="winograd_input", tag=TRANSFORM,
    )  # fmt: skip


def _product(cfg: ConfigSpace, weights: te.Tensor, tiles: te.Tensor) -> te.Tensor:
    rows, columns, outputs, channels = get_const_tuple(weights.shape)
    count = get_const_tuple(tiles.shape)[3]
    axes = ((Axis(rows, BATCH),), (Axis(columns, BATCH),), (Axis(outputs, ROWS),), (Axis(count, COLUMNS),))
    return contract(
        cfg,
        Contraction(
            axes, channels, lambda b, at, k: weights(*b, at[0], k), lambda b, at, k: tiles(*b, k, at[0]),
            tiles.dtype, tiles.dtype, True, False,
        ),
        "winograd_products",
    )  # fmt: skip


def _back(products: te.Tensor, form: Form, out: tuple[int, int, int, int], first: bool, name: str) -> te.Tensor:
    """Compute ``A^T m A`` of the tiles; ``out``: images, channels, height and width, channels ``first`` or last."""
    height, width = form.height, form.width
    images, outputs, oh, ow = out
    down, across = winograd_tiles(form, (oh, ow))
    shape = (images, outputs, down, across)
    half = te.compute(
        (*shape, height.results, width.inputs),
        lambda n, o, y, x, i, j: row_of(
            height.output_transform,
            i,
            [products(k, j, o, (n * down + y) * across + x) for k in range(height.inputs)],
        ),
        name="winograd_output_rows", tag=PART,
    )  # fmt: skip
    whole = te.compute(
        (*shape, height.results, width.results),
        lambda n, o, y, x, i, j: row_of(
            width.output_transform, j, [half(n, o, y, x, i, k) for k in range(width.inputs)]
        ),
        name="winograd_tile", tag=PART,
    )  # fmt: skip

    def result(n: PrimExpr, o: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        (r, q), div, mod = form.results, tir.indexdiv, tir.indexmod
        return whole(n, o, div(y, r), div(x, q), mod(y, r), mod(x, q))

    attrs = {"tile": form.results, "first": int(first)}
    if first:
        return te.compute(out, result, name=name, tag=BACK, attrs=attrs)
    last = (images, oh, ow, outputs)
    return te.compute(last, lambda n, y, x, o: result(n, o, y, x), name=name, tag=BACK, attrs=attrs)


def _convolve(cfg: ConfigSpace, data: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any, dilation: Any,
              out_dtype: str | None, first: bool, transformed: bool, name: str) -> te.Tensor:  # fmt: skip
    n, c, h, w = (get_const_tuple(data.shape)["NCHW".index(s) if first else "NHWC".index(s)] for s in "NCHW")
    if transformed:
        side_h, side_w, outputs, channels = get_const_tuple(kernel.shape)
        form = next(winograd_form((3, 3), size) for size in (2, 4, 6) if size + 2 == side_h == side_w)
        window = (3, 3)
    else:
        sizes = dict(zip("OIHW" if first else "HWIO", get_const_tuple(kernel.shape), strict=True))
        outputs, channels, window = sizes["O"], sizes["I"], (sizes["H"], sizes["W"])
        form = winograd_form(window, _TILE)
    steps = [per_dim(v, 2) for v in (strides, dilation)]
    if channels != c or not fits(window, *steps):
        raise InvalidShapeError(
            f"{name}: Winograd's method takes windows with stride and dilation 1 of matching channels; data "
            f"{get_const_tuple(data.shape)}, kernel {get_const_tuple(kernel.shape)}, strides {steps[0]}, "
            f"dilation {steps[1]}"
        )
    top, left, bottom, right = (int(p) for p in get_pad_tuple(padding, window))
    oh, ow = int(output_extent(h, window[0], 1, 1, top, bottom)), int(output_extent(w, window[1], 1, 1, left, right))
    down, across = winograd_tiles(form, (oh, ow))

    def pixel(image: PrimExpr, channel: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        row, column = y - top, x - left
        value = data(image, channel, row, column) if first else data(image, row, column, channel)
        where = inside((row, column), (h, w), (top, left), (1, 1))
        return tir.if_then_else(where, value, ops.const(0, data.dtype))

    def weight(o: PrimExpr, i: PrimExpr, y: int, x: PrimExpr) -> PrimExpr:
        return kernel(o, i, y, x) if first else kernel(y, x, i, o)

    weights = kernel if transformed else _weights(weight, form, (outputs, channels), data.dtype)
    tiles = _tiles(pixel, form, (n, c, down, across), data.dtype)
    result = _back(_product(cfg, weights, tiles), form, (n, outputs, oh, ow), first, name)
    cfg.add_flop(2 * math.prod((n, outputs, oh, ow, channels, *window)))
    dtype = out_dtype or data.dtype
    if dtype == data.dtype:
        return result
    return te.compute(result.shape, lambda *i: ops.cast(dtype, result(*i)), name="T_cast", tag=tag.ELEMWISE)


def _named(name: str, first: bool, transformed: bool) -> Any:
    def compute(cfg: ConfigSpace, data: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any, dilation: Any,
                out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
        return _convolve(cfg, data, kernel, strides, padding, dilation, out_dtype, first, transformed, name)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = "Winograd's convolution" + (
        " with weights (a, a, o, i) that are transformed." if transformed else "."
    )
    return template(f"{name}.cuda", compute)


conv2d_nchw_winograd, schedule_conv2d_nchw_winograd = _named("conv2d_nchw_winograd", True, False)
conv2d_nchw_winograd_without_weight_transform, schedule_conv2d_nchw_winograd_without_weight_transform = _named(
    "conv2d_nchw_winograd_without_weight_transform", True, True
)
conv2d_nhwc_winograd_direct, schedule_conv2d_nhwc_winograd_direct = _named("conv2d_nhwc_winograd_direct", False, False)
conv2d_nhwc_winograd_direct_without_weight_transform, schedule_conv2d_nhwc_winograd_direct_without_weight_transform = (
    _named("conv2d_nhwc_winograd_direct_without_weight_transform", False, True)
)
