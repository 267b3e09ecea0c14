"""Labels, and scores after their ``post_transform``, of the sums of classifiers and regressors of ai.onnx.ml."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, typed

ML = "ai.onnx.ml"
Array = np.ndarray[Any, Any]
_KINDS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_TINY = 1e-7  # scores that SOFTMAX_ZERO takes for 0
_WINITZKI = 0.147
_END = 2**31 - 1


def numbers(ctx: NodeContext, index: int = 0) -> RelayExpr:
    """Return an input as float32, a row for each example."""
    data = ctx.input(index)
    rows = data if ctx.rank(data) == 2 else typed(relay_op.reshape(data, (1, -1)))
    return rows if ctx.dtype(rows) == "float32" else typed(relay_op.cast(rows, "float32"))


def labels(ctx: NodeContext) -> Array:
    """Return the labels of classes: numbers, or numbers of strings."""
    for name in ("classlabels_int64s", "classlabels_ints"):
        if ctx.attr(name):
            return np.array(ctx.attr(name), "int64")
    if ctx.attr("classlabels_strings"):
        return ctx.strings.encode(np.array(ctx.attr("classlabels_strings"), object))
    ctx.fail("it has no labels of classes")


def kind(ctx: NodeContext) -> str:
    """Return the name of the post_transform."""
    given = ctx.attr("post_transform", "NONE")
    found = str(given) if not isinstance(given, int) else _KINDS[given] if 0 <= given < len(_KINDS) else str(given)
    if found not in _KINDS:
        ctx.fail(f"post_transform {found!r}; expected one of {', '.join(_KINDS)}")
    return found


def transformed(ctx: NodeContext, scores: RelayExpr) -> RelayExpr:
    """Return scores, rows of classes, after the post_transform."""
    match kind(ctx):
        case "SOFTMAX":
            return relay_op.nn.softmax(scores, axis=-1)
        case "LOGISTIC":
            return relay_op.sigmoid(scores)
        case "SOFTMAX_ZERO":
            return _softmax_zero(scores)
        case "PROBIT":
            return _probit(scores)
        case _:
            return scores


def _softmax_zero(scores: RelayExpr) -> RelayExpr:
    """Return shares of exponentials; scores of 0 stay 0."""
    most = relay_op.max(scores, axis=[-1], keepdims=True)
    counts = relay_op.greater(relay_op.abs(scores), const(np.float32(_TINY)))
    powers = relay_op.exp(relay_op.subtract(scores, most))
    kept = relay_op.where(counts, powers, relay_op.multiply(scores, relay_op.exp(relay_op.negative(most))))
    return relay_op.divide(kept, relay_op.sum(kept, axis=[-1], keepdims=True))


def _probit(scores: RelayExpr) -> RelayExpr:
    """Return the normal quantile of each score, by Winitzki's formula, which ONNX Runtime has."""
    x = relay_op.subtract(relay_op.multiply(scores, const(np.float32(2))), const(np.float32(1)))
    log = relay_op.log(relay_op.multiply(relay_op.subtract(const(1.0), x), relay_op.add(const(1.0), x)))
    half = relay_op.multiply(log, const(np.float32(0.5)))
    v = relay_op.add(const(np.float32(2 / (np.pi * _WINITZKI))), half)
    inner = relay_op.subtract(relay_op.multiply(v, v), relay_op.multiply(log, const(np.float32(1 / _WINITZKI))))
    root = relay_op.sqrt(relay_op.subtract(relay_op.sqrt(inner), v))
    return relay_op.multiply(relay_op.multiply(relay_op.sign(x), root), const(np.float32(np.sqrt(2))))


def chosen(ctx: NodeContext, scores: RelayExpr) -> RelayExpr:
    """Return the label of the greatest of the scores of each row, the first one of equals."""
    place = relay_op.argmax(scores, axis=[-1])
    return relay_op.take(const(labels(ctx)), place, axis=0)


def of_second(ctx: NodeContext, scores: RelayExpr, least: float) -> RelayExpr:
    """Return the second of two labels where the last of the scores of a row is above ``least``, else the first."""
    last = relay_op.squeeze(relay_op.strided_slice(scores, [-1], [_END], axes=[1]), axis=[1])
    names = labels(ctx)
    return relay_op.where(relay_op.greater(last, const(np.float32(least))), const(names[1]), const(names[0]))


def of_two(ctx: NodeContext, score: RelayExpr, least: float, shares: bool) -> list[RelayExpr]:
    """Return labels and scores of two classes, of which ``score`` (rows, 1) is that of the second.

    Args:
        least: the score above which the second class is chosen.
        shares: whether the first class has what is left to 1, else it has the opposite.
    """
    label = of_second(ctx, score, least)
    opposite = relay_op.negative(score)
    match kind(ctx):
        case "PROBIT":
            both = [_probit(score), relay_op.zeros_like(score)]
        case "LOGISTIC":
            both = [relay_op.sigmoid(opposite), relay_op.sigmoid(score)]
        case _:
            both = [relay_op.add(const(np.float32(1)), opposite) if shares else opposite, score]
    return [label, relay_op.concatenate(both, axis=1)]
