"""Layer normalisation under its schedule, against numpy in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from tests.topi.harness import compiled, random

import tilewright as tvm
from tilewright import te, topi

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
        lambda a, b, c: topi.cpu.layer_norm(a, b, c, -1, 1e-5), x, gamma, beta,
        schedule=topi.cpu.schedule_layer_norm, target=target,
    )  # fmt: skip
    np.testing.assert_allclose(found, expected(x, gamma, beta, 1e-5), rtol=2e-5, atol=2e-5)


def test_sum_before_and_activation_after() -> None:
    x, y, gamma, beta = random(9, 70), random(9, 70, seed=3), random(70, seed=1), random(70, seed=2)
    found = compiled(
        lambda a, b, c, d: topi.nn.relu(topi.cpu.layer_norm(topi.add(a, b), c, d)), x, y, gamma, beta,
        schedule=topi.cpu.schedule_layer_norm,
    )  # fmt: skip
    np.testing.assert_allclose(found, np.maximum(expected(x + y, gamma, beta, 1e-5), 0), rtol=2e-5, atol=2e-5)


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("vectors", range(1, 41))
def test_rows_of_whole_vectors(vectors: int, target: str) -> None:
    shape = (3, vectors * 8)  # of blocks of 8, 6 and 4 vectors, and of none
    x, gamma, beta = random(*shape) - 2, random(shape[-1], seed=1), random(shape[-1], seed=2)
    found = compiled(topi.cpu.layer_norm, x, gamma, beta, schedule=topi.cpu.schedule_layer_norm, target=target)
    np.testing.assert_allclose(found, expected(x, gamma, beta, 1e-5), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("width", "blocks"), [(768, True), (96, True), (8 * 1024, False), (101, False), (7, False)])
def test_rows_of_whole_blocks_are_read_once_for_their_moments(width: int, blocks: bool) -> None:
    x = te.placeholder((4, width), name="x")
    with tvm.target.Target("llvm -mcpu=x86-64-v3"):
        norm = topi.cpu.layer_norm(x, None, None)
    assert any(op.tag == "layer_norm_blocks" for op in topi.utils.operations(norm)) == blocks


def test_rows_of_one_large_element_and_of_equal_ones() -> None:
    x = np.zeros((3, 256), "float32")
    x[0, 77], x[1] = 1e6, 12345.678
    ones, zeros = np.ones(256, "float32"), np.zeros(256, "float32")
    found = compiled(lambda a: topi.cpu.layer_norm(a, None, None), x, schedule=topi.cpu.schedule_layer_norm)
    np.testing.assert_allclose(found[0], expected(x[:1], ones, zeros, 1e-5)[0], rtol=1e-5, atol=1e-5)
    assert np.abs(found[1]).max() < 1  # the mean is rounded: 12345.678 / 2**24 over sqrt(epsilon)
    assert not found[2].any()


@pytest.mark.parametrize("offset", [1000, -1000, 30000])
def test_a_large_mean_costs_no_digits(offset: float) -> None:
    x = random(4, 768) + np.float32(offset)
    ones, zeros = np.ones(768, "float32"), np.zeros(768, "float32")
    found = compiled(lambda a: topi.cpu.layer_norm(a, None, None), x, schedule=topi.cpu.schedule_layer_norm)
    np.testing.assert_allclose(found, expected(x, ones, zeros, 1e-5), atol=abs(offset) * 5e-7)


@pytest.mark.parametrize("axis", [0, 1, (1, 2)])
def test_other_axes(axis: int | tuple[int, ...]) -> None:
    x = random(6, 5, 4)
    found = compiled(lambda a: topi.cpu.layer_norm(a, None, None, axis), x, schedule=topi.cpu.schedule_layer_norm)
    wide = x.astype("float64")
    moments = {"axis": axis, "keepdims": True}
    want = (wide - wide.mean(**moments)) / np.sqrt(wide.var(**moments) + 1e-5)
    np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("width", [1, 7, 64, 512])
def test_a_single_row_of_one_dimension(width: int) -> None:
    x, ones, zeros = random(width) + 3, np.ones(width, "float32"), np.zeros(width, "float32")
    found = compiled(lambda a: topi.cpu.layer_norm(a, None, None), x, schedule=topi.cpu.schedule_layer_norm)
    np.testing.assert_allclose(found, expected(x, ones, zeros, 1e-5), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 64), (2, 0, 512)])
def test_nothing_to_normalise(shape: tuple[int, ...]) -> None:
    found = compiled(
        lambda a: topi.cpu.layer_norm(a, None, None), random(*shape), schedule=topi.cpu.schedule_layer_norm
    )
    assert found.shape == shape
