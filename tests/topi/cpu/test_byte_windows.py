"""Convolutions of bytes in AMX's tiles: exact sums of any window, by the instructions and by loops in their place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here
from tests.tiers import full

import tilewright as tvm
from tilewright import relay, te, topi
from tilewright.contrib import graph_executor
from tilewright.target import features
from tilewright.topi.cpu.byte_tiles import Windows, tile_intrinsic, window_intrinsic
from tilewright.topi.cpu.model.matrix_tiles import are_rows_merged, window_tiles

AMX = "llvm -mcpu=sapphirerapids"
RNG = np.random.default_rng(45)


def random_bytes(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.choice([limits.min, limits.min + 1, 0, 1, limits.max], shape).astype(dtype)


def convolved(data: np.ndarray, kernel: np.ndarray, strides: tuple[int, int], dilation: tuple[int, int]) -> np.ndarray:
    """Sums of windows of data (C, h, w, c) with kernel (C, kh, kw, c / k, o, k), as (oh, ow, o)."""
    chunks, kh, kw, words, block, group = kernel.shape
    weights = kernel.transpose(0, 1, 2, 3, 5, 4).reshape(chunks, kh, kw, words * group, block).astype("int64")
    height, width = (
        (n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(data.shape[1:3], (kh, kw), dilation, strides, strict=True)
    )
    total = np.zeros((height, width, block), "int64")
    for y in range(kh):
        for x in range(kw):
            first = y * dilation[0], x * dilation[1]
            rows = slice(first[0], first[0] + (height - 1) * strides[0] + 1, strides[0])
            columns = slice(first[1], first[1] + (width - 1) * strides[1] + 1, strides[1])
            total += np.einsum("chwi,cio->hwo", data[:, rows, columns].astype("int64"), weights[:, y, x])
    return total


WINDOWS = [
    Windows(1, 16, 64, 1, 64, (1, 1), (1, 1), (1, 1)),
    Windows(1, 17, 32, 2, 64, (1, 1), (1, 1), (1, 1)),
    Windows(2, 14, 64, 2, 64, (3, 3), (1, 1), (1, 1)),
    Windows(3, 7, 48, 1, 64, (3, 3), (2, 2), (1, 1)),
    Windows(1, 49, 16, 3, 32, (1, 1), (1, 1), (1, 1)),
    Windows(5, 3, 16, 1, 48, (2, 3), (1, 3), (2, 2)),
    Windows(1, 35, 64, 1, 4, (7, 7), (2, 2), (1, 1)),
    Windows(2, 19, 32, 1, 16, (3, 3), (1, 1), (1, 1)),
]


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_loops_in_place_of_tiles_sum_windows(windows: Windows) -> None:
    w = windows
    shape = w.chunks, w.extent(0), w.extent(1), w.bytes
    kernel_shape = w.chunks, *w.kernel, w.bytes // 4, w.block, 4
    data = te.placeholder((1, *shape), "uint8", name="data")
    kernel = te.placeholder((1, *kernel_shape), "int8", name="kernel")
    out = topi.nn.conv2d_NCHWc_int8(data, kernel, w.strides, 0, w.dilation)
    s = te.create_schedule(out.op)
    s[out].tensorize(out.op.axis[2], window_intrinsic(w, emulated=True))
    built = tvm.build(s, [data, kernel, out], "llvm")
    x, y = random_bytes((1, *shape), "uint8"), random_bytes((1, *kernel_shape), "int8")
    result = tvm.nd.array(np.zeros((1, 1, w.rows, w.columns, w.block), "int32"))
    built(tvm.nd.array(x), tvm.nd.array(y), result)
    np.testing.assert_array_equal(result.numpy()[0, 0], convolved(x[0], y[0], w.strides, w.dilation))


@pytest.mark.parametrize("rows", [16, 17, 31, 48, 100])
def test_loops_in_place_of_tiles_sum_rows(rows: int) -> None:
    data = te.placeholder((rows, 128), "uint8", name="data")
    weight = te.placeholder((32, 32, 4), "int8", name="weight")
    k, byte = te.reduce_axis((0, 32), "k"), te.reduce_axis((0, 4), "byte")
    out = te.compute(
        (rows, 32),
        lambda i, j: te.sum(
            data(i, k.var * 4 + byte.var).astype("int32") * weight(k, j, byte).astype("int32"), axis=[k, byte]
        ),
    )
    s = te.create_schedule(out.op)
    s[out].tensorize(out.op.axis[0], tile_intrinsic(rows, 32, emulated=True))
    built = tvm.build(s, [data, weight, out], "llvm")
    x, y = random_bytes((rows, 128), "uint8"), random_bytes((32, 32, 4), "int8")
    result = tvm.nd.array(np.zeros((rows, 32), "int32"))
    built(tvm.nd.array(x), tvm.nd.array(y), result)
    matrix = y.transpose(0, 2, 1).reshape(128, 32)
    np.testing.assert_array_equal(result.numpy(), x.astype("int64") @ matrix.astype("int64"))


def build(data: tuple[int, ...], kernel: tuple[int, ...], target: str = AMX, **attrs: Any) -> tuple[Any, np.ndarray]:
    weight = random_bytes(kernel, "int8")
    x = relay.var("x", shape=data, dtype="uint8")
    conv = relay.nn.conv2d(
        x, relay.const(weight), channels=kernel[0], kernel_size=kernel[2:], out_dtype="int32", **attrs
    )
    body = relay.nn.relu(relay.multiply(relay.cast(conv, "float32"), relay.const(np.float32(0.5))))
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), target), weight


CONVOLUTIONS = [
    ((1, 64, 14, 14), (64, 64, 1, 1), {}),
    ((1, 128, 7, 7), (64, 128, 3, 3), {"padding": 1}),
    ((2, 64, 20, 20), (64, 64, 3, 3), {"padding": 1, "strides": 2}),
    ((1, 64, 15, 13), (32, 64, 3, 3), {"padding": (0, 1, 2, 1), "dilation": 2}),
    ((1, 4, 40, 40), (64, 4, 7, 7), {"padding": 3, "strides": 2}),
    ((1, 128, 16, 16), (128, 64, 3, 3), {"padding": 1, "groups": 2}),
    ((1, 64, 17, 17), (64, 64, 1, 1), {"strides": 2}),
    ((1, 96, 13, 13), (48, 96, 1, 1), {}),
]


@pytest.mark.parametrize(("data", "kernel", "attrs"), CONVOLUTIONS)
def test_convolutions_in_tiles_are_exact(data: Any, kernel: Any, attrs: dict[str, Any]) -> None:
    if not runs_here(AMX):
        pytest.skip("no AMX on this processor")
    torch = pytest.importorskip("torch")
    lib, weight = build(data, kernel, **attrs)
    assert "tdpbusd" in lib.get_lib().get_source("asm")
    x = random_bytes(data, "uint8")
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(x=x)
    top, left, bottom, right = topi.utils.get_pad_tuple(attrs.get("padding", 0), kernel[2:])
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right))).astype("float64")
    options = {
        "stride": attrs.get("strides", 1),
        "dilation": attrs.get("dilation", 1),
        "groups": attrs.get("groups", 1),
    }
    sums = torch.conv2d(torch.from_numpy(padded), torch.from_numpy(weight.astype("float64")), **options).numpy()
    np.testing.assert_array_equal(
        executor.get_output(0).numpy(), np.maximum(sums.astype("float32") * np.float32(0.5), 0)
    )


@pytest.mark.parametrize("target", [f"{AMX} -mattr=-amx-int8", *full("llvm -mcpu=icelake-server")])
def test_processors_without_tiles_use_vectors(target: str) -> None:
    lib, _ = build((1, 64, 14, 14), (64, 64, 3, 3), target, padding=1)
    text = lib.get_lib().get_source("asm")
    assert "vpdpbusd" in text
    assert "tdpbusd" not in text


def test_rows_and_columns_that_are_computed_together() -> None:
    found = window_tiles(features(AMX), (56, 56), (1, 1, 3, 3, 16, 64, 4))
    assert found is not None
    assert (found.rows, found.columns) == (2, 56)
    merged = window_tiles(features(AMX), (1, 3136), (4, 1, 1, 1, 16, 64, 4))
    assert merged is not None
    assert 3136 % merged.columns == 0
    assert merged.columns * 64 * 4 <= 48 << 10


@pytest.mark.parametrize(
    ("out", "kernel"),
    [((56, 56), (1, 1, 1, 1, 1, 64, 4)), ((1, 3), (1, 1, 1, 1, 16, 64, 4)), ((0, 5), (1, 1, 3, 3, 16, 64, 4))],
    ids=["four channels", "three positions", "none"],
)
def test_small_products_stay_in_vectors(out: tuple[int, int], kernel: tuple[int, ...]) -> None:
    assert window_tiles(features(AMX), out, kernel) is None


def test_short_rows_are_merged() -> None:
    cpu = features(AMX)
    assert are_rows_merged(cpu, (7, 7), (8, 8, 3, 3, 16, 64, 4), copied=True, computed=0.8)
    assert not are_rows_merged(cpu, (56, 56), (1, 1, 3, 3, 16, 64, 4), copied=True, computed=1.0)
    assert are_rows_merged(features("llvm -mcpu=icelake-server"), (7, 7), (8, 8, 3, 3, 16, 64, 4), True, 1.0) is None
