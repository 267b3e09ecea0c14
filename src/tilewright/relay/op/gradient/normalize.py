"""Gradients of softmax, biases, slopes and losses."""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call, const
from tilewright.relay.op.gradient.rule import Gradients, number, require_shape, rule, tensor_type
from tilewright.relay.op.nn.bias_add import expand_bias_to_match_axis
from tilewright.relay.op.reduce.reduce import sum as sum_
from tilewright.relay.op.tensor.binary import divide, less_equal, multiply, not_equal, subtract
from tilewright.relay.op.tensor.creation import where
from tilewright.relay.op.tensor.unary import exp, log, negative
from tilewright.relay.op.transform.axes import expand_dims
from tilewright.relay.op.transform.indexing import one_hot, take


@rule("nn.softmax", "nn.fast_softmax")
def _softmax(orig: Call, grad: RelayExpr) -> Gradients:
    """y (g - sum(g y))"""
    attrs: Any = orig.attrs
    mean = sum_(multiply(grad, orig), axis=attrs.axis, keepdims=True)
    return [multiply(orig, subtract(grad, mean))]


@rule("nn.log_softmax")
def _log_softmax(orig: Call, grad: RelayExpr) -> Gradients:
    """g - exp(y) sum(g)"""
    attrs: Any = orig.attrs
    return [subtract(grad, multiply(exp(orig), sum_(grad, axis=attrs.axis, keepdims=True)))]


@rule("nn.bias_add")
def _bias_add(orig: Call, grad: RelayExpr) -> Gradients:
    """The bias's gradient is the sum over all other axes."""
    attrs: Any = orig.attrs
    return [grad, sum_(grad, axis=attrs.axis, exclude=True)]


@rule("nn.prelu")
def _prelu(orig: Call, grad: RelayExpr) -> Gradients:
    """The value is x where positive, else a x."""
    attrs: Any = orig.attrs
    x, alpha = orig.args
    rank = len(tensor_type(x).shape)
    slopes = expand_bias_to_match_axis(alpha, rank, attrs.axis)
    negative_part = where(less_equal(x, number(0, x)), multiply(grad, x), number(0, x))
    by_x = where(less_equal(x, number(0, x)), multiply(grad, slopes), grad)
    return [by_x, sum_(negative_part, axis=attrs.axis, exclude=True)]


def _over_batch(grad: RelayExpr, of: RelayExpr) -> RelayExpr:
    return divide(grad, number(require_shape(of, "a loss")[0], of))


@rule("nn.cross_entropy")
def _cross_entropy(orig: Call, grad: RelayExpr) -> Gradients:
    """-sum(log(x) y) / batch"""
    x, y = orig.args
    scaled = negative(_over_batch(grad, x))
    return [multiply(scaled, divide(y, x)), multiply(scaled, log(x))]


@rule("nn.cross_entropy_with_logits")
def _cross_entropy_with_logits(orig: Call, grad: RelayExpr) -> Gradients:
    """-sum(x y) / batch"""
    x, y = orig.args
    scaled = negative(_over_batch(grad, x))
    return [multiply(scaled, y), multiply(scaled, x)]


@rule("nn.nll_loss")
def _nll_loss(orig: Call, grad: RelayExpr) -> Gradients:
    """For each target t, l = -w[t] x[t]. The mean divides the sum of l by that of the weights: (-x[t] - mean) by
    w[t].
    """
    attrs: Any = orig.attrs
    x, targets, weights = orig.args
    zero, dtype = number(0, x), tensor_type(targets).dtype
    counts = not_equal(targets, const(attrs.ignore_index, dtype))
    safe = where(counts, targets, const(0, dtype))
    weight = where(counts, take(weights, safe, axis=0), zero)
    hot = one_hot(safe, number(1, x), zero, require_shape(x, "nn.nll_loss")[1], 1, tensor_type(x).dtype)
    by_weight = negative(sum_(multiply(hot, x), axis=1))
    if attrs.reduction == "mean":
        grad = divide(grad, sum_(weight))
        by_weight = subtract(by_weight, orig)
    by_weight = where(counts, multiply(by_weight, grad), zero)
    return [
        multiply(hot, expand_dims(negative(multiply(weight, grad)), 1)),
        None,
        sum_(multiply(hot, expand_dims(by_weight, 1)), axis=1, exclude=True),
    ]
