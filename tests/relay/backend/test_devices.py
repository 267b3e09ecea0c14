"""Networks on several devices: the answer is that of one device, and nothing of one is in another's memory.

Device 3 is memory of the host: any executor can run these.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.relay.backend.random_placement import random_network

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.relay.backend.graph_executor_codegen import GraphExecutorCodegen
from tilewright.relay.backend.lowered import verify_lowered
from tilewright.relay.backend.target_map import TargetMap
from tilewright.relay.expr import Call
from tilewright.relay.transform import ForEachDevice, FuseOps, LowerTE, PlanDevices
from tilewright.target import Target

CPU, OTHER = Target("llvm -mcpu=x86-64"), Target("llvm -mcpu=x86-64 -mattr=+sse4.1")
TARGETS = {"cpu": CPU, 3: OTHER}
Array = np.ndarray[Any, Any]


def run(lib: Any, inputs: dict[str, Array]) -> list[Array]:
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu(), tvm.device("cuda_host")))
    executor.run(**inputs)
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def check_storage(graph: dict[str, Any]) -> None:
    """No storage is of two devices; kernels take and give what is on one; copies go from one to another."""
    devices, storage = graph["attrs"]["device_index"][1], graph["attrs"]["storage_id"][1]
    assert len(devices) == len(storage) == graph["node_row_ptr"][-1]
    assert len(set(zip(storage, devices, strict=True))) == len(set(storage))
    row = graph["node_row_ptr"]
    for i, node in enumerate(graph["nodes"]):
        taken = {devices[row[n] + k] for n, k, _ in node["inputs"]}
        given = set(devices[row[i] : row[i + 1]])
        if node["op"] != "null" and node["attrs"]["func_name"] == "__copy":
            assert len(taken) == len(given) == 1 and taken != given
        else:
            assert len(taken | given) == 1


@pytest.mark.covering(1)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("offsets", [True, False])
def test_random_placements_give_the_same_answer(seed: int, offsets: bool) -> None:
    network = random_network(seed, [1, 3])
    with tvm.transform.PassContext(opt_level=3, config={"relay.graph.storage_offset": offsets}):
        lib = relay.build(network.mod, TARGETS)
    check_storage(json.loads(lib.get_graph_json()))
    for found, expected in zip(run(lib, network.inputs), network.expected, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.covering(1)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("opt_level", [0, 3])
def test_random_placements_in_the_virtual_machine(seed: int, opt_level: int) -> None:
    network = random_network(seed, [1, 3])
    with tvm.transform.PassContext(opt_level=opt_level):
        executable = relay.vm.compile(network.mod, TARGETS)
    machine = tvm.runtime.vm.VirtualMachine(executable, [tvm.cpu(), tvm.device("cuda_host")])
    found = machine.run(**network.inputs)
    values = list(found) if isinstance(found, tvm.runtime.container.ADT) else [found]
    for value, expected in zip(values, network.expected, strict=True):
        np.testing.assert_allclose(value.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_what_main_calls_is_planned_with_it() -> None:
    x, y = relay.var("x", shape=(3,)), relay.var("y", shape=(3,))
    mod = IRModule({relay.GlobalVar("g"): relay.Function([y], relay.annotation.on_device(relay.exp(y), 3))})
    mod["main"] = relay.Function([x], relay.negative(mod.get_global_var("g")(x)))
    inputs = {"x": np.array([0, 1, 2], "float32")}
    np.testing.assert_allclose(run(relay.build(mod, TARGETS), inputs)[0], -np.exp(inputs["x"]), rtol=1e-6)


def test_control_flow_on_several_devices_is_the_virtual_machines() -> None:
    x, c = relay.var("x", shape=(3,)), relay.var("c", shape=(), dtype="bool")
    body = relay.If(c, relay.annotation.on_device(relay.exp(x), 3), x)
    with pytest.raises(TilewrightError, match="the graph executor cannot run a If expression: it runs data flow only"):
        relay.build(IRModule.from_expr(relay.Function([c, x], body)), TARGETS)


def three_convolutions(device: int) -> tuple[IRModule, dict[str, Array]]:
    """Three convolutions with a way around the second one, which is on ``device``."""
    rng = np.random.default_rng(0)
    data = relay.var("data", shape=(1, 8, 7, 7))
    weights = [rng.uniform(-1, 1, (8, 8, 3, 3)).astype("float32") / 8 for _ in range(3)]

    def conv(x: Any, weight: Array) -> Any:
        return relay.nn.relu(relay.nn.conv2d(x, relay.const(weight), padding=(1, 1), channels=8, kernel_size=(3, 3)))

    first = relay.annotation.on_device(conv(data, weights[0]), 1)
    second = relay.annotation.on_device(conv(first, weights[1]), device)
    last = relay.annotation.on_device(conv(relay.add(first, second), weights[2]), 1)
    mod = IRModule.from_expr(relay.Function([data], last))
    return mod, {"data": rng.uniform(-1, 1, (1, 8, 7, 7)).astype("float32")}


def test_layouts_are_each_devices_own() -> None:
    """LLVM's convolutions here want blocks of channels, plain C there."""
    mod, inputs = three_convolutions(3)
    lib = relay.build(mod, {"cpu": "llvm", 3: "c"})
    one, _ = three_convolutions(1)
    np.testing.assert_allclose(run(lib, inputs)[0], run(relay.build(one, CPU), inputs)[0], rtol=1e-5, atol=1e-5)
    kinds = {func.attrs["target"].kind.name for func in kernels_of(lib)}
    assert kinds == {"llvm", "c"}


def kernels_of(lib: Any) -> list[Any]:
    infos = [info for name, info in lib.function_metadata.items() if name != "__tvm_main__"]
    return [func for info in infos for func in info.tir_primfuncs.values()]


def test_all_on_another_device_needs_no_copy() -> None:
    mod, _ = three_convolutions(1)
    with tvm.transform.PassContext(opt_level=3, config={"relay.fallback_device_type": 3}):
        x = relay.var("x", shape=(3,))
        lib = relay.build(IRModule.from_expr(relay.Function([x], relay.exp(x))), TARGETS)
    graph = json.loads(lib.get_graph_json())
    assert graph["attrs"]["device_index"][1] == [3, 3]
    lib = relay.build(mod, TARGETS)
    assert set(json.loads(lib.get_graph_json())["attrs"]["device_index"][1]) == {1}


def test_marks_of_the_only_device_change_nothing() -> None:
    mod, _ = three_convolutions(1)
    data = relay.var("data", shape=(1, 8, 7, 7))
    plain = relay.build(_without_marks(mod, data), CPU)
    marked = relay.build(mod, CPU)

    def kernels(lib: Any) -> list[str]:
        return [n["name"] for n in json.loads(lib.get_graph_json())["nodes"]]

    assert kernels(plain) == kernels(marked)


def _without_marks(mod: IRModule, data: Any) -> IRModule:
    class Remover(relay.ExprMutator):
        def visit_call(self, expr: Call) -> Any:
            if getattr(expr.op, "name", "") == "on_device":
                return self.visit(expr.args[0])
            return super().visit_call(expr)

    return IRModule({v: Remover().visit(f) for v, f in mod.items()})


def test_a_target_alone_puts_everything_on_its_device() -> None:
    x = relay.var("x", shape=(3,))
    mod = IRModule.from_expr(relay.Function([x], relay.exp(x)))
    for device in (3, tvm.device("cuda_host")):
        graph = json.loads(relay.build(mod, {device: CPU}).get_graph_json())
        assert graph["attrs"]["device_index"][1] == [3, 3]


def test_targets_by_device() -> None:
    targets = TargetMap.of({tvm.cpu(): "llvm", "ext_dev": "c"})
    assert targets.targets == {1: Target("llvm"), 12: Target("c")} and targets.default_device == 1
    assert targets.host == Target("llvm") and targets.targets[12].host == Target("llvm")
    assert TargetMap.of({"ext_dev": "c", 3: "c"}).targets[1] == Target("llvm")
    host = Target("llvm -mcpu=haswell")
    assert TargetMap.of({"cpu": "llvm", 3: "c"}, host).host == host
    with Target("c"):
        assert TargetMap.of().default == Target("c")
    for wrong, message in (
        ({}, "empty mapping"),
        ({"cpu": "llvm", 1: "c"}, r"two targets are given for cpu \(1\)"),
        (None, "needs a target"),
    ):
        with pytest.raises(TilewrightError, match=message):
            TargetMap.of(wrong)
    with (
        tvm.transform.PassContext(config={"relay.fallback_device_type": 2}),
        pytest.raises(TilewrightError, match=r"fallback_device_type is cuda \(2\), and no target is given for it"),
    ):
        TargetMap.of(TARGETS)
    x = relay.var("x", shape=(3,))
    mod = IRModule.from_expr(relay.Function([x], relay.annotation.on_device(relay.exp(x), "ext_dev")))
    with pytest.raises(TilewrightError, match=r"ext_dev \(12\), which has no target"):
        relay.build(mod, "llvm")


def test_metadata_is_by_target() -> None:
    mod, _ = three_convolutions(3)
    lib = relay.build(mod, TARGETS)
    main = lib.function_metadata["__tvm_main__"]
    assert set(main.workspace_sizes) == {CPU, OTHER} == set(main.io_sizes)
    assert sum(main.workspace_sizes.values()) == lib.build_report.activation_bytes
    assert main.io_sizes == {CPU: 2 * 4 * 8 * 7 * 7, OTHER: 0}
    assert all(size >= 4 * 8 * 8 * 9 for size in main.constant_sizes.values())
    assert lib.target == {1: CPU, 3: OTHER}
    assert str(OTHER) in json.loads(lib.get_graph_json())["metadata"]["target"]


def lowered_module() -> IRModule:
    x = relay.var("x", shape=(4, 16))
    there = relay.annotation.on_device(relay.nn.softmax(x), 3)
    mod = PlanDevices(1)(IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.tanh(there)))))
    targets = {1: CPU, 3: OTHER}
    return LowerTE(CPU)(relay.transform.LabelOps()(ForEachDevice(targets, [FuseOps()])(mod)))


def test_a_lowered_module_tells_its_devices() -> None:
    mod = lowered_module()
    text = str(mod)
    assert "device_copy(%0, src_dev_type=3, dst_dev_type=1)" in text and "param_device_types=[3]" in text
    assert {f.attrs["target"] for f in mod.functions.values() if isinstance(f, tvm.tir.PrimFunc)} == {CPU, OTHER}


def test_a_lowered_module_is_checked_for_devices() -> None:
    mod = lowered_module()
    main = mod["main"]
    wrong = mod.copy()
    wrong["main"] = main.with_attr("result_device_type", 3)
    with pytest.raises(TilewrightError, match=r"copied to cpu \(1\) is used on cuda_host \(3\)"):
        verify_lowered(wrong)
    wrong = mod.copy()
    wrong["main"] = main.with_attr("param_device_types", [1])
    with pytest.raises(TilewrightError, match="a value is used on two devices, 3 and 1"):
        verify_lowered(wrong)
    x = relay.var("x", shape=(4, 16))
    both = FuseOps(0)(PlanDevices(1)(IRModule.from_expr(relay.Function([x], relay.exp(relay.tanh(x))))))
    with pytest.raises(TilewrightError, match=r"kernels on cpu \(1\) have two targets"):
        LowerTE(CPU)(_for_two_targets(both))


def _for_two_targets(mod: IRModule) -> IRModule:
    targets = iter([str(CPU), str(OTHER)])
    changed = relay.transform.common.map_primitives(mod["main"], lambda f: f.with_attr("target", next(targets)))
    return relay.transform.InferType()(IRModule.from_expr(changed))


def test_graph_executor_codegen_takes_targets_by_device() -> None:
    x = relay.var("x", shape=(4, 16))
    there = relay.annotation.on_device(relay.nn.softmax(x), 3)
    mod = FuseOps()(PlanDevices(1)(IRModule.from_expr(relay.Function([x], relay.tanh(there)))))
    graph, lowered, _ = GraphExecutorCodegen(None, TARGETS).codegen(mod["main"])
    assert set(lowered) == {CPU, OTHER}
    check_storage(json.loads(graph))


def test_optimize_gives_a_module_with_copies() -> None:
    mod, _ = three_convolutions(3)
    found, _ = relay.optimize(mod, TARGETS, fuse=False)
    assert str(found).count("device_copy(") == 2 and "on_device(" not in str(found)
