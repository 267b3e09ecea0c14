"""Sums, products and means of quantized tensors on integers: the numbers of float32, to the bit, and no floats."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay import qnn
from tilewright.relay.qnn.integer_steps import linear_form, rational_form

RNG = np.random.default_rng(0)
SHAPE = (1, 5, 6, 7)
Array = np.ndarray[Any, Any]


def numbers(scale: float, zero: int, name: str) -> tuple[relay.Var, relay.Expr]:
    x = relay.var(name, shape=SHAPE, dtype="int8")
    return x, qnn.op.dequantize(x, relay.const(scale), relay.const(zero))


def answer(func: relay.Function, values: dict[str, Array], target: str, level: int = 3) -> tuple[Array, str]:
    with tvm.transform.PassContext(opt_level=level):
        factory = relay.build(tvm.IRModule.from_expr(func), target, executor="aot")
    executor = factory.create_executor(tvm.cpu())
    executor.run(**values)
    return executor.get_output(0).numpy(), factory.get_lib().get_source() if target.startswith("c") else ""


def check(value: relay.Expr, inputs: list[relay.Var], scale: float, zero: int, floats: bool = False) -> None:
    """C without a runtime has the answer of the host, and its functions no float."""
    body = qnn.op.quantize(value, relay.const(scale), relay.const(zero), out_dtype="int8")
    func = relay.Function(inputs, body)
    values = {x.name_hint: RNG.integers(-128, 128, SHAPE).astype(np.int8) for x in inputs}
    found, source = answer(func, values, "c -runtime=c")
    assert np.array_equal(found, answer(func, values, "llvm")[0])
    functions = source[source.index("int32_t tvmgen") :]
    assert floats or not re.search(r"\bfloat\b|rint", functions)


@pytest.mark.parametrize(
    "scales", [(0.05, 0.05, 0.05), (0.1, 0.03, 0.2), (0.5, 0.25, 0.25), (0.08, 0.4, 0.1), (0.02, 0.02, 1.7)]
)
def test_sums(scales: tuple[float, float, float]) -> None:
    (x, a), (y, b) = numbers(scales[0], -3, "x"), numbers(scales[1], 11, "y")
    check(a + b, [x, y], scales[2], 5)


@pytest.mark.parametrize("scales", [(0.00001, 3.0, 3.1), (0.0371, 2.9, 0.313)])
def test_sums_of_scales_far_apart(scales: tuple[float, float, float]) -> None:
    (x, a), (y, b) = numbers(scales[0], 0, "x"), numbers(scales[1], 1, "y")
    check(a + b, [x, y], scales[2], 5)


@pytest.mark.parametrize("axis", [-1, 1])
def test_softmax(axis: int) -> None:
    x, a = numbers(0.04, -3, "x")
    check(relay.nn.softmax(a, axis=axis), [x], 1 / 256, -128)
    check(relay.nn.softmax(a, axis=axis), [x], 0.0031, -3)


WINDOWS = {
    "apart": {"pool_size": (2, 2), "strides": (2, 2)},
    "halves": {"pool_size": (2, 3), "dilation": (1, 2)},
    "padded": {"pool_size": (3, 2), "strides": (1, 2), "padding": (1, 0, 2, 1), "count_include_pad": True},
    "one more": {"pool_size": (2, 3), "strides": (1, 2), "ceil_mode": True},
}


@pytest.mark.parametrize("case", WINDOWS)
def test_means_of_windows(case: str) -> None:
    x, a = numbers(0.05, -3, "x")
    for scale in (0.05, 0.0217):
        check(relay.nn.avg_pool2d(a, **WINDOWS[case]), [x], scale, 4)


@pytest.mark.parametrize("attrs", [{"padding": (1, 1)}, {"strides": (2, 2), "ceil_mode": True}])
def test_windows_of_several_sizes_stay_floats(attrs: dict[str, Any]) -> None:
    x, a = numbers(0.05, -3, "x")
    check(relay.nn.avg_pool2d(a, (3, 2), **attrs), [x], 0.07, 4, floats=True)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_means_of_windows_round_as_tensorflow_lite(dtype: str) -> None:
    """Halves away from 0, as the front end writes it."""
    x = relay.var("x", shape=SHAPE, dtype=dtype)
    data = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, SHAPE).astype(dtype)
    for size in ((2, 2), (3, 2), (6, 7)):
        mean = relay.nn.avg_pool2d(relay.cast(x, "float32"), size)
        half = relay.const(np.float32(0.5 + 0.25 / np.prod(size)))
        whole = relay.multiply(relay.sign(mean), relay.floor(relay.add(relay.abs(mean), half)))
        low, high = np.iinfo(dtype).min + 3, np.iinfo(dtype).max
        func = relay.Function([x], relay.cast(relay.clip(whole, float(low), float(high)), dtype))
        found, source = answer(func, {"x": data}, "c -runtime=c")
        assert not re.search(r"\bfloat\b|floorf", source[source.index("int32_t tvmgen") :])
        n = int(np.prod(size))
        windows = np.lib.stride_tricks.sliding_window_view(data.astype(np.int64), size, (2, 3)).sum((-1, -2))
        wanted = np.sign(windows) * ((2 * np.abs(windows) + n) // (2 * n))
        assert np.array_equal(found, np.clip(wanted, low, high))


def test_integers_are_the_usual_levels_too() -> None:
    x, a = numbers(0.05, -3, "x")
    weight = qnn.op.dequantize(
        relay.const(RNG.integers(-127, 128, (4, 5, 3, 3), "int8")), relay.const(0.01), relay.const(0)
    )
    body = qnn.op.quantize(relay.nn.conv2d(a, weight), relay.const(0.3), relay.const(0), out_dtype="int8")
    source = answer(relay.Function([x], body), {"x": np.zeros(SHAPE, "int8")}, "c -runtime=c", level=2)[1]
    assert "tw_conv2d_int8(&layer" in source


@pytest.mark.parametrize("scale", [0.01, 0.0625, 0.3])
def test_products(scale: float) -> None:
    (x, a), (y, b) = numbers(0.125, -3, "x"), numbers(0.07, 11, "y")
    check(a * b, [x, y], scale, -9)


@pytest.mark.parametrize("scale", [0.025, 0.02, 0.05, 0.0471, 0.031])
def test_means(scale: float) -> None:
    x, a = numbers(0.05, -128, "x")
    check(relay.nn.global_avg_pool2d(a), [x], scale, 4)
    check(relay.mean(a, axis=[2, 3]), [x], scale, 4)
    check(relay.mean(a, axis=[1]), [x], scale, 4, floats=True)


@pytest.mark.parametrize("scale", [0.05, 0.011, 0.2])
def test_numbers_that_move_to_another_scale(scale: float) -> None:
    (x, a), (y, b) = numbers(0.05, -128, "x"), numbers(0.07, 11, "y")
    check(relay.nn.max_pool2d(a, (2, 2), (2, 2)), [x], scale, 4)
    check(relay.concatenate([a, b], axis=1), [x, y], scale, -9)


@pytest.mark.parametrize("factor", [0.0197, 0.310037, 0.0013, 1.90131])
def test_a_linear_form_has_all_the_answers_of_floats(factor: float) -> None:
    found = linear_form(np.float32(factor), 3000)
    assert found is not None
    m, r, s = found
    n = np.arange(-3000, 3001)
    wanted = np.rint(n.astype(np.float32) * np.float32(factor))
    assert np.array_equal(np.clip((n * m + r) >> s, -256, 256), np.clip(wanted, -256, 256))


def test_halves_are_even_in_a_rational_form() -> None:
    assert linear_form(np.float32(0.01), 125 * 255) is None
    assert rational_form(np.float32(0.01), 125 * 255) == (1, 100)
    assert rational_form(np.float32(5 / 36), 9 * 255) is None


def test_a_dense_layer_whose_result_stays_floats_has_weights_of_bytes() -> None:
    x = relay.var("x", shape=(3, 20), dtype="int8")
    weight = RNG.integers(-127, 128, (7, 20)).astype(np.int8)
    scales = RNG.uniform(0.01, 0.02, 7).astype(np.float32)
    numbers_of = qnn.op.dequantize(x, relay.const(0.05), relay.const(-7))
    weights = qnn.op.dequantize(relay.const(weight), relay.const(scales), relay.const(np.zeros(7, "int32")), axis=0)
    func = relay.Function([x], relay.nn.dense(numbers_of, weights))
    value = RNG.integers(-128, 128, (3, 20)).astype(np.int8)
    found, source = answer(func, {"x": value}, "c -runtime=c")
    sums = (value.astype(np.int64) + 7) @ weight.astype(np.int64).T
    assert np.array_equal(found, sums.astype(np.float32) * (scales * np.float32(0.05)))
    assert re.search(r"\(int8_t\*\)arg1", source)
