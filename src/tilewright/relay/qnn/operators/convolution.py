"""qnn.conv2d and qnn.conv2d_transpose: convolutions of quantized numbers, summed in int32.

conv2d is ``nn.conv2d`` of the bytes as they are, so that kernels for bytes serve it, less what zero points add::

    sum((x - zx) * (w - zw)) = sum(x * w) - zw * sum(x) - zx * sum(w) + zx * zw * n

Sums over windows are a convolution too, with ones: that is right in every layout, with groups and with dilation. Of
constant weights all but ``sum(x)`` folds to a constant. A border is of zero points, which stand for 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, const
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.builder import builder
from tilewright.relay.op.conv_attrs import ConvAttrs
from tilewright.relay.op.definition import OpDef, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.nn.conv2d import Conv2D as FloatConv2D
from tilewright.relay.op.nn.conv2d import Conv2DAttrs
from tilewright.relay.op.nn.conv_transpose import Conv2DTransposeAttrs
from tilewright.relay.op.nn.conv_transpose import conv2d_transpose as float_conv2d_transpose
from tilewright.relay.qnn.operators import layouts
from tilewright.relay.qnn.operators.by_target import qnn_conv2d_legalize, qnn_conv2d_transpose_legalize
from tilewright.relay.qnn.operators.parameters import QnnDef, along, check_types, is_zero, number, spread
from tilewright.relay.qnn.operators.product import centred, check_bytes, less

_OUT = ("int32", "int16")
_EXACT = 2**24  # float32 has every integer up to this
_PARAMETERS = ("input_zero_point", "kernel_zero_point", "input_scale", "kernel_scale")
A = TypeVar("A", bound=ConvAttrs)


class _Convolution(QnnDef[A]):
    """A convolution of bytes: ``plain`` is that in floating point, of kernels in ``kernel_layout`` by default."""

    owners = (("input", "data"), ("kernel", "kernel"))
    plain: ClassVar[type[OpDef[Any]]]
    plain_layout: ClassVar[str] = ""

    @classmethod
    def infer_type(cls, types: Sequence[Type], attrs: A, solver: TypeSolver) -> Type | None:
        """As the convolution in floating point; ``kernel_scale`` and ``kernel_zero_point`` by output channel."""
        result = cls.plain.infer_type(types[:2], attrs, solver)
        names = ("data", "weight", *_PARAMETERS)
        check_bytes(types, names, attrs.out_dtype, _OUT)
        for layout in (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or attrs.data_layout):
            relations.require(len(layout) == 4, f"layouts have no split dimensions, found {layout}")
        if not isinstance(result, TensorType):
            return None
        channels = result.shape[(attrs.out_layout or attrs.data_layout).index("C")]
        along_channels = dict.fromkeys(("kernel_scale", "kernel_zero_point"), channels)
        return result if check_types(names, types, along_channels) else None

    @classmethod
    def evaluate(cls, attrs: A, inputs: Sequence[Array]) -> list[Array]:
        """The definition, in int32; int16 of that wraps."""
        data, weight, input_zero, kernel_zero = inputs[:4]
        axis = attrs.kernel_layout.index("O")
        operands = [less(data, input_zero.reshape(())), less(weight, along(kernel_zero, weight.ndim, axis))]
        (sums,) = cls.plain.evaluate(attrs.replace(out_dtype="int32"), operands)  # type: ignore[attr-defined]
        return [sums.astype(attrs.out_dtype)]

    infer_correct_layout = staticmethod(layouts.convolution)

    @classmethod
    def convert_op_layout(
        cls, attrs: ConvAttrs, inputs: Sequence[RelayExpr], tinfos: Sequence[Type], desired_layouts: Sequence[str]
    ) -> RelayExpr:
        return layouts.convert_convolution(cls.name, cls.plain_layout, attrs, inputs, tinfos, desired_layouts)


class Conv2D(_Convolution[Conv2DAttrs]):
    """The convolution of ``data - input_zero_point`` with ``weight - kernel_zero_point``, in int32.

    It stands for numbers of scale ``input_scale * kernel_scale``. ``kernel_scale`` and ``kernel_zero_point`` may have
    one for each output channel. Padding stands for 0.
    """

    name = "qnn.conv2d"
    inputs = ("data", "kernel", *_PARAMETERS)
    support_level = 11
    plain = FloatConv2D

    @staticmethod
    def canonicalize_qnn(attrs: Conv2DAttrs, args: Sequence[RelayExpr], types: Sequence[Type]) -> RelayExpr:
        """nn.conv2d of the bytes, less what the zero points add."""
        return _Canonical(attrs, args, types).result()

    legalize_qnn = qnn_conv2d_legalize


class _Canonical:
    """The operators that a qnn.conv2d stands for."""

    def __init__(self, attrs: Conv2DAttrs, args: Sequence[RelayExpr], types: Sequence[Type]) -> None:
        self.kernel_layout = attrs.kernel_layout
        axis = self.kernel_layout.index("O")
        self.weight, self.weight_zero = centred(args[1], args[3], 4, axis)
        self.zero = args[2]
        self.types = types
        self.out_dtype = attrs.out_dtype
        out_layout = attrs.out_layout or attrs.data_layout
        self.channel_axis, self.rank = out_layout.index("C"), len(out_layout)
        self.data, padding = args[0], padding_of(attrs.padding)
        if any(padding) and not is_zero(self.zero):
            self.data, padding = self._bordered(attrs.data_layout, padding), (0, 0, 0, 0)
        self.attrs = attrs.replace(out_dtype="int32", padding=padding)

    def _bordered(self, layout: str, padding: Sequence[int]) -> RelayExpr:
        """The data with zero points around it."""
        top, left, bottom, right = padding
        around = {"H": (top, bottom), "W": (left, right)}
        value = number(self.zero, self._dtype(0))
        return relay_op.nn.pad(self.data, [around.get(letter, (0, 0)) for letter in layout], value)

    def result(self) -> RelayExpr:
        """The convolution, and the corrections that are not 0."""
        total: RelayExpr = Call(FloatConv2D.op, [self.data, self.weight], self.attrs)
        if not is_zero(self.weight_zero):
            zero = self._by_channel(self.weight_zero)
            total = relay_op.subtract(total, relay_op.multiply(zero, self._window_sums()))
        if not is_zero(self.zero):
            offset = self._weight_sums()
            if not is_zero(self.weight_zero):
                count = const(math.prod(self._extents("IHW").values()), "int32")
                offset = relay_op.subtract(offset, relay_op.multiply(self._by_channel(self.weight_zero), count))
            total = relay_op.subtract(total, relay_op.multiply(number(self.zero, "int32"), offset))
        return total if self.out_dtype == "int32" else relay_op.cast(total, self.out_dtype)

    def _by_channel(self, zero: RelayExpr) -> RelayExpr:
        return spread(zero, self.types[3], self.rank, self.channel_axis, "int32")

    def _dtype(self, index: int) -> str:
        type_ = self.types[index]
        assert isinstance(type_, TensorType)
        return type_.dtype

    def _extents(self, letters: str) -> dict[str, int]:
        """Extents of the weight, by letters of its layout."""
        type_ = self.types[1]
        assert isinstance(type_, TensorType)
        sizes = dict(zip(self.kernel_layout, type_.concrete_shape, strict=True))
        return {letter: sizes[letter] for letter in letters}

    def _window_sums(self) -> RelayExpr:
        """The sums of the data over each window: of all channels where there are no groups, else of each group's."""
        sizes, attrs = self._extents("OIHW"), self.attrs.replace(channels=None, kernel_size=None)
        data, dtype = self.data, "int8"
        if self.attrs.groups == 1:  # channels first: one sum is left of them, and a window of one channel
            dtype = "float32" if 255 * sizes["I"] * sizes["H"] * sizes["W"] < _EXACT else "int32"
            axis = self.attrs.data_layout.index("C")
            data = relay_op.cast(relay_op.sum(relay_op.cast(data, "int32"), axis=[axis], keepdims=True), dtype)
            sizes |= {"O": 1, "I": 1}
            attrs = attrs.replace(out_dtype=dtype)
        ones = np.ones([sizes[letter] for letter in self.kernel_layout], dtype)
        return relay_op.cast(Call(FloatConv2D.op, [data, const(ones)], attrs), "int32")

    def _weight_sums(self) -> RelayExpr:
        """The sums of the weight, by output channel."""
        others = [i for i, letter in enumerate(self.kernel_layout) if letter != "O"]
        sums = relay_op.sum(relay_op.cast(self.weight, "int32"), axis=others)
        shape = [-1 if i == self.channel_axis else 1 for i in range(self.rank)]
        return relay_op.reshape(sums, newshape=shape)


_ORDER = " ".join(_PARAMETERS)
conv2d = builder(
    Conv2D,
    order=f"data kernel {_ORDER} kernel_size channels strides padding dilation groups data_layout kernel_layout "
    "out_layout out_dtype",
    kernel_size=...,
    channels=...,
    out_dtype="int32",
)


class Conv2DTranspose(_Convolution[Conv2DTransposeAttrs]):
    """The transposed convolution of ``data - input_zero_point`` with ``weight - kernel_zero_point``, in int32."""

    name = "qnn.conv2d_transpose"
    inputs = ("data", "weight", *_PARAMETERS)
    support_level = 11
    owners = (("input", "data"), ("kernel", "weight"))
    plain = float_conv2d_transpose.op.get_attr("OpDef")
    plain_layout = "IOHW"

    @staticmethod
    def canonicalize_qnn(attrs: Conv2DTransposeAttrs, args: Sequence[RelayExpr], types: Sequence[Type]) -> RelayExpr:
        """nn.conv2d_transpose of int16, which has every difference of bytes."""
        data, weight = (relay_op.cast(arg, "int16") for arg in args[:2])
        if not is_zero(args[2]):
            data = relay_op.subtract(data, number(args[2], "int16"))
        if not is_zero(args[3]):
            axis = attrs.kernel_layout.index("O")
            weight = relay_op.subtract(weight, spread(args[3], types[3], 4, axis, "int16"))
        total = Call(float_conv2d_transpose.op, [data, weight], attrs.replace(out_dtype="int32"))
        return total if attrs.out_dtype == "int32" else relay_op.cast(total, attrs.out_dtype)

    legalize_qnn = qnn_conv2d_transpose_legalize


conv2d_transpose = builder(
    Conv2DTranspose,
    order=f"data weight {_ORDER} strides padding dilation groups channels kernel_size data_layout kernel_layout "
    "out_layout output_padding out_dtype",
    kernel_layout="IOHW",
    out_dtype="int32",
)
