"""Resize, Upsample, and moves between depth and space."""

from __future__ import annotations

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.frontend.onnx.context import NodeContext
from tilewright.relay.frontend.onnx.registry import converter

_METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}
_COORDINATES = {
    "half_pixel": "half_pixel",
    "pytorch_half_pixel": "pytorch_half_pixel",
    "align_corners": "align_corners",
    "asymmetric": "asymmetric",
}
_ROUNDING = {
    "round_prefer_floor": "round_prefer_floor",
    "round_prefer_ceil": "round_prefer_ceil",
    "floor": "floor",
    "ceil": "ceil",
}


@converter("Upsample")
def convert_upsample(ctx: NodeContext) -> RelayExpr:
    """Upsample (before opset 10): like Resize with asymmetric coordinates."""
    scales = ctx.attr("scales")
    if scales is None:
        scales = tuple(float(v) for v in ctx.constant(1, "the scales").reshape(-1))
    mode = ctx.attr("mode", "nearest")
    return _resize(ctx, _sizes_of_scales(ctx, scales), mode, "asymmetric", "floor")


@converter("Resize", since=10)
def convert_resize_10(ctx: NodeContext) -> RelayExpr:
    """Resize of opset 10: scales only, asymmetric."""
    scales = tuple(float(v) for v in ctx.constant(1, "the scales").reshape(-1))
    return _resize(ctx, _sizes_of_scales(ctx, scales), ctx.attr("mode", "nearest"), "asymmetric", "floor")


@converter("Resize", since=11)
def convert_resize(ctx: NodeContext) -> RelayExpr:
    """Resize by scales or to sizes; nearest, linear or cubic."""
    mode = ctx.attr("mode", "nearest")
    coordinates = ctx.attr("coordinate_transformation_mode", "half_pixel")
    if coordinates not in _COORDINATES:
        ctx.unsupported(f"coordinate_transformation_mode {coordinates!r}; supported are {sorted(_COORDINATES)}")
    for name, neutral in (("antialias", 0), ("exclude_outside", 0)):
        if ctx.attr(name, neutral) != neutral:
            ctx.unsupported(f"attribute {name}={ctx.attr(name)}")
    if ctx.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        ctx.unsupported(f"keep_aspect_ratio_policy {ctx.attr('keep_aspect_ratio_policy')!r}")
    scales = ctx.constant(2, "the scales").reshape(-1) if ctx.has_input(2) else np.zeros(0)
    if scales.size:
        sizes = _sizes_of_scales(ctx, [float(s) for s in scales])
    else:
        given = ctx.ints(3, "the sizes")
        sizes = _with_axes(ctx, given)
    return _resize(ctx, sizes, mode, coordinates, ctx.attr("nearest_mode", "round_prefer_floor"))


def _with_axes(ctx: NodeContext, given: tuple[int, ...]) -> list[int]:
    shape = list(ctx.shape(ctx.input(0)))
    for axis, size in zip(ctx.attr("axes") or range(len(shape)), given, strict=True):
        shape[axis] = size
    return shape


def _sizes_of_scales(ctx: NodeContext, scales: object) -> list[int]:
    shape = list(ctx.shape(ctx.input(0)))
    for axis, scale in zip(ctx.attr("axes") or range(len(shape)), list(scales), strict=True):  # type: ignore[call-overload]
        shape[axis] = int(np.floor(shape[axis] * scale))
    return shape


def _resize(ctx: NodeContext, sizes: list[int], mode: str, coordinates: str, rounding: str) -> RelayExpr:
    data = ctx.input(0)
    shape = ctx.shape(data)
    if mode not in _METHODS:
        ctx.unsupported(f"mode {mode!r}; supported are {sorted(_METHODS)}")
    if len(shape) not in (3, 4, 5) or tuple(sizes[:2]) != shape[:2]:
        ctx.unsupported(f"resizing {shape} to {tuple(sizes)}: only the spatial dimensions of N, C, ... may change")
    build = {3: relay_op.image.resize1d, 4: relay_op.image.resize2d, 5: relay_op.image.resize3d}[len(shape)]
    layout = {3: "NCW", 4: "NCHW", 5: "NCDHW"}[len(shape)]
    return build(
        data,
        tuple(sizes[2:]),
        layout=layout,
        method=_METHODS[mode],
        coordinate_transformation_mode=_COORDINATES[coordinates],
        rounding_method=_ROUNDING[rounding],
        cubic_alpha=ctx.attr("cubic_coeff_a", -0.75),
    )


@converter("DepthToSpace")
def convert_depth_to_space(ctx: NodeContext) -> RelayExpr:
    """Move channels into blocks of space."""
    return relay_op.nn.depth_to_space(ctx.input(0), ctx.required("blocksize"), mode=ctx.attr("mode", "DCR"))


@converter("SpaceToDepth")
def convert_space_to_depth(ctx: NodeContext) -> RelayExpr:
    """Move blocks of space into channels."""
    return relay_op.nn.space_to_depth(ctx.input(0), ctx.required("blocksize"))
