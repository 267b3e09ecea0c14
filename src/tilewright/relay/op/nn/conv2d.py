"""nn.conv2d: 2-D convolution, plain, grouped and depthwise; and its packed form ``nn.contrib_conv2d_NCHWc``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import ints
from tilewright.relay.op.builder import builder
from tilewright.relay.op.conv_attrs import PlainConv2DAttrs
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.nn import kernel_cost, kernel_work
from tilewright.relay.op.nn.conv_common import (
    Conv,
    conv_extent,
    conv_layouts,
    windows_of,
)
from tilewright.relay.op.nn.conv_gradients import convolution_gradient
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy import generic as strategies
from tilewright.relay.type_infer.describe import describe_shape


class Conv2DAttrs(PlainConv2DAttrs):
    """A convolution's attributes, and the tuned configuration that chose the layouts (``autotvm.task.choices``).

    ``small_weights``: the weights are packed, and products of bytes with two neighbours are known to fit 16 bits.
    """

    tuned: str = ""
    small_weights: bool = False

    internal = ("tuned", "small_weights")


class Conv2D(Conv[Conv2DAttrs]):
    """2-D convolution of ``data`` (``data_layout``) with ``weight`` (``kernel_layout``).

    ``padding`` is one value, two (height, width) or four (top, left, bottom, right). ``channels`` and ``kernel_size``
    let type inference find the weight's type.
    """

    name = "nn.conv2d"
    support_level = 2
    rank = 2

    gradient = staticmethod(partial(convolution_gradient, rank=2))
    strategy = strategies.conv2d_strategy
    alter_op_layout = topi.nn.conv2d_alter_layout
    legalize = topi.nn.conv2d_legalize


conv2d = builder(Conv2D)


class ContribConv2DNCHWc(OpDef[Conv2DAttrs]):
    """2-D convolution with packed channels: data NCHW{i}c, kernel OIHW{i}i{o}o, output NCHW{o}c."""

    name = "nn.contrib_conv2d_NCHWc"
    inputs = ("data", "kernel")
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    in_float32 = True
    kind = "conv"
    multiply_adds = staticmethod(kernel_work.conv_multiply_adds)
    modelled_cost = staticmethod(kernel_cost.conv_cost)
    window = staticmethod(kernel_work.conv_window)

    strategy = strategies.conv2d_NCHWc_strategy
    infer_correct_layout = staticmethod(conv_layouts)
    infer_type = staticmethod(Conv2D.infer_type)
    evaluate = staticmethod(Conv2D.evaluate)


contrib_conv2d_nchwc = builder(ContribConv2DNCHWc, "contrib_conv2d_nchwc", data_layout="NCHW8c")


class PatchesAttrs(Attrs):
    """Geometry of the windows (padding as top, left, bottom, right), and how many rows of them are merged into one."""

    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    rows: int = 1


class ContribConv2DPatches(OpDef[PatchesAttrs]):
    """Windows of a packed image in the order of ``topi.nn.conv2d_patches``; only inside kernels."""

    name = "nn.contrib_conv2d_patches"
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: PatchesAttrs, solver: TypeSolver) -> Type | None:
        """(n, C * kh * kw, oh / rows, rows * ow, c) of data (n, C, h, w, c)."""
        data = relations.tensor(types[0], "data")
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
    def evaluate(attrs: PatchesAttrs, inputs: Sequence[Array]) -> list[Array]:
        size, strides, pads, dilation = _windows(attrs)
        windows = windows_of(inputs[0], size, strides, pads, dilation)  # (n, C, oh, ow, c, kh, kw)
        n, chunks, height, width, block, *_ = windows.shape
        rows = int(attrs.rows)
        taps = windows.transpose(0, 1, 5, 6, 2, 3, 4)
        return [taps.reshape(n, chunks * size[0] * size[1], height // rows, rows * width, block)]

    @staticmethod
    def compute(attrs: PatchesAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        """Lay out the windows, as the schedule of the convolution does first."""
        return [topi.nn.conv2d_patches(inputs[0], *_windows(attrs), int(attrs.rows))]


def _windows(attrs: PatchesAttrs) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return size, strides, padding and dilation of the windows."""
    return ints(attrs.kernel_size), ints(attrs.strides), ints(attrs.padding), ints(attrs.dilation)


class ContribDepthwiseConv2DNCHWc(ContribConv2DNCHWc):
    """Depthwise 2-D convolution with packed channels: data NCHW{b}c, kernel OIHW1i{b}o."""

    name = "nn.contrib_depthwise_conv2d_NCHWc"

    strategy = strategies.depthwise_conv2d_NCHWc_strategy


contrib_depthwise_conv2d_nchwc = builder(
    ContribDepthwiseConv2DNCHWc, "contrib_depthwise_conv2d_nchwc", data_layout="NCHW8c"
)
