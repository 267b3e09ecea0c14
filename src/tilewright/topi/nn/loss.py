"""Losses."""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import reduction as reductions
from tilewright.topi import tag


def nll_loss(
    predictions: te.Tensor, targets: te.Tensor, weights: te.Tensor, reduction: str = "mean", ignore_index: int = -100
) -> te.Tensor:
    """Return the negative log likelihood: minus the prediction for each target, times its class's weight.

    Parameters
    ----------
    predictions : (batch, classes, ...), logarithms of probabilities
    targets : (batch, ...), classes; targets equal to ``ignore_index`` are left out
    weights : (classes,)
    reduction : "mean" (the sum over the sum of the weights), "sum" or "none"
    """
    nothing = ops.const(0, predictions.dtype)

    def chosen(value: Any) -> te.Tensor:
        def body(*i: PrimExpr) -> PrimExpr:
            at = targets(*i)
            ignored = ops.cast("int64", at) == ops.const(ignore_index, "int64")
            return tir.if_then_else(ignored, nothing, value(at, i))

        return te.compute(targets.shape, body, name="nll_loss", tag=tag.INJECTIVE)

    losses = chosen(lambda at, i: -predictions(i[0], at, *i[1:]) * weights(at))
    if reduction == "none":
        return losses
    axes = list(range(targets.ndim))
    total = reductions.sum(losses, axes)
    if reduction == "sum":
        return total
    weight = reductions.sum(chosen(lambda at, i: weights(at)), axes)
    return te.compute((), lambda: total() / weight(), name="nll_loss_mean", tag=tag.INJECTIVE)
