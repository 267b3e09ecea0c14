"""Resize, Upsample, and moves between depth and space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.onnx.context import NodeContext, int_const, typed
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.onnx.resampling import (
    COORDINATES,
    ROUNDING,
    Axis,
    nearest_indices,
    scaled_size,
    weights,
)
from tilewright.relay.frontend.onnx.resize_at_run_time import (
    RunTimeAxis,
    axes_by_scales,
    axes_by_sizes,
    repeated,
    resized,
)
from tilewright.topi.image.resize import nearest_elements
from tilewright.topi.shape_checks import MOST_ELEMENTS

_METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}
_RELAY_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
# Relay interpolates in float32.
_INTERPOLATED = ("float16", "bfloat16", "float32")
_POLICIES = ("stretch", "not_larger", "not_smaller")


@dataclass(frozen=True)
class _Settings:
    """The attributes of a Resize node."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic_a: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False
    extrapolation: float = 0.0


@converter("Upsample")
def convert_upsample(ctx: NodeContext) -> RelayExpr:
    """Upsample (before opset 10): like Resize with asymmetric coordinates."""
    scales = ctx.attr("scales")
    if scales is None:
        return _resize_by_scales(ctx, 1, _old_settings(ctx))
    return _resize(ctx, _axes_of_scales(ctx, scales), _old_settings(ctx))


@converter("Resize", since=10)
def convert_resize_10(ctx: NodeContext) -> RelayExpr:
    """Resize of opset 10: scales only, asymmetric."""
    return _resize_by_scales(ctx, 1, _old_settings(ctx))


def _old_settings(ctx: NodeContext) -> _Settings:
    return _Settings(str(ctx.attr("mode", "nearest")), "asymmetric", "floor")


@converter("Resize", since=11)
def convert_resize(ctx: NodeContext) -> RelayExpr:
    """Resize by scales or to sizes; nearest, linear or cubic."""
    settings = _Settings(
        ctx.attr("mode", "nearest"),
        ctx.attr("coordinate_transformation_mode", "half_pixel"),
        ctx.attr("nearest_mode", "round_prefer_floor"),
        ctx.attr("cubic_coeff_a", -0.75),
        bool(ctx.attr("antialias", 0)),
        bool(ctx.attr("exclude_outside", 0)),
        ctx.attr("extrapolation_value", 0.0),
    )
    if settings.coordinates not in COORDINATES:
        ctx.unsupported(f"coordinate_transformation_mode {settings.coordinates!r}; supported are {sorted(COORDINATES)}")
    if settings.rounding not in ROUNDING:
        ctx.unsupported(f"nearest_mode {settings.rounding!r}; supported are {sorted(ROUNDING)}")
    if ctx.has_input(2) and _count(ctx, 2):
        return _resize_by_scales(ctx, 2, settings)
    if _at_run_time(ctx, 3):
        axes = _chosen_axes(ctx, _count(ctx, 3))
        policy = _policy(ctx)
        return _resize_at_run_time(ctx, axes_by_sizes(ctx, axes, policy, _regions(ctx, len(axes))), settings)
    return _resize(ctx, _axes_of_sizes(ctx, ctx.ints(3, "the sizes")), settings)


def _count(ctx: NodeContext, index: int) -> int:
    """Return how many scales or sizes input ``index`` has."""
    given = ctx.input(index)
    return ctx.extent(given, 0) if ctx.rank(given) else 1


def _at_run_time(ctx: NodeContext, index: int) -> bool:
    """Return whether the data's dimensions, or input ``index``, are known only at run time."""
    if ctx.importer.static:
        return False
    return ctx.is_dynamic(ctx.input(0)) or ctx.constant_or_none(ctx.input(index)) is None


def _resize_by_scales(ctx: NodeContext, index: int, settings: _Settings) -> RelayExpr:
    if _at_run_time(ctx, index):
        axes = _chosen_axes(ctx, _count(ctx, index))
        return _resize_at_run_time(ctx, axes_by_scales(ctx, index, axes, _regions(ctx, len(axes))), settings)
    return _resize(ctx, _axes_of_scales(ctx, ctx.constant(index, "the scales").reshape(-1)), settings)


def _resize_at_run_time(ctx: NodeContext, axes: Sequence[RunTimeAxis], settings: _Settings) -> RelayExpr:
    """Resize with Relay's operator where unknown axes keep their extents, else axis by axis."""
    _check_mode(ctx, settings)
    dims = ctx.dims(ctx.input(0))
    known = {axis.index: axis.known for axis in axes if axis.known is not None}
    if len(known) == len(axes) and all(map(is_number, dims[2:])) and _suits_relay(ctx, dims, known, settings):
        return _relay_resize(ctx.input(0), dims, known, settings)
    copied = repeated(ctx, axes, settings)
    return resized(ctx, axes, settings) if copied is None else copied


def _check_mode(ctx: NodeContext, settings: _Settings) -> None:
    if settings.mode not in _METHODS:
        ctx.unsupported(f"mode {settings.mode!r}; supported are {sorted(_METHODS)}")


def _chosen_axes(ctx: NodeContext, given: int) -> list[int]:
    rank = ctx.rank(ctx.input(0))
    axes = [ctx.normalize_axis(a, rank) for a in ctx.attr("axes") or range(rank)]
    if len(axes) != given:
        ctx.fail(f"{given} scales or sizes are given for {len(axes)} axes")
    return axes


def _regions(ctx: NodeContext, count: int) -> list[tuple[float, float]]:
    """Return start and end of the region of interest on each axis, if there is one."""
    if ctx.attr("coordinate_transformation_mode") != "tf_crop_and_resize":
        return [(0.0, 1.0)] * count
    roi = ctx.constant(1, "the region of interest").reshape(-1).astype(float)
    if len(roi) != 2 * count:
        ctx.fail(f"the region of interest has {len(roi)} numbers, expected {2 * count}")
    return [(float(roi[i]), float(roi[i + count])) for i in range(count)]


def _policy(ctx: NodeContext) -> str:
    policy = str(ctx.attr("keep_aspect_ratio_policy", "stretch"))
    if policy not in _POLICIES:
        ctx.unsupported(f"keep_aspect_ratio_policy {policy!r}; supported are {sorted(_POLICIES)}")
    return policy


def _axes_of_sizes(ctx: NodeContext, sizes: Sequence[int]) -> dict[int, Axis]:
    shape = ctx.shape(ctx.input(0))
    axes = _chosen_axes(ctx, len(sizes))
    policy = _policy(ctx)
    if any(size < 0 for size in sizes):
        ctx.fail(f"the sizes are {list(sizes)}: expected numbers of 0 and more")
    if any(shape[axis] == 0 != size for axis, size in zip(axes, sizes, strict=True)):
        ctx.fail(f"there is nothing to resize from {shape} to the sizes {list(sizes)}")
    ratios = [size / shape[axis] if size else 0.0 for axis, size in zip(axes, sizes, strict=True)]
    if policy != "stretch":
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        ratios = [ratio] * len(axes)
        sizes = [math.floor(ratio * shape[axis] + 0.5) for axis in axes]
    regions = _regions(ctx, len(axes))
    return {
        axis: Axis(shape[axis], size, ratio, *region)
        for axis, size, ratio, region in zip(axes, sizes, ratios, regions, strict=True)
    }


def _axes_of_scales(ctx: NodeContext, scales: Sequence[float] | np.ndarray) -> dict[int, Axis]:
    shape = ctx.shape(ctx.input(0))
    axes = _chosen_axes(ctx, len(scales))
    regions = _regions(ctx, len(axes))
    found = {}
    if not all(0 <= scale <= MOST_ELEMENTS for scale in scales):
        ctx.fail(f"the scales are {[float(s) for s in scales]}: expected numbers of 0 and more")
    for axis, scale, (start, end) in zip(axes, scales, regions, strict=True):
        size = scaled_size(shape[axis], float(scale), end - start)
        found[axis] = Axis(shape[axis], size, float(scale), start, end)
    return found


def _resize(ctx: NodeContext, axes: dict[int, Axis], settings: _Settings) -> RelayExpr:
    data = ctx.input(0)
    shape = ctx.shape(data)
    _check_mode(ctx, settings)
    if settings.coordinates != "tf_crop_and_resize" and all(axis.size == axis.extent for axis in axes.values()):
        return data  # whatever the scales, as in ONNX Runtime
    if any(axis.size == 0 for axis in axes.values()):
        dtype = ctx.dtype(data)
        return relay_op.zeros([axes[i].size if i in axes else extent for i, extent in enumerate(shape)], dtype)
    if _suits_relay(ctx, shape, axes, settings):
        return _relay_resize(data, shape, axes, settings)
    for index, axis in axes.items():
        if axis.changes(settings.coordinates):
            data = typed(_resize_axis(ctx, data, index, axis, settings))
    return data


def _suits_relay(ctx: NodeContext, shape: Sequence[Any], axes: dict[int, Axis], settings: _Settings) -> bool:
    """Return whether Relay's resize does the same: spatial axes, whose scale is the ratio of the sizes."""
    if len(shape) not in (3, 4, 5) or settings.antialias or settings.exclude_outside:
        return False
    if settings.coordinates not in _RELAY_COORDINATES or ctx.dtype(ctx.input(0)) not in _INTERPOLATED:
        return False
    if settings.mode == "cubic" and len(shape) != 4:
        return False
    if any(i in axes and axes[i].size != shape[i] for i in (0, 1)):
        return False
    if settings.mode == "nearest":
        return all(_is_neighbour_of_relay(axis, settings) for axis in axes.values())
    return all(math.isclose(a.scale * a.extent, a.size, rel_tol=1e-6) for a in axes.values())


def _is_neighbour_of_relay(axis: Axis, settings: _Settings) -> bool:
    """Return whether Relay's resize, which knows the sizes alone, copies the same elements as the node's scale asks
    for.
    """
    if axis.scale.is_integer() and axis.size == axis.scale * axis.extent:
        return True
    found = nearest_elements(axis.extent, axis.size, settings.rounding, settings.coordinates)
    return found == nearest_indices(axis, settings.coordinates, settings.rounding)


def _relay_resize(data: RelayExpr, shape: Sequence[Any], axes: dict[int, Axis], settings: _Settings) -> RelayExpr:
    build = {3: relay_op.image.resize1d, 4: relay_op.image.resize2d, 5: relay_op.image.resize3d}[len(shape)]
    return build(
        data,
        tuple(axes[i].size if i in axes else shape[i] for i in range(2, len(shape))),
        layout={3: "NCW", 4: "NCHW", 5: "NCDHW"}[len(shape)],
        method=_METHODS[settings.mode],
        coordinate_transformation_mode=settings.coordinates,
        rounding_method=settings.rounding,
        cubic_alpha=settings.cubic_a,
    )


def _resize_axis(ctx: NodeContext, data: RelayExpr, index: int, axis: Axis, settings: _Settings) -> RelayExpr:
    """Resize one axis, by constant indices or as a product with the matrix of the weights."""
    dtype = ctx.dtype(data)
    outside = axis.outside(settings.coordinates)
    if settings.mode == "nearest":
        out = relay_op.take(data, int_const(nearest_indices(axis, settings.coordinates, settings.rounding)), axis=index)
    else:
        matrix = weights(
            axis, settings.mode, settings.coordinates, settings.cubic_a, settings.antialias, settings.exclude_outside
        )
        shape = ctx.shape(data)
        order = [*(i for i in range(len(shape)) if i != index), index]
        rows = relay_op.reshape(relay_op.transpose(data, axes=order), newshape=(-1, axis.extent))
        if not dt.is_float(dtype):
            rows = relay_op.cast(rows, "float32")
        kind = dtype if dt.is_float(dtype) else "float32"
        product = relay_op.nn.dense(
            rows, const(matrix.astype("float64" if kind == "float64" else "float32"), kind), units=axis.size
        )
        shaped = relay_op.reshape(product, newshape=(*(shape[i] for i in order[:-1]), axis.size))
        out = relay_op.transpose(shaped, axes=[order.index(i) for i in range(len(shape))])
        if kind != dtype:
            out = relay_op.cast(out, dtype)
    if not outside.any():
        return out
    mask = outside.reshape([-1 if i == index else 1 for i in range(ctx.rank(data))])
    return relay_op.where(const(mask, "bool"), const(settings.extrapolation, dtype), out)


@converter("DepthToSpace")
def convert_depth_to_space(ctx: NodeContext) -> RelayExpr:
    """Move channels, whose number has to be known, into blocks of space."""
    ctx.extent(ctx.input(0), 1)
    return relay_op.nn.depth_to_space(ctx.input(0), ctx.required("blocksize"), mode=ctx.attr("mode", "DCR"))


@converter("SpaceToDepth")
def convert_space_to_depth(ctx: NodeContext) -> RelayExpr:
    """Move blocks of space into channels."""
    data, block = ctx.input(0), ctx.required("blocksize")
    if ctx.attr("mode", "DCR") == "DCR":
        return relay_op.nn.space_to_depth(data, block)
    batch, channels, height, width = ctx.shape(data)
    if 0 in (batch, channels, height, width):  # which reshape would read as "keep"
        return relay_op.zeros((batch, channels * block * block, height // block, width // block), ctx.dtype(data))
    blocks = relay_op.reshape(data, (batch, channels, height // block, block, width // block, block))
    moved = relay_op.transpose(blocks, axes=(0, 1, 3, 5, 2, 4))
    return relay_op.reshape(moved, (batch, channels * block * block, height // block, width // block))


@converter("GridSample", since=16)
def convert_grid_sample(ctx: NodeContext) -> RelayExpr:
    """Values of images or volumes at the points of a grid, whose last axis holds the coordinates."""
    data, grid = ctx.input(0), ctx.input(1)
    rank = ctx.rank(data)
    if rank not in (4, 5):
        ctx.unsupported(f"sampling over {rank - 2} dimensions; 2 and 3 are supported")
    mode = ctx.attr("mode", "linear" if ctx.opset >= 20 else "bilinear")
    methods = {"nearest": "nearest", "linear": "bilinear", "bilinear": "bilinear"}
    method = (methods | {"cubic": "bicubic", "bicubic": "bicubic"}).get(mode)
    if method is None:
        ctx.fail(f"attribute 'mode' is {mode!r}")
    points = relay_op.transpose(grid, axes=(0, rank - 1, *range(1, rank - 1)))
    layout, padding = "NCHW" if rank == 4 else "NCDHW", ctx.attr("padding_mode", "zeros")
    return relay_op.image.grid_sample(data, points, method, layout, padding, bool(ctx.attr("align_corners", 0)))
