"""What TVM 0.8's users ask of a build: BuildModule, GraphExecutorCodegen, metadata of functions, the compile engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.relay.backend import te_compiler
from tilewright.relay.backend.graph_executor_codegen import GraphExecutorCodegen
from tilewright.relay.build_module import BuildModule
from tilewright.target import Target

TARGET = Target("llvm -mcpu=x86-64")
WEIGHT = np.random.default_rng(0).standard_normal((4, 5)).astype("float32")


def network() -> tvm.IRModule:
    x, w = relay.var("x", shape=(3, 5)), relay.var("w", shape=(4, 5))
    return tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.softmax(relay.nn.softmax(relay.nn.dense(x, w)))))


def expected(x: np.ndarray) -> np.ndarray:
    result = x.astype("float64") @ WEIGHT.T
    for _ in range(2):
        e = np.exp(result)
        result = e / e.sum(1, keepdims=True)
    return result


def test_metadata_tells_sizes_and_sources_of_each_function() -> None:
    lib = relay.build(network(), TARGET, params={"w": WEIGHT})
    main = lib.function_metadata["__tvm_main__"]
    assert main.io_sizes == {TARGET: 4 * (3 * 5 + 3 * 4)}
    assert main.constant_sizes == {TARGET: sum(p.numpy().nbytes for p in lib.params.values())}
    assert main.workspace_sizes == {TARGET: lib.build_report.activation_bytes}
    assert main.workspace_sizes[TARGET] > 0
    softmax = lib.function_metadata["tvmgen_default_fused_nn_softmax"]
    assert softmax.io_sizes == {TARGET: 2 * 4 * 3 * 4}
    assert softmax.tir_primfuncs[TARGET].attrs["global_symbol"] == "tvmgen_default_fused_nn_softmax"
    assert softmax.relay_primfuncs[TARGET].body.op.name == "nn.softmax"
    assert set(lib.function_metadata) == {*lib.build_report.implementations, "__tvm_main__"}


def test_the_library_keeps_the_module_that_was_given() -> None:
    mod = network()
    assert relay.build(mod, TARGET, params={"w": WEIGHT}).ir_mod is mod
    assert len(mod["main"].params) == 2


def test_build_module_builds_in_steps() -> None:
    builder = BuildModule()
    with pytest.raises(TilewrightError, match="nothing has been built"):
        builder.get_module()
    builder.set_params({"w": WEIGHT})
    graph, module, params = builder.build(network(), TARGET)
    assert (graph, module) == (builder.get_json(), builder.get_module())
    assert "__tvm_main__" in builder.get_function_metadata()
    executor = graph_executor.create(graph, module, tvm.cpu())
    x = np.ones((3, 5), "float32")
    executor.set_input("x", x)
    for name, value in params.items():
        executor.set_input(name, value)
    executor.run()
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected(x), rtol=1e-5)
    with pytest.raises(UnsupportedError, match="there is no executor 'board'"):
        builder.build(network(), TARGET, executor="board")


def test_graph_executor_codegen_gives_graph_kernels_and_parameters() -> None:
    mod = relay.transform.FuseOps(2)(relay.transform.InferType()(network()))
    graph, lowered, params = GraphExecutorCodegen(None, TARGET).codegen(mod["main"])
    assert list(lowered) == [TARGET]
    assert params == {}
    executor = graph_executor.create(graph, tvm.build(lowered), tvm.cpu())
    x = np.ones((3, 5), "float32")
    executor.run(x=x, w=WEIGHT)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected(x), rtol=1e-5)


def function(shape: tuple[int, ...]) -> Any:
    x = relay.var("x", shape=shape)
    func = relay.Function([x], relay.add(relay.add(x, x), x))
    return relay.transform.InferType()(tvm.IRModule.from_expr(func))["main"]


def test_the_compile_engine_lowers_equal_functions_once_and_compiles_them() -> None:
    engine = te_compiler.get()
    engine.clear()
    first, second = engine.lower(function((10,)), "llvm"), engine.lower(function((10,)), "llvm")
    other = engine.lower(function(()), "llvm")
    assert first.same_as(second)
    assert not first.same_as(other)
    assert not first.same_as(engine.lower(function((10,)), TARGET))
    assert [t.shape[0].value for t in (*first.inputs, *first.outputs)] == [10, 10]
    assert first.prim_fn_var in first.funcs
    assert len(engine.items()) == 3
    x, y = tvm.nd.array(np.arange(10, dtype="float32")), tvm.nd.empty((10,))
    engine.jit(function((10,)), "llvm")(x, y)
    np.testing.assert_array_equal(y.numpy(), 3 * x.numpy())
    engine.clear()
    assert engine.items() == []


def test_the_compile_engine_says_what_it_needs() -> None:
    x = relay.var("x", shape=(2,))
    with pytest.raises(TilewrightError, match=r"run relay\.transform\.InferType"):
        te_compiler.get().lower(relay.Function([x], x + x), "llvm")
    with pytest.raises(TilewrightError, match="lowering needs a target"):
        te_compiler.get().lower(function((2,)))


def test_functions_of_external_compilers_are_refused_by_name() -> None:
    x, p = relay.var("x", shape=(2,)), relay.var("p", shape=(2,))
    func = relay.Function([p], relay.exp(p), attrs={"Primitive": 1, "Compiler": "accel", "global_symbol": "a0"})
    with pytest.raises(UnsupportedError, match="@a0 is for the external compiler 'accel'"):
        relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.Call(func, [x]))), TARGET)
