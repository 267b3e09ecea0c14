"""Scaled dot-product attention in one kernel: scores, softmax and the weighted sum of values of a few rows at a time.

For every matrix of the batch, keys and values are packed as blocks of columns. Then, for each group of query rows::

    scores = query @ key.T * scale + mask      # register tiles, as in a dense layer; a block of keys for all rows
    powers = 2 ** ((scores - max(scores)) * log2(e))
    out    = (powers @ values) / sum(powers)

so that the scores of a whole matrix are never in memory. A few rows (decoding) take keys and values as they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tilewright import autotvm, te, tir
from tilewright.autotvm.task.space import ConfigSpace
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.intrinsics import EXP2_POLYNOMIAL
from tilewright.topi.cpu.common import (
    TUNING_CANDIDATES,
    machine,
    measured,
    typical_extent,
    vector_lanes,
)
from tilewright.topi.cpu.model.attention import AttentionTiles, attention_tiles
from tilewright.topi.kinds import ATTENTION_OUTPUT, ATTENTION_VALUES
from tilewright.topi.reduction import greatest_number
from tilewright.topi.utils import InvalidShapeError, get_const_tuple, rounded

LOG2_E = 1.4426950408889634
_MOST_ROWS = 8  # of a tile when the number of rows is symbolic: each number of rows of the last tile is code

# Added to a number of at least -127, leaves it rounded to an integer plus 127, the bias of exponents, in the low bits.
_ROUND = 1.5 * 2**23 + 127


@autotvm.register_topi_compute("attention.x86", version="1")
def attention(
    cfg: ConfigSpace,
    query: te.Tensor,
    key: te.Tensor,
    value: te.Tensor,
    mask: te.Tensor | None = None,
    scale: float = 1.0,
) -> te.Tensor:
    """Compute ``softmax(query @ key.T * scale + mask) @ value`` for every matrix of a batch.

    Parameters
    ----------
    query : (batch, heads, rows, depth)
    key, value : (batch, heads, keys, depth) and (batch, heads, keys, width)
    mask : added to the scores; broadcasts to (batch, heads, rows, keys)

    Returns
    -------
    (batch, rows, heads, width): the heads of a query side by side, as the next layer reads them.
    """
    batch, heads, rows, depth = get_const_tuple(query.shape)
    keys, width = get_const_tuple(value.shape)[2:]
    if not all(isinstance(n, int) for n in (heads, depth, width)):
        raise InvalidShapeError("attention: heads and their columns have to be known while compiling")
    likely_rows = typical_extent(rows)
    if likely_rows < measured().attention.few_rows:
        return _Attention(query, key, value, mask, scale, keys, width).result()
    bits = max(8, dt.bits(query.dtype))
    candidates = attention_tiles(machine(), likely_rows, typical_extent(keys), depth, width, bits)
    if not isinstance(keys, int):  # scores are whole blocks: what is too much of them is computed
        candidates = [t for t in candidates if t.score_block <= 2 * machine().lanes(bits)]
    if not isinstance(rows, int):
        candidates = [t for t in candidates if t.rows <= _MOST_ROWS]
    candidates = candidates[:TUNING_CANDIDATES]
    cfg.define_knob("tiles", [(t.rows, t.score_block, t.value_block) for t in candidates])
    tiles = candidates[0] if cfg.is_fallback else AttentionTiles(*cfg["tiles"].val)
    block = tiles.score_block

    def pack(b: PrimExpr, h: PrimExpr, c: PrimExpr, k: PrimExpr, j: PrimExpr) -> PrimExpr:
        row = c * block + j
        return _within(row, keys, block, key(b, h, row, k), 0.0)

    factor = scale if mask is not None else scale * LOG2_E
    scaled = te.compute(
        query.shape,
        lambda *i: query(*i) * ops.const(factor, query.dtype),
        name="attention_query",
        tag="attention_query",
    )
    packed = te.compute(
        (batch, heads, _blocks(keys, block), depth, block), pack, name="attention_keys", tag="attention_keys"
    )
    values = te.compute(
        (batch, heads, -(-width // tiles.value_block), keys, tiles.value_block),
        lambda b, h, c, t, j: _within(
            c * tiles.value_block + j, width, tiles.value_block, value(b, h, t, c * tiles.value_block + j), 0.0
        ),
        name="attention_values",
        tag=ATTENTION_VALUES,
    )
    return _Attention(scaled, packed, values, mask, scale, keys, width, tiles).result()


def _blocks(extent: Any, block: int) -> Any:
    """Return how many blocks ``extent``, a number or an expression, takes."""
    return -(-extent // block) if isinstance(extent, int) else ops.floordiv(extent + (block - 1), block)


def _within(index: PrimExpr, extent: Any, block: int, element: PrimExpr, otherwise: float) -> PrimExpr:
    """Return ``element``, or ``otherwise`` when the last block reaches beyond ``extent``."""
    if isinstance(extent, int) and extent % block == 0:
        return element
    return tir.if_then_else(tir.likely(index < extent), element, ops.const(otherwise, element.dtype))


@dataclass(frozen=True)
class AttentionParts(te.ComputeParts):
    """The steps of ``attention``, in order, and their operands.

    With ``tiles``, keys and values are ``packed`` and the ``query`` is scaled; without, they are used unpacked.
    ``addend`` is the mask, padded to the columns of the scores.
    """

    products: te.Tensor
    scores: te.Tensor
    maximum: te.Tensor
    powers: te.Tensor
    total: te.Tensor
    inverse: te.Tensor
    context: te.Tensor
    addend: te.Tensor | None = None
    packed: tuple[te.Tensor, ...] = ()
    query: te.Tensor | None = None
    tiles: AttentionTiles | None = None


@dataclass(frozen=True)
class _Attention:
    """The operands of attention; with ``tiles``, ``key`` and ``value`` are packed and the ``query`` is scaled."""

    query: te.Tensor
    key: te.Tensor
    value: te.Tensor
    mask: te.Tensor | None
    scale: float
    keys: Any  # a number, or an expression over named dimensions
    width: int
    tiles: AttentionTiles | None = None

    @property
    def rows(self) -> tuple[Any, int, Any]:
        """The shape (batch, heads, rows) of tensors with one element for each query."""
        batch, heads, rows, _ = get_const_tuple(self.query.shape)
        return batch, heads, rows

    @property
    def columns(self) -> Any:
        """Number of scores in a row: whole vectors of packed keys, or whole blocks when their number is symbolic."""
        if self.tiles is None:
            return self.keys
        if not isinstance(self.keys, int):
            return _blocks(self.keys, self.tiles.score_block) * self.tiles.score_block
        return rounded(self.keys, vector_lanes(self.query.dtype))

    def result(self) -> te.Tensor:
        """Divide each row of the context by the sum of its powers, and put the heads of a query side by side."""
        addend = _padded_mask(self.mask, self.keys, self.columns)
        products = self.products()
        scores = self.scores(products, addend)
        t, u = (te.reduce_axis((0, self.columns), name=name) for name in "tu")
        maximum = self.for_each_row("maximum", lambda *i: greatest_number(scores(*i, t.var), axis=t))
        powers = self.powers(scores, maximum)
        total = self.for_each_row("total", lambda *i: te.sum(powers(*i, u.var), axis=u))
        inverse = self.for_each_row("inverse", lambda *i: ops.const(1.0, self.query.dtype) / total(*i))
        context = self.context(powers)
        parts = AttentionParts(products, scores, maximum, powers, total, inverse, context)
        if addend is not self.mask:
            parts = replace(parts, addend=addend)
        if self.tiles:
            parts = replace(parts, packed=(self.key, self.value), query=self.query, tiles=self.tiles)
        batch, heads, rows = self.rows
        return te.compute(
            (batch, rows, heads, self.width),
            lambda b, i, h, j: context(b, h, i, j) * inverse(b, h, i),
            name="attention",
            tag=ATTENTION_OUTPUT,
            parts=parts,
        )

    def for_each_row(self, name: str, body: Callable[..., Any]) -> te.Tensor:
        """Compute one value for each query."""
        return te.compute(self.rows, body, name=f"attention_{name}", tag="attention")

    def products(self) -> te.Tensor:
        """Multiply each query by each key."""
        k = te.reduce_axis((0, get_const_tuple(self.query.shape)[-1]), name="k")

        def body(b: PrimExpr, h: PrimExpr, i: PrimExpr, t: PrimExpr) -> Any:
            if self.tiles:
                block = self.tiles.score_block
                other = self.key(b, h, tir.indexdiv(t, block), k.var, tir.indexmod(t, block))
            else:
                other = self.key(b, h, t, k.var)
            return te.sum(self.query(b, h, i, k.var) * other, axis=k)

        return te.compute((*self.rows, self.columns), body, name="attention_products", tag="attention_products")

    def scores(self, products: te.Tensor, addend: te.Tensor | None) -> te.Tensor:
        """Scale and mask the products; columns beyond the keys are minus infinity."""
        dtype = self.query.dtype

        def body(*i: PrimExpr) -> PrimExpr:
            found = products(*i) if self.tiles else products(*i) * ops.const(self.scale, dtype)
            if addend is not None:
                at = (0 if ops.is_const_int(n, 1) else v for v, n in zip(i, addend.shape, strict=True))
                return found + addend(*at)
            if _same(self.columns, self.keys):
                return found
            return found + tir.Select(i[-1] < self.keys, ops.const(0.0, dtype), ops.const(float("-inf"), dtype))

        return te.compute(products.shape, body, name="attention_scores", tag="attention_scores")

    def powers(self, scores: te.Tensor, maximum: te.Tensor) -> te.Tensor:
        """Compute exp(score - maximum of the row) as a power of two."""
        in_query = self.tiles is not None and self.mask is None  # the factor from exp to powers of 2

        def body(*i: PrimExpr) -> PrimExpr:
            # The rounding error of a product here shows in small powers only: nothing in a sum.
            exponent = scores(*i) - maximum(*i[:-1])
            return power_of_two(exponent if in_query else exponent * ops.const(LOG2_E, self.query.dtype))

        return te.compute(scores.shape, body, name="attention_powers", tag="attention")

    def context(self, powers: te.Tensor) -> te.Tensor:
        """Sum the values weighted by the powers; packed values come in whole blocks of columns."""
        block = self.tiles.value_block if self.tiles else 1
        v = te.reduce_axis((0, self.keys), name="v")

        def body(b: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
            if self.tiles:
                element = self.value(b, h, tir.indexdiv(j, block), v.var, tir.indexmod(j, block))
            else:
                element = self.value(b, h, v.var, j)
            return te.sum(powers(b, h, i, v.var) * element, axis=v)

        return te.compute((*self.rows, rounded(self.width, block)), body, name="attention_context", tag="attention")


def power_of_two(x: PrimExpr) -> PrimExpr:
    """Compute 2**x for x <= 0; results below the smallest normal number are 0."""
    if x.dtype != "float32" or machine().has("avx512f"):  # which has instructions for both ends of this
        return tir.exp2(x)
    least = ops.const(-127.0, x.dtype)
    x = tir.Select(least > x, least, x)  # keeps NaN
    shifted = x + ops.const(_ROUND, x.dtype)
    fraction = x - (shifted - ops.const(_ROUND, x.dtype))
    *lower, highest = 1.0, *EXP2_POLYNOMIAL
    power = ops.const(highest, x.dtype)
    for coefficient in reversed(lower):
        power = power * fraction + ops.const(coefficient, x.dtype)
    exponent = tir.reinterpret("int32", shifted) << 23
    return power * tir.reinterpret(x.dtype, exponent)


def _same(columns: Any, keys: Any) -> bool:
    """Return whether every column is a key."""
    return columns == keys if isinstance(keys, int) else columns is keys


def _padded_mask(mask: te.Tensor | None, keys: Any, columns: Any) -> te.Tensor | None:
    """Pad the mask with minus infinity for the columns beyond the keys."""
    if mask is None or _same(columns, keys):
        return mask
    one = ops.is_const_int(mask.shape[-1], 1)

    def body(*i: PrimExpr) -> PrimExpr:
        element = mask(*i[:-1], 0 if one else i[-1])
        return tir.if_then_else(tir.likely(i[-1] < keys), element, ops.const(float("-inf"), element.dtype))

    return te.compute((*mask.shape[:-1], columns), body, name="attention_mask", tag="attention_mask")
