"""Linear models and support vector machines of ai.onnx.ml."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.ml_scores import ML, chosen, labels, numbers, of_two, transformed
from tilewright.relay.frontend.onnx.registry import converter

_LEAST = 1e-7  # of a probability of one class of two
_MOST_CLASSES = 32  # of machines with probabilities: each pair of them is written out


def _matrix(ctx: NodeContext, name: str, rows: int) -> np.ndarray[Any, Any]:
    values = np.array(ctx.required(name), "float32")
    if not rows or not values.size or values.size % rows:
        ctx.fail(f"attribute {name!r} has {values.size} values for {rows} rows")
    return values.reshape(rows, -1)


def _sums(ctx: NodeContext, data: RelayExpr, coefficients: np.ndarray[Any, Any], bias: Sequence[float]) -> RelayExpr:
    """Return the product of rows with coefficients, a row for each result, and a bias."""
    columns = ctx.dims(data)[1]
    if coefficients.shape[1] != columns:
        ctx.fail(f"the data have {columns} columns, its coefficients {coefficients.shape[1]}")
    found = relay_op.nn.dense(data, const(coefficients), units=coefficients.shape[0])
    return typed(relay_op.add(found, const(np.array(bias, "float32")))) if any(bias) else typed(found)


@converter("LinearRegressor", domain=ML)
def convert_linear_regressor(ctx: NodeContext) -> RelayExpr:
    """Products of rows with coefficients."""
    targets = int(ctx.attr("targets", 1))
    bias = ctx.attr("intercepts") or (0.0,) * targets
    return transformed(ctx, _sums(ctx, numbers(ctx), _matrix(ctx, "coefficients", targets), bias))


@converter("LinearClassifier", domain=ML)
def convert_linear_classifier(ctx: NodeContext) -> Sequence[RelayExpr]:
    """The class with the greatest product with its coefficients, and the scores of all."""
    names = labels(ctx)
    bias = ctx.attr("intercepts") or (0.0,) * len(names)
    scores = _sums(ctx, numbers(ctx), _matrix(ctx, "coefficients", len(bias)), bias)
    if len(bias) > 1:
        return [chosen(ctx, scores), transformed(ctx, scores)]
    if len(names) != 2:
        ctx.unsupported(f"one score for {len(names)} classes")
    return of_two(ctx, scores, 0.0, True)


# ------------------------------------------------------------------------------------------- support vectors


def _kernel(ctx: NodeContext, data: RelayExpr, vectors: np.ndarray[Any, Any]) -> RelayExpr:
    """Return the kernel of each row and each support vector."""
    name = str(ctx.attr("kernel_type", "LINEAR"))
    gamma, offset, degree = (np.float32(v) for v in (*(ctx.attr("kernel_params") or ()), 0.0, 0.0, 3.0)[:3])
    if not ctx.attr("kernel_params"):
        gamma, degree = np.float32(0), np.float32(3)
    products = _sums(ctx, data, vectors, ())
    match name:
        case "LINEAR":
            return products
        case "POLY":
            inner = relay_op.add(relay_op.multiply(products, const(gamma)), const(offset))
            if degree == int(degree) and 0 < degree <= 4:
                return _power(inner, int(degree))
            return relay_op.power(inner, const(degree))
        case "SIGMOID":
            return relay_op.tanh(relay_op.add(relay_op.multiply(products, const(gamma)), const(offset)))
        case "RBF":
            own = relay_op.sum(relay_op.multiply(data, data), axis=[1], keepdims=True)
            theirs = (vectors.astype("float64") ** 2).sum(axis=1).astype("float32")
            twice = relay_op.multiply(products, const(np.float32(2)))
            distance = relay_op.maximum(relay_op.subtract(relay_op.add(own, const(theirs)), twice), const(0.0))
            return relay_op.exp(relay_op.multiply(distance, const(-gamma)))
        case _:
            ctx.fail(f"kernel_type {name!r}; expected LINEAR, POLY, RBF or SIGMOID")


def _power(value: RelayExpr, degree: int) -> RelayExpr:
    found = value
    for _ in range(degree - 1):
        found = relay_op.multiply(found, value)
    return found


@converter("SVMRegressor", domain=ML)
def convert_svm_regressor(ctx: NodeContext) -> RelayExpr:
    """Sums of kernels with support vectors, or products with coefficients; ``one_class``: their sign."""
    data, count = numbers(ctx), int(ctx.attr("n_supports", 0))
    bias = np.float32((ctx.attr("rho") or (0.0,))[0])
    values = data if not count else _kernel(ctx, data, _matrix(ctx, "support_vectors", count))
    score = relay_op.add(_sums(ctx, typed(values), _matrix(ctx, "coefficients", 1), ()), const(bias))
    if ctx.attr("one_class", 0):
        return relay_op.where(relay_op.greater(score, const(0.0)), const(np.float32(1)), const(np.float32(-1)))
    return transformed(ctx, score)


@converter("SVMClassifier", domain=ML)
def convert_svm_classifier(ctx: NodeContext) -> Sequence[RelayExpr]:
    """The class that most pairs of classes vote for, or the likeliest, and scores of the pairs, or probabilities."""
    names, data = labels(ctx), numbers(ctx)
    each = list(ctx.attr("vectors_per_class") or ())
    if not each:
        bias = ctx.attr("rho") or (0.0,) * len(names)
        scores = _sums(ctx, data, _matrix(ctx, "coefficients", len(names)), (bias[0],) * len(names))
        return [chosen(ctx, scores), transformed(ctx, scores)]
    if len(each) != len(names) or not 2 <= len(names) <= _MOST_CLASSES:
        ctx.unsupported(f"{len(names)} labels of {len(each)} classes; 2 to {_MOST_CLASSES} are supported")
    kernels = _kernel(ctx, data, _matrix(ctx, "support_vectors", sum(each)))
    scores = _sums(ctx, typed(kernels), _of_pairs(ctx, each), _biases(ctx, len(each)))
    if ctx.attr("prob_a"):
        shares = _probabilities(ctx, scores, len(each))
        votes = _votes(scores, len(each))
        return [chosen(ctx, votes), shares]
    if len(each) == 2:
        # One score for the pair, in favour of the first class; the second class is chosen where it is negative.
        label = relay_op.where(
            relay_op.greater(relay_op.squeeze(scores, axis=[1]), const(0.0)), const(names[0]), const(names[1])
        )
        return [label, _both_of_pair(ctx, scores)]
    return [chosen(ctx, _votes(scores, len(each))), transformed(ctx, scores)]


def _both_of_pair(ctx: NodeContext, score: RelayExpr) -> RelayExpr:
    return transformed(ctx, relay_op.concatenate([relay_op.negative(score), score], axis=1))


def _biases(ctx: NodeContext, classes: int) -> Sequence[float]:
    found, pairs = tuple(ctx.required("rho")), classes * (classes - 1) // 2
    if len(found) < pairs:
        ctx.fail(f"attribute 'rho' has {len(found)} values for {pairs} pairs of classes")
    return found[:pairs]


def _of_pairs(ctx: NodeContext, each: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return the coefficients of all support vectors for each pair of classes, a row for a pair."""
    rows = _matrix(ctx, "coefficients", len(each) - 1)
    if rows.shape[1] != sum(each):
        ctx.fail(f"{rows.shape[1]} coefficients in a row for {sum(each)} support vectors")
    ends = np.cumsum([0, *each])
    found = []
    for i, j in itertools.combinations(range(len(each)), 2):
        row = np.zeros(sum(each), "float32")
        row[ends[i] : ends[i + 1]] = rows[j - 1, ends[i] : ends[i + 1]]
        row[ends[j] : ends[j + 1]] = rows[i, ends[j] : ends[j + 1]]
        found.append(row)
    return np.array(found)


def _votes(scores: RelayExpr, classes: int) -> RelayExpr:
    """Return how many pairs each class wins."""
    pairs = list(itertools.combinations(range(classes), 2))
    first, second = (np.array([[float(pair[side] == c) for pair in pairs] for c in range(classes)]) for side in (0, 1))
    won = relay_op.cast(relay_op.greater(scores, const(0.0)), "float32")
    return relay_op.nn.bias_add(
        relay_op.nn.dense(won, const((first - second).astype("float32")), units=classes),
        const(second.sum(axis=1).astype("float32")),
        axis=1,
    )


def _probabilities(ctx: NodeContext, scores: RelayExpr, classes: int) -> RelayExpr:
    """Return the probability of each class from those of pairs (Wu, Lin and Weng, 2004), exactly."""
    a, b = (np.array(ctx.attr(name) or (), "float32") for name in ("prob_a", "prob_b"))
    pairs = list(itertools.combinations(range(classes), 2))
    if len(a) < len(pairs) or len(b) < len(pairs):
        ctx.fail(f"{len(a)} and {len(b)} values of prob_a and prob_b for {len(pairs)} pairs of classes")
    logits = relay_op.add(relay_op.multiply(scores, const(a[: len(pairs)])), const(b[: len(pairs)]))
    shares = relay_op.clip(relay_op.sigmoid(relay_op.negative(logits)), _LEAST, 1 - _LEAST)
    if classes == 2:
        return relay_op.concatenate([shares, relay_op.subtract(const(np.float32(1)), shares)], axis=1)
    ctx.write_out(classes**3, "its classes, written out")
    return _coupled(shares, pairs, classes)


def _coupled(shares: RelayExpr, pairs: Sequence[tuple[int, int]], classes: int) -> RelayExpr:
    """Return the probabilities p that make ``p Q p`` least, where ``Q p = 0`` if all pairs agree.

    ``r[i, j]`` is the share of i of the pair of i and j: ``Q[i, i]`` is the sum of the squares of ``r[j, i]`` over
    j, and ``Q[i, j]`` is ``-r[i, j] * r[j, i]``. The last probability is what is left to 1.
    """
    picks, base = np.zeros((classes, classes, len(pairs)), "float32"), np.zeros((classes, classes), "float32")
    for number, (i, j) in enumerate(pairs):
        picks[i, j, number], picks[j, i, number], base[j, i] = 1, -1, 1
    square = classes * classes
    flat = relay_op.nn.dense(shares, const(picks.reshape(square, -1)), units=square)
    r = relay_op.reshape(relay_op.add(flat, const(base.reshape(-1))), (-1, classes, classes))
    turned = typed(relay_op.transpose(r, axes=(0, 2, 1)))
    own = relay_op.sum(relay_op.multiply(turned, turned), axis=[2], keepdims=True)
    q = relay_op.subtract(relay_op.multiply(own, const(np.eye(classes, dtype="float32"))), relay_op.multiply(r, turned))
    last = classes - 1
    inner, side = relay_op.split(relay_op.annotation.stop_fusion(typed(q)), (last,), axis=2)
    (a, below), (right, corner) = (relay_op.split(part, (last,), axis=1) for part in (typed(inner), typed(side)))
    whole = relay_op.add(relay_op.subtract(relay_op.subtract(a, right), below), corner)
    system = typed(relay_op.concatenate([whole, relay_op.subtract(corner, right)], axis=2))
    found = _solved(system, last)
    rest = relay_op.subtract(const(np.float32(1)), relay_op.sum(found, axis=[1], keepdims=True))
    return relay_op.concatenate([found, rest], axis=1)


def _solved(system: RelayExpr, size: int) -> RelayExpr:
    """Return the solutions of systems of equations (rows, size, size + 1), positive definite, by elimination."""
    for i in range(size):
        system = relay_op.annotation.stop_fusion(typed(system))  # which the next step reads several times
        row = relay_op.strided_slice(system, [i], [i + 1], axes=[1])
        pivot = relay_op.strided_slice(row, [i], [i + 1], axes=[2])
        column = relay_op.strided_slice(system, [i], [i + 1], axes=[2])
        unit = np.zeros((1, size, 1), "float32")
        unit[0, i] = 1
        factors = relay_op.subtract(column, const(unit))
        system = relay_op.subtract(system, relay_op.multiply(factors, relay_op.divide(row, pivot)))
    return relay_op.squeeze(relay_op.strided_slice(system, [size], [size + 1], axes=[2]), axis=[2])
