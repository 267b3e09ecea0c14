"""RecognizeAttention: attention that is spelled out in products and a softmax becomes ``nn.attention``.

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
minus infinity (``where``). Scores that something else reads too are left alone. MergeTransposes then removes the
transposition of the result where the next layer wants the heads side by side.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.arith.analyzer import Analyzer
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.transform import Pass
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Function, const
from tilewright.relay.op.nn.attention import attention
from tilewright.relay.op.views import is_reshape
from tilewright.relay.transform.common import (
    Recognizer,
    call_of,
    known_dims,
    recognition_pass,
    scalar_constant,
)
from tilewright.relay.transform.simplify.extents import ONE, Extent, known_extents, reshape_codes

Dims = tuple[Any, ...]  # numbers, and expressions over named dimensions

_OVERWRITES = -1e30  # a score of at most this, added to any other, leaves nothing of it
_MOST_STEPS = 32  # between the two products


@dataclass
class _Mask:
    """An operand added to the scores, or what overwrites them where ``condition`` is true (or false)."""

    value: RelayExpr | float
    factor: float
    condition: RelayExpr | None = None
    where_true: bool = True


@dataclass
class _Scores:
    """The product that gives the scores, and what is done to it before the softmax."""

    product: Call
    scale: float
    shape: Dims
    masks: list[_Mask] = field(default_factory=list)


def _source(call: Call) -> RelayExpr | None:
    """What ``call`` only reshapes or scales by a constant."""
    if is_reshape(call):
        return call.args[0]
    if call_of(call, "multiply") is not None:
        for k in (0, 1):
            if scalar_constant(call.args[1 - k]) is not None:
                return call.args[k]
    if call_of(call, "divide") is not None and scalar_constant(call.args[1]):
        return call.args[0]
    return None


class _Matcher:
    """Follows the scores from the softmax up to the product."""

    def __init__(self, uses: Counter[RelayExpr]) -> None:
        self.uses = uses

    def match(self, outer: Call) -> _Scores | None:
        """The scores whose softmax is the first operand of ``outer``."""
        probabilities = outer.args[0]
        for _ in range(_MOST_STEPS):
            if self.uses[probabilities] != 1 or not isinstance(probabilities, Call):
                return None
            if call_of(probabilities, "nn.softmax") is not None:
                break
            if not is_reshape(probabilities):
                return None
            probabilities = probabilities.args[0]
        softmax = call_of(probabilities, "nn.softmax")
        wanted, shape = known_dims(outer.args[0]), None if softmax is None else known_dims(softmax)
        if softmax is None or wanted is None or shape is None or len(shape) not in (3, 4):
            return None
        if shape[-2:] != wanted[-2:]:
            return None
        attrs: Any = softmax.attrs
        if int(attrs.axis) % len(shape) != len(shape) - 1:
            return None
        return self._walk(softmax.args[0], shape)

    def _walk(self, expr: RelayExpr, shape: Dims) -> _Scores | None:
        scale = 1.0
        masks: list[_Mask] = []
        for _ in range(_MOST_STEPS):
            found = known_dims(expr)
            if self.uses[expr] != 1 or not isinstance(expr, Call) or found is None or found[-2:] != shape[-2:]:
                return None
            if call_of(expr, "nn.batch_matmul") is not None:
                return _Scores(expr, scale, shape if len(shape) == 4 else (1, *shape), masks)
            if len(found) == 4 and len(shape) == 3:
                shape = found
            if (source := _source(expr)) is not None:
                scale *= _factor(expr)
            elif (step := self._masked(expr, scale)) is not None:
                source, mask = step
                masks.append(mask)
            else:
                return None
            expr = source
        return None

    def _masked(self, call: Call, scale: float) -> tuple[RelayExpr, _Mask] | None:
        """(scores, mask), where ``call`` masks scores."""
        if call_of(call, "add") is not None:
            for k in (0, 1):
                if self._leads_to_product(call.args[k]) and known_dims(call.args[k]) == known_dims(call):
                    return call.args[k], _Mask(call.args[1 - k], scale)
        if call_of(call, "where") is not None and scale > 0:
            condition, *branches = call.args
            for k in (0, 1):
                value = scalar_constant(branches[k])
                if value is not None and value * min(scale, 1.0) <= _OVERWRITES:
                    return branches[1 - k], _Mask(value, scale, condition, k == 0)
        return None

    def _leads_to_product(self, expr: RelayExpr) -> bool:
        """Whether ``expr`` is made of a batched product alone by reshapes, scaling and masks."""
        pending, steps = [expr], 0
        while pending and steps < _MOST_STEPS:
            node, steps = pending.pop(), steps + 1
            if not isinstance(node, Call) or self.uses[node] != 1:
                continue
            if call_of(node, "nn.batch_matmul") is not None:
                return True
            if (source := _source(node)) is not None:
                pending.append(source)
            elif call_of(node, "add") is not None:
                pending.extend(node.args)
            elif call_of(node, "where") is not None:
                pending.extend(node.args[1:])
        return False


def _factor(call: Call) -> float:
    if call_of(call, "multiply") is not None:
        values = [scalar_constant(a) for a in call.args]
        return next(v for v in values if v is not None)
    return 1 / (scalar_constant(call.args[1]) or 1.0) if call_of(call, "divide") is not None else 1.0


class _Recognizer(Recognizer):
    def __init__(self, func: Function) -> None:
        super().__init__(func)
        self.matcher = _Matcher(self.uses)

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if call_of(pre, "nn.batch_matmul") is None or not _plain(pre):
            return post
        scores = self.matcher.match(pre)
        if scores is None or not _plain(scores.product):
            return post
        return self._attention(pre, scores) or post

    def _attention(self, outer: Call, scores: _Scores) -> RelayExpr | None:
        query, key = scores.product.args
        value = outer.args[1]
        heads = scores.shape[1]
        found = [known_extents(known_dims(e)) for e in (query, key, value, scores.product, outer)]
        shapes = [shape for shape in found if shape is not None]
        wide = known_extents(scores.shape)
        if wide is None or len(shapes) != len(found) or any(s[0] != wide[0] * wide[1] for s in shapes):
            return None
        if not isinstance(heads, int) or shapes[0][-1].names or shapes[4][-1].names or shapes[3][1:] != wide[2:]:
            return None  # heads and their columns are numbers
        if Analyzer().const_int_bound(as_expr(scores.shape[3])).min_value < 1:
            return None  # a softmax of no scores weighs nothing: the result is 0, where attention divides by 0
        masks = [self._aligned(m, scores.shape) for m in scores.masks]
        known = [m for m in masks if m is not None]
        if len(known) != len(masks):
            return None
        mask = known[0] if known else None
        for other in known[1:]:
            mask = relay_op.add(mask, other)
        parts = []
        for expr, transposed, shape in (
            (query, False, shapes[0]),
            (key, not _attrs(scores.product).transpose_b, shapes[1]),
            (value, bool(_attrs(outer).transpose_b), shapes[2]),
        ):
            matrices, *size = [shape[0], shape[2], shape[1]] if transposed else shape
            part = self.visit(expr)
            part = relay_op.transpose(part, axes=[0, 2, 1]) if transposed else part
            parts.append(_reshaped(part, [matrices, *size], [*wide[:2], *size]))
        result = attention(parts[0], parts[1], parts[2], mask, scores.scale)
        side_by_side = relay_op.transpose(result, axes=[0, 2, 1, 3])
        return _reshaped(side_by_side, [*wide[:3], shapes[4][2]], shapes[4])

    def _aligned(self, mask: _Mask, shape: Dims) -> RelayExpr | None:
        """The mask as something of rank 4 to add to the scaled scores."""
        source = mask.value if mask.condition is None else mask.condition
        assert not isinstance(source, float)
        while (spread := call_of(source, "broadcast_to")) is not None:
            source = spread.args[0]
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
        aligned = self.visit(source)
        if not any(e.names for e in wide) or wide != found:
            codes = reshape_codes(found, wide)
            if codes is None:
                return None
            aligned = relay_op.reshape(aligned, newshape=codes)
        if mask.condition is None:
            return aligned if mask.factor == 1 else relay_op.multiply(aligned, const(np.float32(mask.factor)))
        assert isinstance(mask.value, float)
        low, zero = const(np.float32(max(mask.value * mask.factor, _lowest(mask.value)))), const(np.float32(0))
        return relay_op.where(aligned, low, zero) if mask.where_true else relay_op.where(aligned, zero, low)


def _reshaped(expr: RelayExpr, have: list[Extent], want: list[Extent]) -> RelayExpr:
    """Matrices of a batch apart from those of a head, or together again."""
    codes = reshape_codes(have, want)
    assert codes is not None
    return relay_op.reshape(expr, newshape=codes)


def _lowest(value: float) -> float:
    """The most negative number that a finite ``value`` may become: a row without keys is uniform, not undefined."""
    return -math.inf if math.isinf(value) else float(np.finfo(np.float32).min)


def _attrs(call: Call) -> Any:
    return call.attrs


def _plain(product: Call) -> bool:
    """Whether a batched product is of float32 and reads its first operand as it is."""
    type_ = product.checked_type
    inputs = [a.checked_type for a in product.args]
    return not _attrs(product).transpose_a and all(
        isinstance(t, TensorType) and t.dtype == "float32" for t in (type_, *inputs)
    )


def RecognizeAttention() -> Pass:
    """Turn spelled-out attention into ``nn.attention``."""
    return recognition_pass(_Recognizer, "RecognizeAttention")
