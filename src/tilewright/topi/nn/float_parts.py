"""Float32 numbers as sums of bfloat16: products of float32 by what multiplies bfloat16, to float32's error.

A float has 24 bits and a bfloat16 of the same range 8, so that a float is the sum of three::

    x = x0 + x1 + x2            x0 = round(x), x1 = round(x - x0), x2 = x - x0 - x1          exactly
    x * y = x0*y2 + x1*y1 + x2*y0 + x0*y1 + x1*y0 + x0*y0          less than 2**-24 of it is left out

Sums are float32, the small products first. With two parts three products are left, to 16 bits, with one part one, to 8.
Rounding is to nearest, ties away from zero. Data that would round to infinity is cut off instead; an infinity and NaN
are their own first part, and the others 0, so that the sum of the parts is the number, whatever it is.

Henry, Tang and Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations",
2019.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import tag
from tilewright.topi.kinds import DENSE_PARTS, PARTS_OF_DATA
from tilewright.topi.nn.linear_forms import choose
from tilewright.topi.utils import get_const_tuple

Array = np.ndarray[Any, Any]

PRODUCTS: dict[int, tuple[tuple[int, int], ...]] = {
    1: ((0, 0),),
    2: ((0, 1), (1, 0), (0, 0)),
    3: ((0, 2), (0, 1), (1, 1), (1, 0), (2, 0), (0, 0)),
}
"""By the number of parts: which part of the data is multiplied with which of the weight, in order."""

STEP = 32  # numbers of a row of a tile
SIGN, INFINITY, ROUNDS_TO_INFINITY = 0x7FFFFFFF, 0x7F800000, 0x7F7F8000
HALF, TOP, QUIET = 0x8000, 0xFFFF0000, 0x00400000


def split(values: Array, parts: int) -> Array:
    """Return the parts of float32 numbers as float32, along a new first axis."""
    found, rest = [], np.ascontiguousarray(values, np.float32)
    for _ in range(parts):
        bits = rest.view(np.uint32)
        size = bits & np.uint32(SIGN)
        bits = bits + np.where(size < ROUNDS_TO_INFINITY, np.uint32(HALF), np.uint32(0))
        bits = np.where(size > INFINITY, bits | np.uint32(QUIET), bits) & np.uint32(TOP)
        found.append(bits.view(np.float32))
        with np.errstate(invalid="ignore"):
            rest = np.where(size < INFINITY, rest - found[-1], np.float32(0)).astype(np.float32)
    return np.stack(found)


def parts_of(x: PrimExpr, parts: int) -> list[PrimExpr]:
    """Return the parts of a float32 expression, as expressions of bfloat16."""
    found = []

    def word(value: int) -> PrimExpr:
        return ops.const(value, "uint32")

    for left in range(parts, 0, -1):
        bits = tir.reinterpret("uint32", x)
        size = bits & word(SIGN)
        rounded = bits + tir.Select(size < word(ROUNDS_TO_INFINITY), word(HALF), word(0))
        bits = tir.Select(size > word(INFINITY), bits | word(QUIET), rounded)
        found.append(tir.reinterpret("bfloat16", ops.cast("uint16", bits >> word(16))))
        if left > 1:
            rest = x - tir.reinterpret("float32", bits & word(TOP))
            x = tir.Select(size < word(INFINITY), rest, ops.const(0.0, "float32"))
    return found


def parts_of_data(data: te.Tensor, tiles: int, height: int, parts: int) -> te.Tensor:
    """Split and pack data (rows, sum) for tiles: (tiles, steps, parts, height, 32), zeros where there is no data."""
    rows, inner = get_const_tuple(data.shape)

    def body(t: PrimExpr, s: PrimExpr, p: PrimExpr, i: PrimExpr, d: PrimExpr) -> Any:
        row, depth = t * height + i, s * STEP + d
        x = data(row, depth)
        tests = ([row < rows] if tiles * height > rows else []) + ([depth < inner] if inner % STEP else [])
        for test in tests:
            x = tir.if_then_else(tir.likely(test), x, ops.const(0.0, "float32"))
        return choose(parts_of(x, parts), p)

    shape = (tiles, -(-inner // STEP), parts, height, STEP)
    return te.compute(shape, body, name="parts_of_data", tag=PARTS_OF_DATA)


def product_of_parts(data: te.Tensor, weight: te.Tensor, inner: int, tiles: int = 0) -> Any:
    """Return the body of a product of data in parts with a weight (n / b, k, b), for a compute of (rows, columns).

    ``tiles``: of (blocks, rows, columns) instead, with so many tiles of rows in a block.
    """
    _, _, parts, height, _ = get_const_tuple(data.shape)
    width = get_const_tuple(weight.shape)[-1]
    k = te.reduce_axis((0, inner), name="k")

    def body(*i: PrimExpr) -> Any:
        *block, row, column = i
        tile, step = tir.indexdiv(row, height), tir.indexdiv(k.var, STEP)
        tile = block[0] * tiles + tile if block else tile
        numbers = [data(tile, step, p, tir.indexmod(row, height), tir.indexmod(k.var, STEP)) for p in range(parts)]
        value = ops.cast("float32", numbers[-1])
        for number in numbers[-2::-1]:
            value = ops.cast("float32", number) + value
        return te.sum(value * weight(tir.indexdiv(column, width), k.var, tir.indexmod(column, width)), axis=k)

    return body


def dense_of_parts(data: te.Tensor, weight: te.Tensor, rows: int, inner: int, tiles: int) -> te.Tensor:
    """Multiply ``parts_of_data`` by a weight (n / b, k, b): (rows, n) of float32, ``tiles`` of rows at a time."""
    whole, _, _, height, _ = get_const_tuple(data.shape)
    blocks, _, width = get_const_tuple(weight.shape)
    block = tiles * height
    shape = (whole // tiles, block, blocks * width)
    body = product_of_parts(data, weight, inner, tiles)
    product = te.compute(shape, body, name="T_dense_parts", tag=DENSE_PARTS)

    def element(i: PrimExpr, j: PrimExpr) -> Any:
        row = tir.Call("int32", "tir.reinterpret", (tir.indexmod(i, block),))  # all rows of a block are computed
        return product(tir.indexdiv(i, block), row, j)

    return te.compute((rows, blocks * width), element, name="T_cut", tag=tag.INJECTIVE, attrs={"block": width})
