"""LazyGradientInit: zeros and ones that nothing reads are not made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.testing import count_ops
from tilewright.relay.transform import LazyGradientInit, gradient


def lazy(params: list[Any], body: Any) -> Any:
    return LazyGradientInit()(tvm.IRModule.from_expr(relay.Function(params, body)))


X, Y = relay.var("x", shape=(3, 4)), relay.var("y", shape=(3, 4))
NARROW = relay.var("z", shape=(4,))

CASES = {
    "x + 0": (relay.add(X, relay.zeros_like(Y)), 0),
    "0 + x": (relay.add(relay.zeros((3, 4), "float32"), X), 0),
    "x - 0": (relay.subtract(X, relay.zeros_like(X)), 0),
    "x * 1": (relay.multiply(X, relay.ones((4,), "float32")), 0),
    "x / 1": (relay.divide(X, relay.ones_like(X)), 0),
    "z + 0 of a larger shape": (relay.add(NARROW, relay.zeros((3, 4), "float32")), 2),
    "x * 0": (relay.multiply(X, relay.zeros_like(Y)), 1),
    "0 - x": (relay.subtract(relay.zeros_like(X), X), 2),
    "1 / x": (relay.divide(relay.ones_like(X), X), 2),
    "ones moved": (relay.transpose(relay.reshape(relay.ones((3, 4), "float32"), (4, 3))), 1),
    "a sum of zeros": (relay.sum(relay.zeros_like(X), axis=1), 1),
    "a sum of ones": (relay.sum(relay.ones_like(X), axis=1), 2),
}


@pytest.mark.parametrize("name", CASES)
def test_values_stay_and_fillings_go(name: str) -> None:
    body, left = CASES[name]
    params = [X, Y, NARROW]
    mod = lazy(params, body)
    assert sum(count_ops(mod["main"]).values()) == left
    arrays = [np.random.default_rng(k).uniform(1, 2, s).astype("float32") for k, s in enumerate([(3, 4), (3, 4), (4,)])]
    want = relay.create_executor().evaluate(relay.Function(params, body))(*arrays)
    have = relay.create_executor(mod=mod).evaluate()(*arrays)
    np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-6)
    before = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, body)))
    assert mod["main"].checked_type == before["main"].checked_type


def test_a_gradient_starts_without_ones() -> None:
    mod = lazy([X, Y], relay.Tuple([X]))  # nothing to do gives the module back
    assert count_ops(mod["main"]) == {}
    made = gradient(relay.Function([X, Y], relay.multiply(X, Y)))
    mod = LazyGradientInit()(tvm.IRModule.from_expr(made))
    assert count_ops(mod["main"]) == {"multiply": 1}
