"""Dense layers by Strassen's method: seven products of half-size blocks instead of eight.

Data and weight are cut in 2 x 2 blocks. Seven linear forms of each are multiplied, and the products add up to the
blocks of the result, in Winograd's variant of Strassen's method (Strassen, "Gaussian elimination is not optimal",
1969)::

    i   form of the data          form of the weight               result
    0   A11                       B11 = T2 - T3                    C11 = P0 + P1
    1   A12                       B21                              C12 = P0 + P5 + P4 + P2
    2   A12 - A21 - A22 + A11     B22                              C21 = P0 + P5 + P6 - P3
    3   A22                       T2 - B21                         C22 = P0 + P5 + P6 + P4
    4   A21 + A22                 B12 - B11 = B22 - T2
    5   A21 + A22 - A11           T2 = B22 - B12 + B11
    6   A11 - A21                 T3 = B22 - B12

Of the weight T2, T3, B22 and B21 are stored, so that it takes no more memory than before and three forms need one
subtraction, done as the products read it: some processors have separate units for additions, and elsewhere these are
one in nine of a tile's operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi.kinds import DENSE_STRASSEN
from tilewright.topi.nn.linear_forms import Matrix, choose, row_of
from tilewright.topi.utils import InvalidShapeError, get_const_tuple

Array = np.ndarray[Any, Any]

# Rows: products; columns: A11, A12, A21, A22.
_DATA_FORMS: Matrix = (
    (1, 0, 0, 0),
    (0, 1, 0, 0),
    (1, 1, -1, -1),
    (0, 0, 0, 1),
    (0, 0, 1, 1),
    (-1, 0, 1, 1),
    (1, 0, -1, 0),
)
# Rows: T2, T3, B22, B21; columns: B11, B12, B21, B22.
STORED: Matrix = ((1, -1, 0, 1), (0, -1, 0, 1), (0, 0, 0, 1), (0, 0, 1, 0))
# Rows: products; columns: T2, T3, B22, B21.
_WEIGHT_FORMS: Matrix = (
    (1, -1, 0, 0),
    (0, 0, 0, 1),
    (0, 0, 1, 0),
    (1, 0, 0, -1),
    (-1, 0, 1, 0),
    (1, 0, 0, 0),
    (0, 1, 0, 0),
)
PRODUCTS = len(_DATA_FORMS)


def transform_weight(weight: Array, block: int, chunk: int) -> Array:
    """Return the stored form of a weight (n, k): (k / 2 chunk, n / 2 block, 4, chunk, block), from double precision."""
    units, inner = weight.shape
    cut = weight.reshape(units // (2 * block), 2, block, inner // (2 * chunk), 2, chunk)
    stored = np.empty((inner // (2 * chunk), units // (2 * block), len(STORED), chunk, block), weight.dtype)
    for pair, columns in enumerate(cut):  # a part at a time, which stays in the cache
        blocks = [columns[t, :, :, u].astype(np.float64).transpose(1, 2, 0) for u in (0, 1) for t in (0, 1)]
        for form, row in enumerate(STORED):
            stored[:, pair, form] = sum(sign * part for sign, part in zip(row, blocks, strict=True) if sign)
    return stored


def multiply(data: Array, weight: Array) -> Array:
    """Compute ``dense_strassen`` on numpy arrays, by undoing the weight's transform."""
    chunks, pairs, _, chunk, block = weight.shape
    cut = np.einsum("bq,cpqkj->cpbkj", np.linalg.inv(np.array(STORED)), weight.astype(np.float64))
    plain = cut.reshape(chunks, pairs, 2, 2, chunk, block).transpose(1, 3, 5, 0, 2, 4)
    return (data.astype(np.float64) @ plain.reshape(pairs * 2 * block, -1).T).astype(data.dtype)


def strassen_weight_transform(weight: te.Tensor, block: int, chunk: int) -> te.Tensor:
    """Compute ``transform_weight`` as a tensor expression."""
    units, inner = get_const_tuple(weight.shape)

    def body(c: PrimExpr, p: PrimExpr, q: PrimExpr, k: PrimExpr, j: PrimExpr) -> Any:
        terms = [weight((p * 2 + t) * block + j, (c * 2 + u) * chunk + k) for u in (0, 1) for t in (0, 1)]
        return row_of(STORED, q, terms)

    shape = (inner // (2 * chunk), units // (2 * block), len(STORED), chunk, block)
    return te.compute(shape, body, name="strassen_weight", tag="injective")


def dense_strassen(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """Multiply data (m, k) by a weight stored by ``transform_weight``: (m, n)."""
    rows, inner = get_const_tuple(data.shape)
    chunks, column_pairs, stored, chunk, block = get_const_tuple(weight.shape)
    if inner != 2 * chunk * chunks or stored != len(STORED):
        raise InvalidShapeError(
            f"dense_strassen: data {get_const_tuple(data.shape)} and weight {get_const_tuple(weight.shape)} do not fit"
        )

    def blocks(c: PrimExpr, r: PrimExpr, k: PrimExpr) -> list[Any]:
        second = r * 2 + 1 if rows % 2 == 0 else ops.minimum(r * 2 + 1, rows - 1)
        return [data(row, (c * 2 + u) * chunk + k) for row in (r * 2, second) for u in (0, 1)]

    added = [form for form in _DATA_FORMS if sum(map(abs, form)) > 1]
    forms = te.compute(
        (chunks, -(-rows // 2), len(added), chunk),
        lambda c, r, i, k: row_of(tuple(added), i, blocks(c, r, k)),
        name="strassen_forms",
    )

    def factor(c: PrimExpr, r: PrimExpr, i: PrimExpr, k: PrimExpr) -> Any:
        plain = blocks(c, r, k)
        terms = [forms(c, r, added.index(f), k) if f in added else plain[f.index(1)] for f in _DATA_FORMS]
        return choose(terms, i)

    step = te.reduce_axis((0, chunk), name="k")
    products = te.compute(
        (chunks, column_pairs, PRODUCTS, -(-rows // 2), block),
        lambda c, p, i, r, j: te.sum(
            factor(c, r, i, step.var) * row_of(_WEIGHT_FORMS, i, [weight(c, p, q, step, j) for q in range(stored)]),
            axis=step,
        ),
        name="strassen_products",
    )
    part = te.reduce_axis((0, chunks), name="chunk")

    def body(m: PrimExpr, n: PrimExpr) -> Any:
        p, column, j = tir.indexdiv(n, 2 * block), tir.indexmod(tir.indexdiv(n, block), 2), tir.indexmod(n, block)
        where = part.var if chunks > 1 else ops.const(0, "int32")
        terms = [products(where, p, i, tir.indexdiv(m, 2), j) for i in range(PRODUCTS)]
        result = choose(_sums(terms), tir.indexmod(m, 2) * 2 + column)
        return te.sum(result, axis=part) if chunks > 1 else result

    return te.compute((rows, column_pairs * 2 * block), body, name="T_dense_strassen", tag=DENSE_STRASSEN)


def _sums(p: Sequence[Any]) -> list[Any]:
    """Return the blocks C11, C12, C21, C22 of the result from the products, with seven additions."""
    first = p[0] + p[5]
    second = first + p[6]
    return [p[0] + p[1], first + p[4] + p[2], second - p[3], second + p[4]]
