"""Float32 numbers as sums of bfloat16: products of float32 by what multiplies bfloat16, to float32's error.

A float has 24 bits and a bfloat16 of the same range 8, so that a float is the sum of three::

    x = x0 + x1 + x2            x0 = round(x), x1 = round(x - x0), x2 = x - x0 - x1          exactly
    x * y = x0*y2 + x1*y1 + x2*y0 + x0*y1 + x1*y0 + x0*y0          less than 2**-24 of it is left out

Sums are float32, the small products first. With two parts three products are left, to 16 bits, with one part one, to 8.
Rounding is to nearest, ties away from zero: cut off, the small products of positive numbers would all be positive, and
lost in a large sum one after another. Data that would round to infinity is cut off all the same. The first part of an
infinity is it, that of NaN NaN or an infinity, and the sum of the parts is the number, whatever it is.

Henry, Tang and Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations",
2019.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import tag
from tilewright.topi.kinds import CONV2D_PARTS, DENSE_PARTS, PARTS_OF_DATA
from tilewright.topi.nn.linear_forms import choose
from tilewright.topi.utils import get_const_tuple

Array = np.ndarray[Any, Any]

PRODUCTS: dict[int, tuple[tuple[int, int], ...]] = {
    1: ((0, 0),),
    2: ((0, 1), (1, 0), (0, 0)),
    3: ((0, 2), (0, 1), (1, 1), (1, 0), (2, 0), (0, 0)),
}
"""By the number of parts: which part of the data is multiplied with which of the weight, in order."""

EXACT = 3  # parts that add up to a float
STEP = 32  # numbers of a row of a tile
SIGN, INFINITY, ROUNDS_TO_INFINITY = 0x7FFFFFFF, 0x7F800000, 0x7F7F8000
HALF, TOP, QUIET = 0x8000, 0xFFFF0000, 0x00400000


def split(values: Array, parts: int) -> Array:
    """Return the parts of float32 numbers as float32, along a new first axis."""
    found, rest = [], np.ascontiguousarray(values, np.float32)
    for part in range(parts):
        bits = rest.view(np.uint32)
        size = bits & np.uint32(SIGN)
        if part < EXACT - 1:
            fits = size < ROUNDS_TO_INFINITY if part == 0 else True
            bits = bits + np.where(fits, np.uint32(HALF), np.uint32(0))
        if parts == 1:
            bits = np.where(size > INFINITY, bits | np.uint32(QUIET), bits)
        found.append((bits & np.uint32(TOP)).view(np.float32))
        with np.errstate(invalid="ignore"):
            rest = np.where(size != INFINITY, rest - found[-1], np.float32(0)).astype(np.float32)
    return np.stack(found)


def parts_of(x: PrimExpr, parts: int) -> list[PrimExpr]:
    """Return the parts of a float32 expression, as expressions of bfloat16."""
    found = []

    def word(value: int) -> PrimExpr:
        return ops.const(value, "uint32")

    for left in range(parts, 0, -1):
        bits = tir.reinterpret("uint32", x)
        size = bits & word(SIGN)
        if left == parts:
            bits = bits + tir.Select(size < word(ROUNDS_TO_INFINITY), word(HALF), word(0))
        elif left > parts - EXACT + 1:
            bits = bits + word(HALF)
        if parts == 1:
            bits = tir.Select(size > word(INFINITY), bits | word(QUIET), bits)
        found.append(tir.reinterpret("bfloat16", ops.cast("uint16", bits >> word(16))))
        if left > 1:
            x = x - tir.reinterpret("float32", bits & word(TOP))
            if left == parts:  # the rest of infinity, and so that of the rest, is 0
                x = tir.Select(size.equal(word(INFINITY)), ops.const(0.0, "float32"), x)
    return found


def parts_of_image(data: te.Tensor, blocks: int, tiles: int, height: int, parts: int) -> te.Tensor:
    """Split and pack an image (n, C, h, w, c) for tiles of columns: (n * h * blocks * tiles, steps, parts, height, 32).

    A row of the image is ``blocks`` blocks of ``tiles`` tiles of ``height`` columns; zeros where there is no data.
    """
    n, chunks, h, w, channels = get_const_tuple(data.shape)
    in_row, inner = blocks * tiles, chunks * channels

    def body(t: PrimExpr, s: PrimExpr, p: PrimExpr, i: PrimExpr, d: PrimExpr) -> Any:
        image, column, depth = tir.indexdiv(t, in_row), tir.indexmod(t, in_row) * height + i, s * STEP + d
        at = tir.indexdiv(image, h), tir.indexdiv(depth, channels), tir.indexmod(image, h), column
        tests = [column < w] * (in_row * height > w) + [depth < inner] * (inner % STEP > 0)
        return _part(data(*at, tir.indexmod(depth, channels)), tests, parts, p)

    shape = (n * h * in_row, -(-inner // STEP), parts, height, STEP)
    return te.compute(shape, body, name="parts_of_image", tag=PARTS_OF_DATA)


def parts_of_data(data: te.Tensor, tiles: int, height: int, parts: int) -> te.Tensor:
    """Split and pack data (rows, sum) for tiles: (tiles, steps, parts, height, 32), zeros where there is no data."""
    rows, inner = get_const_tuple(data.shape)

    def body(t: PrimExpr, s: PrimExpr, p: PrimExpr, i: PrimExpr, d: PrimExpr) -> Any:
        row, depth = t * height + i, s * STEP + d
        tests = [row < rows] * (tiles * height > rows) + [depth < inner] * (inner % STEP > 0)
        return _part(data(row, depth), tests, parts, p)

    shape = (tiles, -(-inner // STEP), parts, height, STEP)
    return te.compute(shape, body, name="parts_of_data", tag=PARTS_OF_DATA)


def _part(x: Any, tests: Sequence[PrimExpr], parts: int, part: PrimExpr) -> PrimExpr:
    """Return a part of ``x``, of 0 where a test says that there is no data."""
    for test in tests:
        x = tir.if_then_else(tir.likely(test), x, ops.const(0.0, "float32"))
    result: PrimExpr = choose(parts_of(x, parts), part)
    return result


def product_of_parts(data: te.Tensor, weight: te.Tensor, inner: int, tiles: int = 0) -> Any:
    """Return the body of a product of data in parts with a weight, for a compute of (rows, columns).

    The weight is (n / b, k, b), or a convolution's of single points, (n / b, k / c, 1, 1, c, b). ``tiles``: of (blocks,
    rows, columns) instead, with so many tiles of rows in a block.
    """
    _, _, parts, height, _ = get_const_tuple(data.shape)
    *_, channels, width = get_const_tuple(weight.shape)
    k = te.reduce_axis((0, inner), name="k")
    along = (k.var,) if weight.ndim == 3 else (tir.indexdiv(k.var, channels), 0, 0, tir.indexmod(k.var, channels))

    def body(*i: PrimExpr) -> Any:
        *block, row, column = i
        tile, step = tir.indexdiv(row, height), tir.indexdiv(k.var, STEP)
        tile = block[0] * tiles + tile if block else tile
        numbers = [data(tile, step, p, tir.indexmod(row, height), tir.indexmod(k.var, STEP)) for p in range(parts)]
        value = ops.cast("float32", numbers[-1])
        for number in numbers[-2::-1]:
            value = ops.cast("float32", number) + value
        return te.sum(value * weight(tir.indexdiv(column, width), *along, tir.indexmod(column, width)), axis=k)

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


def conv2d_of_parts(data: te.Tensor, kernel: te.Tensor, shape: Sequence[int], tiles: int, chunk: int) -> te.Tensor:
    """Multiply ``parts_of_image`` by a kernel (O, C, 1, 1, c, o): ``shape`` (n, O, h, w, o), ``tiles`` at a time.

    ``chunk``: numbers of the sum that are added up for all channels of a task before the next.
    """
    whole, _, _, height, _ = get_const_tuple(data.shape)
    n, chunks, h, _, lanes = shape
    block, inner = tiles * height, math.prod(get_const_tuple(kernel.shape)[1:-1])
    body = product_of_parts(data, kernel, inner, tiles)
    product = te.compute(
        (whole // tiles, block, chunks * lanes), body, name="conv2d_parts", tag=CONV2D_PARTS, attrs={"chunk": chunk}
    )
    in_row = whole // tiles // max(n * h, 1)

    def element(b: PrimExpr, oc: PrimExpr, y: PrimExpr, x: PrimExpr, o: PrimExpr) -> Any:
        column = tir.Call("int32", "tir.reinterpret", (tir.indexmod(x, block),))  # all of a block are computed
        return product((b * h + y) * in_row + tir.indexdiv(x, block), column, oc * lanes + o)

    return te.compute(tuple(shape), element, name="T_cut", tag=tag.INJECTIVE)
