"""Pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext
from tilewright.relay.frontend.onnx.conv import padding, spatial
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
    pads = padding(ctx, data, kernel, strides, dilations)
    ceil_mode = bool(ctx.attr("ceil_mode", 0))
    if ceil_mode:
        pads, ceil_mode = _without_windows_in_padding(ctx.shape(data)[2:], kernel, strides, dilations, pads)
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


def _without_windows_in_padding(
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: tuple[int, ...],
) -> tuple[tuple[int, ...], bool]:
    """Padding and ceil_mode such that no window starts in the padding at the end, as ONNX has it.

    Where ceil_mode would add such a window, the padding at the end shrinks to what the other windows need.
    """
    rank = len(extents)
    after = list(pads[rank:])
    ceil_mode = False
    for i in range(rank):
        window = (kernel[i] - 1) * dilations[i] + 1
        padded = extents[i] + pads[i]
        count = -(-(padded + after[i] - window) // strides[i]) + 1
        if (count - 1) * strides[i] >= padded:
            after[i] = max((count - 2) * strides[i] + window - padded, 0)
        elif (count - 1) * strides[i] + window > padded + after[i]:
            ceil_mode = True
    return (*pads[:rank], *after), ceil_mode


@converter("MaxPool")
def convert_max_pool(ctx: NodeContext) -> RelayExpr:
    """Maximum pooling; the optional output of indices is not supported."""
    if ctx.num_outputs > 1 and ctx.node.output[1]:
        ctx.unsupported("the second output (indices) of MaxPool")
    return _pool(ctx, "max")


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
    """Pooling by the p-norm: average of the powers, times the window's size."""
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
    mean = getattr(relay_op.nn, f"avg_pool{rank}d")(
        powers,
        pool_size=kernel,
        strides=strides,
        dilation=dilations,
        padding=padding(ctx, data, kernel, strides, dilations),
        count_include_pad=True,
        ceil_mode=bool(ctx.attr("ceil_mode", 0)),
    )
    return relay_op.power(mean * const(float(size), dtype), const(1.0 / p, dtype))
