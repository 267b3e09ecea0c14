"""Resizing and sampling of images; columns of images and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.conv import spread
from tilewright.relay.frontend.torch.registry import converter

_NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
_ANTIALIASED = {"antialias": 1, "exclude_outside": 1}
_NEAREST_EXACT = {
    "mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"
}  # fmt: skip


def _resized(ctx: TorchContext, x: RelayExpr, sizes: Any, scales: Any, settings: dict[str, Any]) -> RelayExpr:
    """Resize to sizes, or by scales."""
    rank = ctx.rank(x) - 2
    given = [s for s in (scales or ()) if s is not None]
    if scales is not None and len(given) == rank and all(map(is_number, ctx.dims(x)[2:])):
        factors = const(np.array([1.0, 1.0, *given], "float32"))
        stated = [ctx.importer.symbols.dim(d) for d in ctx.meta().shape]
        reached = [int(e * s) for e, s in zip(ctx.dims(x)[2:], given, strict=True)]
        if stated[2:] == reached:
            made: RelayExpr = ctx.part("Resize", [x, None, factors], **settings)
            return made
    target = sizes if sizes is not None else [ctx.importer.symbols.size(d) for d in ctx.meta().shape[2:]]
    vector = ctx.vector([*ctx.sizes(x)[:2], *target])
    found: RelayExpr = ctx.part("Resize", [x, None, None, vector], **settings)
    return found


def _linear(align_corners: bool) -> dict[str, Any]:
    return {"mode": "linear", "coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel"}


def _cubic(align_corners: bool) -> dict[str, Any]:
    return _linear(align_corners) | {"mode": "cubic", "cubic_coeff_a": -0.75}


def _register_by_size(rank: int, name: str, settings: Any) -> None:
    """Register the overloads with sizes and a scale of each dimension, and those with sizes or scales (vec)."""
    in_float32 = not name.startswith("nearest")
    corners = not name.startswith("nearest")

    @converter(f"upsample_{name}{rank}d", f"_upsample_{name}{rank}d", in_float32=in_float32)
    def convert(ctx: TorchContext, x: RelayExpr, sizes: Any, *rest: Any) -> RelayExpr:
        scales = list(rest[1:] if corners else rest)
        chosen = settings(rest[0]) if corners else settings
        return _resized(ctx, x, sizes, scales if scales and None not in scales else None, chosen)

    @converter(f"upsample_{name}{rank}d.vec", f"_upsample_{name}{rank}d.vec", in_float32=in_float32)
    def convert_vec(ctx: TorchContext, x: RelayExpr, sizes: Any, *rest: Any) -> RelayExpr:
        return _resized(ctx, x, sizes, rest[-1], settings(rest[0]) if corners else settings)


for _rank, _name in ((1, "linear"), (2, "bilinear"), (3, "trilinear")):
    _register_by_size(_rank, _name, _linear)
    _register_by_size(_rank, "nearest", _NEAREST)
    _register_by_size(_rank, "nearest-exact".replace("-", "_"), _NEAREST_EXACT)
_register_by_size(2, "bicubic", _cubic)
_register_by_size(2, "bilinear", _linear)


def _antialiased(name: str, settings: Any) -> None:
    @converter(f"_upsample_{name}2d_aa", in_float32=True)
    def convert(ctx: TorchContext, x: RelayExpr, sizes: Any, corners: bool, *scales: Any) -> RelayExpr:
        return _resized(ctx, x, sizes, None, settings(corners) | _ANTIALIASED)

    @converter(f"_upsample_{name}2d_aa.vec", in_float32=True)
    def convert_vec(ctx: TorchContext, x: RelayExpr, sizes: Any, corners: bool, scales: Any) -> RelayExpr:
        return _resized(ctx, x, sizes, scales, settings(corners) | _ANTIALIASED)


_antialiased("bilinear", _linear)
_antialiased("bicubic", lambda corners: _cubic(corners) | {"cubic_coeff_a": -0.5})


@converter("grid_sampler_2d", "grid_sampler_3d", "grid_sampler", "_grid_sampler_2d_cpu_fallback", in_float32=True)
def convert_grid_sample(
    ctx: TorchContext, x: RelayExpr, grid: RelayExpr, mode: int, padding: int, align_corners: bool
) -> RelayExpr:
    """Values of images or volumes at the points of a grid."""
    modes, paddings = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")
    if (modes[mode], paddings[padding]) == ("cubic", "border"):
        x, grid = _with_edge(ctx, x, grid, align_corners)
    found: RelayExpr = ctx.part(
        "GridSample", [x, grid], mode=modes[mode], padding_mode=paddings[padding], align_corners=int(align_corners)
    )
    return found


def _with_edge(ctx: TorchContext, x: RelayExpr, grid: RelayExpr, align_corners: bool) -> tuple[RelayExpr, RelayExpr]:
    """Return an image with three more pixels at each edge, and the grid's points in it.

    Torch reads the nearest pixel for each tap that is outside; ONNX moves the point inside first.
    """
    extents = np.array(ctx.shape(x)[:1:-1], "float32")  # the grid has x before y
    inner, outer = (extents - 1, extents + 5) if align_corners else (extents, extents + 6)
    pads = [0, 0, *[3] * len(extents)]
    wide = ctx.part("Pad", [x, ctx.vector([*pads, *pads]), None], mode="edge")
    factor, offset = inner / outer, (inner + 6) / outer - 1
    moved = relay_op.add(relay_op.multiply(grid, const(factor)), const(offset))
    return wide, typed(moved)


@converter("affine_grid_generator", in_float32=True)
def convert_affine_grid(ctx: TorchContext, theta: RelayExpr, size: Sequence[Any], align_corners: bool) -> RelayExpr:
    """The points of a grid after an affine map."""
    found: RelayExpr = ctx.part("AffineGrid", [theta, ctx.vector(size)], align_corners=int(align_corners))
    return found


@converter("col2im")
def convert_col2im(
    ctx: TorchContext, x: RelayExpr, size: Sequence[Any], kernel: Any, dilation: Any, padding: Any, stride: Any
) -> RelayExpr:
    """An image of the sums of overlapping blocks, which are columns."""
    single = ctx.rank(x) == 2
    data = typed(relay_op.expand_dims(x, axis=0)) if single else x
    pads = spread(padding, 2, 0)
    made: RelayExpr = ctx.part(
        "Col2Im", [data, ctx.vector(size), ctx.vector(spread(kernel, 2))], strides=spread(stride, 2),
        dilations=spread(dilation, 2), pads=[*pads, *pads],
    )  # fmt: skip
    return relay_op.squeeze(made, axis=[0]) if single else made


@converter("im2col")
def convert_im2col(ctx: TorchContext, x: RelayExpr, kernel: Any, dilation: Any, padding: Any, stride: Any) -> RelayExpr:
    """The blocks of an image as columns."""
    single = ctx.rank(x) == 3
    data = typed(relay_op.expand_dims(x, axis=0)) if single else x
    block, steps, gaps = spread(kernel, 2), spread(stride, 2), spread(dilation, 2)
    pads = spread(padding, 2, 0)
    if any(pads):
        data = typed(relay_op.nn.pad(data, [(0, 0), (0, 0), *((p, p) for p in pads)]))
    channels = ctx.extent(data, 1)
    counts = []
    for i in range(2):
        extent = ctx.extent(data, 2 + 2 * i)
        count = (extent - gaps[i] * (block[i] - 1) - 1) // steps[i] + 1
        places = np.arange(block[i])[:, None] * gaps[i] + np.arange(count)[None] * steps[i]
        data = typed(relay_op.take(data, const(places.astype("int64")), axis=2 + 2 * i))
        counts.append(count)
    moved = ctx.permute(data, [0, 1, 2, 4, 3, 5])
    made = ctx.reshape(moved, [ctx.dim_size(moved, 0), channels * block[0] * block[1], counts[0] * counts[1]])
    return relay_op.squeeze(made, axis=[0]) if single else made


@converter("max_unpool2d")
def convert_max_unpool(ctx: TorchContext, x: RelayExpr, indices: RelayExpr, size: Sequence[int]) -> RelayExpr:
    """Values at the places where maxima were, zeros elsewhere."""
    *lead, height, width = ctx.shape(x)
    rows = 1
    for extent in lead:
        rows *= extent
    flat = [ctx.reshape(v, [rows, height * width]) for v in (x, indices)]
    empty = ctx.full([rows, size[0] * size[1]], 0, ctx.dtype(x))
    return ctx.reshape(ctx.part("ScatterElements", [empty, flat[1], flat[0]], axis=1), [*lead, *size])
