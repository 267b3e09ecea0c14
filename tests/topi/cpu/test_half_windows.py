"""Convolutions of bfloat16 in AMX's tiles: float32 sums of rounded factors, and tensors that stay bfloat16 between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here
from tests.topi.cpu.test_byte_windows import convolved
from tests.topi.cpu.test_half_products import rounded

import tilewright as tvm
from tilewright import relay, te, topi
from tilewright.contrib import graph_executor
from tilewright.relay.transform.precision.halve_weights import precision_config
from tilewright.runtime.module import Module
from tilewright.target import features
from tilewright.topi.cpu.byte_tiles import Windows, window_intrinsic
from tilewright.topi.cpu.model.matrix_tiles import window_tiles

AMX = "llvm -mcpu=sapphirerapids"
RNG = np.random.default_rng(45)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, "float32")


def halves(values: np.ndarray) -> Any:
    array = tvm.nd.empty(values.shape, "bfloat16")
    array.copyfrom(values)
    return array


WINDOWS = [
    Windows(1, 16, 64, 1, 128, (1, 1), (1, 1), (1, 1), dtype="bfloat16"),
    Windows(2, 7, 32, 2, 128, (3, 3), (1, 1), (1, 1), dtype="bfloat16"),
    Windows(1, 17, 48, 2, 96, (1, 1), (1, 1), (1, 1), dtype="bfloat16"),
    Windows(3, 7, 16, 1, 64, (3, 3), (2, 2), (1, 1), dtype="bfloat16"),
    Windows(1, 19, 64, 1, 8, (7, 7), (2, 2), (1, 1), dtype="bfloat16"),
    Windows(2, 5, 32, 1, 32, (2, 3), (1, 1), (2, 2), dtype="bfloat16"),
]


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_loops_in_place_of_tiles_sum_windows(windows: Windows) -> None:
    w = windows
    shape = 1, w.chunks, w.extent(0), w.extent(1), w.bytes // 2
    kernel_shape = 1, w.chunks, *w.kernel, w.bytes // 4, w.block, 2
    data = te.placeholder(shape, "bfloat16", name="data")
    kernel = te.placeholder(kernel_shape, "bfloat16", name="kernel")
    out = topi.nn.conv2d_NCHWc_int8(data, kernel, w.strides, 0, w.dilation, out_dtype="float32")
    s = te.create_schedule(out.op)
    s[out].tensorize(out.op.axis[2], window_intrinsic(w, emulated=True))
    built: Module = tvm.build(s, [data, kernel, out], "llvm -mcpu=x86-64")
    x, y = RNG.integers(-8, 9, shape), RNG.integers(-8, 9, kernel_shape)  # sums are whole numbers, and exact
    result = tvm.nd.array(np.zeros((1, 1, w.rows, w.columns, w.block), "float32"))
    built(halves(x.astype("float32")), halves(y.astype("float32")), result)
    np.testing.assert_array_equal(result.numpy()[0, 0], convolved(x[0], y[0], w.strides, w.dilation))


def network(data: tuple[int, ...], kernel: tuple[int, ...], **attrs: Any) -> tuple[tvm.IRModule, list[np.ndarray]]:
    """A convolution with bias and relu, another whose sums get the first one's result, and a small last layer."""
    outs = kernel[0]
    weights = [normal(*kernel), normal(outs, 1, 1), normal(outs, outs, 1, 1), normal(5, outs, 1, 1)]
    w, bias, square, last = map(relay.const, weights)
    x = relay.var("x", shape=data)
    first = relay.nn.conv2d(x, w, channels=outs, kernel_size=kernel[2:], **attrs)
    first = relay.nn.relu(relay.add(first, bias))
    second = relay.add(relay.nn.conv2d(first, square, channels=outs, kernel_size=(1, 1)), first)
    body = relay.nn.conv2d(second, last, channels=5, kernel_size=(1, 1))
    return tvm.IRModule.from_expr(relay.Function([x], body)), weights


def expected(x: np.ndarray, weights: list[np.ndarray], **attrs: Any) -> np.ndarray:
    """Return the result in float64, with tensors rounded where kernels store them."""
    torch = pytest.importorskip("torch")
    w, bias, square, last = weights

    def conv(data: np.ndarray, weight: np.ndarray, **options: Any) -> np.ndarray:
        result: np.ndarray = torch.conv2d(
            *(torch.from_numpy(a.astype("float64")) for a in (data, weight)), **options
        ).numpy()
        return result

    top, left, bottom, right = topi.utils.get_pad_tuple(attrs.get("padding", 0), w.shape[2:])
    padded = np.pad(rounded(x), ((0, 0), (0, 0), (top, bottom), (left, right)))
    options = {
        "stride": attrs.get("strides", 1),
        "dilation": attrs.get("dilation", 1),
        "groups": attrs.get("groups", 1),
    }
    first = rounded(np.maximum(conv(padded, rounded(w), **options) + bias, 0).astype("float32"))
    return conv(conv(first, rounded(square)) + first, last)


def build(mod: tvm.IRModule, target: str = AMX) -> Any:
    with tvm.transform.PassContext(opt_level=3, config=precision_config("bf16")):
        return relay.build(mod, target)


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 64, 14, 14), (64, 64, 1, 1), {}),
    ((1, 128, 7, 7), (64, 128, 3, 3), {"padding": 1}),
    ((2, 64, 20, 20), (64, 64, 3, 3), {"padding": 1, "strides": 2}),
    ((1, 64, 15, 13), (64, 64, 3, 3), {"padding": (2, 1), "dilation": 2}),
    ((1, 3, 40, 40), (64, 3, 7, 7), {"padding": 3, "strides": 2}),
    ((1, 128, 16, 16), (128, 64, 3, 3), {"padding": 1, "groups": 2}),
    ((1, 64, 17, 17), (64, 64, 1, 1), {"strides": 2}),
    ((1, 96, 28, 28), (56, 96, 1, 1), {}),
    ((1, 24, 30, 30), (72, 24, 3, 3), {"padding": 1}),
]


@pytest.mark.parametrize(("data", "kernel", "attrs"), CONVOLUTIONS)
def test_sums_are_those_of_rounded_factors(data: Any, kernel: Any, attrs: dict[str, Any]) -> None:
    if not runs_here(AMX):
        pytest.skip("no AMX on this processor")
    mod, weights = network(data, kernel, **attrs)
    lib = build(mod)
    assert "tdpbf16ps" in lib.get_lib().get_source("asm")
    x = normal(*data)
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(x=x)
    wanted = expected(x, weights, **attrs)
    # Sums between two bfloat16 are rounded to either, by the order of their terms; small second layers stay float32.
    np.testing.assert_allclose(executor.get_output(0).numpy(), wanted, rtol=0, atol=4e-3 * np.abs(wanted).max())


@pytest.mark.parametrize("strides", [1, 2])
def test_depthwise_convolutions_read_halves_and_sum_floats(strides: int) -> None:
    if not runs_here(AMX):
        pytest.skip("no AMX on this processor")
    torch = pytest.importorskip("torch")
    point, window = normal(96, 64, 1, 1), normal(96, 1, 3, 3)
    x = relay.var("x", shape=(1, 64, 40, 40))
    wide = relay.nn.conv2d(x, relay.const(point), channels=96, kernel_size=(1, 1))
    attrs = {"channels": 96, "groups": 96, "padding": 1, "strides": strides}
    last = normal(96, 96, 1, 1)
    deep = relay.nn.conv2d(wide, relay.const(window), kernel_size=(3, 3), **attrs)
    body = relay.nn.conv2d(deep, relay.const(last), channels=96, kernel_size=(1, 1))
    lib = build(tvm.IRModule.from_expr(relay.Function([x], body)))
    assert not any("layout_transform" in name for name in list(lib.function_metadata)[1:-2])
    image = normal(1, 64, 40, 40)
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(x=image)

    def conv(data: np.ndarray, weight: np.ndarray, **options: Any) -> np.ndarray:
        tensors = (torch.from_numpy(rounded(a.astype("float32")).astype("float64")) for a in (data, weight))
        result: np.ndarray = torch.conv2d(*tensors, **options).numpy()
        return result

    middle = conv(conv(image, point), window, padding=1, stride=strides, groups=96)
    wanted = conv(middle, last)
    # The last layer may stay float32, and the weights of the depthwise one are rounded where these are many products.
    np.testing.assert_allclose(executor.get_output(0).numpy(), wanted, rtol=0, atol=8e-3 * np.abs(wanted).max())


@pytest.mark.parametrize("target", [f"{AMX} -mattr=-amx-bf16", "llvm -mcpu=haswell", "c"])
def test_processors_without_tiles_keep_tensors_in_float32(target: str) -> None:
    mod, _ = network((1, 64, 14, 14), (64, 64, 3, 3), padding=1)
    lib = build(mod, target)
    assert all("cast" not in name for name in lib.function_metadata)
    assert target == "c" or "tdpbf16ps" not in lib.get_lib().get_source("asm")


def test_a_position_of_128_bytes_takes_two_rows_of_tiles() -> None:
    found = window_tiles(features(AMX), (56, 56), (1, 1, 3, 3, 32, 64, 2), dtype="bfloat16")
    assert found is not None
    assert (found.rows, found.columns) == (2, 56)
    assert (
        window_tiles(features(f"{AMX} -mattr=-amx-bf16"), (56, 56), (1, 1, 3, 3, 32, 64, 2), dtype="bfloat16") is None
    )


@pytest.mark.parametrize("value", [1.00390625, 1.01171875, -3.3e38, np.inf, -0.0])
def test_vectors_are_rounded_to_nearest_even(value: float) -> None:
    if not runs_here(AMX):
        pytest.skip("no AVX512-BF16 on this processor")
    a = te.placeholder((48,), "float32", "a")
    b = te.compute((48,), lambda i: a(i).astype("bfloat16"))
    s = te.create_schedule(b.op)
    outer, lane = s[b].split(b.op.axis[0], factor=16)
    s[b].vectorize(lane)
    s[b].pragma(outer, "flush_subnormals")
    kernel: Module = tvm.build(s, [a, b], AMX)
    assert "vcvtneps2bf16" in kernel.get_source("asm")
    x, out = np.full(48, value, "float32"), tvm.nd.empty((48,), "bfloat16")
    x[5] = np.nan
    kernel(tvm.nd.array(x), out)
    found = out.numpy().astype("float32")
    assert np.isnan(found[5])
    np.testing.assert_array_equal(np.delete(found, 5), np.delete(rounded(x), 5))
