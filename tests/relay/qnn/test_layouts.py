"""ConvertLayout through quantized networks: the same integers, and no conversions between quantized operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TypeInferenceError
from tilewright.relay import qnn
from tilewright.relay.interpreter import interpret

RNG = np.random.default_rng(2)
ONE, ZERO = relay.const(1.0), relay.const(0)
DATA = RNG.integers(-128, 127, (1, 5, 6, 4), dtype="int8")


def conv(x: Any, channels: int = 4) -> Any:
    kernel = relay.const(RNG.integers(-128, 127, (3, 3, 4, channels), dtype="int8"))
    zeros = relay.const(RNG.integers(-9, 9, channels, dtype="int32"))
    return qnn.op.conv2d(
        x, kernel, relay.const(3), zeros, ONE, ONE, (3, 3), channels, padding=(1, 1), data_layout="NHWC",
        kernel_layout="HWIO",
    )  # fmt: skip


def requantized(x: Any) -> Any:
    scales = relay.const(RNG.uniform(0.0005, 0.002, 4).astype("float32"))
    return qnn.op.requantize(x, scales, ZERO, ONE, relay.const(5))


def transposed(x: Any) -> Any:
    kernel = relay.const(RNG.integers(-128, 127, (2, 2, 3, 4), dtype="int8"))
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWOI"}
    return qnn.op.conv2d_transpose(x, kernel, ZERO, ZERO, ONE, ONE, (2, 2), channels=3, kernel_size=(2, 2), **layouts)


def added(x: Any) -> Any:
    first, second = requantized(conv(x)), requantized(conv(x))
    return qnn.op.add(first, second, ONE, ZERO, ONE, ZERO, ONE, ZERO)


def joined(x: Any) -> Any:
    parts = [requantized(conv(x)), requantized(conv(x))]
    return qnn.op.concatenate(parts, [ONE, relay.const(0.5)], [ZERO, ZERO], ONE, ZERO, 3)


@pytest.mark.parametrize("make", [lambda x: requantized(conv(x)), added, joined, transposed])
def test_layouts_change_around_a_quantized_network(make: Any) -> None:
    x = relay.var("x", shape=DATA.shape, dtype="int8")
    before = relay.transform.InferType()(tvm.IRModule.from_expr(make(x)))
    wanted = {name: ["NCHW", "default"] for name in ("qnn.conv2d", "qnn.conv2d_transpose")}
    after = relay.transform.ConvertLayout(wanted)(before)
    np.testing.assert_array_equal(interpret(after, [DATA]), interpret(before, [DATA]))
    text = str(after)
    assert 'data_layout="NHWC"' not in text
    assert text.count('dst_layout="NCHW"') == 1 and text.count('dst_layout="NHWC"') == 1


def test_layouts_with_split_channels_are_refused() -> None:
    x, w = relay.var("x", shape=(1, 1, 4, 4, 8), dtype="int8"), relay.var("w", shape=(8, 8, 1, 1), dtype="int8")
    expr = qnn.op.conv2d(x, w, ZERO, ZERO, ONE, ONE, (1, 1), 8, data_layout="NCHW8c")
    with pytest.raises(TypeInferenceError, match="no split dimensions, found NCHW8c"):
        relay.transform.InferType()(tvm.IRModule.from_expr(expr))
