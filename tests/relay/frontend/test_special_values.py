"""Operators on NaN, infinities, zeros of both signs, denormal and large numbers: docs/operators.md has the policy.

The oracle is ONNX's reference evaluator, which is numpy, or a formula where it departs from the policy.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from tests.relay.frontend.node_cases import Array, Cases
from tests.tiers import every

NAN, INF = np.nan, np.inf
SPECIAL = [NAN, INF, -INF, -0.0, 0.0, 1e-40, -1e-40, 3e38, -3e38, 1.0, -1.5, 0.25, 2.0]
UNARY = [
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf",
    "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Log",
    "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh",
    "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu",
]  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu", "Less", "Greater", "Equal", "LessOrEqual")
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
TARGETS = ["llvm", "llvm -mcpu=x86-64", "c"]
KINDS = [("float32", target) for target in TARGETS] + [("float64", "llvm"), ("float16", "llvm")]


def special(dtype: str) -> Array:
    with np.errstate(over="ignore"):
        return np.array(SPECIAL).astype(dtype)


def quiet(cases: Cases) -> list[Array]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cases.in_reference()


@pytest.mark.parametrize(("dtype", "target"), every(2, KINDS, several=True))
def test_elementwise(dtype: str, target: str) -> None:
    cases = Cases(opset=20)
    x = special(dtype)
    for name in UNARY:
        if name == "IsInf" and dtype == "float16":
            continue
        cases.add(name, [x], outs=["bool"] if name.startswith("Is") else [])
    a, b = (v.ravel() for v in np.meshgrid(x, x))
    for name in BINARY:
        cases.add(name, [a, b], outs=["bool"] if name[0] in "LGE" else [])
    cases.add("Mod", [a, b], fmod=1)
    cases.add("Max", [a, b, np.flip(a)])
    for low, high in ((-1, 1), (1, -1), (0, INF), (-INF, 0.5), (NAN, 1), (0, NAN)):
        limits = [np.array(v, dtype) for v in (low, high)]
        cases.add("Clip", [x, *limits], weights=(1, 2))
        cases.add("Clip", [x, *limits])
    with np.errstate(all="ignore"):
        expected = [by_text(node.op_type, x, a, b, want) for node, want in zip(cases.nodes, quiet(cases), strict=True)]
    cases.check(cases.compiled(target=target), expected, 2e-2 if dtype == "float16" else 1e-5)


def by_text(op_type: str, x: Array, a: Array, b: Array, want: Array) -> Array:
    """The reference evaluator's value, but where it multiplies zero by infinity."""
    if op_type == "PRelu":  # what is not negative stays, whatever the slope
        return np.where(a < 0, a * b, a)
    if op_type == "Gelu":  # the limit
        return np.where(x == -INF, np.asarray(0, x.dtype), want)
    return want


def rows(dtype: str) -> Array:
    """Every pair of special values beside ordinary ones, at several places of a row of 19.

    Without the largest: sums of these overflow or not, as they are ordered.
    """
    x = special(dtype)
    x = x[~(np.abs(x) > 1e38) | np.isinf(np.array(SPECIAL))]
    result = np.full((len(x) ** 2, 19), 0.5, dtype)
    for i, (a, b) in enumerate(itertools.product(x, x)):
        result[i, (3 * i) % 19], result[i, (5 * i + 7) % 19] = a, b
    return np.concatenate([result, np.repeat(x[:, None], 19, 1)])


@pytest.mark.parametrize(("dtype", "target"), every(4, KINDS, several=True))
def test_reductions(dtype: str, target: str) -> None:
    cases = Cases(opset=18)
    data = rows(dtype)
    for name in REDUCTIONS:
        cases.add(f"Reduce{name}", [data, np.array([1])], (1,), keepdims=0)
        cases.add(f"Reduce{name}", [np.ascontiguousarray(data.T), np.array([0])], (1,), keepdims=0)
    for name in ("Softmax", "LogSoftmax"):
        cases.add(name, [data], axis=1)
    with np.errstate(all="ignore"):
        expected = [
            log_sum_exp(data) if node.op_type == "ReduceLogSumExp" else want
            for node, want in zip(cases.nodes, quiet(cases), strict=True)
        ]
    cases.check(cases.compiled(target=target), expected, 2e-2 if dtype == "float16" else 1e-4)


def log_sum_exp(data: Array) -> Array:
    """Of infinities too, of which the reference evaluator makes NaN."""
    wide = data.astype("float64")
    largest = wide.max(1, keepdims=True)
    shift = np.where(np.isinf(largest), 0, largest)
    return (np.log(np.exp(wide - shift).sum(1)) + shift[:, 0]).astype(data.dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pools(rank: int, target: str) -> None:
    """Means let NaN through, as global maxima do; the maximum of a window skips it."""
    cases = Cases(opset=18)
    x = np.resize(rows("float32"), (2, 3, *(17, 9, 7)[:rank]))
    for stride in (1, 2):
        window = {"kernel_shape": [3] * rank, "strides": [stride] * rank, "pads": [1] * (2 * rank)}
        cases.add("MaxPool", [x], **window)
        cases.add("AveragePool", [x], **window)
    cases.add("GlobalMaxPool", [x])
    cases.add("GlobalAveragePool", [x])
    padded = np.pad(x, [(0, 0)] * 2 + [(1, 1)] * rank, constant_values=NAN)
    views = np.lib.stride_tricks.sliding_window_view(padded, [3] * rank, axis=tuple(range(2, rank + 2)))
    inside = np.lib.stride_tricks.sliding_window_view(np.pad(np.ones(x.shape[2:]), 1), [3] * rank).astype(bool)
    around = tuple(range(2, rank + 2))
    expected = []
    with np.errstate(all="ignore"):
        for stride in (1, 2):
            cut = (slice(None), slice(None), *[slice(None, None, stride)] * rank)
            window, real = views[cut].reshape(*views[cut].shape[: rank + 2], -1), inside[cut[2:]]
            real = real.reshape(*real.shape[:rank], -1)
            expected.append(np.where(np.isnan(window), -np.float32(INF), window).max(-1))
            expected.append((np.where(real, window, 0).sum(-1, dtype="float64") / real.sum(-1)).astype("float32"))
        expected.append(x.max(around, keepdims=True))
        expected.append(x.mean(around, keepdims=True, dtype="float64").astype("float32"))
    cases.check(cases.compiled(target=target), expected)
    cases.check(cases.by_numpy_meaning(), expected)
