"""Dense layers of bytes: int32 sums as numpy's, in the form that the target's instructions take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.target import Target

TARGETS = [
    *("llvm", "llvm -mcpu=sapphirerapids", "llvm -mcpu=alderlake", "llvm -mcpu=skylake-avx512"),
    *("llvm -mcpu=haswell", "llvm -mcpu=x86-64", "c"),
]


def ends(rng: np.random.Generator, dtype: str, *shape: int, largest: int = 0) -> np.ndarray:
    """Return random bytes, many of them the least and the greatest of their type; the first row the greatest."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    low, high = (-largest, largest) if largest else (low, high)
    drawn = rng.integers(low, high + 1, shape)
    values = np.where(rng.random(shape) < 0.3, rng.choice([low, high], shape), drawn).astype(dtype)
    values[:1] = high
    return values


def layer(weight: np.ndarray, rows: Any, dtype: str, out: str = "int32") -> tvm.IRModule:
    x = relay.var("x", shape=(rows, weight.shape[1]), dtype=dtype)
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, relay.const(weight), out_dtype=out)))


def compute(mod: tvm.IRModule, target: str, x: np.ndarray) -> tuple[np.ndarray, Any]:
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target)
    run = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    run.set_input("x", x)
    run.run()
    return run.get_output(0).numpy(), lib


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")])
def test_sums_are_numpys(target: str, dtypes: tuple[str, str]) -> None:
    if target != "c" and not runs_here(target):
        pytest.skip("this machine's processor lacks what the code needs")
    rng = np.random.default_rng(0)
    rows, columns, depth = 31, 37, 67  # no multiples of tiles, vectors and words
    x, weight = ends(rng, dtypes[0], rows, depth), ends(rng, dtypes[1], columns, depth)
    found, _ = compute(layer(weight, rows, dtypes[0]), target, x)
    np.testing.assert_array_equal(found, x.astype("int64") @ weight.astype("int64").T)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 256, 64), (2, 3, 4), (7, 96, 128), (64, 33, 16), (3, 5, 2)])
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
def test_sums_of_any_shape_are_numpys(shape: tuple[int, int, int], target: str) -> None:
    if not runs_here(target):
        pytest.skip("this machine's processor lacks what the code needs")
    rows, columns, depth = shape
    rng = np.random.default_rng(1)
    x, weight = ends(rng, "int8", rows, depth), ends(rng, "int8", columns, depth)
    found, _ = compute(layer(weight, rows, "int8"), target, x)
    np.testing.assert_array_equal(found, x.astype("int64") @ weight.astype("int64").T)


@pytest.mark.parametrize(("target", "largest", "types"), [
    ("llvm -mcpu=sapphirerapids", 127, ("uint8", "NC32n4c")), ("llvm -mcpu=haswell", 127, ("int16", "NC16n2c")),
    ("llvm -mcpu=haswell", 64, ("uint8", "NC16n4c")),
    ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1", 127, ("uint8", "4c")),
    ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", 127, ("int8", "4c")),
])  # fmt: skip
def test_form_is_that_of_the_target(target: str, largest: int, types: tuple[str, str]) -> None:
    weight = ends(np.random.default_rng(2), "int8", 64, 64, largest=largest)
    with Target(target), tvm.transform.PassContext(opt_level=3):
        mod = relay.transform.Legalize()(relay.transform.InferType()(layer(weight, 32, "uint8")))
        text = str(relay.transform.AlterOpLayout()(relay.transform.InferType()(mod)))
    dtype, layout = types
    assert layout in text
    assert f"{dtype}]" in text.split("nn.contrib_dense_pack")[0] if dtype != "uint8" else "cast" not in text


def test_rows_may_be_counted_at_run_time() -> None:
    rng = np.random.default_rng(3)
    weight = ends(rng, "int8", 40, 24)
    x = relay.var("x", shape=(relay.Any(), 24), dtype="int8")
    func = relay.Function([x], relay.nn.dense(x, relay.const(weight), out_dtype="int32"))
    with tvm.transform.PassContext(opt_level=3):
        machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(tvm.IRModule.from_expr(func), "llvm"), tvm.cpu())
    for rows in (1, 5, 33):
        data = ends(rng, "int8", rows, 24)
        found = machine.invoke("main", tvm.nd.array(data)).numpy()
        np.testing.assert_array_equal(found, data.astype("int64") @ weight.astype("int64").T)


def test_weights_stay_bytes_in_the_library() -> None:
    weight = ends(np.random.default_rng(4), "int8", 256, 256)
    _, lib = compute(layer(weight, 8, "uint8"), "llvm", np.zeros((8, 256), "uint8"))
    assert sum(p.numpy().nbytes for p in lib.get_params().values()) == weight.nbytes


def test_tail_is_in_the_same_kernel() -> None:
    """Dequantizing, bias, activation and requantizing take no pass of their own.

    Where the processor multiplies int16 (AVX2), the data is widened first.
    """
    rng = np.random.default_rng(5)
    x, weight = ends(rng, "uint8", 16, 64), ends(rng, "int8", 48, 64)
    data = relay.var("x", shape=x.shape, dtype="uint8")
    sums = relay.cast(relay.nn.dense(data, relay.const(weight), out_dtype="int32"), "float32")
    scale, bias = rng.random(48).astype("float32") * 1e-4, rng.random(48).astype("float32")
    out = relay.nn.relu(relay.add(relay.multiply(sums, relay.const(scale)), relay.const(bias)))
    out = relay.cast(relay.clip(relay.nearbyint(relay.multiply(out, relay.const(20.0))), 0.0, 255.0), "uint8")
    found, lib = compute(tvm.IRModule.from_expr(relay.Function([data], out)), "llvm", x)
    others = lib.build_report.implementations.keys() - {"tvmgen_default_fused_cast"}
    assert len(others) == 1
    real = (x.astype("int64") @ weight.astype("int64").T).astype("float32") * scale + bias
    np.testing.assert_array_equal(found, np.clip(np.rint(np.maximum(real, 0) * np.float32(20)), 0, 255).astype("uint8"))


@pytest.mark.parametrize("processor", ["haswell", "x86-64", "skylake-avx512"])
def test_weights_that_a_program_packs_itself_do_not_saturate(processor: str) -> None:
    if not runs_here(f"llvm -mcpu={processor}"):
        pytest.skip("this machine's processor lacks what the code needs")
    x = relay.var("x", shape=(3, 8), dtype="uint8")
    weight = relay.const(np.full((1, 2, 16, 4), 127, "int8"))
    body = relay.nn.contrib_dense_pack(x, weight, "NC16n4c", units=16, out_dtype="int32")
    mod = tvm.IRModule.from_expr(relay.Function([x], body))
    found, _ = compute(mod, f"llvm -mcpu={processor}", np.full((3, 8), 255, "uint8"))
    np.testing.assert_array_equal(found, np.full((3, 16), 8 * 255 * 127))
