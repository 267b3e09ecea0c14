"""Matrices of block-quantized weights: how their numbers lie in memory, and products with them in plain loops.

A number of a matrix (n, k) is ``(code - zero) * scale``, with a scale and a zero point for each block of a row.
``codes`` (n, blocks, bytes) of uint8 hold codes of 2, 4 or 8 bits, the low bits of a byte first, each block from a byte
of its own: as ONNX's ``MatMulNBits`` has them. Where there are no zero points, they are ``2**(bits - 1)``.

Packed for CPUs (``packed_codes``), ``lanes`` rows are side by side: words of 32 bits (n / lanes, blocks, words, lanes),
each with neighbours along k of one row. Byte j of a word has the codes ``j, 4 + j, ...``, the first in its low bits, so
that a shift and a mask give four neighbours in four bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.ir import prim_ops as ops
from tilewright.runtime.parallel import in_parallel
from tilewright.topi import tag
from tilewright.topi.nn.dense import dense
from tilewright.topi.utils import get_const_int

WIDTHS = (2, 4, 8)
WORD_BITS = 32

Array = np.ndarray[Any, Any]


def default_zero(bits: int) -> int:
    """Return the zero point of codes that have none of their own."""
    return 1 << (bits - 1)


def unpacked_codes(codes: Array, bits: int, size: int) -> Array:
    """Return the last axis' numbers of ``bits`` bits, the low ones of a byte first, cut to ``size``; uint8."""
    shifts = np.arange(0, 8, bits, dtype="uint8")
    numbers = (codes[..., None] >> shifts) & ((1 << bits) - 1)
    return numbers.reshape(*codes.shape[:-1], -1)[..., :size]


def bytes_of_codes(numbers: Array, bits: int) -> Array:
    """Return numbers below ``2**bits`` packed along the last axis, the low bits of a byte first: uint8."""
    each = 8 // bits
    padded = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % each)])
    parts = padded.reshape(*numbers.shape[:-1], -1, each).astype("uint8")
    result: Array = np.bitwise_or.reduce(parts << np.arange(0, 8, bits, dtype="uint8"), axis=-1)
    return result


def dequantized(codes: Array, scales: Array, zeros: Array | None, bits: int, block: int, size: int) -> Array:
    """Return the matrix (n, size) in float32."""
    numbers = unpacked_codes(codes, bits, block).astype("float32")
    zero = np.float32(default_zero(bits)) if zeros is None else zeros.astype("float32")[..., None]
    matrix = (numbers - zero) * scales.astype("float32")[..., None]
    return matrix.reshape(len(codes), codes.shape[1] * block)[:, :size]


def words_of_block(bits: int, block: int) -> int:
    """Return how many words of 32 bits a block of one row takes."""
    return -(-block * bits // WORD_BITS)


_PART = 1 << 18  # bytes of codes that are packed at a time


def packed_codes(codes: Array, bits: int, block: int, lanes: int, out: Array | None = None) -> Array:
    """Return ``codes`` in words for ``lanes`` rows at a time: int32 (n / lanes, blocks, words, lanes), in ``out``."""
    rows, blocks, width = codes.shape
    if out is None:
        out = np.empty((-(-rows // lanes), blocks, words_of_block(bits, block), lanes), "<i4")
    panels = max(1, _PART // max(1, lanes * blocks * width))

    def pack(start: int) -> None:
        part = codes[start * lanes : (start + panels) * lanes]
        out[start : start + panels] = _packed_panels(part, bits, block, lanes)

    in_parallel(pack, range(0, len(out), panels))
    return out


def _packed_panels(codes: Array, bits: int, block: int, lanes: int) -> Array:
    rows, blocks, width = codes.shape
    if bits == 4 and rows % lanes == 0 and width % 4 == 0 and width * 2 == block:
        whole = _interleaved(np.ascontiguousarray(codes).view("<u4")).view("<i4")
        return whole.reshape(-1, lanes, blocks, width // 4).transpose(0, 2, 3, 1)
    words, shifts = words_of_block(bits, block), 8 // bits
    numbers = unpacked_codes(codes, bits, block)
    ends = (-rows % lanes, 0, words * WORD_BITS // bits - block)
    numbers = np.pad(numbers, [(0, end) for end in ends]).reshape(-1, lanes, blocks, words, shifts, 4)
    parts = numbers << (bits * np.arange(shifts, dtype="uint8"))[:, None]
    whole = np.bitwise_or.reduce(parts, axis=-2).transpose(0, 2, 3, 1, 4)
    return np.ascontiguousarray(whole).view("<i4")[..., 0]


def _interleaved(words: Array) -> Array:
    """Return words with their eight numbers of 4 bits in the order 0, 4, 1, 5, 2, 6, 3, 7 from the lowest on."""
    for kept, moved, shift in ((0xFF0000FF, 0x0000FF00, 8), (0xF00FF00F, 0x00F000F0, 4)):
        low, high = np.uint32(moved), np.uint32(moved << shift)
        words = (words & np.uint32(kept)) | ((words & low) << np.uint32(shift)) | ((words & high) >> np.uint32(shift))
    return words


def codes_of_words(words: Array, bits: int, block: int, rows: int) -> Array:
    """Return the codes, uint8 (rows, blocks, block), that ``packed_codes`` made ``words`` of."""
    panels, blocks, count, lanes = words.shape
    parts = np.ascontiguousarray(words).astype("<i4").view("uint8").reshape(panels, blocks, count, lanes, 1, 4)
    shifts = np.arange(0, 8, bits, dtype="uint8")
    numbers = ((parts >> shifts[:, None]) & ((1 << bits) - 1)).transpose(0, 3, 1, 2, 4, 5)
    return numbers.reshape(panels * lanes, blocks, -1)[:rows, :, :block]


def packed_by_block(values: Array, lanes: int) -> Array:
    """Return scales or zero points (n, blocks) for ``lanes`` rows at a time: (n / lanes, blocks, lanes)."""
    padded = np.pad(values, ((0, -len(values) % lanes), (0, 0)))
    return np.ascontiguousarray(padded.reshape(-1, lanes, values.shape[1]).transpose(0, 2, 1))


def dequantize_nbits(
    codes: te.Tensor, scales: te.Tensor, zeros: te.Tensor | None, bits: int, block: int, size: int, dtype: str
) -> te.Tensor:
    """Compute the matrix (n, size) of codes (n, blocks, bytes), scales and zero points (n, blocks)."""
    each = 8 // bits
    mask = ops.const((1 << bits) - 1, "uint8")

    def number(i: Any, j: Any) -> Any:
        b, at = ops.floordiv(j, block), ops.floormod(j, block)
        byte = codes(i, b, ops.floordiv(at, each))
        code = ops.bitwise_and(ops.shift_right(byte, ops.cast("uint8", ops.floormod(at, each) * bits)), mask)
        zero = ops.const(float(default_zero(bits)), "float32") if zeros is None else ops.cast("float32", zeros(i, b))
        return ops.cast(dtype, (ops.cast("float32", code) - zero) * ops.cast("float32", scales(i, b)))

    return te.compute((codes.shape[0], size), number, name="T_dequantize_nbits", tag=tag.INJECTIVE)


def matmul_nbits(
    data: te.Tensor, codes: te.Tensor, scales: te.Tensor, zeros: te.Tensor | None, bits: int, block: int, dtype: str
) -> te.Tensor:
    """Compute ``data`` (..., k) times the transposed matrix of codes, in float32, as ``dtype``."""
    size = get_const_int(data.shape[-1])
    product = dense(data, dequantize_nbits(codes, scales, zeros, bits, block, size, "float32"), None, "float32")
    if dtype == "float32":
        return product
    return te.compute(product.shape, lambda *i: ops.cast(dtype, product(*i)), name="T_cast", tag=tag.ELEMWISE)


def matmul_nbits_pack(
    data: te.Tensor,
    words: te.Tensor,
    scales: te.Tensor,
    zeros: te.Tensor | None,
    bits: int,
    block: int,
    units: int,
    dtype: str,
) -> te.Tensor:
    """Compute ``data`` (m, k) times the transposed matrix of packed words, in float32, as ``dtype``."""
    lanes, each, mask = get_const_int(words.shape[3]), WORD_BITS // bits, ops.const((1 << bits) - 1, "int32")

    def number(i: Any, j: Any) -> Any:
        panel, lane = ops.floordiv(i, lanes), ops.floormod(i, lanes)
        b, at = ops.floordiv(j, block), ops.floormod(j, block)
        n = ops.floormod(at, each)
        shift = ops.floormod(n, 4) * 8 + ops.floordiv(n, 4) * bits
        code = ops.bitwise_and(ops.shift_right(words(panel, b, ops.floordiv(at, each), lane), shift), mask)
        zero = ops.const(float(default_zero(bits)), "float32")
        zero = zero if zeros is None else ops.cast("float32", zeros(panel, b, lane))
        return (ops.cast("float32", code) - zero) * ops.cast("float32", scales(panel, b, lane))

    shape = units, data.shape[1]
    product = dense(data, te.compute(shape, number, name="T_numbers", tag=tag.INJECTIVE), None, "float32")
    if dtype == "float32":
        return product
    return te.compute(product.shape, lambda *i: ops.cast(dtype, product(*i)), name="T_cast", tag=tag.ELEMWISE)
