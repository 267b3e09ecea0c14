"""Products of bytes in AMX's tile registers: where they are used, and exact sums for any number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.target import features
from tilewright.topi.cpu.byte_tiles import tile_rows

AMX = "llvm -mcpu=sapphirerapids"
RNG = np.random.default_rng(37)


def build(rows: int, columns: int, depth: int, target: str = AMX, tail: bool = False) -> tuple[Any, np.ndarray]:
    weight = RNG.choice([-128, -127, 0, 1, 127], (columns, depth)).astype("int8")
    x = relay.var("x", shape=(rows, depth), dtype="uint8")
    body = relay.nn.dense(x, relay.const(weight), out_dtype="int32")
    if tail:
        body = relay.nn.relu(relay.multiply(relay.cast(body, "float32"), relay.const(np.float32(0.5))))
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), target), weight


def assembly(*shape: int, target: str = AMX) -> str:
    return str(build(*shape, target=target)[0].get_lib().get_source("asm"))


@pytest.mark.parametrize(
    "shape",
    [
        (16, 32, 64),
        (17, 32, 64),
        (31, 5, 64),
        (32, 32, 64),
        (33, 96, 128),
        (48, 40, 192),
        (197, 64, 64),
        (512, 32, 64),
        (81, 37, 1664),
    ],
)
@pytest.mark.parametrize("tail", [False, True], ids=["sums", "tail"])
def test_sums_are_exact(shape: tuple[int, int, int], tail: bool) -> None:
    if not runs_here(AMX):
        pytest.skip("this machine's processor has no tiles, or its system does not let processes use them")
    lib, weight = build(*shape, tail=tail)
    assert "tdpbusd" in lib.get_lib().get_source("asm")
    data = RNG.choice([0, 1, 254, 255], (shape[0], shape[2])).astype("uint8")
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(x=data)
    sums = data.astype("int64") @ weight.astype("int64").T
    expected = np.maximum(sums.astype("float32") * np.float32(0.5), 0) if tail else sums
    np.testing.assert_array_equal(executor.get_output(0).numpy(), expected)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "shape", [(3, 17, 40, 64), (2, 16, 32, 128), (1, 33, 37, 64), (2, 48, 96, 50), (2, 20, 35, 100)]
)
def test_batched_sums_are_exact(shape: tuple[int, int, int, int], transposed: bool) -> None:
    if not runs_here(AMX):
        pytest.skip("no AMX on this processor")
    batch, rows, columns, depth = shape
    a = RNG.choice([0, 1, 254, 255], (batch, rows, depth)).astype("uint8")
    b = RNG.choice([-128, -127, 0, 1, 127], (batch, columns, depth)).astype("int8")
    given = b if transposed else np.ascontiguousarray(b.transpose(0, 2, 1))
    x, y = relay.var("x", shape=a.shape, dtype="uint8"), relay.var("y", shape=given.shape, dtype="int8")
    product = relay.nn.batch_matmul(x, y, out_dtype="int32", transpose_b=transposed)
    body = relay.nn.relu(relay.multiply(relay.cast(product, "float32"), relay.const(np.float32(0.5))))
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function([x, y], body)), AMX)
    assert "tdpbusd" in lib.get_lib().get_source("asm")
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(x=a, y=given)
    sums = np.einsum("bik,bjk->bij", a.astype("int64"), b.astype("int64"))
    np.testing.assert_array_equal(executor.get_output(0).numpy(), np.maximum(sums * np.float32(0.5), 0))


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [(15, 0), (16, 16), (197, 197), (256, 256), (512, 256), (480, 160), (257, 257), (1576, 197), (2053, 0), (None, 0)],
)
def test_rows_that_are_computed_together(rows: int | None, chosen: int) -> None:
    assert tile_rows(features(AMX), rows, 16, 4, "uint8") == chosen


def test_tiles_need_whole_words_of_64_bytes() -> None:
    assert tile_rows(features(AMX), 64, 17, 4, "uint8") == 0
    assert "vpdpbusd" in (text := assembly(64, 64, 68))
    assert "tdpbusd" not in text


@pytest.mark.parametrize("target", [f"{AMX} -mattr=-amx-int8", f"{AMX} -mattr=-amx-tile", "llvm -mcpu=icelake-server"])
def test_processors_without_tiles_use_vectors(target: str) -> None:
    text = assembly(64, 64, 64, target=target)
    assert "vpdpbusd" in text
    assert "tdpbusd" not in text


def test_a_step_is_four_products_and_four_loads() -> None:
    text = assembly(64, 32, 3072)
    assert text.count("tdpbusd") == text.count("tileloadd") > 0
    assert text.count("tilestored") == text.count("tilezero")
