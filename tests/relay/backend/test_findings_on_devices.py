"""What kernels on a GPU find wrong ends the run, as on a CPU, and leaves the executor usable. The oracle is numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.gpu import GPU, GPU_TARGET, need_gpu

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.contrib.debugger import debug_executor
from tilewright.runtime.error import TVMError

CPU = tvm.cpu()
DATA = np.arange(12, dtype="float32").reshape(4, 3)
GOOD, BAD = np.array([[0, 1, -1], [3, -4, 2]]), np.array([[0, 1, 2**32 + 1], [3, -4, 2]])
SAID = "index 4294967297 is out of range: expected -4 to 3"

Run = Callable[..., Any]


@pytest.fixture(autouse=True, scope="module")
def gpu_is_here() -> None:
    need_gpu()


def gathering() -> tvm.IRModule:
    x, i = relay.var("x", shape=(4, 3)), relay.var("i", shape=(2, 3), dtype="int64")
    return tvm.IRModule.from_expr(relay.Function([x, i], relay.gather(x, 0, i)))


def in_graph(mod: tvm.IRModule) -> Run:
    executor = graph_executor.GraphModule(relay.build(mod, GPU_TARGET)["default"](GPU))

    def run(**inputs: Any) -> Any:
        executor.run(**inputs)
        return executor.get_output(0).numpy()

    return run


def in_debugger(mod: tvm.IRModule) -> Run:
    lib = relay.build(mod, GPU_TARGET)
    executor = debug_executor.create(lib.get_graph_json(), lib.get_lib(), GPU)

    def run(**inputs: Any) -> Any:
        executor.run(**inputs)
        return executor.get_output(0).numpy()

    return run


def in_machine(mod: tvm.IRModule) -> Run:
    machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(mod, GPU_TARGET), [GPU, CPU])
    return lambda **inputs: machine.invoke("main", *inputs.values()).numpy()


@pytest.mark.parametrize("executor", [in_graph, in_debugger, in_machine])
def test_an_index_out_of_range_ends_the_run_alone(executor: Callable[[tvm.IRModule], Run]) -> None:
    run = executor(gathering())
    for _ in range(2):
        np.testing.assert_array_equal(run(x=DATA, i=GOOD), np.take_along_axis(DATA, GOOD, 0))
        with pytest.raises(TVMError, match=SAID):
            run(x=DATA, i=BAD)
    np.testing.assert_array_equal(run(x=DATA, i=GOOD), np.take_along_axis(DATA, GOOD, 0))


def test_the_executor_that_ran_is_told(tmp_path: Any) -> None:
    lib = relay.build(gathering(), GPU_TARGET)
    lib.export_library(tmp_path / "lib.so")
    one, other = (tvm.runtime.load_module(tmp_path / "lib.so")["default"](GPU) for _ in range(2))
    for executor, places in ((one, BAD), (other, GOOD)):
        executor["set_input"]("x", tvm.nd.array(DATA))
        executor["set_input"]("i", tvm.nd.array(places))
    with pytest.raises(TVMError, match=SAID):
        one["run"]()
    other["run"]()


def test_a_coordinate_is_told_with_the_range_of_its_axis() -> None:
    x, i = relay.var("x", shape=(4, 3)), relay.var("i", shape=(2, 5), dtype="int32")
    run = in_graph(tvm.IRModule.from_expr(relay.Function([x, i], relay.gather_nd(x, i))))
    places = np.array([[0, 1, 2, 3, -1], [0, 1, 2, -3, 0]], "int32")
    np.testing.assert_array_equal(run(x=DATA, i=places), DATA[tuple(places)])
    for row, low, high in ((0, -4, 3), (1, -3, 2)):
        wrong = places.copy()
        wrong[row, 4] = high + 1
        with pytest.raises(TVMError, match=rf"index {high + 1} is out of range: expected {low} to {high}"):
            run(x=DATA, i=wrong)


def test_the_first_check_of_a_run_is_told() -> None:
    x, i = relay.var("x", shape=(4, 3)), relay.var("i", shape=(2, 3), dtype="int64")
    second = relay.take(relay.gather(x, 0, i), relay.var("k", shape=(1,), dtype="int32"), axis=1)
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(second), second))
    run = in_graph(mod)
    with pytest.raises(TVMError, match="gather: index 9"):
        run(x=DATA, i=np.full((2, 3), 9), k=np.array([7], "int32"))


def reshaping() -> tvm.IRModule:
    node = helper.make_node("Reshape", ["x", "s"], ["y"], name="N")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])
    s = helper.make_tensor_value_info("s", TensorProto.INT64, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [x, s], [y])
    mod, _ = relay.frontend.from_onnx(helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]))
    return mod


def test_a_shape_that_does_not_fit_is_an_error_that_names_the_node() -> None:
    run = in_machine(reshaping())
    assert run(x=DATA, s=np.array([2, -1])).shape == (2, 6)
    for wrong in ([5, 5], [-7, 1]):
        with pytest.raises(TVMError, match=rf"ONNX node 'N' \(Reshape\): input 1, 's': the shape \({wrong[0]}, "):
            run(x=DATA, s=np.array(wrong))
    assert run(x=DATA, s=np.array([12, 1])).shape == (12, 1)


def test_a_check_that_no_executor_runs_is_told_at_once() -> None:
    lib = relay.build(gathering(), GPU_TARGET).get_lib()
    places, checked = tvm.nd.array(BAD, GPU), tvm.nd.empty((2, 3), "int64", GPU)
    for _ in range(2):
        with pytest.raises(TVMError, match=SAID):
            lib["tvmgen_default_fused_check_indices"](places, checked)
    lib["tvmgen_default_fused_check_indices"](tvm.nd.array(GOOD, GPU), checked)
    np.testing.assert_array_equal(checked.numpy(), np.where(GOOD < 0, GOOD + 4, GOOD))
