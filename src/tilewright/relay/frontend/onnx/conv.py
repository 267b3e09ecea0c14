"""Convolutions: Conv, ConvTranspose, and padding helpers that pooling shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import element, is_number
from tilewright.relay.frontend.dynamic import integer, known_dims, runtime_extent
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.indices import with_extent
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.windows import same_padding
from tilewright.relay.op.relations import dim_add, dim_floordiv

_LAYOUTS = {1: ("NCW", "OIW"), 2: ("NCHW", "OIHW"), 3: ("NCDHW", "OIDHW")}


def spatial(ctx: NodeContext, name: str, rank: int, default: int = 1) -> tuple[int, ...]:
    """Return an attribute with one integer for each spatial dimension, each ``default`` or more."""
    values = ctx.attr(name) or (default,) * rank
    if len(values) != rank:
        ctx.fail(f"attribute {name!r} has {len(values)} values for {rank} spatial dimensions")
    if any(v < default for v in values):
        ctx.fail(f"attribute {name!r} is {list(values)}; its values must be {default} or more")
    return tuple(values)


def padding(
    ctx: NodeContext, data: RelayExpr, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """Return the padding before and after each dimension: ``pads``, or that of ``auto_pad``."""
    rank = len(kernel)
    auto = ctx.attr("auto_pad", "NOTSET")
    if auto == "NOTSET":
        pads = tuple(ctx.attr("pads") or (0,) * (2 * rank))
        if len(pads) != 2 * rank:
            ctx.fail(f"attribute 'pads' has {len(pads)} values, expected {2 * rank}")
        return pads
    if auto == "VALID":
        return (0,) * (2 * rank)
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        ctx.fail(f"attribute 'auto_pad' is {auto!r}; expected NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    before, after = [], []
    for axis, (k, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True), 2):
        extent = 0 if stride == 1 else ctx.extent(data, axis)
        small, large = same_padding(extent, k, stride, dilation)
        before.append(small if auto == "SAME_UPPER" else large)
        after.append(large if auto == "SAME_UPPER" else small)
    return (*before, *after)


def padded(
    ctx: NodeContext,
    data: RelayExpr,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    build: Callable[[RelayExpr, tuple[int, ...]], RelayExpr],
    value: float = 0.0,
) -> RelayExpr:
    """``build`` of the data and the padding, or of data that are padded with ``value`` when the model runs.

    What ``auto_pad`` asks for depends on extents at strides above 1.
    """
    extents = ctx.dims(data)[2:]
    if not pads_at_run_time(ctx, data, strides):
        return build(data, padding(ctx, data, kernel, strides, dilations))
    widths = [integer(0)] * 4
    for axis, (k, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True), 2):
        extent = runtime_extent(data, axis)
        count = relay_op.floor_divide(relay_op.add(extent, integer(stride - 1)), integer(stride))
        reach = relay_op.add(relay_op.multiply(count, integer(stride)), integer((k - 1) * dilation + 1 - stride))
        total = relay_op.maximum(relay_op.subtract(reach, extent), integer(0))
        small = relay_op.floor_divide(total, integer(2))
        both = [small, relay_op.subtract(total, small)]
        widths += both if ctx.attr("auto_pad") == "SAME_UPPER" else both[::-1]
    pairs = relay_op.reshape(relay_op.stack(widths, axis=0), newshape=(-1, 2))
    out = typed(build(typed(relay_op.nn.pad(data, pairs, const(value, ctx.dtype(data)))), (0,) * (2 * len(kernel))))
    counts = [None if e is None else _windows(e, stride) for e, stride in zip(extents, strides, strict=True)]
    return typed(known_dims(out, [*ctx.dims(out)[:2], *counts]))


def pads_at_run_time(ctx: NodeContext, data: RelayExpr, strides: Sequence[int]) -> bool:
    """Return whether the padding of ``auto_pad`` depends on extents that are known at run time only."""
    same = ctx.attr("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")
    return same and not all(is_number(e) or s == 1 for e, s in zip(ctx.dims(data)[2:], strides, strict=True))


def _windows(extent: Any, stride: int) -> Any:
    """Return the number of windows with ``auto_pad``, as an element."""
    return -(-extent // stride) if is_number(extent) else element(dim_floordiv(dim_add(extent, stride - 1), stride))


def add_bias(ctx: NodeContext, out: RelayExpr, index: int) -> RelayExpr:
    """Add the optional bias input along the channel axis."""
    bias = ctx.optional(index)
    return out if bias is None else relay_op.nn.bias_add(out, bias)


@converter("Conv", in_float32=True, weights=(1,))
def convert_conv(ctx: NodeContext) -> RelayExpr:
    """Convolution of 1, 2 or 3 spatial dimensions, grouped or not."""
    return add_bias(ctx, convolution(ctx, ctx.input(0), ctx.input(1)), 2)


def convolution(
    ctx: NodeContext, data: RelayExpr, weight: RelayExpr, build: Callable[..., RelayExpr] | None = None
) -> RelayExpr:
    """Return the convolution of ``data`` by ``weight`` with the attributes of ONNX's Conv.

    ``build`` makes it, where that is not Relay's convolution of as many dimensions.
    """
    data, weight = typed(data), typed(weight)
    weight_shape = ctx.shape(weight)
    rank = ctx.rank(data) - 2
    if rank not in _LAYOUTS:
        ctx.unsupported(f"convolution over {rank} spatial dimensions; 1, 2 and 3 are supported")
    kernel = tuple(ctx.attr("kernel_shape") or weight_shape[2:])
    if kernel != weight_shape[2:]:
        ctx.fail(f"attribute 'kernel_shape' is {kernel}, but the weight has the shape {weight_shape}")
    groups = ctx.attr("group", 1)
    data = with_extent(ctx, data, 1, weight_shape[1] * groups)
    channels = ctx.extent(data, 1)
    if weight_shape[1] * groups != channels:
        ctx.fail(
            f"the input has {channels} channels, but the weight {weight_shape} with group {groups} "
            f"takes {weight_shape[1] * groups}"
        )
    strides, dilations = spatial(ctx, "strides", rank), spatial(ctx, "dilations", rank)
    build = build or {1: relay_op.nn.conv1d, 2: relay_op.nn.conv2d, 3: relay_op.nn.conv3d}[rank]
    data_layout, kernel_layout = _LAYOUTS[rank]

    def convolve(data: RelayExpr, pads: tuple[int, ...]) -> RelayExpr:
        return build(
            data,
            weight,
            strides=strides,
            padding=pads,
            dilation=dilations,
            groups=groups,
            channels=weight_shape[0],
            kernel_size=kernel,
            data_layout=data_layout,
            kernel_layout=kernel_layout,
        )

    return padded(ctx, data, kernel, strides, dilations, convolve)


@converter("ConvTranspose", in_float32=True, weights=(1,))
def convert_conv_transpose(ctx: NodeContext) -> RelayExpr:
    """Transposed convolution of 1, 2 or 3 spatial dimensions."""
    data, weight = ctx.input(0), ctx.input(1)
    weight_shape = ctx.shape(weight)
    rank = ctx.rank(data) - 2
    if rank in _LAYOUTS:
        data = with_extent(ctx, data, 1, weight_shape[0])
    else:
        ctx.unsupported(f"transposed convolution over {rank} spatial dimensions; 1, 2 and 3 are supported")
    kernel = tuple(ctx.attr("kernel_shape") or weight_shape[2:])
    groups = ctx.attr("group", 1)
    strides, dilations = spatial(ctx, "strides", rank), spatial(ctx, "dilations", rank)
    output_padding = spatial(ctx, "output_padding", rank, 0)
    pads, output_padding = _transpose_padding(ctx, data, kernel, strides, dilations, output_padding)
    pads, output_padding, beyond = _within_strides(pads, output_padding, strides)
    build = {
        1: relay_op.nn.conv1d_transpose,
        2: relay_op.nn.conv2d_transpose,
        3: relay_op.nn.conv3d_transpose,
    }[rank]

    def convolve(data: RelayExpr, weight: RelayExpr, groups: int) -> RelayExpr:
        return build(
            data,
            weight,
            strides=strides,
            padding=pads,
            dilation=dilations,
            groups=groups,
            channels=weight_shape[1] * groups,
            kernel_size=kernel,
            output_padding=output_padding,
            data_layout=_LAYOUTS[rank][0],
            kernel_layout="IO" + _LAYOUTS[rank][1][2:],
        )

    if groups == 1 or rank == 2:
        out = convolve(data, weight, groups)
    else:  # Relay groups in two dimensions only
        parts = zip(relay_op.split(data, groups, axis=1), relay_op.split(weight, groups, axis=0), strict=True)
        out = relay_op.concatenate([convolve(d, w, 1) for d, w in parts], axis=1)
    if any(beyond):
        out = relay_op.nn.pad(out, [(0, 0), (0, 0), *((0, zeros) for zeros in beyond)])
    return add_bias(ctx, out, 2)


def _within_strides(
    pads: Sequence[int], output_padding: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Padding, output padding below the strides (as Relay has it), and zeros to add behind the result.

    Output padding undoes padding at the end; what is left of it lies where no input reaches.
    """
    rank = len(strides)
    after, extra, beyond = list(pads[rank:]), list(output_padding), [0] * rank
    for i in range(rank):
        if extra[i] >= strides[i]:
            beyond[i] = max(extra[i] - after[i], 0)
            after[i], extra[i] = max(after[i] - extra[i], 0), 0
    return (*pads[:rank], *after), tuple(extra), tuple(beyond)


def _transpose_padding(
    ctx: NodeContext,
    data: RelayExpr,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    output_padding: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding and output padding: ``pads``, or what ``output_shape`` or ``auto_pad`` asks for."""
    rank = len(kernel)
    auto, wanted = ctx.attr("auto_pad", "NOTSET"), ctx.attr("output_shape")
    if wanted is None and auto in ("NOTSET", "VALID"):
        pads = tuple(ctx.attr("pads") or (0,) * (2 * rank)) if auto == "NOTSET" else (0,) * (2 * rank)
        return pads, tuple(output_padding)
    extents = ctx.shape(data)[2:]
    wanted = tuple(wanted)[-rank:] if wanted else tuple(e * s for e, s in zip(extents, strides, strict=True))
    before, after, extra = [], [], []
    for i in range(rank):
        full = strides[i] * (extents[i] - 1) + output_padding[i] + (kernel[i] - 1) * dilations[i] + 1
        total = full - wanted[i]
        extra.append(output_padding[i] + max(-total, 0))
        total = max(total, 0)
        small, large = total // 2, total - total // 2
        upper = auto == "SAME_UPPER"
        before.append(small if upper else large)
        after.append(large if upper else small)
    return (*before, *after), tuple(extra)
