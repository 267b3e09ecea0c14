"""DequantizeLinear of a constant matrix in blocks, as ``nn.dequantize_nbits``: products and look-ups read the codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, const
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.op.nn.nbits import DequantizeNBits
from tilewright.topi.nn import nbits

Array = np.ndarray[Any, Any]


def matrix_of_blocks(ctx: NodeContext, data: RelayExpr, scale: RelayExpr, zero: RelayExpr | None) -> RelayExpr | None:
    """Return the float32 matrix of constant integers in blocks; None for other tensors, and for scales that do not fit.

    The blocks run along the rows of ``nn.dequantize_nbits``, so that a matrix (k, n) of blocks along k is transposed.
    """
    dtype, block = ctx.dtype(data), ctx.attr("block_size", 0)
    if not dt.is_int(dtype) or dt.bits(dtype) not in nbits.WIDTHS or block <= 0 or ctx.rank(data) != 2:
        return None
    axis = ctx.normalize_axis(ctx.attr("axis", 1), 2)
    parts = [None if e is None else _integers(ctx, e) for e in (data, zero)]
    scales = ctx.folded(relay_op.cast(scale, "float32")) if ctx.importer.is_known(scale) else None
    numbers, zeros = parts
    if numbers is None or scales is None or (zero is not None and zeros is None):
        return None
    shape = tuple(-(-n // block) if i == axis else n for i, n in enumerate(numbers.shape))
    if scales.shape != shape or (zeros is not None and zeros.shape != shape):
        return None
    by_rows = [a if a is None or axis == 1 else a.T for a in (numbers, scales, zeros)]
    matrix = _matrix(by_rows, dtype, block)
    return matrix if axis == 1 else relay_op.transpose(matrix, (1, 0))


def _integers(ctx: NodeContext, value: RelayExpr) -> Array | None:
    """Return known integers of up to 8 bits as int16."""
    return ctx.folded(relay_op.cast(value, "int16")) if ctx.importer.is_known(value) else None


def _matrix(by_rows: list[Any], dtype: str, block: int) -> RelayExpr:
    """Return the matrix of integers (n, k), scales and perhaps zero points (n, blocks)."""
    numbers, scales, zeros = by_rows
    bits = dt.bits(dtype)
    middle = nbits.default_zero(bits) if dtype.startswith("int") else 0
    rows, size = numbers.shape
    blocks = scales.shape[1]
    padded = np.pad(numbers + middle, ((0, 0), (0, blocks * block - size))).astype("uint8")
    codes = nbits.bytes_of_codes(padded.reshape(rows, blocks, block), bits)
    points = np.full(scales.shape, middle, "uint8") if zeros is None else (zeros + middle).astype("uint8")
    plain = (points == nbits.default_zero(bits)).all()
    zero = None if plain else const(np.ascontiguousarray(points))
    operands = const(np.ascontiguousarray(codes)), const(np.ascontiguousarray(scales, "float32"))
    return relay_op.nn.dequantize_nbits(*operands, zero, bits, block, size)


def rows_of_blocks(ctx: NodeContext, data: RelayExpr, places: RelayExpr) -> RelayExpr | None:
    """Return the rows of a table at ``places``, dequantized once they are found; None of other tensors."""
    if not isinstance(data, Call) or data.op is not DequantizeNBits.op:
        return None
    form: Any = data.attrs
    flat = typed(relay_op.reshape(places, (-1,)))
    found = [typed(relay_op.take(part, flat, axis=0, mode="fast")) for part in data.args]
    points = found[2] if len(found) > 2 else None
    numbers = int(form.bits), int(form.block_size), int(form.size)
    rows = typed(relay_op.nn.dequantize_nbits(found[0], found[1], points, *numbers))
    return ctx.reshaped(rows, places, 1, 0, ctx.rank(places))
