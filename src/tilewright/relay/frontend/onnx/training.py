"""Steps of optimizers (``ai.onnx.preview.training``): new weights and states from gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.registry import converter

DOMAIN = "ai.onnx.preview.training"


def _groups(ctx: NodeContext, states: int) -> list[list[RelayExpr]]:
    """Return for each tensor its weights, its gradient and its states; the inputs list all weights, all gradients,
    ...
    """
    given = [ctx.input(i) for i in range(2, ctx.num_inputs)]
    count, rest = divmod(len(given), 2 + states)
    if rest:
        ctx.fail(f"{len(given)} tensors are no whole number of weights with a gradient and {states} state(s) each")
    return [given[i::count] for i in range(count)]


def _in_order(results: Sequence[Sequence[RelayExpr]]) -> list[RelayExpr]:
    """Return all first results, then all second ones, ..."""
    return [value for values in zip(*results, strict=True) for value in values]


def _scalar(ctx: NodeContext, index: int, like: RelayExpr) -> RelayExpr:
    return typed(relay_op.cast(relay_op.reshape(ctx.input(index), newshape=()), ctx.dtype(like)))


def _regularized(ctx: NodeContext, gradient: RelayExpr, weights: RelayExpr) -> RelayExpr:
    factor = const(ctx.attr("norm_coefficient", 0.0), ctx.dtype(weights))
    return typed(relay_op.add(gradient, relay_op.multiply(factor, weights)))


@converter("Momentum", domain=DOMAIN)
def convert_momentum(ctx: NodeContext) -> list[RelayExpr]:
    """Stochastic gradient descent with momentum, plain or Nesterov's."""
    mode, results = ctx.required("mode"), []
    for weights, gradient, velocity in _groups(ctx, 1):
        dtype = ctx.dtype(weights)
        alpha, beta = (const(ctx.required(name), dtype) for name in ("alpha", "beta"))
        slope = _regularized(ctx, gradient, weights)
        first = relay_op.equal(_scalar(ctx, 1, weights), const(0, dtype))
        damping = relay_op.where(first, const(1.0, dtype), beta)
        moved = typed(relay_op.add(relay_op.multiply(alpha, velocity), relay_op.multiply(damping, slope)))
        step = moved if mode == "standard" else relay_op.add(slope, relay_op.multiply(alpha, moved))
        results.append([relay_op.subtract(weights, relay_op.multiply(_scalar(ctx, 0, weights), step)), moved])
    return _in_order(results)


@converter("Adagrad", domain=DOMAIN)
def convert_adagrad(ctx: NodeContext) -> list[RelayExpr]:
    """Steps divided by the root of the sum of all squared gradients so far."""
    results = []
    for weights, gradient, squares in _groups(ctx, 1):
        dtype = ctx.dtype(weights)
        decay, epsilon = const(ctx.attr("decay_factor", 0.0), dtype), const(ctx.attr("epsilon", 1e-6), dtype)
        age = relay_op.add(const(1.0, dtype), relay_op.multiply(_scalar(ctx, 1, weights), decay))
        rate = relay_op.divide(_scalar(ctx, 0, weights), age)
        slope = _regularized(ctx, gradient, weights)
        total = typed(relay_op.add(squares, relay_op.multiply(slope, slope)))
        step = relay_op.divide(relay_op.multiply(rate, slope), relay_op.add(relay_op.sqrt(total), epsilon))
        results.append([relay_op.subtract(weights, step), total])
    return _in_order(results)


@converter("Adam", domain=DOMAIN)
def convert_adam(ctx: NodeContext) -> list[RelayExpr]:
    """Running means of gradients and of their squares, corrected for their initial zeros."""
    return _in_order([_adam(ctx, *group) for group in _groups(ctx, 2)])


def _adam(
    ctx: NodeContext, weights: RelayExpr, gradient: RelayExpr, mean: RelayExpr, square: RelayExpr
) -> list[RelayExpr]:
    dtype = ctx.dtype(weights)
    alpha, beta = ctx.attr("alpha", float(np.float32(0.9))), ctx.attr("beta", float(np.float32(0.999)))
    rate, age = _scalar(ctx, 0, weights), _scalar(ctx, 1, weights)

    def kept(old: RelayExpr, factor: float, new: RelayExpr) -> RelayExpr:
        return typed(
            relay_op.add(relay_op.multiply(const(factor, dtype), old), relay_op.multiply(const(1 - factor, dtype), new))
        )

    def left(factor: float) -> RelayExpr:
        return relay_op.subtract(const(1.0, dtype), relay_op.power(const(factor, dtype), age))

    slope = _regularized(ctx, gradient, weights)
    mean, square = kept(mean, alpha, slope), kept(square, beta, relay_op.multiply(slope, slope))
    corrected = relay_op.multiply(rate, relay_op.divide(relay_op.sqrt(left(beta)), left(alpha)))
    rate = relay_op.where(relay_op.greater(age, const(0, dtype)), corrected, rate)
    epsilon = const(ctx.attr("epsilon", 1e-6), dtype)
    step = relay_op.divide(relay_op.multiply(rate, mean), relay_op.add(relay_op.sqrt(square), epsilon))
    shrunk = const(1 - ctx.attr("norm_coefficient_post", 0.0), dtype)
    return [relay_op.multiply(shrunk, relay_op.subtract(weights, step)), mean, square]
