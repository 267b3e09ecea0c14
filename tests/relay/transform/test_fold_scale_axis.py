"""FoldScaleAxis of convolutions whose channels a layout splits: the same values, and no scale is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.analysis import nodes
from tilewright.relay.transform import BackwardFoldScaleAxis, ForwardFoldScaleAxis


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).uniform(0.5, 1.5, shape).astype("float32")


def check(func: Any, arrays: list[np.ndarray], fold: Any, products: int) -> None:
    """``fold`` keeps the values, and leaves that many products with a constant, those of weights included."""
    before = tvm.IRModule.from_expr(func)
    after = fold()(before)
    want = relay.create_executor(mod=before).evaluate()(*arrays)
    have = relay.create_executor(mod=after).evaluate()(*arrays)
    np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-4)
    scaled = [
        n for n in nodes(after["main"])
        if isinstance(n, relay.Call) and getattr(n.op, "name", "") == "multiply"
    ]  # fmt: skip
    assert len(scaled) == products
    assert all(n.args[0] in after["main"].params for n in scaled), "a scale of data is left"


LAYOUTS = {
    "NCHW4c": ("OIHW4i2o", (1, 2, 5, 5, 4), (3, 2, 3, 3, 4, 2), (2, 1, 1, 4)),
    "NHWC2c": ("HWIO2i4o", (1, 5, 5, 4, 2), (3, 3, 4, 2, 2, 4), (4, 2)),
}


@pytest.mark.parametrize("data_layout", LAYOUTS)
def test_scales_of_inputs(data_layout: str) -> None:
    kernel_layout, data_shape, weight_shape, scale_shape = LAYOUTS[data_layout]
    x, w, b = (relay.var(n, shape=s) for n, s in (("x", data_shape), ("w", weight_shape), ("b", scale_shape)))
    y = relay.nn.relu(relay.multiply(x, relay.const(numbers(*scale_shape, seed=3))))
    out_layout = data_layout.translate(str.maketrans("24", "42")) if data_layout == "NHWC2c" else "NCHW2c"
    layouts = {"data_layout": data_layout, "kernel_layout": kernel_layout, "out_layout": out_layout}
    conv = relay.nn.conv2d(relay.add(y, b), w, kernel_size=(3, 3), **layouts)
    arrays = [numbers(*data_shape), numbers(*weight_shape, seed=1), numbers(*scale_shape, seed=2)]
    check(relay.Function([x, w, b], conv), arrays, ForwardFoldScaleAxis, 1)


def test_scales_of_results() -> None:
    x, w = relay.var("x", shape=(1, 2, 5, 5, 4)), relay.var("w", shape=(3, 2, 3, 3, 4, 2))
    conv = relay.nn.conv2d(
        x, w, kernel_size=(3, 3), data_layout="NCHW4c", kernel_layout="OIHW4i2o", out_layout="NCHW2c"
    )
    shift = relay.const(numbers(1, 3, 1, 1, 2))
    scaled = relay.multiply(relay.nn.relu(relay.add(conv, shift)), relay.const(numbers(3, 1, 1, 2, seed=3)))
    arrays = [numbers(1, 2, 5, 5, 4), numbers(3, 2, 3, 3, 4, 2, seed=1)]
    before = tvm.IRModule.from_expr(relay.Function([x, w], scaled))
    after = BackwardFoldScaleAxis()(before)
    assert after["main"].body.op.name == "nn.relu"
    want = relay.create_executor(mod=before).evaluate()(*arrays)
    np.testing.assert_allclose(relay.create_executor(mod=after).evaluate()(*arrays).numpy(), want.numpy(), rtol=1e-4)


def test_scales_of_depthwise_convolutions() -> None:
    x, w = relay.var("x", shape=(1, 2, 5, 5, 2)), relay.var("w", shape=(2, 1, 3, 3, 1, 2))
    y = relay.multiply(x, relay.const(numbers(1, 2, 1, 1, 2)))
    conv = relay.nn.conv2d(
        y, w, kernel_size=(3, 3), groups=4, channels=4, data_layout="NCHW2c", kernel_layout="OIHW1i2o"
    )
    arrays = [numbers(1, 2, 5, 5, 2), numbers(2, 1, 3, 3, 1, 2, seed=1)]
    check(relay.Function([x, w], conv), arrays, ForwardFoldScaleAxis, 1)


def test_a_scale_that_varies_within_a_block_stays() -> None:
    """Of the inner part alone, it is no scale of channels in the order that they have."""
    x, w = relay.var("x", shape=(1, 2, 5, 5, 4)), relay.var("w", shape=(3, 2, 3, 3, 4, 2))
    y = relay.multiply(x, relay.const(numbers(1, 1, 1, 1, 4)))
    layouts = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4i2o", "out_layout": "NCHW2c"}
    func = relay.Function([x, w], relay.nn.conv2d(y, w, kernel_size=(3, 3), **layouts))
    after = ForwardFoldScaleAxis()(tvm.IRModule.from_expr(func))
    assert after["main"].body.args[0].op.name == "multiply"


@pytest.mark.parametrize(
    ("element", "folds"), [(1.0, True), (-1e-10, True), (0.0, False), (1e-30, False), (np.inf, False)]
)
def test_nothing_is_divided_by_a_scale_of_or_next_to_zero(element: float, folds: bool) -> None:
    """What is added after the scale would be divided by it."""
    x, w, b = (relay.var(n, shape=s) for n, s in (("x", (5, 7)), ("w", (3, 7)), ("b", (7,))))
    scale = numbers(7, seed=3)
    scale[2] = element
    y = relay.nn.dense(relay.add(relay.multiply(x, relay.const(scale)), b), w)
    data, weight, shift = arrays = [numbers(5, 7), numbers(3, 7, seed=1), numbers(7, seed=2)]
    folded = ForwardFoldScaleAxis()(tvm.IRModule.from_expr(relay.Function([x, w, b], y)))
    have = relay.create_executor(mod=folded).evaluate()(*arrays).numpy()
    with np.errstate(invalid="ignore"):
        want = (data * scale + shift) @ weight.T
    np.testing.assert_allclose(have, want, rtol=1e-4)
    assert (folded["main"].body.args[0].args[0] is folded["main"].params[0]) is folds


def test_a_normalization_with_a_scale_of_zero_before_a_dense_layer() -> None:
    x, w = relay.var("x", shape=(2, 5)), numbers(3, 5)
    gamma, beta = np.array([2, 0, -1, 0, 3], "float32"), np.array([1, 0, 2, -2, 0], "float32")
    y = relay.nn.dense(relay.nn.layer_norm(x, relay.const(gamma), relay.const(beta)), relay.const(w))
    data = numbers(2, 5, seed=1)
    with tvm.transform.PassContext(opt_level=3):
        have = relay.create_executor("graph", tvm.IRModule.from_expr(relay.Function([x], y))).evaluate()(data).numpy()
    centred = data - data.mean(1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * gamma + beta
    np.testing.assert_allclose(have, normal @ w.T, rtol=1e-4, atol=1e-5)


POOLS = {
    "max_pool1d": lambda x: relay.nn.max_pool1d(x, pool_size=(2,), strides=(2,), padding=(1,)),
    "avg_pool1d": lambda x: relay.nn.avg_pool1d(x, pool_size=(3,), strides=(1,), padding=(1,)),
    "adaptive_avg_pool1d": lambda x: relay.nn.adaptive_avg_pool1d(x, output_size=(3,)),
}


@pytest.mark.parametrize("pool", POOLS)
def test_scales_pass_through_pools_of_one_dimension(pool: str) -> None:
    x, w = relay.var("x", shape=(1, 3, 11)), relay.var("w", shape=(4, 3, 3))
    conv = relay.nn.conv1d(x, w, kernel_size=3, channels=4)
    scaled = relay.multiply(POOLS[pool](conv), relay.const(numbers(4, 1, seed=3)))
    check(relay.Function([x, w], scaled), [numbers(1, 3, 11), numbers(4, 3, 3, seed=1)], BackwardFoldScaleAxis, 1)
