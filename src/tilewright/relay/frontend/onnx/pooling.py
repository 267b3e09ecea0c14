"""Pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.onnx.context import NodeContext, int_const, typed
from tilewright.relay.frontend.onnx.conv import padded, padding, pads_at_run_time, spatial
from tilewright.relay.frontend.onnx.registry import converter

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _pool(ctx: NodeContext, kind: str, **extra: Any) -> RelayExpr:
    data = ctx.input(0)
    rank = ctx.rank(data) - 2
    if rank not in _LAYOUTS:
        ctx.unsupported(f"pooling over {rank} spatial dimensions; 1, 2 and 3 are supported")
    ctx.required("kernel_shape")
    kernel = spatial(ctx, "kernel_shape", rank)
    strides, dilations = spatial(ctx, "strides", rank), spatial(ctx, "dilations", rank)
    build = getattr(relay_op.nn, f"{kind}_pool{rank}d")

    def pool(data: RelayExpr, pads: tuple[int, ...], **extra: Any) -> RelayExpr:
        ceil_mode = bool(ctx.attr("ceil_mode", 0))
        if ceil_mode and not _pads_by_itself(ctx):  # the padding of auto_pad is rounded up either way
            data, pads, ceil_mode = _without_windows_in_padding(ctx, data, kernel, strides, dilations, pads)
        else:
            ceil_mode = False
        result: RelayExpr = build(
            data,
            pool_size=kernel,
            strides=strides,
            dilation=dilations,
            padding=pads,
            layout=_LAYOUTS[rank],
            ceil_mode=ceil_mode,
            **extra,
        )
        return result

    if kind == "max":
        return padded(ctx, data, kernel, strides, dilations, pool, _lowest(ctx.dtype(data)))
    if not pads_at_run_time(ctx, data, strides):
        return pool(data, padding(ctx, data, kernel, strides, dilations), **extra)
    # The padding becomes part of the data; an image of ones yields its share of each window.
    whole = lambda data, pads: pool(data, pads, count_include_pad=True)  # noqa: E731
    mean = padded(ctx, data, kernel, strides, dilations, whole)
    if extra["count_include_pad"]:
        return mean
    picture = relay_op.strided_slice(data, [0, 0], [1, 1], axes=[0, 1])
    return relay_op.divide(mean, padded(ctx, typed(relay_op.ones_like(picture)), kernel, strides, dilations, whole))


def _pads_by_itself(ctx: NodeContext) -> bool:
    return str(ctx.attr("auto_pad", "NOTSET")).startswith("SAME")


def _lowest(dtype: str) -> float:
    return dt.int_range(dtype)[0] if dt.is_int(dtype) else -np.inf


def _count(extent: int, window: int, stride: int, before: int, after: int, ceil_mode: bool) -> int:
    """Return the number of windows: with ``ceil_mode``, one that starts in the padding at the end does not count."""
    free = extent + before + after - window
    if not ceil_mode:
        return free // stride + 1
    return min(-(-free // stride) + 1, -(-(extent + before) // stride))


def _without_windows_in_padding(
    ctx: NodeContext,
    data: RelayExpr,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: tuple[int, ...],
) -> tuple[RelayExpr, tuple[int, ...], bool]:
    """Return data, padding and ceil_mode for Relay, whose ceil_mode adds windows that start in the padding at the end.

    Where it would, the padding at the end shrinks to what the other windows need, or the data is cropped.
    """
    extents = ctx.dims(data)[2:]
    rank = len(extents)
    after, end = list(pads[rank:]), list(extents)
    ceil_mode = False
    for i in range(rank):
        window = (kernel[i] - 1) * dilations[i] + 1
        if not is_number(extents[i]):
            _require_windows_in_data(ctx, window, strides[i], after[i])
            ceil_mode = True
            continue
        reach = (_count(extents[i], window, strides[i], pads[i], after[i], True) - 1) * strides[i] + window - pads[i]
        if reach > extents[i] + after[i]:
            ceil_mode = True
        else:
            after[i], end[i] = max(reach - extents[i], 0), min(reach, extents[i])
    cut = [i for i in range(rank) if is_number(extents[i]) and end[i] != extents[i]]
    if cut:
        data = relay_op.strided_slice(data, [0] * len(cut), [end[i] for i in cut], axes=[i + 2 for i in cut])
    return data, (*pads[:rank], *after), ceil_mode


def _require_windows_in_data(ctx: NodeContext, window: int, stride: int, after: int) -> None:
    """Require with ceil_mode that no window starts in the padding at the end, whatever an extent is."""
    if after + stride > window:
        ctx.unsupported(
            f"ceil_mode with a window of {window}, stride {stride} and padding {after}, over dimensions that are known "
            "when the model runs; give numbers for the model's inputs (--input-shape)"
        )


@converter("MaxPool")
def convert_max_pool(ctx: NodeContext) -> Any:
    """Maximum pooling, and the indices of the maxima in the flattened input."""
    pooled = typed(_pool(ctx, "max"))
    return [pooled, _indices_of_maxima(ctx, ctx.shape(pooled)[2:])] if ctx.num_outputs > 1 else pooled


def _indices_of_maxima(ctx: NodeContext, counts: Sequence[int]) -> RelayExpr:
    """Return the first maximum of each window, as its index in the input; by columns where ``storage_order`` is 1."""
    data = ctx.input(0)
    batch, channels, *extents = ctx.shape(data)
    rank, size = len(extents), int(np.prod(extents))
    kernel, strides = spatial(ctx, "kernel_shape", rank), spatial(ctx, "strides", rank)
    dilations = spatial(ctx, "dilations", rank)
    pads = padding(ctx, data, kernel, strides, dilations)
    ctx.check_constant((*counts, *kernel), "int64")
    inside, place, named = np.ones((1, 1), bool), np.zeros((1, 1), int), np.zeros((1, 1), int)
    step = 1
    for i in range(rank):
        at = np.arange(counts[i])[:, None] * strides[i] - pads[i] + np.arange(kernel[i])[None] * dilations[i]
        join = lambda whole, part: (whole[:, None, :, None] + part[None, :, None, :]).reshape(  # noqa: E731
            len(whole) * len(part), -1
        )
        inside = join(~inside, ~((at >= 0) & (at < extents[i]))) == 0
        place = join(place * extents[i], np.clip(at, 0, extents[i] - 1))
        named = join(named, at * step)
        step *= extents[i]
    if not ctx.attr("storage_order", 0):
        named = place
    dtype = ctx.dtype(data)
    flat = relay_op.reshape(data, (batch, channels, size))
    windows = relay_op.reshape(
        relay_op.take(flat, int_const(place.reshape(-1).tolist()), axis=2), (batch, channels, *place.shape)
    )
    first = relay_op.argmax(relay_op.where(const(inside), windows, const(_lowest(dtype), dtype)), axis=3)
    start = np.arange(len(place)) * place.shape[1]
    found = relay_op.take(const(named.reshape(-1)), relay_op.add(relay_op.cast(first, "int64"), const(start)), axis=0)
    planes = np.arange(batch * channels).reshape(batch, channels, 1) * size
    return relay_op.reshape(relay_op.add(found, const(planes)), (batch, channels, *counts))


@converter("AveragePool")
def convert_average_pool(ctx: NodeContext) -> RelayExpr:
    """Average pooling."""
    return _pool(ctx, "avg", count_include_pad=bool(ctx.attr("count_include_pad", 0)))


@converter("GlobalAveragePool")
def convert_global_average_pool(ctx: NodeContext) -> RelayExpr:
    """Mean over all spatial dimensions."""
    data = ctx.input(0)
    rank = ctx.rank(data)
    if rank == 4:
        return relay_op.nn.global_avg_pool2d(data)
    return relay_op.mean(data, axis=tuple(range(2, rank)), keepdims=True)


@converter("GlobalMaxPool")
def convert_global_max_pool(ctx: NodeContext) -> RelayExpr:
    """Maximum over all spatial dimensions."""
    data = ctx.input(0)
    rank = ctx.rank(data)
    if rank == 4:
        return relay_op.nn.global_max_pool2d(data)
    return relay_op.max(data, axis=tuple(range(2, rank)), keepdims=True)


@converter("LpPool", in_float32=True)
def convert_lp_pool(ctx: NodeContext) -> RelayExpr:
    """Pooling by the p-norm: average of the powers, padding included, times the window's size."""
    p = float(ctx.attr("p", 2))
    data = ctx.input(0)
    rank = ctx.rank(data) - 2
    kernel = tuple(ctx.required("kernel_shape"))
    size = 1
    for k in kernel:
        size *= k
    strides, dilations = spatial(ctx, "strides", rank), spatial(ctx, "dilations", rank)
    dtype = ctx.dtype(data)
    powers = relay_op.power(relay_op.abs(data), const(p, dtype))
    build = getattr(relay_op.nn, f"avg_pool{rank}d")

    def pool(data: RelayExpr, pads: tuple[int, ...]) -> RelayExpr:
        mean: RelayExpr = build(
            data,
            pool_size=kernel,
            strides=strides,
            dilation=dilations,
            padding=_padding_that_counts(ctx, data, kernel, strides, dilations, pads),
            layout=_LAYOUTS[rank],
            count_include_pad=True,
        )
        return mean

    mean = padded(ctx, typed(powers), kernel, strides, dilations, pool)
    return relay_op.power(mean * const(float(size), dtype), const(1.0 / p, dtype))


def _padding_that_counts(
    ctx: NodeContext,
    data: RelayExpr,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: tuple[int, ...],
) -> tuple[int, ...]:
    """Return padding so large that all of each window counts."""
    rank = len(kernel)
    before, after = pads[:rank], list(pads[rank:])
    ceil_mode = bool(ctx.attr("ceil_mode", 0)) and not _pads_by_itself(ctx)
    for i, extent in enumerate(ctx.dims(data)[2:]):
        window = (kernel[i] - 1) * dilations[i] + 1
        if not is_number(extent):
            if ceil_mode:
                _require_windows_in_data(ctx, window, strides[i], after[i])
                after[i] += strides[i] - 1
            continue
        count = _count(extent, window, strides[i], before[i], after[i], ceil_mode)
        after[i] = max((count - 1) * strides[i] + window - before[i] - extent, 0)
    return (*before, *after)
