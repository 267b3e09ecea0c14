"""Convolutions of bytes that a program writes itself: int32 sums as numpy's, by the target's instructions."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.target import Target

TARGETS = ["nehalem", "haswell", "skylake-avx512", "cascadelake", "alderlake", "x86-64"]


def ends(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    """Return random bytes, many of them the least and the greatest of their type; the first row the greatest."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    drawn = rng.integers(low, high + 1, shape)
    values = np.where(rng.random(shape) < 0.4, rng.choice([low, high], shape), drawn).astype(dtype)
    values[:, :1] = high
    return values


def expected(data: np.ndarray, weight: np.ndarray, pads: Any, stride: int, groups: int) -> np.ndarray:
    top, left, bottom, right = pads
    wide = np.pad(data.astype("int64"), ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, weight.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    parts = zip(np.split(windows, groups, 1), np.split(weight.astype("int64"), groups), strict=True)
    return np.concatenate([np.einsum("ncyxhw,ochw->noyx", x, w) for x, w in parts], 1)


def built(
    data: Any, weight: np.ndarray, target: str, pads: Any = (0, 0, 0, 0), stride: int = 1, groups: int = 1
) -> Any:
    x = relay.var("x", shape=data.shape, dtype=str(data.dtype))
    attrs = {"channels": len(weight), "kernel_size": weight.shape[2:], "padding": pads, "strides": (stride, stride)}
    body = relay.nn.conv2d(x, relay.const(weight), groups=groups, out_dtype="int32", **attrs)
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), target)


def run(lib: Any, data: np.ndarray) -> np.ndarray:
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(x=data)
    return executor.get_output(0).numpy()


@pytest.mark.parametrize("processor", TARGETS)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("inner", "outer", "groups", "window", "pads", "stride"),
    [
        (1, 4, 1, 3, (0, 0, 0, 1), 1), (6, 20, 1, 1, (0, 0, 0, 0), 1), (17, 29, 1, 3, (1, 2, 1, 0), 2),
        (64, 32, 2, 3, (1, 1, 1, 1), 1), (6, 6, 6, 3, (1, 1, 1, 1), 1), (9, 6, 3, 1, (0, 0, 0, 0), 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("small", [True, False])
def test_sums_are_numpys(
    processor: str, dtype: str, inner: int, outer: int, groups: int, window: int, pads: Any, stride: int, small: bool
) -> None:
    target = f"llvm -mcpu={processor}"
    if not runs_here(target):
        pytest.skip("this machine's processor lacks what the code needs")
    rng = np.random.default_rng(inner + outer)
    data, weight = ends(rng, dtype, 1, inner, 7, 9), ends(rng, "int8", outer, inner // groups, window, window)
    weight = weight // 2 if small else weight
    found = run(built(data, weight, target, pads, stride, groups), data)
    np.testing.assert_array_equal(found, expected(data, weight, pads, stride, groups))


@pytest.mark.parametrize(
    ("processor", "instruction"),
    [
        ("nehalem", "pmaddubsw"),
        ("haswell", "vpmaddubsw"),
        ("skylake-avx512", "vpmaddubsw"),
        ("cascadelake", "vpdpbusd"),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_small_weights_take_the_products_of_bytes(processor: str, instruction: str, dtype: str) -> None:
    weight = np.random.default_rng(0).integers(-64, 65, (20, 17, 3, 3), dtype="int8")
    lib = built(np.zeros((1, 17, 8, 8), dtype), weight, f"llvm -mcpu={processor}")
    assert re.search(rf"\b{instruction}\b", lib.get_lib().get_source("asm"))


@pytest.mark.parametrize("processor", ["nehalem", "haswell", "skylake-avx512"])
def test_weights_that_could_saturate_take_products_of_16_bits(processor: str) -> None:
    weight = np.zeros((16, 16, 3, 3), "int8")
    weight[3, 4:6, 1, 2] = 64, 65
    code = built(np.zeros((1, 16, 8, 8), "uint8"), weight, f"llvm -mcpu={processor}").get_lib().get_source("asm")
    assert "pmaddwd" in code and "pmaddubsw" not in code


def test_weights_that_a_program_packs_itself_do_not_saturate() -> None:
    target = "llvm -mcpu=haswell"
    if not runs_here(target):
        pytest.skip("this machine's processor lacks what the code needs")
    x = relay.var("x", shape=(1, 1, 5, 5, 16), dtype="uint8")
    weight = np.full((1, 1, 3, 3, 4, 16, 4), 127, "int8")
    layouts = {"data_layout": "NCHW16c", "kernel_layout": "OIHW4i16o4i", "out_layout": "NCHW16c"}
    body = relay.nn.contrib_conv2d_nchwc(
        x, relay.const(weight), channels=16, kernel_size=(3, 3), out_dtype="int32", **layouts
    )
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), target)
    assert (run(lib, np.full((1, 1, 5, 5, 16), 255, "uint8")) == 255 * 127 * 16 * 9).all()


def test_unknown_extents_keep_the_sums() -> None:
    target = "llvm -mcpu=haswell"
    if not runs_here(target):
        pytest.skip("this machine's processor lacks what the code needs")
    rng = np.random.default_rng(5)
    data, weight = ends(rng, "int8", 2, 5, 6, 7), ends(rng, "int8", 9, 5, 3, 3)
    x = relay.var("x", shape=(relay.Any(), 5, relay.Any(), relay.Any()), dtype="int8")
    body = relay.nn.conv2d(
        x, relay.const(weight), channels=9, kernel_size=(3, 3), padding=(1, 1, 1, 1), out_dtype="int32"
    )
    mod = tvm.IRModule.from_expr(relay.Function([x], body))
    with tvm.transform.PassContext(opt_level=3):
        found = relay.create_executor("vm", mod, tvm.cpu(), target).evaluate()(data).numpy()
    np.testing.assert_array_equal(found, expected(data, weight, (1, 1, 1, 1), 1, 1))


def test_channels_that_fill_words_and_vectors_stay() -> None:
    x = relay.var("x", shape=(1, 16, 6, 6), dtype="uint8")
    weight = relay.const(np.ones((16, 16, 1, 1), "int8"))
    body = relay.nn.conv2d(x, weight, channels=16, kernel_size=(1, 1), out_dtype="int32")
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(body))
    with Target("llvm -mcpu=cascadelake"), tvm.transform.PassContext(opt_level=3):
        assert tvm.ir.structural_equal(relay.transform.Legalize()(mod), mod)
