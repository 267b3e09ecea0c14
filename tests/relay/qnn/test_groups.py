"""Quantized groups on the CPU: whole numbers, exact, and within a step of ONNX's operators in floating point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.facts import is_whole
from tilewright.relay.interpreter import interpret
from tilewright.relay.qnn.groups import (
    Joined,
    Mean,
    Move,
    Multiplied,
    Pair,
    Product,
    Shares,
    Sum,
    Table,
    Windows,
    describe,
)
from tilewright.relay.qnn.op import dequantize, quantize
from tilewright.relay.qnn.transform import CanonicalizeOps
from tilewright.relay.transform.simplify.fold_constant import FoldConstant

RNG = np.random.default_rng(20)


def scale(value: float) -> Any:
    return relay.const(np.float32(value))


def integers(dtype: str, *shape: int) -> Any:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True, dtype=dtype)


def given(name: str, dtype: str, shape: tuple[int, ...], step: float = 0.031, zero: int = 3) -> tuple[Any, Any]:
    var = relay.var(name, shape=shape, dtype=dtype)
    return var, dequantize(var, scale(step), relay.const(np.array(zero, dtype)))


def weights(shape: tuple[int, ...], per_channel: bool = True) -> Any:
    steps = RNG.uniform(0.001, 0.02, shape[0] if per_channel else 1).astype("float32")
    zeros = np.zeros(len(steps), "int8")
    return dequantize(relay.const(integers("int8", *shape)), relay.const(steps), relay.const(zeros), axis=0)


def bias(count: int) -> Any:
    return relay.const(RNG.standard_normal(count).astype("float32"))


def convolution(dtype: str, channels: int, out: int, size: int, **attrs: Any) -> tuple[list[Any], Any]:
    var, data = given("x", dtype, (1, channels, size, size))
    groups = attrs.get("groups", 1)
    conv = relay.nn.conv2d(data, weights((out, channels // groups, 3, 3)), kernel_size=(3, 3), channels=out, **attrs)
    return [var], relay.nn.relu(relay.nn.bias_add(conv, bias(out)))


def dense(dtype: str, rows: int, inner: int, units: int) -> tuple[list[Any], Any]:
    var, data = given("x", dtype, (rows, inner))
    return [var], relay.nn.bias_add(relay.nn.dense(data, weights((units, inner))), bias(units), axis=-1)


def addition(dtype: str) -> tuple[list[Any], Any]:
    (x, a), (y, b) = given("x", dtype, (1, 7, 5, 3)), given("y", dtype, (1, 7, 5, 3), 0.0173, 11)
    return [x, y], relay.nn.relu(a + b)


def two(make: Callable[[Any, Any], Any], dtype: str, *shapes: tuple[int, ...]) -> tuple[list[Any], Any]:
    left, right = shapes or ((2, 5, 7), (2, 5, 7))
    (x, a), (y, b) = given("x", dtype, left), given("y", dtype, right, 0.0173, 11)
    return [x, y], make(a, b)


def chosen(a: Any, b: Any) -> Any:
    return relay.where(relay.const(np.arange(7) % 2 == 0), a, b)


def one(make: Callable[[Any], Any], dtype: str) -> tuple[list[Any], Any]:
    var, data = given("x", dtype, (1, 5, 7, 9))
    return [var], make(data)


CASES: dict[str, tuple[Callable[[str], tuple[list[Any], Any]], type]] = {
    "convolution": (lambda t: convolution(t, 17, 13, 7, padding=(1, 1)), Product),
    "strided convolution": (lambda t: convolution(t, 3, 8, 11, strides=(2, 2), padding=(1, 1)), Product),
    "depthwise convolution": (lambda t: convolution(t, 12, 12, 6, padding=(1, 1), groups=12), Product),
    "convolution of one pixel": (lambda t: convolution(t, 1, 1, 3), Product),
    "dense": (lambda t: dense(t, 3, 37, 11), Product),
    "dense that could exceed 2 ** 24": (lambda t: dense(t, 2, 4096, 5), Product),
    "addition": (addition, Sum),
    "addition of a row": (lambda t: two(lambda a, b: a + b, t, (2, 5, 7), (7,)), Sum),
    "multiplication": (lambda t: two(lambda a, b: relay.nn.relu(a * b), t), Multiplied),
    "product of matrices": (lambda t: two(relay.nn.dense, t, (3, 19), (5, 19)), Pair),
    "products that could exceed 2 ** 24": (lambda t: two(relay.nn.batch_matmul, t, (2, 3, 300), (2, 4, 300)), Pair),
    "joined": (lambda t: two(lambda a, b: relay.concatenate([a, b], 1), t), Joined),
    "chosen": (lambda t: two(chosen, t), Joined),
    "means of windows": (lambda t: one(lambda x: relay.nn.avg_pool2d(x, (3, 3), (2, 2), padding=(1, 1)), t), Windows),
    "softmax": (lambda t: one(lambda x: relay.nn.softmax(x, axis=2), t), Shares),
    "sigmoid": (lambda t: one(relay.sigmoid, t), Table),
    "leaky relu": (lambda t: one(lambda x: relay.nn.leaky_relu(x, 0.1), t), Table),
    "swish of two operators": (lambda t: one(lambda x: x * relay.sigmoid(x), t), Table),
    "a number of four dimensions": (
        lambda t: one(lambda x: relay.exp(x * relay.const(np.full((1, 1, 1, 1), 0.2, "float32"))), t),
        Table,
    ),
    "a line that is limited": (lambda t: one(lambda x: relay.clip(x * scale(0.2) + scale(0.5), 0.0, 1.0), t), Table),
    "mean of the last axis": (lambda t: one(lambda x: relay.mean(x, axis=-1), t), Mean),
    "mean": (lambda t: one(relay.nn.global_avg_pool2d, t), Mean),
    "mean of axes": (lambda t: one(lambda x: relay.mean(x, axis=[2, 3]), t), Mean),
    "maximum": (lambda t: one(lambda x: relay.nn.max_pool2d(x, (3, 3), (2, 2)), t), Move),
    "reshape": (lambda t: one(relay.nn.batch_flatten, t), Move),
    "clip": (lambda t: one(lambda x: relay.clip(x, 0.0, 6.0), t), Move),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("case", CASES)
def test_a_group_is_within_a_step_of_its_operators(case: str, dtype: str) -> None:
    make, kind = CASES[case]
    params, value = make(dtype)
    shown = interpret(tvm.IRModule.from_expr(relay.Function(params, value)), inputs := [
        integers(p.type_annotation.dtype, *map(int, p.type_annotation.shape)) for p in params
    ])  # fmt: skip
    step = max(float(np.abs(shown).max()) / 120, 1e-3)
    group = quantize(value, scale(step), relay.const(np.array(5, dtype)), out_dtype=dtype)
    mod = tvm.IRModule.from_expr(relay.Function(params, group))
    assert isinstance(describe(relay.transform.InferType()(mod)["main"].body), kind)
    in_floats = np.clip(np.rint(shown.astype("float64") / np.float32(step)) + 5, *_range(dtype))

    executor = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    executor.run(**{p.name_hint: x for p, x in zip(params, inputs, strict=True)})
    found = executor.get_output(0).numpy()
    assert found.dtype == dtype and found.size
    assert np.abs(found.astype(int) - in_floats).max() <= 1
    exact = interpret(CanonicalizeOps()(mod), inputs)
    np.testing.assert_array_equal(found, exact)  # two evaluations of the exact form agree to the bit


def _range(dtype: str) -> tuple[int, int]:
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def test_a_product_is_the_sum_of_integers_times_one_factor() -> None:
    """An oracle of its own: integer arithmetic in numpy."""
    data, weight = integers("uint8", 4, 19), integers("int8", 6, 19)
    steps = RNG.uniform(0.001, 0.02, 6).astype("float32")
    offset = RNG.integers(-5000, 5000, 6, dtype="int32")
    x = relay.var("x", shape=(4, 19), dtype="uint8")
    numbers = dequantize(x, scale(0.05), relay.const(np.uint8(7)))
    row = dequantize(relay.const(offset), relay.const(steps * np.float32(0.05)), relay.const(np.zeros(6, "int32")), 0)
    w = dequantize(relay.const(weight), relay.const(steps), relay.const(np.zeros(6, "int8")), 0)
    value = relay.nn.bias_add(relay.nn.dense(numbers, w), row, axis=-1)
    mod = tvm.IRModule.from_expr(relay.Function([x], quantize(value, scale(0.3), relay.const(np.int8(-4)))))
    sums = (data.astype(np.int64) - 7) @ weight.T.astype(np.int64) + offset
    factor = steps * np.float32(0.05) / np.float32(0.3)  # as ONNX Runtime, in float32
    expected = np.clip(np.rint(sums.astype("float32") * factor) - 4, -128, 127).astype("int8")
    executor = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    executor.run(x=data)
    np.testing.assert_array_equal(executor.get_output(0).numpy(), expected)


@pytest.mark.parametrize("zeros", [120, [100, 0, 255, 7, 128, 200]])
def test_weights_less_their_zero_points(zeros: Any) -> None:
    """Of uint8, all alike or one for each row."""
    data, weight = integers("uint8", 4, 19), integers("uint8", 6, 19)
    point = np.array(zeros, "uint8")
    steps = np.full(point.shape, 0.01, "float32")
    x = relay.var("x", shape=(4, 19), dtype="uint8")
    numbers = dequantize(x, scale(0.05), relay.const(np.uint8(7)))
    w = dequantize(relay.const(weight), relay.const(steps), relay.const(point), axis=0)
    value = quantize(relay.nn.dense(numbers, w), scale(1.3), relay.const(np.int8(-4)))
    mod = tvm.IRModule.from_expr(relay.Function([x], value))
    assert "divide(" not in str(CanonicalizeOps()(mod))
    sums = (data.astype(np.int64) - 7) @ (weight.astype(np.int64) - point.astype(np.int64).reshape(-1, 1)).T
    factor = np.float32(0.01) * np.float32(0.05) / np.float32(1.3)
    executor = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    executor.run(x=data)
    expected = np.clip(np.rint(sums.astype("float32") * factor) - 4, -128, 127)
    np.testing.assert_array_equal(executor.get_output(0).numpy(), expected)


def test_biases_of_whole_units_are_exact() -> None:
    """Above 2 ** 24 a float32 does not have every number of units."""
    offset = np.array([2**24 + 1, -(2**29) - 3], "int32")
    x = relay.var("x", shape=(1, 2), dtype="uint8")
    numbers = dequantize(x, scale(0.05), relay.const(np.uint8(0)))
    w = dequantize(relay.const(np.eye(2, dtype="int8")), scale(0.3), relay.const(np.int8(0)))
    row = dequantize(relay.const(offset), scale(np.float32(0.05) * np.float32(0.3)), relay.const(np.int32(0)))
    value = quantize(relay.nn.bias_add(relay.nn.dense(numbers, w), row), scale(1e6), relay.const(np.int8(0)))
    group = describe(relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], value)))["main"].body)
    assert isinstance(group, Product)
    assert group.bias is not None
    assert group.bias.tolist() == offset.tolist()


def test_sums_that_could_exceed_float32_are_summed_in_integers() -> None:
    small, large = (CanonicalizeOps()(_dense_module(inner)) for inner in (64, 4096))
    assert "int32" not in str(small) and 'out_dtype="int32"' in str(large)


def _dense_module(inner: int) -> tvm.IRModule:
    params, value = dense("uint8", 2, inner, 5)
    return tvm.IRModule.from_expr(relay.Function(params, quantize(value, scale(1), relay.const(np.int8(0)))))


def test_a_value_that_is_used_outside_keeps_its_floating_point() -> None:
    var, data = given("x", "int8", (1, 4, 5, 5))
    conv = relay.nn.conv2d(data, weights((4, 4, 1, 1)), kernel_size=(1, 1), channels=4)
    both = relay.Tuple([quantize(conv, scale(0.1), relay.const(np.int8(0))), conv])
    text = str(CanonicalizeOps()(tvm.IRModule.from_expr(relay.Function([var], both))))
    assert text.count("nn.conv2d(") == 1 and "divide(" in text


def test_folding_leaves_what_weights_stand_for() -> None:
    mod = _dense_module(8)
    assert "qnn.dequantize(meta" in str(FoldConstant()(relay.transform.InferType()(mod)))


def test_whole_numbers() -> None:
    assert is_whole(relay.const(np.float32([1, -127, 0]))) and not is_whole(relay.const(np.float32([1, 0, -1])))
    assert not is_whole(relay.const(np.float32([100, 0.5]))) and not is_whole(relay.const(np.int8([100])))
    late = np.full(1000, 99, "float32")
    late[-1] = 0.25
    assert not is_whole(relay.const(late))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((relay.var("x", shape=(2, 3)), scale(1), relay.const(np.float32(0))), "zero points are integers"),
        ((relay.var("x", shape=(2, 3)), relay.const(np.ones(4, "float32")), relay.const(0)), "scale has 4 elements"),
        ((relay.var("x", shape=(2,), dtype="int32"), scale(1), relay.const(0)), "is float32, found int32"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: tuple[Any, Any, Any], message: str) -> None:
    with pytest.raises(tvm.TVMError, match=message):
        relay.transform.InferType()(tvm.IRModule.from_expr(quantize(*arguments)))


def test_operators_print_and_parse() -> None:
    mod = relay.transform.InferType()(_dense_module(8))
    text = mod.astext(show_meta_data=True)
    assert "qnn.quantize(" in text and "qnn.dequantize(" in text
    tvm.ir.assert_structural_equal(relay.transform.InferType()(tvm.parser.fromtext(text)), mod)


def test_a_number_of_more_dimensions_than_the_data_is_no_table() -> None:
    x, data = given("x", "uint8", (3, 5))
    value = data * relay.const(np.full((1, 1, 1), 0.5, "float32"))
    body = quantize(value, scale(0.02), relay.const(np.uint8(0)), out_dtype="uint8")
    found = tvm.compile(tvm.IRModule.from_expr(relay.Function([x], body)))(np.full((3, 5), 23, "uint8"))
    assert found.shape == (1, 3, 5) and (np.abs(found.astype(int) - (23 - 3) * 0.031 * 0.5 / 0.02) <= 0.5).all()
