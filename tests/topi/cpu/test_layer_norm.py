"""Layer normalisation under its schedule, against numpy in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from tests.topi.harness import compiled, random

from tilewright import topi

TARGETS = ["llvm", "llvm -mcpu=x86-64-v2"]


def expected(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, epsilon: float) -> np.ndarray:
    wide = x.astype("float64")
    deviation = np.sqrt(wide.var(-1, keepdims=True) + epsilon)
    return (wide - wide.mean(-1, keepdims=True)) / deviation * gamma + beta


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 7, 33), (40, 64, 96), (4, 1, 101), (2, 3, 3072), (5, 16)])
def test_layer_norm(shape: tuple[int, ...], target: str) -> None:
    x, gamma, beta = random(*shape) + 3, random(shape[-1], seed=1), random(shape[-1], seed=2)
    found = compiled(
        lambda a, b, c: topi.nn.layer_norm(a, b, c, -1, 1e-5), x, gamma, beta,
        schedule=topi.cpu.schedule_layer_norm, target=target,
    )  # fmt: skip
    np.testing.assert_allclose(found, expected(x, gamma, beta, 1e-5), rtol=2e-5, atol=2e-5)


def test_sum_before_and_activation_after() -> None:
    x, y, gamma, beta = random(9, 70), random(9, 70, seed=3), random(70, seed=1), random(70, seed=2)
    found = compiled(
        lambda a, b, c, d: topi.nn.relu(topi.nn.layer_norm(topi.add(a, b), c, d)), x, y, gamma, beta,
        schedule=topi.cpu.schedule_layer_norm,
    )  # fmt: skip
    np.testing.assert_allclose(found, np.maximum(expected(x + y, gamma, beta, 1e-5), 0), rtol=2e-5, atol=2e-5)


def test_a_large_mean_costs_no_digits() -> None:
    x = random(4, 768) + 1000
    ones, zeros = np.ones(768, "float32"), np.zeros(768, "float32")
    found = compiled(lambda a: topi.nn.layer_norm(a, None, None), x, schedule=topi.cpu.schedule_layer_norm)
    np.testing.assert_allclose(found, expected(x, ones, zeros, 1e-5), atol=5e-4)


@pytest.mark.parametrize("axis", [0, 1, (1, 2)])
def test_other_axes(axis: int | tuple[int, ...]) -> None:
    x = random(6, 5, 4)
    found = compiled(lambda a: topi.nn.layer_norm(a, None, None, axis), x, schedule=topi.cpu.schedule_layer_norm)
    wide = x.astype("float64")
    moments = {"axis": axis, "keepdims": True}
    want = (wide - wide.mean(**moments)) / np.sqrt(wide.var(**moments) + 1e-5)
    np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_nothing_to_normalise(shape: tuple[int, int]) -> None:
    found = compiled(lambda a: topi.nn.layer_norm(a, None, None), random(*shape), schedule=topi.cpu.schedule_layer_norm)
    assert found.shape == shape
