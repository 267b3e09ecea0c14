"""Losses of classifiers: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

from __future__ import annotations

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.indices import checked_numbers
from tilewright.relay.frontend.onnx.registry import converter


@converter("NegativeLogLikelihoodLoss")
def convert_negative_log_likelihood(ctx: NodeContext) -> RelayExpr:
    """Log-probabilities (N, C, ...) of the classes that labels (N, ...) name, weighted and negated."""
    return _loss(ctx, ctx.input(0))


@converter("SoftmaxCrossEntropyLoss")
def convert_softmax_cross_entropy(ctx: NodeContext) -> list[RelayExpr]:
    """The negative log-likelihood of the scores' softmax, and the softmax's logarithm."""
    logarithms = typed(relay_op.nn.log_softmax(ctx.input(0), axis=1))
    return [_loss(ctx, logarithms), logarithms]


def _loss(ctx: NodeContext, logarithms: RelayExpr) -> RelayExpr:
    labels, ignored = ctx.input(1), ctx.attr("ignore_index", None)
    passed = None if ignored is None else typed(relay_op.equal(labels, const(ignored, ctx.dtype(labels))))
    classes = labels if passed is None else relay_op.where(passed, const(0, ctx.dtype(labels)), labels)
    found = checked_numbers(ctx, 1, logarithms, 1, "label", typed(classes))
    if passed is not None:
        found = relay_op.where(passed, labels, found)
    weights = ctx.optional(2)
    if weights is None:
        others = [axis for axis in range(len(ctx.dims(logarithms))) if axis != 1]
        weights = relay_op.ones_like(relay_op.max(logarithms, axis=others))
    reduction, nothing = ctx.attr("reduction", "mean"), -1  # checked labels are no less than 0
    return relay_op.nn.nll_loss(logarithms, found, weights, reduction, nothing if ignored is None else ignored)
