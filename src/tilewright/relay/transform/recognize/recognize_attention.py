"""RecognizeAttention: replace attention in products and a softmax by ``nn.attention``.

Before::

    %0 = nn.batch_matmul(%q, %k, transpose_b=True);    // (12, 128, 64) each; scores (12, 128, 128)
    %1 = reshape(%0, newshape=[1, 12, 128, 128]);
    %2 = divide(%1, 8f);
    %3 = add(%2, %mask);                               // (1, 1, 1, 128)
    %4 = nn.softmax(%3, axis=-1);
    %5 = reshape(%4, newshape=[12, 128, 128]);
    nn.batch_matmul(%5, %v, transpose_b=False)

after::

    %0 = reshape(%q, newshape=[1, 12, 128, 64]);
    %1 = reshape(%k, newshape=[1, 12, 128, 64]);
    %2 = reshape(%v, newshape=[1, 12, 128, 64]);
    %3 = nn.attention(%0, %1, %2, %mask, scale=0.125f);
    %4 = transpose(%3, axes=[0, 2, 1, 3]);
    reshape(%4, newshape=[12, 128, 64])

Scaling and masks may come in any order, and a mask may be added or overwrite scores with the most negative number or
minus infinity (``where``); where the batch is split for it, as into pictures and their windows, it is merged again.
Scores with other uses are left alone. MergeTransposes then removes the
transposition of the result where the next layer wants the heads side by side. Keys and values that repeat each group
for its heads are taken before the repetition (``shared_heads``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from tilewright.arith.analyzer import Analyzer
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.transform import Pass
from tilewright.relay import op
from tilewright.relay.dataflow_pattern import has_dtype, is_op, is_scalar, wildcard
from tilewright.relay.expr import Call, const
from tilewright.relay.op.nn.attention import attention
from tilewright.relay.op.views import is_reshape
from tilewright.relay.transform.common import known_dims
from tilewright.relay.transform.recognize.shared_heads import shared_by_heads
from tilewright.relay.transform.rules import ALL, Form, Match, Rule, RuleTable
from tilewright.relay.transform.simplify.extents import ONE, Extent, known_extents, reshape_codes
from tilewright.relay.type_infer import infer_expr

Dims = tuple[Any, ...]  # numbers, and expressions over named dimensions

_OVERWRITES = -1e30  # a score of at most this, added to any other, leaves nothing of it
_MOST_STEPS = 32  # between the two products


@dataclass(frozen=True)
class _Mask:
    """An operand added to the scores, or the value that overwrites them where ``condition`` is true (or false).

    ``scores``: the shape of the scores there.
    """

    value: RelayExpr | float
    factor: float
    scores: Dims
    condition: RelayExpr | None = None
    where_true: bool = True


@dataclass(frozen=True)
class _Scores:
    """The input of the softmax so far: ``expr`` times ``scale``, masked."""

    expr: Any
    shape: Dims
    scale: float = 1.0
    masks: tuple[_Mask, ...] = ()

    def scaled(self, expr: RelayExpr, factor: float) -> list[_Scores]:
        """Return these scores as those of ``expr`` times ``factor``."""
        return [replace(self, expr=expr, scale=self.scale * factor)]

    def masked(self, expr: RelayExpr, mask: _Mask) -> list[_Scores]:
        """Return these scores as those of ``expr`` with one more mask."""
        return [replace(self, expr=expr, masks=(*self.masks, mask))]


def _added(scores: _Scores, m: Match) -> list[_Scores]:
    """Match an addition: either operand may be the scores."""
    both = ((m[x], m[y]), (m[y], m[x]))
    dims = known_dims(m.root)
    fitting = [(e, mask) for e, mask in both if dims is not None and known_dims(e) == dims]
    return [found for e, mask in fitting for found in scores.masked(e, _Mask(mask, scores.scale, dims or ()))]


def _overwritten(scores: _Scores, m: Match, where_true: bool) -> list[_Scores]:
    low = m.number(number)
    if scores.scale <= 0 or low * min(scores.scale, 1.0) > _OVERWRITES:
        return []
    return scores.masked(m[x], _Mask(low, scores.scale, known_dims(m.root) or (), m[y], where_true))


x, y, number = wildcard(), wildcard(), is_scalar()
SPREAD = is_op("broadcast_to")(wildcard())
RESHAPE = wildcard().has_attr({"TReshapeOp": True})
SOFTMAX = is_op("nn.softmax")(wildcard())
OPERANDS = has_dtype("float32", x), has_dtype("float32", y)
PRODUCT = is_op("nn.batch_matmul")(*OPERANDS).has_attr({"transpose_a": False}).has_dtype("float32")

# What scores may come from, one step up: the step before, and what this one says of the scale and the masks.
STEPS: tuple[tuple[Form, Callable[[_Scores, Match], list[_Scores]]], ...] = (
    (Form(RESHAPE(None)), lambda scores, m: scores.scaled(m.root.args[0], 1.0)),
    (Form(x * number), lambda scores, m: scores.scaled(m[x], m.number(number))),
    (Form(x / number), lambda scores, m: scores.scaled(m[x], 1 / m.number(number)) if m.number(number) else []),
    (Form(x + y), _added),
    (Form(is_op("where")(y, number, x)), lambda scores, m: _overwritten(scores, m, True)),
    (Form(is_op("where")(y, x, number)), lambda scores, m: _overwritten(scores, m, False)),
)


def _softmax(m: Match) -> Call | None:
    """Return the softmax over the last axis in the first operand, through reshapes that keep the matrices."""
    expr, wanted = m[x], known_dims(m[x])
    while m.uses[expr] == 1 and is_reshape(expr):
        expr = expr.args[0]
    if m.uses[expr] != 1 or not SOFTMAX.match(expr):
        return None
    shape = known_dims(expr)
    if wanted is None or shape is None or len(shape) not in (3, 4) or shape[-2:] != wanted[-2:]:
        return None
    return expr if int(expr.attrs.axis) % len(shape) == len(shape) - 1 else None


def _scores(m: Match) -> _Scores | None:
    """Return the product under the softmax of the match, and the operators in between."""
    softmax = _softmax(m)
    pending = [] if softmax is None else [_Scores(softmax.args[0], known_dims(softmax) or ())]
    for _ in range(_MOST_STEPS):
        if not pending:
            return None
        scores = pending.pop()
        expr, dims = scores.expr, known_dims(scores.expr)
        if m.uses[expr] != 1 or not isinstance(expr, Call) or dims is None or dims[-2:] != scores.shape[-2:]:
            continue
        if PRODUCT.match(expr):
            return scores if len(scores.shape) == 4 else replace(scores, shape=(1, *scores.shape))
        if len(dims) == 4:
            scores = replace(scores, shape=dims)
        for form, step in reversed(STEPS):
            if (found := form.match(expr)) is not None:
                pending += step(scores, found)[::-1]
    return None


def _attention(m: Match) -> RelayExpr | None:
    scores = _scores(m)
    if scores is None:
        return None
    product, (query, key), value = scores.expr, scores.expr.args, m[y]
    found = [known_extents(known_dims(e)) for e in (query, key, value, product, m.root)]
    shapes = [shape for shape in found if shape is not None]
    wide = known_extents(scores.shape)
    if wide is None or len(shapes) != len(found) or any(s[0] != wide[0] * wide[1] for s in shapes):
        return None
    if not isinstance(scores.shape[1], int) or shapes[0][-1].names or shapes[4][-1].names or shapes[3][1:] != wide[2:]:
        return None  # heads and their columns are numbers
    if Analyzer().const_int_bound(as_expr(scores.shape[3])).min_value < 1:
        return None  # a softmax of no scores weighs nothing: the result is 0, where attention divides by 0
    masks = [_aligned(mask, scores.shape) for mask in scores.masks]
    if None in masks:
        return None
    parts = []
    for expr, transposed, shape in (
        (query, False, shapes[0]),
        (key, not product.attrs.transpose_b, shapes[1]),
        (value, bool(m.attrs.transpose_b), shapes[2]),
    ):
        matrices, *size = [shape[0], shape[2], shape[1]] if transposed else shape
        part = op.transpose(expr, axes=[0, 2, 1]) if transposed else expr
        parts.append(_reshaped(part, [matrices, *size], [*wide[:2], *size]))
    mask = reduce(op.add, [m for m in masks if m is not None]) if masks else None
    parts = [infer_expr(part) for part in parts]
    parts = [parts[0], *(shared_by_heads(*parts) or parts[1:])]
    result = attention(parts[0], parts[1], parts[2], mask, scores.scale)
    side_by_side = op.transpose(result, axes=[0, 2, 1, 3])
    return _reshaped(side_by_side, [*wide[:3], shapes[4][2]], shapes[4])


def _aligned(mask: _Mask, shape: Dims) -> RelayExpr | None:
    """Return the mask in rank 4, to add to the scaled scores."""
    source = mask.value if mask.condition is None else mask.condition
    assert not isinstance(source, float)
    while isinstance(source, Call) and SPREAD.match(source):
        source = source.args[0]
    if len(mask.scores) > 4:
        merged = _merged(source, mask.scores, shape)
        if merged is None:
            return None
        source = merged
    found, want = known_extents(known_dims(source)), known_extents(shape)
    if found is None or want is None:
        return None
    if len(found) == 3 and found[0] not in (ONE, want[1] if want[0].is_one else ONE):
        wide = [*want[:2], *found[1:]]
        if found[0] != want[0] * want[1]:
            return None
    else:
        wide = [ONE] * (4 - len(found)) + found
    if len(wide) != 4 or any(have not in (ONE, all_) for have, all_ in zip(wide, want, strict=True)):
        return None
    aligned = source
    if not any(e.names for e in wide) or wide != found:
        codes = reshape_codes(found, wide)
        if codes is None:
            return None
        aligned = op.reshape(aligned, newshape=codes)
    if mask.condition is None:
        return aligned if mask.factor == 1 else op.multiply(aligned, const(np.float32(mask.factor)))
    assert isinstance(mask.value, float)
    low, zero = const(np.float32(max(mask.value * mask.factor, _lowest(mask.value)))), const(np.float32(0))
    return op.where(aligned, low, zero) if mask.where_true else op.where(aligned, zero, low)


def _merged(mask: RelayExpr, scores: Dims, shape: Dims) -> RelayExpr | None:
    """Return a mask of scores whose batch is several dimensions as one of scores in rank 4."""
    dims, outer = known_dims(mask), len(scores) - 3
    known = dims is not None and all(isinstance(extent, int) for extent in (*dims, *scores, *shape))
    if dims is None or not known or scores[outer:] != shape[1:] or math.prod(scores[:outer]) != shape[0]:
        return None
    wide = (1,) * (len(scores) - len(dims)) + dims
    if any(extent != 1 for extent in wide[:outer]) and wide[:outer] != scores[:outer]:
        wide = (*scores[:outer], *wide[outer:])
        mask = op.broadcast_to(mask, wide)
    return infer_expr(op.reshape(mask, newshape=(math.prod(wide[:outer]), *wide[outer:])))


def _reshaped(expr: RelayExpr, have: list[Extent], want: list[Extent]) -> RelayExpr:
    """Split the dimension of matrices into batch and heads, or merge it."""
    codes = reshape_codes(have, want)
    assert codes is not None
    return op.reshape(expr, newshape=codes)


def _lowest(value: float) -> float:
    """Return the most negative number that a finite ``value`` may become: a row without keys is uniform, not
    undefined.
    """
    return -math.inf if math.isinf(value) else float(np.finfo(np.float32).min)


def _grouped(m: Match) -> RelayExpr | None:
    query, key, value, *masks = m.root.args
    shared = shared_by_heads(query, key, value)
    return m.root.replace(args=[query, *shared, *masks]) if shared else None


ATTENTION = is_op("nn.attention")(None)

RULES = RuleTable("RecognizeAttention", [
    Rule("attention(q, repeat(k), repeat(v)) -> attention(q, k, v)", ATTENTION, _grouped, free=ALL),
    Rule("softmax(q k.T * scale + mask) v -> attention(q, k, v, mask, scale)", PRODUCT, _attention),
])  # fmt: skip


def RecognizeAttention() -> Pass:
    """Replace attention in basic operators by ``nn.attention``."""
    return RULES.as_pass("RecognizeAttention", 3)
