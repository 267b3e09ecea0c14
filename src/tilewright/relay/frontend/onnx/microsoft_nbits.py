"""MatMulNBits of com.microsoft: products with constant weights of few bits, quantized by block."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.runtime.ndarray import share_memory
from tilewright.topi.nn import nbits

_DOMAIN = "com.microsoft"
_LEAST_BLOCK = 16
_LEVELS = range(5)
Array = np.ndarray[Any, Any]


@converter("MatMulNBits", domain=_DOMAIN, in_float32=True, weights=(2, 3))
def convert_matmul_of_bits(ctx: NodeContext) -> RelayExpr:
    """A product with constant weights of 2, 4 or 8 bits, with a scale and a zero point for each block of a column."""
    size, units, bits, block = (_number(ctx, name) for name in ("K", "N", "bits", "block_size"))
    level = ctx.attr("accuracy_level", 0)
    if bits not in nbits.WIDTHS:
        ctx.unsupported(f"weights of {bits} bits; 2, 4 and 8 are supported")
    if level not in _LEVELS:
        ctx.fail(f"attribute 'accuracy_level' is {level}; it is 0 (nothing said) to 4 (int8)")
    if block % _LEAST_BLOCK and block < size:
        ctx.fail(f"attribute 'block_size' is {block}; it is a multiple of {_LEAST_BLOCK}, or at least K, {size}")
    codes, scales, zeros = _matrix(ctx, size, units, bits, block)
    data = _rows(ctx, size)
    order = _order_of_groups(ctx, size, block) if ctx.has_input(4) else None
    if order is not None:
        data = typed(relay_op.take(data, const(order.astype("int32")), axis=1))
        codes = _in_order(codes, bits, block, order)
    points = None if zeros is None else const(zeros)
    product: RelayExpr = relay_op.nn.matmul_nbits(
        data, const(share_memory(codes)), const(share_memory(scales)), points, bits, block, level, ctx.dtype(data)
    )
    if ctx.has_input(5):
        product = relay_op.nn.bias_add(typed(product), ctx.input(5), axis=-1)
    rank = ctx.rank(ctx.input(0))
    return product if rank == 2 else ctx.reshaped(typed(product), ctx.input(0), 1, 0, rank - 1)


def _number(ctx: NodeContext, name: str) -> int:
    """Return an attribute that is a positive number; ``bits`` is 4 where it is missing."""
    value = ctx.attr(name, 4) if name == "bits" else ctx.required(name)
    if not isinstance(value, int) or value < 1:
        ctx.fail(f"attribute {name!r} is {value}; it is a number from 1 on")
    return value


def _rows(ctx: NodeContext, size: int) -> RelayExpr:
    """Return the data as a matrix of ``size`` columns."""
    data = ctx.input(0)
    columns = ctx.dims(data)[-1] if ctx.rank(data) else None
    if columns is None or (isinstance(columns, int) and columns != size):
        ctx.fail(f"data of shape {tuple(ctx.dims(data))} does not have K = {size} columns")
    return data if ctx.rank(data) == 2 else typed(relay_op.reshape(data, (-1, size)))


def _of_size(ctx: NodeContext, index: int, what: str, count: int, why: str) -> Array:
    """Return a constant of ``count`` elements."""
    value = ctx.constant(index, what)
    if value.size != count:
        ctx.fail(f"{what} (input {index}, {ctx.node.input[index]!r}) have {value.size} elements; {why} take {count}")
    return value


def _matrix(ctx: NodeContext, size: int, units: int, bits: int, block: int) -> tuple[Array, Array, Array | None]:
    """Return codes (n, blocks, bytes), scales (n, blocks) and zero points (n, blocks) or None."""
    blocks = -(-size // block)
    nbytes = -(-block * bits // 8)
    form = f"N = {units} columns of K = {size} in blocks of {block}"
    codes = _of_size(ctx, 1, "the packed weights", units * blocks * nbytes, f"{form}, {bits} bits,")
    if codes.dtype != np.uint8:
        ctx.fail(f"the packed weights are {codes.dtype}; they are uint8")
    scales = _of_size(ctx, 2, "the scales", units * blocks, form).reshape(units, blocks)
    zeros = None
    if ctx.has_input(3):
        packed = ctx.constant(3, "the zero points").dtype == np.uint8
        count = units * (-(-blocks * bits // 8) if packed else blocks)
        given = _of_size(ctx, 3, "the zero points", count, f"{form}, {'packed, ' if packed else ''}")
        rows = given.reshape(units, -1)
        zeros = nbits.unpacked_codes(rows, bits, blocks) if packed else rows
    return codes.reshape(units, blocks, nbytes), scales, zeros


def _order_of_groups(ctx: NodeContext, size: int, block: int) -> Array | None:
    """Return the columns sorted by their groups, so that each block is one; None where they are sorted."""
    groups = _of_size(ctx, 4, "the group indices", size, f"K = {size}").astype(np.int64).reshape(-1)
    blocks = np.arange(size) // block
    if groups.min() < 0 or groups.max() > blocks[-1]:
        ctx.fail(f"group indices are {groups.min()} to {groups.max()}; there are groups 0 to {blocks[-1]}")
    order = np.argsort(groups, kind="stable")
    if not np.array_equal(groups[order], blocks):
        ctx.unsupported(
            f"groups of other sizes than block_size, {block}; each has {block} columns, the last one the rest"
        )
    return None if np.array_equal(groups, blocks) else order


def _in_order(codes: Array, bits: int, block: int, order: Array) -> Array:
    """Return codes with their columns in another order."""
    numbers = nbits.unpacked_codes(codes, bits, block).reshape(len(codes), -1)
    numbers[:, : len(order)] = numbers[:, order]
    return nbits.bytes_of_codes(numbers.reshape(*codes.shape[:2], block), bits)
