"""Products of numbers of few bits, as counts of bits that two words share.

A word holds one bit of many numbers: the first in its highest place. x . w of numbers of some bits each is the sum over
pairs of bit planes of popcount(x & w), shifted. "Unipolar" data meets weights whose bits mean +1 and -1. Courbariaux et
al., Binarized Neural Networks, 2016; Cowan et al., Automatic Generation of High-Performance Quantized Machine Learning
Kernels, 2020.
"""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import tag
from tilewright.topi.kinds import BINARIZE_PACK, BITPACK
from tilewright.topi.nn.pad import pad
from tilewright.topi.transform import normalize_axis
from tilewright.topi.utils import InvalidShapeError, as_list, get_const_int, get_const_tuple, get_pad_tuple, simplify


def bitpack(
    data: te.Tensor, bits: int, pack_axis: int, bit_axis: int, pack_type: str, name: str = "QuantizeInput"
) -> te.Tensor:
    """The bits of integers, one plane for each of the lowest ``bits``, packed along ``pack_axis`` into words.

    Parameters
    ----------
    pack_axis : dimension of ``data`` that is divided by the width of ``pack_type``, and is a multiple of it
    bit_axis : where the result has its new dimension of the planes, the lowest bit first
    pack_type : uint8, uint16, uint32 or uint64
    """
    width = binary_op_multiplier(pack_type)
    pack_axis = normalize_axis(pack_axis, data.ndim)
    extent = get_const_int(data.shape[pack_axis])
    if extent % width:
        raise InvalidShapeError(f"bitpack: dimension {pack_axis} of extent {extent} is no multiple of {width} bits")
    if dt.is_float(data.dtype):
        raise InvalidShapeError(f"bitpack takes integers, found {data.dtype}; cast them first")
    shape = [simplify(d // width) if k == pack_axis else d for k, d in enumerate(data.shape)]
    shape.insert(bit_axis, ops.as_expr(bits))

    def body(*i: PrimExpr) -> PrimExpr:
        plane, at = i[bit_axis], [*i[:bit_axis], *i[bit_axis + 1 :]]
        word = ops.const(0, pack_type)
        for k in range(width):
            source = [v * width + k if axis == pack_axis else v for axis, v in enumerate(at)]
            value = data(*source)
            bit = ops.cast(pack_type, tir.shift_right(value, ops.cast(value.dtype, plane)) & ops.const(1, value.dtype))
            word = word | tir.shift_left(bit, ops.const(width - 1 - k, pack_type))
        return word

    return te.compute(shape, body, name=name, tag=BITPACK)


def binary_op_multiplier(pack_dtype: str) -> int:
    """Return how many bits a word of ``pack_dtype`` holds; raises InvalidShapeError where it is not an unsigned
    integer.
    """
    if pack_dtype not in ("uint8", "uint16", "uint32", "uint64"):
        raise InvalidShapeError(f"bits are packed into uint8, uint16, uint32 or uint64, found {pack_dtype!r}")
    return dt.bits(pack_dtype)


def _term(x: PrimExpr, w: PrimExpr, shift: PrimExpr, out_dtype: str, unipolar: bool) -> PrimExpr:
    """Return the product's term for a word of data and a word of weights from two bit planes."""
    count = ops.cast(out_dtype, tir.popcount(x & w))
    if unipolar:
        count = count - ops.cast(out_dtype, tir.popcount(x & tir.bitwise_not(w)))
    return tir.shift_left(count, ops.cast(out_dtype, shift))


def bitserial_dense(
    data: te.Tensor,
    weight: te.Tensor,
    data_bits: int,
    weight_bits: int,
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
) -> te.Tensor:
    """Compute ``data`` (batch, in) times the transposed ``weight`` (out, in), both of few bits.

    The weight may be packed already: (out, weight_bits, in / width of ``pack_dtype``), by ``bitpack(weight,
    weight_bits, 1, 1, pack_dtype)``. With ``unipolar``, a weight's bit stands for +1 or -1. Sums wrap in ``out_dtype``.
    """
    x = bitpack(data, data_bits, 1, 1, pack_dtype)
    w = bitpack(weight, weight_bits, 1, 1, pack_dtype) if weight.ndim == 2 else weight
    batch, _, words = x.shape
    k = te.reduce_axis((0, words), name="k")
    db, wb = te.reduce_axis((0, x.shape[1]), name="db"), te.reduce_axis((0, w.shape[1]), name="wb")

    def body(i: PrimExpr, j: PrimExpr) -> Any:
        return te.sum(_term(x(i, db, k), w(j, wb, k), db + wb, out_dtype, unipolar), axis=[wb, db, k])

    name = "bitserial_dense_unipolar" if unipolar else "bitserial_dense"
    return te.compute((batch, w.shape[0]), body, name="bitserial_dense", tag=name)


def bitserial_conv2d_nchw(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Any,
    padding: Any,
    activation_bits: int,
    weight_bits: int,
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
) -> te.Tensor:
    """The convolution of ``data`` (n, c, h, w) with ``kernel`` (o, c, kh, kw), of numbers of few bits.

    The kernel may be packed already: (o, c / width of ``pack_dtype``, kh, kw, weight_bits), by ``bitpack(kernel,
    weight_bits, 1, 4, pack_dtype)``. With ``unipolar``, a weight's bit stands for +1 or -1. Sums wrap in ``out_dtype``.
    """
    w = bitpack(kernel, weight_bits, 1, 4, pack_dtype) if kernel.ndim == 4 else kernel
    outputs, words, kh, kw, planes = get_const_tuple(w.shape)
    sh, sw, (top, left, bottom, right) = _steps(stride, padding, (kh, kw))
    x = bitpack(pad(data, [0, 0, top, left], [0, 0, bottom, right]), activation_bits, 1, 2, pack_dtype)
    batch, found, bits, height, width = get_const_tuple(x.shape)
    _check_words("nchw", found, words)
    rc, ry, rx = (te.reduce_axis((0, n), name=name) for n, name in ((words, "rc"), (kh, "ry"), (kw, "rx")))
    b1, b2 = te.reduce_axis((0, bits), name="b1"), te.reduce_axis((0, planes), name="b2")

    def body(n: PrimExpr, o: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        value, weight = x(n, rc, b1, i * sh + ry, j * sw + rx), w(o, rc, ry, rx, b2)
        return te.sum(_term(value, weight, b1 + b2, out_dtype, unipolar), axis=[rc, ry, rx, b2, b1])

    shape = (batch, outputs, (height - kh) // sh + 1, (width - kw) // sw + 1)
    return te.compute(shape, body, name="Conv2dOutput", tag="bitserial_conv2d_nchw")


def bitserial_conv2d_nhwc(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Any,
    padding: Any,
    activation_bits: int,
    weight_bits: int,
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
) -> te.Tensor:
    """The convolution of ``data`` (n, h, w, c) with ``kernel`` (kh, kw, c, o), of numbers of few bits.

    The kernel may be packed already: (kh, kw, c / width of ``pack_dtype``, o, weight_bits), by ``bitpack(kernel,
    weight_bits, 2, 4, pack_dtype)``. With ``unipolar``, a weight's bit stands for +1 or -1. Sums wrap in ``out_dtype``.
    """
    # A vector has neighbouring outputs: what is packed here has its planes apart.
    bit_axis = 2 if kernel.ndim == 4 else 4
    w = bitpack(kernel, weight_bits, 2, bit_axis, pack_dtype) if kernel.ndim == 4 else kernel
    shape = list(get_const_tuple(w.shape))
    planes = shape.pop(bit_axis)
    kh, kw, words, outputs = shape
    sh, sw, (top, left, bottom, right) = _steps(stride, padding, (kh, kw))
    x = bitpack(pad(data, [0, top, left, 0], [0, bottom, right, 0]), activation_bits, 3, 4, pack_dtype)
    batch, height, width, found, bits = get_const_tuple(x.shape)
    _check_words("nhwc", found, words)
    rc, ry, rx = (te.reduce_axis((0, n), name=name) for n, name in ((words, "rc"), (kh, "ry"), (kw, "rx")))
    b1, b2 = te.reduce_axis((0, bits), name="b1"), te.reduce_axis((0, planes), name="b2")

    def body(n: PrimExpr, i: PrimExpr, j: PrimExpr, o: PrimExpr) -> Any:
        at: list[Any] = [ry, rx, rc, o]
        at.insert(bit_axis, b2)
        value, weight = x(n, i * sh + ry, j * sw + rx, rc, b1), w(*at)
        return te.sum(_term(value, weight, b1 + b2, out_dtype, unipolar), axis=[rc, ry, rx, b2, b1])

    out_shape = (batch, (height - kh) // sh + 1, (width - kw) // sw + 1, outputs)
    return te.compute(out_shape, body, name="Conv2dOutput", tag="bitserial_conv2d_nhwc")


def _steps(stride: Any, padding: Any, kernel: tuple[int, int]) -> tuple[int, int, tuple[Any, ...]]:
    strides = [get_const_int(s) for s in as_list(stride)]
    return strides[0], strides[-1], get_pad_tuple(padding, kernel)


def _check_words(layout: str, data: int, kernel: int) -> None:
    if data != kernel:
        raise InvalidShapeError(
            f"bitserial_conv2d_{layout}: the data has {data} words of channels, the kernel {kernel}"
        )


def binarize_pack(data: te.Tensor, axis: int | None = None, name: str = "PackedInput") -> te.Tensor:
    """Return whether elements are at least 0, packed into uint32 along ``axis`` (the last), a multiple of 32."""
    axis = data.ndim - 1 if axis is None else normalize_axis(axis, data.ndim)
    extent = get_const_int(data.shape[axis])
    if extent % 32:
        raise InvalidShapeError(f"binarize_pack: dimension {axis} of extent {extent} is no multiple of 32 bits")
    shape = [simplify(d // 32) if k == axis else d for k, d in enumerate(data.shape)]

    def body(*i: PrimExpr) -> PrimExpr:
        word = ops.const(0, "uint32")
        for k in range(32):
            value = data(*(v * 32 + k if d == axis else v for d, v in enumerate(i)))
            sign = ops.cast("uint32", value >= ops.const(0, value.dtype))
            word = word | tir.shift_left(sign, ops.const(31 - k, "uint32"))
        return word

    return te.compute(shape, body, name=name, tag=BINARIZE_PACK)


def binary_dense(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """Compute ``data`` times the transposed ``weight``, both of numbers +1 and -1 packed by ``binarize_pack``.

    Parameters
    ----------
    data : (batch, words), weight : (out, words), uint32

    Returns (batch, out) in float32.
    """
    if (data.dtype, weight.dtype, data.ndim, weight.ndim) != ("uint32", "uint32", 2, 2):
        raise InvalidShapeError(
            f"binary_dense takes matrices of uint32 words, found {data.dtype} of rank {data.ndim} and "
            f"{weight.dtype} of rank {weight.ndim}; binarize_pack makes them"
        )
    words = data.shape[1]
    k = te.reduce_axis((0, words), name="k")

    def count(i: PrimExpr, j: PrimExpr) -> Any:
        return te.sum(tir.popcount(data(i, k) ^ weight(j, k)), axis=k)

    differing = te.compute((data.shape[0], weight.shape[0]), count, name="differing", tag="binary_dense")

    def body(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        return ops.cast("float32", words * 32) - ops.cast("float32", differing(i, j)) * ops.const(2, "float32")

    return te.compute(differing.shape, body, name="binary_dense", tag=tag.ELEMWISE)


__all__ = [
    "binarize_pack", "binary_dense", "binary_op_multiplier", "bitpack", "bitserial_conv2d_nchw",
    "bitserial_conv2d_nhwc", "bitserial_dense",
]  # fmt: skip
