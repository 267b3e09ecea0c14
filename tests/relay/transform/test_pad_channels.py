"""PadChannels: which channels it pads, and that results stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.backend.executor import create_executor
from tilewright.relay.transform import InferType, PadChannels

TARGET = "llvm -mcpu=skylake-avx512"  # 16 floats a vector
RNG = np.random.default_rng(0)


def weight(*shape: int) -> Any:
    return relay.const(RNG.standard_normal(shape).astype("float32") / 8)


def conv(x: Any, channels: int, inputs: int, size: int = 1, **attrs: Any) -> Any:
    return relay.nn.conv2d(x, weight(channels, inputs, size, size), channels=channels, kernel_size=size, **attrs)


def padded(build: Callable[[Any], Any], shape: tuple[int, ...] = (1, 32, 14, 14)) -> tuple[tvm.IRModule, tvm.IRModule]:
    x = relay.var("x", shape=shape)
    mod = InferType()(tvm.IRModule.from_expr(relay.Function([x], build(x))))
    with tvm.target.Target(TARGET), tvm.transform.PassContext(opt_level=3):
        return mod, PadChannels()(mod)


def channels_of(mod: tvm.IRModule) -> list[int]:
    found: list[int] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relay.Call) and getattr(expr.op, "name", "") == "nn.conv2d":
            found.append(expr.checked_type.concrete_shape[1])

    relay.analysis.post_order_visit(mod["main"], visit)
    return found


def evaluate(mod: tvm.IRModule, x: np.ndarray) -> np.ndarray:
    """What the module computes, operator by operator in numpy."""
    result: np.ndarray = create_executor("debug", mod=mod).evaluate()(x).numpy()
    return result


NETWORKS: dict[str, tuple[Callable[[Any], Any], list[int]]] = {
    "classifier": (lambda x: relay.nn.global_avg_pool2d(relay.nn.relu(conv(x, 250, 32) + weight(250, 1, 1))), [256]),
    "odd channels": (lambda x: relay.nn.relu(conv(x, 29, 32, 3, padding=1)), [32]),
    "pairs of inputs are as good": (lambda x: relay.nn.relu(conv(x, 21, 32, 3, padding=1)), [21]),
    "two in turn": (lambda x: conv(relay.tanh(conv(x, 61, 32) + weight(61, 1, 1)), 16, 61, 3), [64, 16]),
    "residual": (
        lambda x: (lambda a: conv(a + relay.sigmoid(conv(a, 61, 61)), 32, 61))(relay.nn.relu(conv(x, 61, 32))),
        [64, 64, 32],
    ),
    "depthwise": (
        lambda x: conv(conv(conv(x, 61, 32), 61, 1, 3, groups=61) * weight(1, 61, 1, 1), 32, 61),
        [64, 64, 32],
    ),
    "pools": (lambda x: conv(relay.nn.avg_pool2d(conv(x, 61, 32), 2, strides=2), 32, 61), [64, 32]),
    "whole vectors already": (lambda x: conv(x, 48, 32), [48]),
    "nothing saved": (lambda x: conv(x, 8, 32), [8]),
    "weights that are no constant": (lambda x: relay.nn.conv2d(x, relay.exp(weight(250, 32, 1, 1))), [250]),
    "few multiply-adds": (lambda x: conv(relay.strided_slice(x, [0], [1], axes=[1]), 17, 1), [17]),
    "groups": (lambda x: conv(x, 250, 16, groups=2), [250]),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_channels_are_padded_where_that_pays_and_values_stay(name: str) -> None:
    build, expected = NETWORKS[name]
    before, after = padded(build)
    assert channels_of(after) == expected
    x = RNG.standard_normal((1, 32, 14, 14)).astype("float32")
    np.testing.assert_allclose(evaluate(after, x), evaluate(before, x), rtol=1e-4, atol=1e-5)


def test_a_division_by_padded_channels_is_not_made() -> None:
    before, after = padded(lambda x: (lambda a: relay.exp(a) / a)(conv(x, 61, 32)))
    x = RNG.standard_normal((1, 32, 14, 14)).astype("float32")
    found = evaluate(after, x)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(1 / found, 1 / evaluate(before, x), rtol=1e-4, atol=1e-5)  # a denominator may be near 0


@pytest.mark.parametrize("name", ["classifier", "residual", "depthwise"])
def test_a_build_with_padded_channels_is_right(name: str) -> None:
    x = relay.var("x", shape=(1, 32, 14, 14))
    mod = tvm.IRModule.from_expr(relay.Function([x], NETWORKS[name][0](x)))
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, "llvm")
    array = RNG.standard_normal((1, 32, 14, 14)).astype("float32")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.run(x=array)
    np.testing.assert_allclose(module.get_output(0).numpy(), evaluate(InferType()(mod), array), rtol=1e-3, atol=1e-4)
