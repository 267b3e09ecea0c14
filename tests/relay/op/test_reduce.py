"""Reductions against numpy and torch."""

import numpy as np
import pytest
import torch
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type, integers, random

from tilewright import relay

X = random(2, 3, 5)
INTS = integers(-9, 9, 3, 7)
T = torch.from_numpy(X)

CASES = [
    case("sum of all", relay.sum, [X], np.sum(X)),
    case("sum over one axis", lambda x: relay.sum(x, 1), [X], X.sum(1)),
    case("sum over a negative axis, kept", lambda x: relay.sum(x, -1, True), [X], X.sum(-1, keepdims=True)),
    case("sum over axes", lambda x: relay.sum(x, (0, 2)), [X], X.sum((0, 2))),
    case("sum over all but", lambda x: relay.sum(x, 1, exclude=True), [X], X.sum((0, 2))),
    case("sum of nothing", lambda x: relay.sum(x, 0), [np.zeros((0, 3), "float32")], np.zeros(3, "float32")),
    case("sum of integers", lambda x: relay.sum(x, 1), [INTS], INTS.sum(1).astype("int32")),
    case("prod", lambda x: relay.prod(x, 2), [X], X.prod(2)),
    case("max", lambda x: relay.max(x, (1, 2)), [X], X.max((1, 2))),
    case("max of integers", relay.max, [INTS], INTS.max()),
    case("min", lambda x: relay.min(x, 0, True), [X], X.min(0, keepdims=True)),
    case("mean", lambda x: relay.mean(x, (0, 1)), [X], X.mean((0, 1))),
    case("all", lambda x: relay.all(x, 1), [X > -0.5], (X > -0.5).all(1)),
    case("any", lambda x: relay.any(x, 1), [X > 0.5], (X > 0.5).any(1)),
    case("variance", lambda x: relay.variance(x, 1), [X], torch.var(T, 1, correction=0).numpy()),
    case(
        "variance, unbiased and kept",
        lambda x: relay.variance(x, 2, True, unbiased=True),
        [X],
        torch.var(T, 2, correction=1, keepdim=True).numpy(),
    ),
    case("std", lambda x: relay.std(x, (1, 2)), [X], torch.std(T, (1, 2), correction=0).numpy()),
    case("mean_variance", lambda x: relay.mean_variance(x, 1), [X], (X.mean(1), X.var(1))),
    case(
        "mean_std kept", lambda x: relay.mean_std(x, 2, True), [X], (X.mean(2, keepdims=True), X.std(2, keepdims=True))
    ),
    case("logsumexp", lambda x: relay.logsumexp(x, 1), [X * 50], torch.logsumexp(T * 50, 1).numpy()),
    case("argmax", lambda x: relay.argmax(x, 1), [X], X.argmax(1).astype("int32")),
    case("argmax of all", relay.argmax, [X], np.int32(X.argmax())),
    case("argmin kept", lambda x: relay.argmin(x, -1, True), [X], X.argmin(-1, keepdims=True).astype("int32")),
    case(
        "argmax, the first of equals", lambda x: relay.argmax(x, 1), [np.ones((2, 5), "float32")], np.zeros(2, "int32")
    ),
    case(
        "argmax, the last of equals",
        lambda x: relay.argmax(x, 1, select_last_index=True),
        [np.ones((2, 5), "float32")],
        np.full(2, 4, "int32"),
    ),
]


@pytest.mark.parametrize("item", CASES, ids=str)
def test_type(item: Case) -> None:
    check_type(item)


@pytest.mark.parametrize("item", CASES, ids=str)
def test_meaning(item: Case) -> None:
    check_meaning(item)


def test_kernels() -> None:
    check_kernels(CASES)
