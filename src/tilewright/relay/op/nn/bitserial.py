"""nn.bitpack, nn.bitserial_conv2d and nn.bitserial_dense: products of integers of few bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir import dtype as dt
from tilewright.ir.attrs import Attrs
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import Padding, PerAxis
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.nn.conv_common import canonical_shape, conv_extent, shape_in_layout
from tilewright.relay.op.relations import dim_map, known
from tilewright.relay.op.strategy import generic as strategies

_KERNELS = {"NCHW": ("OIHW", "OIHWi"), "NHWC": ("HWIO", "HWIOi")}


class BitPackAttrs(Attrs):
    """Number of bits, the packed dimension, the position of the bits' dimension, and the dtype of the words."""

    bits: int = 1
    pack_axis: int = 1
    bit_axis: int = 2
    pack_type: str = "uint32"
    name: str = "BitPack"


class BinaryConv2DAttrs(Attrs):
    """Attributes of a convolution, and the bit widths of the operands."""

    strides: PerAxis = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    channels: int | None = None
    kernel_size: PerAxis = (3, 3)
    activation_bits: int = 1
    weight_bits: int = 1
    data_layout: str = "NCHW"
    kernel_layout: str = "OIHW"
    pack_dtype: str = "uint32"
    out_dtype: str = "int16"
    unipolar: bool = True


class BinaryDenseAttrs(Attrs):
    """Number of outputs, and the bit widths of the operands."""

    units: int | None = None
    data_bits: int = 1
    weight_bits: int = 1
    pack_dtype: str = "uint32"
    out_dtype: str = "int16"
    unipolar: bool = True


def pack_bits(data: Array, bits: int, pack_axis: int, bit_axis: int, dtype: str) -> Array:
    """Pack bits as nn.bitpack does, in numpy."""
    width = dt.bits(dtype)
    rows = np.moveaxis(data, pack_axis, -1)
    rows = rows.reshape(*rows.shape[:-1], rows.shape[-1] // width, width).astype(np.uint64)
    places = np.arange(width - 1, -1, -1, dtype=np.uint64)
    planes = [np.bitwise_or.reduce((rows >> np.uint64(b) & np.uint64(1)) << places, -1) for b in range(bits)]
    return np.stack([np.moveaxis(p, -1, pack_axis) for p in planes], bit_axis).astype(dtype)


def _numbers(packed: Array, pack_axis: int, bit_axis: int) -> Array:
    """Unpack the integers; ``pack_axis`` counts without the bits' dimension."""
    width = packed.dtype.itemsize * 8
    planes = np.moveaxis(packed, bit_axis, 0)
    total = np.zeros((), np.int64)
    for b, plane in enumerate(planes):
        words = np.moveaxis(plane, pack_axis, -1)[..., None].astype(np.uint64)
        bits = words >> np.arange(width - 1, -1, -1, dtype=np.uint64) & np.uint64(1)
        row = bits.reshape(*words.shape[:-2], -1).astype(np.int64)
        total = total + (np.moveaxis(row, -1, pack_axis) << b)
    return np.asarray(total)


def _weights(values: Array, bits: int, unipolar: bool) -> Array:
    """Return the values of the weights: with ``unipolar`` each bit is +1 or -1."""
    low = values.astype(np.int64) & ((1 << bits) - 1)
    return 2 * low - ((1 << bits) - 1) if unipolar else low


def _check_words(extent: Any, dtype: str, what: str) -> None:
    width = topi.nn.bitserial.binary_op_multiplier(dtype)
    value = known(extent)
    relations.require(
        value is None or value % width == 0, f"{what} should be a multiple of the {width} bits of a word, found {value}"
    )


class BitPack(OpDef[BitPackAttrs]):
    """The lowest ``bits`` of integers, packed along ``pack_axis``; see ``topi.nn.bitpack``."""

    name = "nn.bitpack"
    inputs = ("data",)
    pattern = OpPattern.OPAQUE
    schedule = strategies.schedule_bitpack

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: BitPackAttrs, solver: TypeSolver) -> Type | None:
        """A new dimension for the bits; the packed one shrinks by the width of a word."""
        data = relations.tensor(types[0], "data")
        rank = len(data.shape)
        axis = relations.normalize_axis(attrs.pack_axis, rank, "pack_axis")
        relations.require(
            0 <= attrs.bit_axis <= rank, f"bit_axis {attrs.bit_axis} is out of range for {rank} dimensions"
        )
        relations.require(
            not dt.is_float(data.dtype), f"bits of integers are packed, found {data.dtype}; cast them first"
        )
        _check_words(data.shape[axis], attrs.pack_type, f"dimension {axis}")
        shape = list(data.shape)
        shape[axis] = dim_map(lambda d: d // dt.bits(attrs.pack_type), shape[axis])
        shape.insert(attrs.bit_axis, as_expr(attrs.bits))
        return TensorType(shape, attrs.pack_type)

    @staticmethod
    def compute(attrs: BitPackAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        values = attrs.bits, attrs.pack_axis, attrs.bit_axis, attrs.pack_type, attrs.name
        return [topi.nn.bitpack(inputs[0], *values)]

    @staticmethod
    def evaluate(attrs: BitPackAttrs, inputs: Sequence[Array]) -> list[Array]:
        axis = attrs.pack_axis % inputs[0].ndim
        return [pack_bits(inputs[0], attrs.bits, axis, attrs.bit_axis, attrs.pack_type)]


bitpack = builder(BitPack)


class BitSerialConv2D(OpDef[BinaryConv2DAttrs]):
    """Convolution of integers of few bits, by counting the common bits of words."""

    name = "nn.bitserial_conv2d"
    support_level = 2
    inputs = ("data", "weight")
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    kind = "conv"
    strategy = strategies.bitserial_conv2d_strategy

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: BinaryConv2DAttrs, solver: TypeSolver) -> Type | None:
        """The type of a convolution of ``channels`` outputs; infer a missing type of the weight."""
        data = relations.tensor(types[0], "data")
        layouts = _KERNELS.get(attrs.data_layout, ("", ""))
        relations.require(
            attrs.kernel_layout in layouts,
            f"layouts are NCHW with OIHW or OIHWi, NHWC with HWIO or HWIOi; found {attrs.data_layout} with "
            f"{attrs.kernel_layout}",
        )
        relations.require(attrs.channels is not None, "channels should be given")
        relations.require_rank(data, 4, "data")
        n, c, h, w = canonical_shape(data.shape, attrs.data_layout, "NCHW", "data")
        _check_words(c, attrs.pack_dtype, "the number of channels")
        kernel = attrs.kernel_size
        weight = relations.tensor_or_none(types[1], "weight")
        if weight is None and attrs.kernel_layout == layouts[0]:
            shape = shape_in_layout(
                (as_expr(attrs.channels), c, *(as_expr(k) for k in kernel)), "OIHW", attrs.kernel_layout, "weight"
            )
            solver.assign(types[1], TensorType(shape, data.dtype))
        elif weight is not None:
            relations.require(
                len(weight.shape) in (4, 5), f"weight has 4 dimensions, 5 packed; found {len(weight.shape)}"
            )
            outputs = weight.shape[0 if attrs.data_layout == "NCHW" else 3]
            solver.assert_equal(as_expr(attrs.channels), outputs, "output channels of the weight")
        pads = padding_of(attrs.padding, 2)
        extents = [conv_extent(x, kernel[i], attrs.strides[i], 1, pads[i], pads[i + 2]) for i, x in enumerate((h, w))]
        shape = shape_in_layout((n, as_expr(attrs.channels), *extents), "NCHW", attrs.data_layout, "output")
        return TensorType(shape, attrs.out_dtype)

    @staticmethod
    def evaluate(attrs: BinaryConv2DAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, weight = inputs
        first = attrs.data_layout == "NCHW"
        if weight.ndim == 5:
            weight = _numbers(weight, 1 if first else 2, 4)
        x = data if first else np.moveaxis(data, 3, 1)
        w = weight if first else weight.transpose(3, 2, 0, 1)
        x, w = x.astype(np.int64) & ((1 << attrs.activation_bits) - 1), _weights(w, attrs.weight_bits, attrs.unipolar)
        top, left, bottom, right = padding_of(attrs.padding, 2)
        padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))
        windows = windows[:, :, :: attrs.strides[0], :: attrs.strides[1]]
        result = np.einsum("nchwij,ocij->nohw", windows, w)
        return [(result if first else np.moveaxis(result, 1, 3)).astype(attrs.out_dtype)]


bitserial_conv2d = builder(BitSerialConv2D, padding=(0, 0))


class BitSerialDense(OpDef[BinaryDenseAttrs]):
    """``data`` (batch, in) times the transposed ``weight`` (units, in), of integers of few bits."""

    name = "nn.bitserial_dense"
    inputs = ("data", "weight")
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    kind = "dense"
    strategy = strategies.bitserial_dense_strategy

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: BinaryDenseAttrs, solver: TypeSolver) -> Type | None:
        """(batch, units); infer a missing type of the weight."""
        data, weight = relations.tensor(types[0], "data"), relations.tensor_or_none(types[1], "weight")
        relations.require_rank(data, 2, "data")
        relations.require(attrs.units is not None, "units should be given")
        _check_words(data.shape[1], attrs.pack_dtype, "the inner dimension")
        if weight is None:
            solver.assign(types[1], TensorType((attrs.units, data.shape[1]), data.dtype))
        return TensorType((data.shape[0], attrs.units), attrs.out_dtype)

    @staticmethod
    def evaluate(attrs: BinaryDenseAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, weight = inputs
        weight = _numbers(weight, 1, 1) if weight.ndim == 3 else weight
        x = data.astype(np.int64) & ((1 << attrs.data_bits) - 1)
        return [(x @ _weights(weight, attrs.weight_bits, attrs.unipolar).T).astype(attrs.out_dtype)]


bitserial_dense = builder(BitSerialDense)
