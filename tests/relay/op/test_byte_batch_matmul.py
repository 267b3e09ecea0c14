"""Products of two computed matrices of bytes: int32 sums as numpy's, packed as they run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.qnn.op import dequantize, quantize

TARGETS = ("llvm", "llvm -mcpu=alderlake", "llvm -mcpu=haswell", "llvm -mcpu=x86-64", "c")
RNG = np.random.default_rng(37)


def ends(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    drawn = RNG.integers(info.min, info.max, shape, endpoint=True, dtype=dtype)
    return np.where(RNG.random(shape) < 0.3, info.max, drawn).astype(dtype)


def run(inputs: dict[str, np.ndarray], build: Any, target: str) -> tuple[np.ndarray, Any]:
    variables = [relay.var(name, shape=value.shape, dtype=str(value.dtype)) for name, value in inputs.items()]
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function(variables, build(*variables))), target)
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(**inputs)
    return executor.get_output(0).numpy(), lib


def product(a: Any, b: Any, turned: bool) -> Any:
    """Of b (b, n, k), or of (b, k, n) as MatMul's importer turns it."""
    return relay.nn.batch_matmul(a, relay.transpose(b, (0, 2, 1)) if turned else b, out_dtype="int32")


@pytest.mark.parametrize("turned", [False, True], ids=["rows", "turned"])
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")])
@pytest.mark.parametrize("target", TARGETS)
def test_sums_are_numpys(target: str, dtypes: tuple[str, str], turned: bool) -> None:
    if target != "c" and not runs_here(target):
        pytest.skip("this machine's processor lacks what the code needs")
    a, b = ends(dtypes[0], 3, 9, 13), ends(dtypes[1], *((3, 13, 37) if turned else (3, 37, 13)))
    found, _ = run({"a": a, "b": b}, lambda x, y: product(x, y, turned), target)
    matrix = b.astype("int64") if turned else b.astype("int64").transpose(0, 2, 1)
    np.testing.assert_array_equal(found, a.astype("int64") @ matrix)


@pytest.mark.parametrize("shape", [(1, 2, 2, 4), (2, 7, 32, 12), (12, 16, 64, 8), (2, 33, 48, 64), (1, 1, 9, 8)])
@pytest.mark.parametrize("turned", [False, True], ids=["rows", "turned"])
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
def test_sums_of_any_shape_are_numpys(shape: tuple[int, ...], turned: bool, target: str) -> None:
    if not runs_here(target):
        pytest.skip("this machine's processor lacks what the code needs")
    batch, rows, columns, depth = shape
    a = ends("uint8", batch, rows, depth)
    b = ends("int8", *((batch, depth, columns) if turned else (batch, columns, depth)))
    found, _ = run({"a": a, "b": b}, lambda x, y: product(x, y, turned), target)
    matrix = b.astype("int64") if turned else b.astype("int64").transpose(0, 2, 1)
    np.testing.assert_array_equal(found, a.astype("int64") @ matrix)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("turned", [False, True], ids=["rows", "turned"])
@pytest.mark.parametrize("target", ["llvm -mcpu=cascadelake", "llvm -mcpu=haswell", "c"])
def test_quantized_pair_is_what_groups_say(target: str, turned: bool, dtype: str) -> None:
    if target != "c" and not runs_here(target):
        pytest.skip("this machine's processor lacks what the code needs")
    zeros, steps, out = (5, -3 if dtype == "int8" else 130), (np.float32(0.05), np.float32(0.02)), np.float32(0.9)
    a, b = ends(dtype, 2, 9, 24), ends(dtype, *((2, 24, 32) if turned else (2, 32, 24)))

    def numbers(x: Any, side: int) -> Any:
        return dequantize(x, relay.const(steps[side]), relay.const(np.array(zeros[side], dtype)))

    def build(x: Any, y: Any) -> Any:
        right = relay.transpose(numbers(y, 1), (0, 2, 1)) if turned else numbers(y, 1)
        pair = relay.nn.batch_matmul(numbers(x, 0), right)
        return quantize(pair, relay.const(out), relay.const(np.array(7, dtype)), out_dtype=dtype)

    found, lib = run({"a": a, "b": b}, build, target)
    matrix = b.astype("int64") - zeros[1]
    sums = (a.astype("int64") - zeros[0]) @ (matrix if turned else matrix.transpose(0, 2, 1))
    info = np.iinfo(dtype)
    expected = np.rint(sums.astype("float32") * np.float32(steps[0] * steps[1] / out)) + 7
    np.testing.assert_array_equal(found, np.clip(expected, info.min, info.max).astype(dtype))
    if "cascadelake" in target:
        assert "vpdpbusd" in lib.get_lib().get_source("asm")
