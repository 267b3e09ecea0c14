"""Convolutions and pooling: channels are last in TensorFlow, and first in what kernels read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.tensorflow.context import NodeContext
from tilewright.relay.frontend.tensorflow.registry import converter
from tilewright.relay.frontend.windows import same_padding


def is_channels_first(ctx: NodeContext, default: str = "NHWC") -> bool:
    """Return whether the channels are the second dimension in the graph."""
    layout = ctx.text("data_format", default)
    if layout not in ("NHWC", "NCHW", "NDHWC", "NCDHW", "NWC", "NCW"):
        ctx.unsupported(f"the data format {layout!r}")
    return layout.startswith("NC")


def over_images(ctx: NodeContext, data: RelayExpr, first: bool, build: Callable[[RelayExpr], RelayExpr]) -> RelayExpr:
    """Return ``build`` of data with their channels first, in the layout of the graph."""
    if first:
        return typed(build(data))
    return ctx.channels_last(typed(build(ctx.channels_first(data))))


def _spatial(ctx: NodeContext, name: str, rank: int, first: bool) -> tuple[int, ...]:
    """Return an attribute that has a number for each dimension, those of the spatial ones."""
    values = [int(v) for v in ctx.attr(name) or [1] * (rank + 2)]
    if len(values) != rank + 2:
        ctx.fail(f"the attribute {name!r} is {values}; {rank + 2} numbers are expected")
    outer = values[:2] if first else [values[0], values[-1]]
    found = values[2:] if first else values[1:-1]
    if min(found) < 1 or outer != [1, 1]:
        ctx.unsupported(f"{name} of {values}")
    return tuple(found)


def _explicit(ctx: NodeContext, rank: int, first: bool) -> list[int]:
    pads = [int(p) for p in ctx.attr("explicit_paddings") or []]
    if len(pads) != 2 * rank + 4:
        ctx.fail(f"the attribute 'explicit_paddings' is {pads}; {2 * rank + 4} numbers are expected")
    inner = pads[4:] if first else pads[2:-2]
    return [*inner[0::2], *inner[1::2]]


def _padding(ctx: NodeContext, rank: int, first: bool) -> dict[str, Any]:
    """Return the padding as attributes of ONNX's operators."""
    kind = ctx.text("padding")
    if kind == "EXPLICIT":
        return {"pads": _explicit(ctx, rank, first)}
    if kind not in ("SAME", "VALID"):
        ctx.fail(f"the padding {kind!r} is unknown; SAME, VALID and EXPLICIT are defined")
    return {"auto_pad": "SAME_UPPER" if kind == "SAME" else "VALID"}


def _weight(ctx: NodeContext, index: int, order: Sequence[int], shape: Sequence[int] | None = None) -> RelayExpr:
    """Return a weight with its axes in another order, and then in a shape: a parameter in that form, where it is
    known.
    """
    expr = ctx.input(index)
    value = ctx.constant_or_none(expr)
    if value is not None:
        whole = np.ascontiguousarray(value.transpose(order))
        name = f"{ctx.input_name(index)}/{''.join(map(str, order))}"
        return ctx.importer.constant_tensor(name, whole if shape is None else whole.reshape(shape))
    turned = typed(relay_op.transpose(expr, axes=order))
    return turned if shape is None else typed(relay_op.reshape(turned, shape))


def _convolution(ctx: NodeContext, rank: int) -> RelayExpr:
    first = is_channels_first(ctx, "NHWC" if rank == 2 else "NDHWC")
    shape = ctx.shape(ctx.input(1))
    weight = _weight(ctx, 1, (rank + 1, rank, *range(rank)))

    def build(data: RelayExpr) -> RelayExpr:
        channels = ctx.dims(data)[1]
        if not isinstance(channels, int) or not shape[rank] or channels % shape[rank]:
            ctx.fail(f"its data have {channels} channels, its weight the shape {shape}")
        return ctx.part(
            "Conv", [data, weight], strides=_spatial(ctx, "strides", rank, first),
            dilations=_spatial(ctx, "dilations", rank, first), group=channels // shape[rank],
            **_padding(ctx, rank, first),
        )  # fmt: skip

    return over_images(ctx, ctx.input(0), first, build)


@converter("Conv2D")
def convert_conv_2d(ctx: NodeContext) -> RelayExpr:
    """Convolution of images, in groups where the weight has fewer channels."""
    return _convolution(ctx, 2)


@converter("Conv3D")
def convert_conv_3d(ctx: NodeContext) -> RelayExpr:
    """Convolution of volumes."""
    return _convolution(ctx, 3)


@converter("DepthwiseConv2dNative")
def convert_depthwise_conv_2d(ctx: NodeContext) -> RelayExpr:
    """Convolution of each channel by itself, by several weights."""
    first = is_channels_first(ctx)
    height, width, channels, times = ctx.shape(ctx.input(1))
    weight = _weight(ctx, 1, (2, 3, 0, 1), (channels * times, 1, height, width))

    def build(data: RelayExpr) -> RelayExpr:
        return ctx.part(
            "Conv", [data, weight], strides=_spatial(ctx, "strides", 2, first),
            dilations=_spatial(ctx, "dilations", 2, first), group=channels, **_padding(ctx, 2, first),
        )  # fmt: skip

    return over_images(ctx, ctx.input(0), first, build)


def _transposed(ctx: NodeContext, rank: int) -> RelayExpr:
    """Return the transposed convolution to the size in input 0."""
    first = is_channels_first(ctx, "NHWC" if rank == 2 else "NDHWC")
    kernel, dims = ctx.shape(ctx.input(1))[:rank], ctx.dims(ctx.input(2))
    extents = dims[2:] if first else dims[1:-1]
    strides, dilations = _spatial(ctx, "strides", rank, first), _spatial(ctx, "dilations", rank, first)
    elements = ctx.importer.elements(ctx, ctx.input(0))
    wanted = list(elements.reshape(-1)) if elements is not None else [None] * (rank + 2)
    wanted = wanted[2:] if first else wanted[1:-1]
    pads, extra = _undone(ctx, extents, wanted, kernel, strides, dilations)
    weight = _weight(ctx, 1, (rank + 1, rank, *range(rank)))
    return over_images(
        ctx, ctx.input(2), first,
        lambda data: ctx.part("ConvTranspose", [data, weight], strides=strides, dilations=dilations, pads=pads,
                              output_padding=extra),
    )  # fmt: skip


def _undone(
    ctx: NodeContext, extents: Sequence[Any], wanted: Sequence[Any], kernel: Sequence[int], strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[list[int], list[int]]:  # fmt: skip
    """Return the padding of the convolution that is transposed, and what its windows left over at the end."""
    rank, kind = len(kernel), ctx.text("padding")
    given = _explicit(ctx, rank, is_channels_first(ctx)) if kind == "EXPLICIT" else None
    before, after, extra = [], [], []
    for i, (k, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True)):
        reach, known = (k - 1) * dilation + 1, isinstance(wanted[i], int) and isinstance(extents[i], int)
        if given is not None:
            low, high = given[i], given[rank + i]
        elif kind == "VALID":
            low, high = 0, 0
        elif known:
            low, high = same_padding(wanted[i], k, stride, dilation)
        else:  # as many windows as the result has multiples of the stride
            low, high = max(reach - stride, 0) // 2, max(reach - stride, 0) - max(reach - stride, 0) // 2
        full = (extents[i] - 1) * stride + reach - low - high if known else 0
        left = wanted[i] - full if known else max(stride - reach, 0)
        if known and not 0 <= left < max(stride, 1):
            ctx.fail(f"its size is {wanted[i]}, which a convolution does not bring to {extents[i]}")
        before.append(low)
        after.append(high)
        extra.append(left)
    return [*before, *after], extra


@converter("Conv2DBackpropInput")
def convert_conv_2d_backprop_input(ctx: NodeContext) -> RelayExpr:
    """Transposed convolution of images to a given size."""
    return _transposed(ctx, 2)


@converter("Conv3DBackpropInputV2")
def convert_conv_3d_backprop_input(ctx: NodeContext) -> RelayExpr:
    """Transposed convolution of volumes to a given size."""
    return _transposed(ctx, 3)


@converter("Dilation2D")
def convert_dilation_2d(ctx: NodeContext) -> RelayExpr:
    """Greatest sum of a window and a weight for each channel."""
    data, shape = ctx.input(0), ctx.shape(ctx.input(1))
    strides, rates = _spatial(ctx, "strides", 2, False), _spatial(ctx, "rates", 2, False)
    pairs = [(0, 0), (0, 0)]
    if ctx.text("padding") == "SAME":
        sizes = ctx.shape(data)[1:3]
        pairs = [same_padding(*part) for part in zip(sizes, shape[:2], strides, rates, strict=True)]
    return typed(
        relay_op.image.dilation2d(
            data, ctx.input(1), strides=strides, dilations=rates, data_layout="NHWC", kernel_layout="HWI",
            padding=(pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1]),
        )
    )  # fmt: skip


# ---- pooling ----


def _pool(ctx: NodeContext, op_type: str, rank: int) -> RelayExpr:
    first = is_channels_first(ctx, "NHWC" if rank == 2 else "NDHWC")
    window = {
        "kernel_shape": _spatial(ctx, "ksize", rank, first),
        "strides": _spatial(ctx, "strides", rank, first),
        **_padding(ctx, rank, first),
    }
    return over_images(ctx, ctx.input(0), first, lambda data: ctx.part(op_type, [data], **window))


@converter("MaxPool", "MaxPoolV2")
def convert_max_pool(ctx: NodeContext) -> RelayExpr:
    """Maxima of windows."""
    if ctx.node.op == "MaxPool":
        return _pool(ctx, "MaxPool", 2)
    first = is_channels_first(ctx)
    sizes = [ctx.ints(i, what) for i, what in ((1, "the window"), (2, "the stride"))]
    kernel, strides = (s[2:] if first else s[1:-1] for s in sizes)
    return over_images(
        ctx, ctx.input(0), first,
        lambda data: ctx.part("MaxPool", [data], kernel_shape=kernel, strides=strides, **_padding(ctx, 2, first)),
    )  # fmt: skip


@converter("AvgPool")
def convert_avg_pool(ctx: NodeContext) -> RelayExpr:
    """Means of windows."""
    return _pool(ctx, "AveragePool", 2)


@converter("MaxPool3D")
def convert_max_pool_3d(ctx: NodeContext) -> RelayExpr:
    """Maxima of windows of volumes."""
    return _pool(ctx, "MaxPool", 3)


@converter("AvgPool3D")
def convert_avg_pool_3d(ctx: NodeContext) -> RelayExpr:
    """Means of windows of volumes."""
    return _pool(ctx, "AveragePool", 3)
