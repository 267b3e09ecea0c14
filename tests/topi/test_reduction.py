"""Reductions against numpy, under the reduction schedule."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from tests.topi.harness import close, evaluate, random

from tilewright import topi

reduced = partial(evaluate, schedule=topi.cpu.schedule_reduce)
AXES = [None, 0, 1, -1, (0, 2), (1, 2), (0, 1, 2)]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize(
    ("op", "reference"),
    [(topi.sum, np.sum), (topi.mean, np.mean), (topi.max, np.max), (topi.min, np.min), (topi.prod, np.prod)],
)
def test_reductions(op: Callable, reference: Callable, axis: int | tuple | None, keepdims: bool) -> None:
    x = random(3, 5, 7) + 1
    close(reduced(lambda t: op(t, axis, keepdims), x), reference(x, axis, keepdims=keepdims), rtol=1e-4)


@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 48), (128,), (3, 37), (33, 16), (1, 1)])
def test_vectors_of_partial_results(shape: tuple) -> None:
    x = random(*shape)
    close(reduced(lambda t: topi.sum(t, -1), x), x.sum(-1))
    close(reduced(lambda t: topi.max(t, 0), x), x.max(0))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_arg_reductions_choose_among_equals(axis: int | None, last: bool) -> None:
    x = np.round(random(4, 9) * 2)
    turned = x if not last else (x[::-1, ::-1] if axis is None else np.flip(x, axis))
    size = x.size if axis is None else x.shape[axis]
    expected_max, expected_min = turned.argmax(axis), turned.argmin(axis)
    if last:
        expected_max, expected_min = size - 1 - expected_max, size - 1 - expected_min
        if axis is not None:
            expected_max, expected_min = np.asarray(expected_max), np.asarray(expected_min)
    close(reduced(lambda t: topi.argmax(t, axis, False, last), x), expected_max)
    close(reduced(lambda t: topi.argmin(t, axis, False, last), x), expected_min)


def test_truth_reductions() -> None:
    x = np.array([[1, 1, 0], [1, 1, 1]], bool)
    assert reduced(lambda t: topi.all(t, 1), x).tolist() == [False, True]
    assert reduced(lambda t: topi.any(t, 0), x).tolist() == [True, True, True]


def test_reduction_with_work_before_and_after() -> None:
    x = random(6, 32)
    close(reduced(lambda t: topi.sqrt(topi.sum(topi.multiply(t, t), 1)), x), np.sqrt((x * x).sum(1)))


def test_integers_reduce_exactly() -> None:
    x = np.arange(-20, 20, dtype="int32").reshape(4, 10)
    assert (reduced(lambda t: topi.sum(t, 1), x) == x.sum(1)).all()
    assert (reduced(lambda t: topi.max(t, 0), x) == x.max(0)).all()


def test_collapse_sum_undoes_broadcasting() -> None:
    x = random(2, 3, 4)
    close(reduced(lambda t: topi.collapse_sum(t, (3, 1)), x), x.sum(0).sum(1, keepdims=True))
