"""Graph executors on a device whose memory the host cannot touch: copies in and out, and operators launched there."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import runtime
from tilewright.contrib import graph_executor

GUARDED = 65


def function(name: str) -> Any:
    found = runtime.get_global_func(name)
    assert found is not None
    return found


def node(name: str, func: str, *inputs: int) -> dict[str, Any]:
    attrs = {"func_name": func, "num_inputs": str(len(inputs)), "num_outputs": "1", "flatten_data": "0"}
    return {"op": "tvm_op", "name": name, "attrs": attrs, "inputs": [[i, 0, 0] for i in inputs]}


def graph(*shape: int) -> str:
    """x -> there = __copy -> product = there * w, on the device -> here = __copy -> out = here + 1, on the host."""
    nodes: list[dict[str, Any]] = [{"op": "null", "name": name, "inputs": []} for name in ("x", "w")]
    nodes += [node("there", "__copy", 0), node("product", "multiply_there", 2, 1)]
    nodes += [node("here", "__copy", 3), node("out", "add_one", 4)]
    attrs = {
        "dltype": ["list_str", ["float32"] * 6],
        "storage_id": ["list_int", list(range(6))],
        "device_index": ["list_int", [1, GUARDED, GUARDED, GUARDED, 1, 1]],
        "shape": ["list_shape", [list(shape)] * 6],
    }
    body = {"nodes": nodes, "arg_nodes": [0, 1], "heads": [[5, 0, 0], [3, 0, 0]], "node_row_ptr": list(range(7))}
    return json.dumps(body | {"attrs": attrs})


@pytest.fixture(scope="module")
def kernels(guarded: runtime.Device) -> runtime.Module:
    """Compiled code for the host; ``multiply_there`` launches some on the device."""
    a, b = (tvm.te.placeholder((7, 3), name=name) for name in "ab")
    product = tvm.te.compute((7, 3), lambda i, j: a[i, j] * b[i, j])
    added = tvm.te.compute((7, 3), lambda i, j: a[i, j] + 1.0)
    multiply = tvm.build(tvm.te.create_schedule(product.op), [a, b, product], "llvm", name="multiply")
    add_one = tvm.build(tvm.te.create_schedule(added.op), [a, added], "llvm", name="add_one")
    launch, call = function("guarded.launch"), multiply["multiply"]

    def as_host(*tensors: runtime.NDArray) -> None:
        """Compiled code is told that the memory, which is open now, is the host's."""
        for tensor in tensors:
            tensor._tensor.device.device_type = 1
        try:
            call(*tensors)
        finally:
            for tensor in tensors:
                tensor._tensor.device.device_type = GUARDED

    def multiply_there(*tensors: runtime.NDArray) -> None:
        assert all(tensor.device == guarded for tensor in tensors)
        launch(as_host, *tensors)

    module = runtime.create_module("test.kernels", {"multiply_there": multiply_there}.get)
    add_one.import_module(module)
    return add_one


X = np.linspace(-3, 3, 21, dtype="float32").reshape(7, 3)
W = np.linspace(0.5, 2, 21, dtype="float32").reshape(7, 3)


def test_a_graph_runs_on_two_devices(guarded: runtime.Device, kernels: runtime.Module) -> None:
    executor = graph_executor.create(graph(7, 3), kernels, [tvm.cpu(), guarded])
    executor.run(x=X, w=W)
    out, there = executor.get_output(0), executor.get_output(1)
    assert (out.device, there.device) == (tvm.cpu(), guarded)
    np.testing.assert_allclose(out.numpy(), X * W + 1, rtol=1e-6)
    np.testing.assert_allclose(there.numpy(), X * W, rtol=1e-6)
    np.testing.assert_allclose(executor.infer(x=X + 1, w=W)["output_0"], (X + 1) * W + 1, rtol=1e-6)
    executor.set_input("w", tvm.nd.array(W + 1, guarded))
    executor.run(x=tvm.nd.array(X, guarded))
    np.testing.assert_allclose(executor.get_output(0).numpy(), X * (W + 1) + 1, rtol=1e-6)
    assert [name for name, _ in executor.time_nodes(2)] == ["there", "product", "here", "out"]


def test_its_driver_knows_executors(guarded: runtime.Device, kernels: runtime.Module) -> None:
    before, memory = function("guarded.executors")(), function("guarded.allocated")()
    executor = graph_executor.create(graph(7, 3), kernels, [guarded, tvm.cpu()])
    other = graph_executor.create(graph(7, 3), kernels, [guarded, tvm.cpu(), guarded])
    assert function("guarded.executors")() == before + 2
    del executor, other
    assert function("guarded.executors")() == before
    assert function("guarded.allocated")() == memory


def test_a_network_brings_its_parameters_to_the_device(guarded: runtime.Device, kernels: runtime.Module) -> None:
    factory = runtime.GraphExecutorFactoryModule(None, None, "graph", graph(7, 3), kernels, "net", {"w": W})
    memory = function("guarded.allocated")()
    one, two = (runtime.GraphModule(factory["net"](tvm.cpu(), guarded)) for _ in range(2))
    size = (function("guarded.allocated")() - memory) // 2
    assert size == 3 * X.nbytes  # w too: parameters of a network in memory are its maker's to change
    for executor, shift in ((one, 0), (two, 5)):
        np.testing.assert_allclose(executor.infer(x=X + shift)["output_0"], (X + shift) * W + 1, rtol=1e-6)
    assert one.get_input_names() == ["x"]
    with pytest.raises(tvm.TVMError, match=r"device type 65 \(guarded\), and the executor was given cpu\(0\)"):
        factory["net"](tvm.cpu())


def test_debug_executors_take_several_devices(guarded: runtime.Device, kernels: runtime.Module) -> None:
    from tilewright.contrib.debugger import debug_executor

    executor = debug_executor.create(graph(7, 3), kernels, [tvm.cpu(), guarded])
    executor.set_input(x=X, w=W)
    executor.run()
    np.testing.assert_allclose(executor.get_output(0).numpy(), X * W + 1, rtol=1e-6)
    with pytest.raises(TypeError, match="runs on devices"):
        graph_executor.create(graph(7, 3), kernels, ["cpu"])  # type: ignore[list-item]
