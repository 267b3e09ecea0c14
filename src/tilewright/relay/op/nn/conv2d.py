"""nn.conv2d: 2-D convolution, plain, grouped and depthwise; and its packed form ``nn.contrib_conv2d_NCHWc``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call, ints
from tilewright.relay.op.definition import OpDef, OpPattern
from tilewright.relay.op.families import Array
from tilewright.relay.op.nn.conv_common import (
    Conv,
    conv_attrs,
    conv_extent,
    conv_layouts,
    in_any_layout,
    is_depthwise,
    windows_of,
)
from tilewright.relay.op.nn.winograd import winograd_call
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy import OpStrategy, one_implementation, wrap_compute_conv2d, wrap_topi_schedule
from tilewright.relay.type_infer.describe import describe_shape
from tilewright.target.target import Target


class Conv2DAttrs(Attrs):
    """Strides, padding, dilation, groups, and the layouts of data, kernel and output."""

    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    data_layout: str = "NCHW"
    kernel_layout: str = "OIHW"
    out_layout: str = ""
    out_dtype: str = ""


def _strategy(attrs: Any, inputs: Sequence[Any], out_type: Any, target: Target) -> OpStrategy:
    strategy = OpStrategy()
    data, kernel = attrs.data_layout, attrs.kernel_layout
    depthwise = is_depthwise(attrs, inputs[0].shape)

    def add(compute: Any, schedule: Any, name: str, plevel: int = 10, has_groups: bool = False) -> None:
        wrapped = wrap_compute_conv2d(compute, has_groups=has_groups)
        strategy.add_implementation(wrapped, wrap_topi_schedule(schedule), name, plevel)

    if data == "NCHW" and kernel == "OIHW":
        if depthwise:
            add(_depthwise_oihw, topi.cpu.schedule_depthwise_conv2d_nchw, "depthwise_conv2d_nchw.cpu")
        elif attrs.groups == 1:
            add(topi.cpu.conv2d_nchw, topi.cpu.schedule_conv2d_nchw, "conv2d_nchw.cpu")
        else:
            add(topi.cpu.group_conv2d_nchw, topi.cpu.schedule_group_conv2d_nchw, "group_conv2d_nchw.cpu", 10, True)
    elif data == "NHWC" and kernel == "HWIO" and attrs.groups == 1:
        add(topi.nn.conv2d_nhwc, topi.cpu.schedule_conv2d_nhwc, "conv2d_nhwc.cpu")
    elif data == "NHWC" and kernel == "HWIO" and not depthwise:
        add(topi.nn.group_conv2d_nhwc, topi.cpu.schedule_conv2d_nhwc, "group_conv2d_nhwc.cpu", 10, True)
    elif data == "NHWC" and kernel == "HWOI" and depthwise and known(inputs[1].shape[2]) == attrs.groups:
        add(topi.nn.depthwise_conv2d_nhwc, topi.cpu.schedule_depthwise_conv2d_nhwc, "depthwise_conv2d_nhwc.cpu")
    elif data == "HWCN" and kernel == "HWIO" and attrs.groups == 1:
        add(topi.nn.conv2d_hwcn, topi.cpu.schedule_conv2d_hwcn, "conv2d_hwcn.cpu")
    else:
        schedule = wrap_topi_schedule(topi.cpu.schedule_group_conv2d_nchw)
        strategy.add_implementation(in_any_layout(topi.cpu.group_conv2d_nchw, 2), schedule, "conv2d_any_layout.cpu")
    return strategy


def _depthwise_oihw(data: Any, kernel: Any, strides: Any, padding: Any, dilation: Any, out_dtype: str) -> Any:
    """Depthwise with a kernel (c * m, 1, kh, kw), seen as (c, m, kh, kw)."""
    channels, (outputs, _, height, width) = data.shape[1], kernel.shape
    if known(outputs) != known(channels):
        kernel = topi.reshape(kernel, (channels, outputs // channels, height, width))
    return topi.nn.depthwise_conv2d_nchw(data, kernel, strides, padding, dilation, out_dtype)


def _alter(attrs: Any, inputs: Sequence[RelayExpr], tinfos: Sequence[Any], out_type: Any) -> RelayExpr | None:
    """Pack channels by the vector width: NCHW to NCHW{b}c, where a packed kernel exists."""
    target = Target.current()
    data, weight = (t.shape for t in tinfos[:2])
    if attrs.data_layout != "NCHW" or attrs.kernel_layout != "OIHW" or target is None or "cpu" not in target.keys:
        return None
    if any(known(d) is None for d in (*data[1:], *weight)):
        return None
    channels_in, channels_out, *size = (int(known(d) or 0) for d in (data[1], weight[0], *weight[2:]))
    dtype, window = tinfos[0].dtype, math.prod(size)
    chosen = topi.cpu.conv2d_layouts(channels_in, channels_out, int(attrs.groups), dtype, target, window)
    if chosen is None:
        return None
    depthwise = is_depthwise(attrs, data)
    name = "nn.contrib_depthwise_conv2d_NCHWc" if depthwise else "nn.contrib_conv2d_NCHWc"
    packed = attrs.replace(
        channels=channels_out,
        kernel_size=tuple(size),
        data_layout=chosen.data_layout,
        kernel_layout=chosen.kernel_layout,
        out_layout=chosen.out_layout,
    )
    if not depthwise and attrs.out_dtype in ("", dtype):
        fast = winograd_call(inputs, packed, [known(data[0]), *(known(d) for d in data[1:])], target)
        if fast is not None:
            return fast
    return call(name, inputs, packed.replace(kernel_layout=chosen.direct_kernel_layout))


class Conv2D(Conv):
    """2-D convolution."""

    name = "nn.conv2d"
    attrs_type = Conv2DAttrs
    rank = 2

    strategy = staticmethod(_strategy)
    alter_op_layout = staticmethod(_alter)


def _packed_strategy(attrs: Any, inputs: Sequence[Any], out_type: Any, target: Target) -> OpStrategy:
    compute = wrap_compute_conv2d(topi.cpu.conv2d_NCHWc, need_data_layout=True, need_out_layout=True)
    return one_implementation(compute, wrap_topi_schedule(topi.cpu.schedule_conv2d_NCHWc), "conv2d_NCHWc.cpu")


class ContribConv2DNCHWc(OpDef):
    """2-D convolution with packed channels: data NCHW{i}c, kernel OIHW{i}i{o}o, output NCHW{o}c."""

    name = "nn.contrib_conv2d_NCHWc"
    inputs = ("data", "kernel")
    attrs_type = Conv2DAttrs
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    in_float32 = True

    strategy = staticmethod(_packed_strategy)
    infer_correct_layout = staticmethod(conv_layouts)
    infer_type = staticmethod(Conv2D.infer_type)
    evaluate = staticmethod(Conv2D.evaluate)


class PatchesAttrs(Attrs):
    """The windows (padding as top, left, bottom, right), and how many rows of them are one."""

    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    rows: int = 1


class ContribConv2DPatches(OpDef):
    """The windows of a packed image, as ``topi.nn.conv2d_patches`` lays them out; only inside of kernels."""

    name = "nn.contrib_conv2d_patches"
    inputs = ("data",)
    attrs_type = PatchesAttrs
    pattern = OpPattern.INJECTIVE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: Any, solver: Any) -> Type | None:
        """(n, C * kh * kw, oh / rows, rows * ow, c) of data (n, C, h, w, c)."""
        data = relations.tensor(types[0], "data")
        if data is None:
            return None
        relations.require_rank(data, 5, "data")
        n, chunks, *image, block = data.shape
        size, strides, pads, dilation = _windows(attrs)
        sides = zip(image, size, strides, dilation, pads[:2], pads[2:], strict=True)
        extents = [known(conv_extent(x, as_expr(k), *rest)) for x, k, *rest in sides]
        count, height, width, rows = known(chunks), *extents, int(attrs.rows)
        if count is None or height is None or width is None or height % rows:
            raise TypeInferenceError(
                f"the rows of windows over {describe_shape(data.shape)} are not known, or do not divide into {rows}"
            )
        shape = (n, *map(as_expr, (count * size[0] * size[1], height // rows, rows * width)), block)
        return TensorType(shape, data.dtype)

    @staticmethod
    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        """By views of all windows."""
        size, strides, pads, dilation = _windows(attrs)
        windows = windows_of(inputs[0], size, strides, pads, dilation)  # (n, C, oh, ow, c, kh, kw)
        n, chunks, height, width, block, *_ = windows.shape
        rows = int(attrs.rows)
        taps = windows.transpose(0, 1, 5, 6, 2, 3, 4)
        return [taps.reshape(n, chunks * size[0] * size[1], height // rows, rows * width, block)]

    @staticmethod
    def compute(attrs: Any, inputs: Sequence[Any], out_type: Any) -> list[Any]:
        """What the convolution's schedule copies first."""
        return [topi.nn.conv2d_patches(inputs[0], *_windows(attrs), int(attrs.rows))]


def _windows(attrs: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Their size, strides, padding and dilation."""
    return ints(attrs.kernel_size), ints(attrs.strides), ints(attrs.padding), ints(attrs.dilation)


def _packed_depthwise_strategy(attrs: Any, inputs: Sequence[Any], out_type: Any, target: Target) -> OpStrategy:
    compute = wrap_compute_conv2d(topi.cpu.depthwise_conv2d_NCHWc, need_data_layout=True, need_out_layout=True)
    schedule = wrap_topi_schedule(topi.cpu.schedule_depthwise_conv2d_NCHWc)
    return one_implementation(compute, schedule, "depthwise_conv2d_NCHWc.cpu")


class ContribDepthwiseConv2DNCHWc(ContribConv2DNCHWc):
    """Depthwise 2-D convolution with packed channels: data NCHW{b}c, kernel OIHW1i{b}o."""

    name = "nn.contrib_depthwise_conv2d_NCHWc"

    strategy = staticmethod(_packed_depthwise_strategy)


def conv2d(
    data: RelayExpr,
    weight: RelayExpr,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """2-D convolution of ``data`` (``data_layout``) with ``weight`` (``kernel_layout``).

    ``padding`` is one value, two (height, width) or four (top, left, bottom, right). ``channels`` and ``kernel_size``
    let type inference find the weight's type.
    """
    values = conv_attrs(2, strides, padding, dilation, groups, channels, kernel_size, data_layout, kernel_layout,
                        out_layout, out_dtype)  # fmt: skip
    return call("nn.conv2d", [data, weight], Conv2DAttrs(**values))


def contrib_conv2d_nchwc(
    data: RelayExpr,
    kernel: RelayExpr,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW8c",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """``conv2d`` of packed data and kernel."""
    values = conv_attrs(2, strides, padding, dilation, groups, channels, kernel_size, data_layout, kernel_layout,
                        out_layout, out_dtype)  # fmt: skip
    return call("nn.contrib_conv2d_NCHWc", [data, kernel], Conv2DAttrs(**values))


def contrib_depthwise_conv2d_nchwc(
    data: RelayExpr,
    kernel: RelayExpr,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW8c",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """Depthwise ``conv2d`` of packed data and kernel."""
    values = conv_attrs(2, strides, padding, dilation, groups, channels, kernel_size, data_layout, kernel_layout,
                        out_layout, out_dtype)  # fmt: skip
    return call("nn.contrib_depthwise_conv2d_NCHWc", [data, kernel], Conv2DAttrs(**values))
