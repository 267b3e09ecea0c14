"""nn.cross_entropy, nn.cross_entropy_with_logits and nn.nll_loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import te, topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call, const
from tilewright.relay.op import relations
from tilewright.relay.op.builder import Builder, builder, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver, declare
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients, number, require_shape, tensor_type
from tilewright.relay.op.transform.checks import checked_from_front
from tilewright.relay.type_infer import infer_expr


def _loss_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
    found = predictions, targets = relations.tensors(types, ("predictions", "targets"))
    relations.require_rank(predictions, 2, "predictions")
    relations.require_rank(targets, 2, "targets")
    relations.require_same_dtype(found)
    for a, b in zip(predictions.shape, targets.shape, strict=True):
        solver.assert_equal(a, b, "shape of the targets")
    return TensorType((), predictions.dtype)


def _entropy(
    name: str,
    doc: str,
    log: Callable[[te.Tensor], te.Tensor],
    log_array: Callable[[Array], Array],
    log_of: Callable[[RelayExpr], RelayExpr],
    slope: Callable[[RelayExpr, RelayExpr], RelayExpr],
) -> Builder:
    """Declare -sum(log(x) y) / batch; ``slope`` is the derivative of log(x) times y."""

    def compute(attrs: None, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        x, y = inputs
        total = topi.sum(topi.multiply(log(x), y), [0, 1])
        return [topi.divide(topi.negative(total), x.shape[0].astype(x.dtype))]

    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        x, y = inputs
        return [np.asarray(-np.sum(log_array(x) * y) / x.shape[0], x.dtype)]

    def gradient(attrs: None, orig: Call, grad: RelayExpr) -> Gradients:
        x, y = orig.args
        scaled = ops.negative(ops.divide(grad, number(require_shape(x, "a loss")[0], x)))
        return [ops.multiply(scaled, slope(x, y)), ops.multiply(scaled, log_of(x))]

    made = declare(
        name,
        doc,
        inputs=("predictions", "targets"),
        pattern=OpPattern.OPAQUE,
        in_float32=True,
        infer_type=_loss_type,
        compute=compute,
        evaluate=evaluate,
        gradient=gradient,
    )
    return builder(made, module=__name__)


cross_entropy = _entropy(
    "nn.cross_entropy",
    "-sum(log(predictions) * targets) / batch, of probabilities (batch, classes)",
    topi.log,
    np.log,
    lambda x: ops.log(x),
    lambda x, y: ops.divide(y, x),
)
cross_entropy_with_logits = _entropy(
    "nn.cross_entropy_with_logits",
    "-sum(predictions * targets) / batch, of log-probabilities (batch, classes)",
    lambda x: x,
    lambda x: x,
    lambda x: x,
    lambda x, y: y,
)


class NLLLossAttrs(Attrs):
    """How losses are reduced (mean, sum or none), and the target that is ignored."""

    reduction: str = "mean"
    ignore_index: int = -100


class NLLLoss(OpDef[NLLLossAttrs]):
    """Negative log likelihood of ``targets`` (batch, ...) under log-probabilities (batch, classes, ...)."""

    name = "nn.nll_loss"
    inputs = ("predictions", "targets", "weights")
    pattern = OpPattern.OPAQUE
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: NLLLossAttrs, solver: TypeSolver) -> Type | None:
        """A scalar, or with the reduction "none" one loss for each target."""
        predictions, targets, weights = relations.tensors(types, NLLLoss.inputs)
        choices = ("mean", "sum", "none")
        relations.require(attrs.reduction in choices, f"reduction should be mean, sum or none: {attrs.reduction!r}")
        relations.require(len(predictions.shape) >= 2, "predictions should have at least 2 dimensions")
        relations.require_rank(targets, len(predictions.shape) - 1, "targets")
        relations.require_rank(weights, 1, "weights")
        relations.require_same_dtype((predictions, weights), "predictions and weights")
        for a, b in zip((predictions.shape[0], *predictions.shape[2:]), targets.shape, strict=True):
            solver.assert_equal(a, b, "shape of the targets")
        solver.assert_equal(predictions.shape[1], weights.shape[0], "number of weights")
        return TensorType(targets.shape if attrs.reduction == "none" else (), predictions.dtype)

    @staticmethod
    def check_indices(attrs: NLLLossAttrs, args: Sequence[RelayExpr]) -> list[RelayExpr]:
        """Targets must be classes, or the class to ignore."""
        predictions, targets, weights = args
        type_ = targets.checked_type
        assert isinstance(type_, TensorType)
        ignored = ops.equal(targets, const(np.array(attrs.ignore_index), type_.dtype))
        classes = ops.where(ignored, const(np.array(0), type_.dtype), targets)
        found = checked_from_front("nn.nll_loss: target", infer_expr(classes), weights)
        return [predictions, ops.where(ignored, targets, found), weights]

    @staticmethod
    def compute(attrs: NLLLossAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.nn.nll_loss(inputs[0], inputs[1], inputs[2], attrs.reduction, attrs.ignore_index)]

    @staticmethod
    def evaluate(attrs: NLLLossAttrs, inputs: Sequence[Array]) -> list[Array]:
        predictions, targets, weights = inputs
        counts = targets != attrs.ignore_index
        at = np.where(counts, targets, 0).astype(int)
        weight = np.where(counts, weights[at], 0)
        losses = -weight * np.take_along_axis(predictions, at[:, None], 1)[:, 0]
        if attrs.reduction == "none":
            return [losses.astype(predictions.dtype)]
        total = losses.sum(dtype=np.float64)
        if attrs.reduction == "mean":
            total = total / weight.sum(dtype=np.float64)
        return [np.asarray(total, predictions.dtype)]

    @staticmethod
    def gradient(attrs: NLLLossAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """Of each target t: l = -w[t] x[t]. A mean divides their sum by the weights': (-x[t] - mean) by w[t]."""
        x, targets, weights = orig.args
        zero, dtype = number(0, x), tensor_type(targets).dtype
        counts = ops.not_equal(targets, const(attrs.ignore_index, dtype))
        safe = ops.where(counts, targets, const(0, dtype))
        weight = ops.where(counts, ops.take(weights, safe, axis=0), zero)
        hot = ops.one_hot(safe, number(1, x), zero, require_shape(x, "nn.nll_loss")[1], 1, tensor_type(x).dtype)
        by_weight = ops.negative(ops.sum(ops.multiply(hot, x), axis=1))
        if attrs.reduction == "mean":
            grad = ops.divide(grad, ops.sum(weight))
            by_weight = ops.subtract(by_weight, orig)
        by_weight = ops.where(counts, ops.multiply(by_weight, grad), zero)
        return [
            ops.multiply(hot, ops.expand_dims(ops.negative(ops.multiply(weight, grad)), 1)),
            None,
            ops.sum(ops.multiply(hot, ops.expand_dims(by_weight, 1)), axis=1, exclude=True),
        ]


nll_loss = builder(NLLLoss)
