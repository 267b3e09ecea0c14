"""Element-wise functions against numpy and PyTorch."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.topi.harness import close, evaluate, random

from tilewright import topi

FUNCTIONS = [
    (topi.exp, np.exp), (topi.tanh, np.tanh), (topi.tan, np.tan), (topi.cos, np.cos), (topi.sin, np.sin),
    (topi.cosh, np.cosh), (topi.sinh, np.sinh), (topi.acos, np.arccos), (topi.asin, np.arcsin),
    (topi.atan, np.arctan), (topi.asinh, np.arcsinh), (topi.atanh, np.arctanh), (topi.floor, np.floor),
    (topi.ceil, np.ceil), (topi.trunc, np.trunc), (topi.nearbyint, np.rint), (topi.sign, np.sign), (topi.abs, np.abs),
    (topi.negative, np.negative), (topi.identity, np.positive),
    (topi.sigmoid, lambda x: 1 / (1 + np.exp(-x))), (topi.erf, lambda x: torch.erf(torch.tensor(x)).numpy()),
]  # fmt: skip
POSITIVE = [
    (topi.log, np.log), (topi.log2, np.log2), (topi.log10, np.log10), (topi.sqrt, np.sqrt),
    (topi.rsqrt, lambda x: 1 / np.sqrt(x)), (topi.acosh, lambda x: np.arccosh(x)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "reference"), FUNCTIONS)
def test_functions(op: Callable, reference: Callable) -> None:
    x = random(3, 7) * 0.9
    close(evaluate(op, x), reference(x))


@pytest.mark.parametrize(("op", "reference"), POSITIVE)
def test_functions_of_positive_numbers(op: Callable, reference: Callable) -> None:
    x = random(11) + 2.1
    close(evaluate(op, x), reference(x))


def test_predicates_of_special_values() -> None:
    x = np.array([0, np.nan, np.inf, -np.inf], "float32")
    assert evaluate(topi.isnan, x).tolist() == [False, True, False, False]
    assert evaluate(topi.isinf, x).tolist() == [False, False, True, True]
    assert evaluate(topi.isfinite, x).tolist() == [True, False, False, False]


def test_clip_brings_bounds_into_the_dtype() -> None:
    x = np.array([0, 100, 255], "uint8")
    assert evaluate(lambda t: topi.clip(t, -5, 1000), x).tolist() == [0, 100, 255]
    assert evaluate(lambda t: topi.clip(t, 10, 200.0), x).tolist() == [10, 100, 200]


@pytest.mark.parametrize("dtype", ["int8", "int64", "float64", "float16", "bool"])
def test_cast(dtype: str) -> None:
    x = np.array([-3.7, 0, 2.5], "float32")
    close(evaluate(lambda t: topi.cast(t, dtype), x), x.astype(dtype))


def test_reinterpret_keeps_the_bits() -> None:
    x = random(5)
    assert (evaluate(lambda t: topi.reinterpret(t, "int32"), x) == x.view("int32")).all()


@pytest.mark.parametrize(("op", "reference"), [
    (topi.fast_exp, torch.exp), (topi.fast_tanh, torch.tanh), (topi.fast_erf, torch.erf),
])  # fmt: skip
def test_fast_approximations_hold_their_accuracy(op: Callable, reference: Callable) -> None:
    x = np.linspace(-12, 12, 501, dtype="float32")
    exact = reference(torch.tensor(x).double()).numpy()
    close(evaluate(op, x), exact, rtol=3e-6, atol=1e-6)


def test_elemwise_sum_and_full() -> None:
    x, y, z = random(4), random(4, seed=1), random(4, seed=2)
    close(evaluate(lambda *t: topi.elemwise_sum(list(t)), x, y, z), x + y + z)
    close(evaluate(lambda t: topi.add(t, topi.full((4,), "float32", 2.5)), x), x + 2.5)
    close(evaluate(lambda t: topi.full_like(t, 3), x), np.full(4, 3, "float32"))
