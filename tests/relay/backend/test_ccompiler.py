"""Whole networks through ``ccompiler``: every operator in C, called as external code is."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from tests.tiers import every

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.dataflow_pattern import is_op, wildcard
from tilewright.relay.frontend.onnx.importer import from_onnx
from tilewright.relay.interpreter import interpret
from tilewright.relay.transform import AnnotateTarget, InferType, MergeCompilerRegions, MergeComposite, PartitionGraph

DIGITS = next((Path(__file__).parents[3] / "examples" / "digits").glob("*.onnx"))


def partition(mod: tvm.IRModule, *before: tvm.transform.Pass) -> tvm.IRModule:
    steps = [InferType(), *before, AnnotateTarget("ccompiler"), MergeCompilerRegions(), PartitionGraph()]
    return tvm.transform.Sequential(steps)(mod)


def answers(module: object, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    executor = graph_executor.GraphModule(module["default"](tvm.cpu()))
    executor.run(**inputs)
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def check(
    mod: tvm.IRModule, inputs: dict[str, np.ndarray], path: Path, regions: int, *before: tvm.transform.Pass
) -> None:
    """The same answers as from the operators' meaning, in this process and from a file."""
    partitioned = partition(mod, *before)
    assert len(partitioned.get_global_vars()) == 1 + regions
    library = relay.build(partitioned, "llvm")
    library.export_library(path)
    expected = interpret(InferType()(mod), inputs)
    for module in (library, tvm.runtime.load_module(path)):
        for got, want in zip(
            answers(module, inputs), expected if isinstance(expected, tuple) else [expected], strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_convolutional_network(tmp_path: Path) -> None:
    mod, params = from_onnx(DIGITS)
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    pixels = np.random.default_rng(0).random((1, 1, 8, 8), "float32")
    check(mod, {"pixels": pixels}, tmp_path / "digits.so", 1)


@pytest.mark.parametrize("shape", every(3, [(2, 6), (1, 2), (5, 14)]))
def test_tuples_views_and_several_results(shape: tuple[int, int], tmp_path: Path) -> None:
    x, y = (relay.var(name, shape=shape) for name in "xy")
    halves = relay.split(relay.concatenate([x, y], axis=0), 2, axis=1)
    flat = relay.reshape(x, (-1,))
    out = relay.Tuple([halves[1], flat, relay.nn.softmax(halves[0]), x, relay.const(np.ones(3, "float32"))])
    rng = np.random.default_rng(1)
    inputs = {name: rng.standard_normal(shape).astype("float32") for name in "xy"}
    check(tvm.IRModule.from_expr(relay.Function([x, y], out)), inputs, tmp_path / "x.so", 2)


def test_composite_functions_and_other_types(tmp_path: Path) -> None:
    x = relay.var("x", shape=(3, 4), dtype="int32")
    body = relay.nn.relu(relay.cast(x + relay.const(np.arange(4, dtype="int32")), "float32"))
    pattern = is_op("nn.relu")(is_op("cast")(wildcard()))
    inputs = {"x": np.arange(-6, 6, dtype="int32").reshape(3, 4)}
    mod = tvm.IRModule.from_expr(relay.Function([x], body))
    check(mod, inputs, tmp_path / "x.so", 1, MergeComposite([("ccompiler.cast_relu", pattern)]))


def test_operators_of_unknown_shapes_stay() -> None:
    x = relay.var("x", shape=(relay.Any(), 4))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    assert len(partition(mod).get_global_vars()) == 1


def test_large_weights_cost_little() -> None:
    x = relay.var("x", shape=(1, 4096))
    weight = relay.const(np.zeros((6400, 4096), "float32"))  # 105 MB
    partitioned = partition(tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, weight))))
    begin = time.process_time()
    library = relay.build(partitioned, "llvm")
    assert time.process_time() - begin < 5  # 0.6 s on a Sapphire Rapids core
    assert max(len(m.get_source()) for m in library.lib.imported_modules if m.type_key == "c") < 50_000
