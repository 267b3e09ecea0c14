"""nn.contrib_integer_conv2d: a convolution of integers of 8 bits with its requantization, for microcontrollers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te, topi
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.prim_ops import cast, const
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations, slice_rules
from tilewright.relay.op.attributes import ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.builder import builder
from tilewright.relay.op.conv_attrs import PlainConv2DAttrs
from tilewright.relay.op.definition import OpDef, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.layout_rules import UNDEFINED, InferCorrectLayoutOutput
from tilewright.relay.op.nn.conv_common import convolve, infer_conv
from tilewright.relay.op.transform.layout import transform_array
from tilewright.target.interfaces import is_freestanding
from tilewright.target.target import Target
from tilewright.tir import op as tir_op
from tilewright.tir.layout import Layout, layout
from tilewright.topi.micro import integer_conv2d, offset
from tilewright.topi.utils import get_const_tuple

_DATA, _KERNEL, _DEPTHWISE = "NHWC", "OHWI", "HWOI"


class IntegerConv2DAttrs(PlainConv2DAttrs):
    """A convolution's attributes; the data's zero point; ``shift`` of the sums (``topi.micro.FixedPoint``); and the
    result's zero point, limits and type.
    """

    out_dtype: str = "int8"
    zero: int = 0
    shift: int = 0
    out_zero: int = 0
    low: int = -128
    high: int = 127


class IntegerConv2D(OpDef[IntegerConv2DAttrs]):
    """``clip(rint(float32(sum(x * w) + bias) * factor) + out_zero, low, high)``, with padding of ``zero``.

    ``parameters`` has a row for each output channel: its bias, which takes in what the zero point adds, its factor as a
    multiplier of fixed point, and the bits of the factor in float32.
    """

    name = "nn.contrib_integer_conv2d"
    inputs = ("data", "weight", "parameters")

    band_operands = staticmethod(slice_rules.convolution)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: IntegerConv2DAttrs, solver: TypeSolver) -> Type | None:
        """The type of a convolution, of ``out_dtype``."""
        data, weight, parameters = relations.tensors(types, IntegerConv2D.inputs)
        relations.require(data.dtype in ("int8", "uint8"), f"the data are int8 or uint8, found {data.dtype}")
        relations.require(weight.dtype == "int8", f"the weights are int8, found {weight.dtype}")
        relations.require(parameters.dtype == "int32", f"the parameters are int32, found {parameters.dtype}")
        return infer_conv(types, attrs, solver, 2)

    @staticmethod
    def infer_correct_layout(
        attrs: IntegerConv2DAttrs, new_in: Sequence[Layout], old_in: Sequence[Layout], old_types: Sequence[Type]
    ) -> InferCorrectLayoutOutput:
        """Require exactly the layouts in the attributes."""
        data = layout(attrs.data_layout)
        return InferCorrectLayoutOutput([data, layout(attrs.kernel_layout), UNDEFINED], [data], attrs)

    @staticmethod
    def alter_op_layout(
        attrs: IntegerConv2DAttrs, args: Sequence[RelayExpr], types: Sequence[Any], out_type: Type
    ) -> RelayExpr | None:
        """Take channels last, where the kernel in C does."""
        if attrs.data_layout != "NCHW" or not in_c():
            return None
        kernel = _DEPTHWISE if is_depthwise(attrs, types[1].shape) else _KERNEL
        return Call(IntegerConv2D.op, args, attrs.replace(data_layout=_DATA, kernel_layout=kernel))

    @staticmethod
    def evaluate(attrs: IntegerConv2DAttrs, inputs: Sequence[Array]) -> list[Array]:
        data = transform_array(inputs[0], attrs.data_layout, "NCHW").astype(np.int64) - attrs.zero
        weight = transform_array(inputs[1], attrs.kernel_layout, "OIHW").astype(np.int64)
        bias = inputs[2][:, 0] + attrs.zero * weight.sum((1, 2, 3))
        pads, groups = padding_of(attrs.padding, 2), int(attrs.groups)
        sums = convolve(data, weight, ints(attrs.strides), pads, ints(attrs.dilation), groups)
        factors = np.ascontiguousarray(inputs[2][:, 2]).view(np.float32)
        scaled = (sums + bias.reshape(-1, 1, 1)).astype(np.float32) * factors.reshape(-1, 1, 1)
        result = np.clip(np.rint(scaled) + attrs.out_zero, attrs.low, attrs.high).astype(attrs.out_dtype)
        return [transform_array(result, "NCHW", attrs.data_layout)]

    @staticmethod
    def compute(attrs: IntegerConv2DAttrs, inputs: Sequence[te.Tensor], out_type: Type) -> list[te.Tensor]:
        """Call the kernel in C, where the code is freestanding and channels come last; else loops."""
        if attrs.data_layout == _DATA and in_c():
            assert isinstance(out_type, TensorType)
            shape = shape_of(attrs, inputs, out_type)
            return [integer_conv2d(inputs[0], inputs[1], inputs[2], shape, out_type.shape, attrs.out_dtype)]
        return [_in_loops(attrs, *inputs)]


contrib_integer_conv2d = builder(IntegerConv2D)


def in_c() -> bool:
    """Return whether the current target is C without a runtime."""
    target = Target.current()
    return target is not None and is_freestanding(target)


def is_depthwise(attrs: IntegerConv2DAttrs, weight: Sequence[Any]) -> bool:
    """Return whether each output channel reads an input channel of its own; ``weight``: shape in OIHW."""
    outputs, inputs, *_ = get_const_tuple(weight)
    return int(attrs.groups) > 1 and (outputs, inputs) == (int(attrs.groups), 1)


def shape_of(attrs: IntegerConv2DAttrs, inputs: Sequence[te.Tensor], out_type: TensorType) -> dict[str, int]:
    """Return the fields of ``struct tw_conv2d``; windows of one pixel walk over images of one row."""
    depthwise = attrs.kernel_layout == _DEPTHWISE
    n, h, w, c = get_const_tuple(inputs[0].shape)
    _, oh, ow, oc = get_const_tuple(out_type.shape)
    kh, kw = get_const_tuple(inputs[1].shape)[0 if depthwise else 1 :][:2]
    (sy, sx), (dy, dx), pads = ints(attrs.strides), ints(attrs.dilation), padding_of(attrs.padding, 2)
    if (kh, kw, sy, sx, *pads) == (1, 1, 1, 1, 0, 0, 0, 0):
        n, h, w, oh, ow = 1, 1, n * h * w, 1, n * oh * ow
    fields = {"images": n, "h": h, "w": w, "c": c, "oh": oh, "ow": ow, "oc": oc, "kh": kh, "kw": kw, "sy": sy}
    fields |= {"sx": sx, "dy": dy, "dx": dx, "top": pads[0], "left": pads[1]}
    fields |= {"groups": 0 if depthwise else int(attrs.groups), "zero": attrs.zero, "shift": attrs.shift}
    return fields | {"offset": offset(attrs.out_zero), "low": attrs.low, "high": attrs.high}


def _in_loops(attrs: IntegerConv2DAttrs, data: te.Tensor, weight: te.Tensor, channels: te.Tensor) -> te.Tensor:
    """Convolve in int32, and scale in float32."""
    image = topi.layout_transform(data, attrs.data_layout, "NCHW")
    top, left, bottom, right = padding_of(attrs.padding, 2)
    zero = const(attrs.zero, data.dtype)
    wide = topi.nn.pad(image, (0, 0, top, left), (0, 0, bottom, right), zero)
    taps = topi.layout_transform(weight, attrs.kernel_layout, "OIHW")
    strides, dilation = ints(attrs.strides), ints(attrs.dilation)
    sums = topi.nn.group_conv2d_nchw(wide, taps, strides, (0, 0), dilation, int(attrs.groups), "int32")

    def narrowed(n: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        factor = tir_op.reinterpret("float32", channels(c, 2))
        value = cast("float32", sums(n, c, y, x) + channels(c, 0)) * factor
        steps = tir_op.nearbyint(value) + const(float(attrs.out_zero), "float32")
        low, high = (const(float(v), "float32") for v in (attrs.low, attrs.high))
        return cast(attrs.out_dtype, tir_op.max(tir_op.min(steps, high), low))

    result = te.compute(sums.shape, narrowed, "requantized")
    return topi.layout_transform(result, "NCHW", attrs.data_layout)
