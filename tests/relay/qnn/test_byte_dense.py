"""Quantized dense layers as products of bytes, and moves of integers in place of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.qnn.decisions import collecting
from tilewright.relay.qnn.move_bytes import MoveBytes
from tilewright.relay.qnn.op import dequantize, quantize
from tilewright.relay.qnn.transform import CanonicalizeOps

TARGETS = ("llvm", "llvm -mcpu=cascadelake", "llvm -mcpu=alderlake", "llvm -mcpu=haswell", "llvm -mcpu=x86-64", "c")
STEP, OUT_STEP, ZERO = np.float32(0.05), np.float32(0.7), 7
RNG = np.random.default_rng(37)
WEIGHT = RNG.integers(-128, 127, (37, 66), "int8", endpoint=True)
STEPS = RNG.uniform(0.0005, 0.003, 37).astype("float32")
BIAS = RNG.standard_normal(37).astype("float32")


def scalar(value: Any) -> Any:
    return relay.const(value)


def numbers(tensor: Any, dtype: str) -> Any:
    return dequantize(tensor, scalar(STEP), scalar(np.array(ZERO, dtype)))


def whole(value: Any, dtype: str) -> Any:
    return quantize(value, scalar(OUT_STEP), scalar(np.array(ZERO, dtype)), out_dtype=dtype)


def layer(x: Any, dtype: str, bias: bool) -> Any:
    """(2, 5, 66) to (2, 5, 37), as MatMul and Add of ONNX are imported."""
    rows = relay.reshape(numbers(x, dtype), (-1, 66))
    weight = dequantize(scalar(WEIGHT), scalar(STEPS), scalar(np.zeros(37, "int8")), axis=0)
    product = relay.reshape(relay.nn.dense(rows, weight), (2, 5, 37))
    return relay.add(scalar(BIAS), product) if bias else product


def data(dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    found = RNG.integers(info.min, info.max, (2, 5, 66), endpoint=True, dtype=dtype)
    found[0, 0], found[1, 0] = info.max, info.min
    return found


def run(x: Any, body: Any, value: np.ndarray, target: str, **config: Any) -> tuple[np.ndarray, Any]:
    with tvm.transform.PassContext(opt_level=3, config=config):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), target)
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(x=value)
    return executor.get_output(0).numpy(), lib


def sums(value: np.ndarray, bias: bool) -> np.ndarray:
    found = (value.astype("int64") - ZERO) @ WEIGHT.astype("int64").T
    unit = STEPS.astype("float64") * float(STEP)
    return found + np.rint(BIAS / unit).astype("int64") if bias else found


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("target", TARGETS)
def test_layer_is_what_groups_say(target: str, dtype: str, bias: bool) -> None:
    if target != "c" and not runs_here(target):
        pytest.skip("this machine's processor lacks what the code needs")
    x, value = relay.var("x", shape=(2, 5, 66), dtype=dtype), data(dtype)
    found, _ = run(x, whole(layer(x, dtype, bias), dtype), value, target)
    factor = (STEPS.astype("float64") * float(STEP)).astype("float32") / OUT_STEP
    info = np.iinfo(dtype)
    expected = np.rint(sums(value, bias).astype("float32") * factor) + ZERO
    np.testing.assert_array_equal(found, np.clip(expected, info.min, info.max).astype(dtype))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("target", ["llvm -mcpu=cascadelake", "llvm -mcpu=haswell"])
def test_layer_that_is_not_quantized_anew_scales_its_sums(target: str, dtype: str) -> None:
    if not runs_here(target):
        pytest.skip("this machine's processor lacks what the code needs")
    x, value = relay.var("x", shape=(2, 5, 66), dtype=dtype), data(dtype)
    found, _ = run(x, layer(x, dtype, False), value, target)
    factor = (STEPS.astype("float64") * float(STEP)).astype("float32")
    np.testing.assert_array_equal(found, sums(value, False).astype("float32") * factor)


def test_layer_is_one_kernel_of_bytes() -> None:
    x = relay.var("x", shape=(2, 5, 64), dtype="uint8")
    rows = relay.reshape(numbers(x, "uint8"), (-1, 64))
    weight = dequantize(scalar(WEIGHT[:32, :64]), scalar(STEP), scalar(np.int8(0)))
    body = whole(relay.reshape(relay.nn.dense(rows, weight), (2, 5, 32)), "uint8")
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), "llvm -mcpu=cascadelake")
    assert set(lib.build_report.implementations.values()) <= {"dense_pack.cpu", "reshape.llvm"}
    assert "vpdpbusd" in lib.get_lib().get_source("asm")


def test_option_keeps_the_kernels_of_floats() -> None:
    x, value = relay.var("x", shape=(2, 5, 66), dtype="uint8"), data("uint8")
    body = whole(layer(x, "uint8", True), "uint8")
    found, _ = run(x, body, value, "llvm")
    plain, lib = run(x, body, value, "llvm", **{"relay.qnn.bytes": False})
    assert "vpdpbusd" not in lib.get_lib().get_source("asm")
    np.testing.assert_array_equal(found, plain)


def moved(x: Any, body: Any) -> str:
    return str(MoveBytes()(tvm.IRModule.from_expr(relay.Function([x], body)))["main"].body)


def test_integers_are_moved_in_place_of_numbers() -> None:
    x = relay.var("x", shape=(2, 6), dtype="uint8")
    text = moved(x, relay.exp(relay.transpose(relay.reshape(numbers(x, "uint8"), (3, 4)))))
    assert text.index("reshape") < text.index("transpose") < text.index("dequantize") < text.index("exp")


def test_parts_of_integers_are_taken_once_in_place_of_numbers() -> None:
    x = relay.var("x", shape=(2, 6), dtype="uint8")
    parts = relay.split(numbers(x, "uint8"), 2, axis=1)
    text = moved(x, relay.add(parts[0], parts[1]))
    assert text.count("split") == 1 and text.index("split") < text.index("dequantize") < text.index("add")
    y = np.arange(12, dtype="uint8").reshape(2, 6)
    found = tvm.compile(tvm.IRModule.from_expr(relay.Function([x], relay.add(parts[0], parts[1]))))(y)
    expected = (y[:, :3].astype("float32") - ZERO) * STEP + (y[:, 3:].astype("float32") - ZERO) * STEP
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_what_is_computed_is_quantized_before_it_moves() -> None:
    x = relay.var("x", shape=(2, 6))
    text = moved(x, whole(relay.reshape(relay.exp(x), (3, 4)), "uint8"))
    assert text.index("quantize") < text.index("reshape")


def test_scales_of_channels_and_shared_values_stay_where_they_are() -> None:
    x, steps = relay.var("x", shape=(2, 6), dtype="int8"), scalar(np.ones(6, "float32"))
    zeros = scalar(np.zeros(6, "int8"))
    text = moved(x, relay.exp(relay.reshape(dequantize(x, steps, zeros, axis=1), (3, 4))))
    assert text.index("dequantize") < text.index("reshape")
    y = relay.var("x", shape=(2, 6))
    shared = relay.reshape(relay.exp(y), (3, 4))
    text = moved(y, relay.Tuple([whole(shared, "uint8"), shared]))
    assert text.index("reshape") < text.index("quantize")


def test_maxima_of_a_convolution_are_those_of_its_integers() -> None:
    x, y = relay.var("x", shape=(1, 3, 6, 6)), relay.var("y", shape=(1, 3, 4, 4))
    pooled = relay.nn.max_pool2d(relay.nn.relu(relay.nn.conv2d(x, scalar(np.ones((3, 3, 3, 3), "float32")))), (2, 2))
    text = moved(x, whole(pooled, "uint8"))
    assert text.index("quantize") < text.index("max_pool2d")
    text = moved(y, whole(relay.nn.max_pool2d(y, (2, 2)), "uint8"))
    assert text.index("max_pool2d") < text.index("quantize")


def test_weights_that_are_turned_twice_stay_integers() -> None:
    x, value = relay.var("x", shape=(2, 5, 66), dtype="uint8"), data("uint8")
    weight = dequantize(scalar(WEIGHT), scalar(STEPS), scalar(np.zeros(37, "int8")), axis=0)
    rows = relay.reshape(numbers(x, "uint8"), (-1, 66))
    found, _ = run(x, relay.nn.dense(rows, relay.transpose(relay.transpose(weight))), value, "llvm")
    factor = (STEPS.astype("float64") * float(STEP)).astype("float32")
    np.testing.assert_allclose(found.reshape(2, 5, 37), sums(value, False).astype("float32") * factor, rtol=1e-6)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(rows, relay.transpose(relay.transpose(weight)))))
    with collecting() as decisions, tvm.target.Target("llvm -mcpu=cascadelake"), tvm.transform.PassContext(opt_level=3):
        CanonicalizeOps()(mod)
    assert [d.reason for d in decisions] == [""]
