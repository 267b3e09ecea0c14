"""Convolutions and dense layers of integers whose results stay numbers, and those whose scale the program computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.qnn.decisions import summary
from tilewright.relay.qnn.op import dequantize, quantize

RNG = np.random.default_rng(39)
VNNI, AVX2 = "llvm -mcpu=cascadelake", "llvm -mcpu=haswell"
STEPS = RNG.uniform(0.0005, 0.003, 21).astype("float32")


def weights(*shape: int) -> tuple[np.ndarray, Any]:
    """Integers, and what they stand for."""
    found = RNG.integers(-128, 127, shape, "int8", endpoint=True)
    steps, zeros = relay.const(STEPS[: shape[0]]), relay.const(np.zeros(shape[0], "int8"))
    return found, dequantize(relay.const(found), steps, zeros, axis=0)


def run(target: str, body: Any, **inputs: np.ndarray) -> tuple[np.ndarray, str]:
    """The result, and the report of the build."""
    if not runs_here(target):
        pytest.skip("this machine's processor lacks what the code needs")
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)), target)
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(**inputs)
    return executor.get_output(0).numpy(), "\n".join(summary(lib.build_report.quantized))


def windows(data: np.ndarray, weight: np.ndarray, pad: int, groups: int) -> np.ndarray:
    """Sums of products of whole numbers, as float64."""
    wide = np.pad(data.astype("float64"), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    views = np.lib.stride_tricks.sliding_window_view(wide, weight.shape[2:], axis=(2, 3))
    parts = zip(np.split(views, groups, axis=1), np.split(weight.astype("float64"), groups), strict=True)
    return np.concatenate([np.einsum("nchwij,ocij->nohw", view, part) for view, part in parts], axis=1)


CONVOLUTIONS = {"plain": (16, 21, 0, 1), "padded": (16, 21, 1, 1), "depthwise": (16, 16, 1, 16), "few": (3, 5, 1, 1)}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("form", CONVOLUTIONS)
@pytest.mark.parametrize("target", [VNNI, AVX2])
def test_convolution_that_is_not_quantized_anew_scales_its_sums(target: str, form: str, dtype: str) -> None:
    channels, out, pad, groups = CONVOLUTIONS[form]
    weight, numbers = weights(out, channels // groups, 3, 3)
    info = np.iinfo(dtype)
    data = RNG.integers(info.min, info.max, (1, channels, 7, 9), endpoint=True, dtype=dtype)
    x = dequantize(relay.var("x", shape=data.shape, dtype=dtype), relay.const(np.float32(0.05)), relay.const(
        np.array(7, dtype)))  # fmt: skip
    body = relay.nn.conv2d(x, numbers, padding=(pad, pad), groups=groups, channels=out, kernel_size=(3, 3))
    found, report = run(target, relay.exp(relay.multiply(body, relay.const(np.float32(0.01)))), x=data)
    sums = windows(data.astype("int64") - 7, weight, pad, groups) * 0.05 * STEPS[:out].reshape(-1, 1, 1)
    np.testing.assert_allclose(found, np.exp(sums * 0.01), rtol=2e-5)
    assert form == "few" or target == AVX2 or "1 of 1 convolutions" in report


@pytest.mark.parametrize("zero", [0, 3, 255])
@pytest.mark.parametrize("form", CONVOLUTIONS)
@pytest.mark.parametrize("target", [VNNI, AVX2])
def test_convolution_whose_scale_the_program_computes(target: str, form: str, zero: int) -> None:
    channels, out, pad, groups = CONVOLUTIONS[form]
    weight, numbers = weights(out, channels // groups, 3, 3)
    data = RNG.integers(0, 255, (1, channels, 7, 9), endpoint=True, dtype="uint8")
    scale, point = relay.var("scale", shape=(1,)), relay.var("point", shape=(1,), dtype="uint8")
    x = dequantize(relay.var("x", shape=data.shape, dtype="uint8"), relay.reshape(scale, []), relay.reshape(point, []))
    body = relay.nn.conv2d(x, numbers, padding=(pad, pad), groups=groups, channels=out, kernel_size=(3, 3))
    found, report = run(target, body, x=data, scale=np.float32([0.05]), point=np.uint8([zero]))
    sums = windows(data.astype("int64") - zero, weight, pad, groups) * 0.05 * STEPS[:out].reshape(-1, 1, 1)
    np.testing.assert_allclose(found, sums, rtol=1e-5, atol=1e-5 * np.abs(sums).max())
    assert form == "few" or target == AVX2 or "1 of 1 convolutions" in report


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("target", [VNNI, AVX2])
def test_dense_layer_whose_scale_the_program_computes(target: str, dtype: str) -> None:
    weight, numbers = weights(21, 66)
    x = relay.var("x", shape=(2, 5, 66))
    step = relay.divide(relay.max(relay.abs(x)), relay.const(np.float32(127)))
    zero = relay.cast(relay.max(relay.multiply(x, relay.const(np.float32(0)))), dtype)
    steps = quantize(x, step, zero, out_dtype=dtype)
    rows = relay.reshape(dequantize(steps, step, zero), (-1, 66))
    data = RNG.standard_normal((2, 5, 66)).astype("float32")
    found, report = run(target, relay.nn.dense(rows, numbers), x=data)
    size = np.abs(data).max() / np.float32(127)
    whole = np.clip(np.rint(data / size), *((0, 255) if dtype == "uint8" else (-128, 127))).reshape(10, 66)
    np.testing.assert_allclose(found, whole.astype("float64") @ weight.T.astype("float64") * size * STEPS, rtol=1e-5)
    assert "1 of 1 matrix products" in report
