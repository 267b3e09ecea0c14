"""Products of bfloat16 in AMX's tiles and by vdpbf16ps: sums in float32 of rounded factors, and where they are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here

import tilewright as tvm
from tilewright import relay, te
from tilewright.relay.transform.precision.halve_weights import precision_config
from tilewright.runtime.module import Module
from tilewright.topi.cpu.byte_tiles import tile_intrinsic
from tilewright.topi.cpu.model.float_tiles import matmul_precision_config

AMX, PAIRS, NEITHER = "llvm -mcpu=sapphirerapids", "llvm -mcpu=znver4", "llvm -mcpu=haswell"
INSTRUCTION = {AMX: "tdpbf16ps", PAIRS: "vdpbf16ps"}
RNG = np.random.default_rng(38)


def rounded(values: np.ndarray) -> np.ndarray:
    """Return float32 numbers rounded to bfloat16, to nearest even."""
    bits = values.view(np.uint32)
    return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32)


def build(weight: np.ndarray, rows: int, target: str) -> Any:
    x = relay.var("x", shape=(rows, weight.shape[1]))
    body = relay.nn.relu(relay.nn.dense(x, relay.const(weight)))
    with tvm.transform.PassContext(opt_level=3, config=precision_config("bf16")):
        return relay.build(tvm.IRModule.from_expr(body), target)


def run(lib: Any, x: np.ndarray) -> np.ndarray:
    executor = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(x=x)
    result: np.ndarray = executor.get_output(0).numpy()
    return result


@pytest.mark.parametrize("target", [AMX, PAIRS])
@pytest.mark.parametrize(
    "shape", [(16, 128, 32), (17, 130, 64), (31, 256, 96), (48, 133, 64), (512, 128, 32), (97, 128, 832), (257, 64, 64)]
)
def test_sums_are_those_of_rounded_factors(target: str, shape: tuple[int, int, int]) -> None:
    if not runs_here(target):
        pytest.skip(f"this machine does not run {target}")
    rows, columns, depth = shape
    weight, x = RNG.standard_normal((columns, depth), "float32"), RNG.standard_normal((rows, depth), "float32")
    lib = build(weight, rows, target)
    assert INSTRUCTION[target] in lib.get_lib().get_source("asm")
    expected = np.maximum(rounded(x).astype("float64") @ rounded(weight).astype("float64").T, 0)
    np.testing.assert_allclose(run(lib, x), expected, rtol=1e-5, atol=1e-5 * depth)


@pytest.mark.parametrize("target", [AMX, PAIRS, NEITHER, "c"])
def test_infinities_and_not_a_number_reach_the_result(target: str) -> None:
    if target.startswith("llvm") and not runs_here(target):
        pytest.skip(f"this machine does not run {target}")
    weight, x = np.ones((128, 32), "float32"), np.ones((16, 32), "float32")
    weight[1, 0], weight[2, 5], x[3, 1], x[4, 2] = np.inf, np.nan, np.inf, np.nan
    weight[5, 0], x[6, 0] = 3.4e38, 3.4e38  # which round to infinity
    found = run(build(weight, 16, target), x)
    with np.errstate(all="ignore"):
        expected = np.where(np.isnan(sums := rounded(x) @ rounded(weight).T), sums, np.maximum(sums, 0))
    if target in INSTRUCTION:  # relu, as everywhere, is maximum(x, 0), whose result with NaN is x
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    ordinary = np.isfinite(expected) & np.isfinite(found)
    np.testing.assert_allclose(found[ordinary], expected[ordinary], rtol=1e-2)
    assert np.isposinf(found[0, 1])
    assert np.isposinf(found[3, 0])
    assert np.isnan(found[0, 2])
    assert np.isnan(found[4, 0])


@pytest.mark.parametrize(
    ("target", "rows", "depth"), [(AMX, 15, 64), (AMX, 16, 48), (f"{AMX} -mattr=-amx-tile", 64, 64), (NEITHER, 64, 64)]
)
def test_other_products_widen_weights_and_keep_data_in_float32(target: str, rows: int, depth: int) -> None:
    lib = build(RNG.standard_normal((128, depth), "float32"), rows, target)
    text = lib.get_lib().get_source("asm")
    assert "bf16ps" not in text
    assert all("cast" not in name for name in lib.function_metadata)


def test_a_single_row_reads_half_the_bytes_and_is_not_rounded() -> None:
    weight, x = RNG.standard_normal((4096, 64), "float32"), RNG.standard_normal((1, 64), "float32")
    found = run(build(weight, 1, "llvm"), x)
    np.testing.assert_allclose(found, np.maximum(x @ rounded(weight).T, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rows", "steps"), [(16, 32), (17, 32), (33, 32), (64, 32), (81, 16 * 26)])
def test_loops_that_stand_for_tiles_give_the_same_sums(rows: int, steps: int) -> None:
    data = te.placeholder((rows, steps * 2), "bfloat16", "data")
    weight = te.placeholder((steps, 32, 2), "bfloat16", "weight")
    k, half = te.reduce_axis((0, steps), "k"), te.reduce_axis((0, 2), "half")
    total = te.compute(
        (rows, 32),
        lambda i, j: te.sum(
            data(i, k.var * 2 + half.var).astype("float32") * weight(k, j, half).astype("float32"), axis=[k, half]
        ),
    )
    s = te.create_schedule(total.op)
    s[total].tensorize(total.op.axis[0], tile_intrinsic(rows, steps, True, "bfloat16"))
    kernel: Module = tvm.build(s, [data, weight, total], "llvm -mcpu=x86-64")
    a, b = (rounded(RNG.standard_normal(shape, "float32")) for shape in ((rows, steps * 2), (steps, 32, 2)))
    halves = [tvm.nd.empty(v.shape, "bfloat16") for v in (a, b)]
    for array, values in zip(halves, (a, b), strict=True):
        array.copyfrom(values)
    out = tvm.nd.array(np.zeros((rows, 32), "float32"))
    kernel(*halves, out)
    expected = a.astype("float64") @ b.astype("float64").transpose(0, 2, 1).reshape(steps * 2, 32)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_data_that_was_bfloat16_is_taken_as_it_was() -> None:
    x = relay.var("x", shape=(16, 64), dtype="bfloat16")
    weight = RNG.standard_normal((128, 64), "float32")
    body = relay.nn.dense(relay.cast(x, "float32"), relay.const(weight))
    with tvm.target.Target(AMX), tvm.transform.PassContext(config=precision_config("bf16")):
        mod = relay.transform.HalveWeights()(tvm.IRModule.from_expr(body))
        made = relay.transform.NarrowFactors()(mod)["main"]
    assert made.body.args[0] is made.params[0]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "shape",
    [(3, 17, 33, 40), (1, 16, 64, 32), (2, 257, 48, 64), (12, 40, 96, 1), (2, 31, 24, 97), (5, 64, 160, 448)],
)
def test_batched_sums_are_those_of_rounded_factors(shape: tuple[int, int, int, int], transposed: bool) -> None:
    if not runs_here(AMX):
        pytest.skip("no AMX on this processor")
    batch, rows, columns, depth = shape
    a, b = RNG.standard_normal((batch, rows, depth), "float32"), RNG.standard_normal((batch, columns, depth), "float32")
    given = b if transposed else np.ascontiguousarray(b.transpose(0, 2, 1))
    lib = build_batched(a.shape, given.shape, transposed, AMX)
    assert "tdpbf16ps" in lib.get_lib().get_source("asm")
    executor = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(x=a, y=given)
    expected = np.einsum("bik,bjk->bij", rounded(a).astype("float64"), rounded(b).astype("float64"))
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-5, atol=1e-5 * depth)


def build_batched(
    a: tuple[int, ...], b: tuple[int, ...], transposed: bool, target: str, config: dict[str, Any] | None = None
) -> Any:
    x, y = relay.var("x", shape=a), relay.var("y", shape=b)
    body = relay.nn.batch_matmul(x, y, transpose_b=transposed)
    with tvm.transform.PassContext(opt_level=3, config=precision_config("bf16") if config is None else config):
        return relay.build(tvm.IRModule.from_expr(relay.Function([x, y], body)), target)


@pytest.mark.parametrize(("precision", "used"), [("highest", False), ("high", False), ("medium", True)])
def test_batched_products_of_float32_are_rounded_where_their_precision_is_medium(precision: str, used: bool) -> None:
    lib = build_batched((2, 32, 64), (2, 64, 64), True, AMX, matmul_precision_config(precision))
    assert ("tdpbf16ps" in lib.get_lib().get_source("asm")) is used


@pytest.mark.parametrize(
    ("target", "rows", "columns"), [(AMX, 15, 64), (AMX, 64, 16), (f"{AMX} -mattr=-amx-tile", 64, 64), (PAIRS, 64, 64)]
)
def test_batched_products_that_fill_no_tiles_stay_float32(target: str, rows: int, columns: int) -> None:
    lib = build_batched((2, rows, 64), (2, columns, 64), True, target)
    assert "bf16ps" not in lib.get_lib().get_source("asm")
    assert all("cast" not in name for name in lib.function_metadata)
