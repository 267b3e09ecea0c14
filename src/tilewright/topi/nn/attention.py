"""Attention: a softmax of the products of queries and keys weighs values."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import tag
from tilewright.topi.broadcast import add
from tilewright.topi.nn.softmax import softmax


def attention(
    query: te.Tensor, key: te.Tensor, value: te.Tensor, mask: te.Tensor | None = None, scale: float = 1.0
) -> te.Tensor:
    """Compute ``softmax(query @ key.T * scale + mask) @ value`` for every matrix of a batch.

    Parameters
    ----------
    query : (batch, heads, rows, depth)
    key, value : (batch, heads, keys, depth) and (batch, heads, keys, width)
    mask : added to the scores; broadcasts to (batch, heads, rows, keys)

    Returns
    -------
    (batch, rows, heads, width)
    """
    batch, heads, rows, depth = query.shape
    keys, width = value.shape[2:]
    k, t = te.reduce_axis((0, depth), name="k"), te.reduce_axis((0, keys), name="t")

    def product(b: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        return te.sum(query(b, h, i, k.var) * key(b, h, j, k.var), axis=k)

    products = te.compute((batch, heads, rows, keys), product, name="attention_products")
    factor = ops.const(scale, query.dtype)
    scores = te.compute(products.shape, lambda *i: products(*i) * factor, name="attention_scores", tag=tag.ELEMWISE)
    weights = softmax(scores if mask is None else add(scores, mask), -1)

    def weighted(b: PrimExpr, i: PrimExpr, h: PrimExpr, j: PrimExpr) -> Any:
        return te.sum(weights(b, h, i, t.var) * value(b, h, t.var, j), axis=t)

    return te.compute((batch, rows, heads, width), weighted, name="attention", tag="attention")
