"""Networks on a GPU: all executors, several devices, libraries, RPC. The oracle is numpy."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.gpu import GPU, GPU_KIND, GPU_TARGET, need_gpu
from tests.runtime.kernels import ROOT

import tilewright as tvm
from tilewright import relay, rpc, te
from tilewright.contrib import graph_executor
from tilewright.contrib.debugger import debug_executor
from tilewright.ir.prim_expr import DimVar
from tilewright.relay.op.annotation import on_device

CPU = tvm.cpu()
WEIGHT = np.random.default_rng(0).standard_normal((8, 16)).astype("float32")
DATA = np.random.default_rng(1).standard_normal((4, 16)).astype("float32")
EXPECTED = np.maximum(np.tanh(DATA) @ WEIGHT.T, 0) + 1


@pytest.fixture(autouse=True, scope="module")
def gpu_is_here() -> None:
    need_gpu()


def network(place: Any = lambda value, device: value) -> tvm.IRModule:
    """x -> relu(tanh(x) W^T) + 1; ``place`` marks where a value is computed."""
    x = relay.var("x", shape=(4, 16))
    scores = relay.nn.relu(relay.nn.dense(place(relay.tanh(x), "cpu"), relay.const(WEIGHT)))
    return tvm.IRModule.from_expr(relay.Function([x], relay.add(place(scores, GPU_KIND), relay.const(1.0))))


@pytest.fixture(scope="module")
def built() -> Any:
    return relay.build(network(), GPU_TARGET)


@pytest.fixture(scope="module")
def mixed() -> Any:
    return relay.build(network(on_device), {"cpu": "llvm", GPU_KIND: GPU_TARGET})


def check(executor: Any) -> None:
    executor.run(x=DATA)
    np.testing.assert_allclose(executor.get_output(0).numpy(), EXPECTED, rtol=1e-5, atol=1e-5)


def test_a_network_runs_where_its_kernels_do(built: Any) -> None:
    executor = graph_executor.GraphModule(built["default"](GPU))
    check(executor)
    assert executor.get_output(0).device == GPU
    assert executor.benchmark(GPU, number=2, repeat=2).mean > 0
    keys = [module.type_key for module in built.get_lib().imported_modules]
    assert GPU_KIND in keys


def test_parts_run_on_their_devices_and_tensors_are_copied(mixed: Any) -> None:
    executor = graph_executor.GraphModule(mixed["default"](CPU, GPU))
    check(executor)
    assert executor.get_output(0).device == CPU


def test_a_library_loads_with_its_kernels(built: Any, mixed: Any, tmp_path: Path) -> None:
    for name, lib, devices in (("one", built, [GPU]), ("two", mixed, [CPU, GPU])):
        path = tmp_path / f"{name}.so"
        lib.export_library(str(path))
        check(graph_executor.GraphModule(tvm.runtime.load_module(str(path))["default"](*devices)))


def test_a_library_that_is_loaded_twice_outlives_either(built: Any, tmp_path: Path) -> None:
    """Compiled code remembers the kernels that it was given first."""
    path = tmp_path / "twice.so"
    built.export_library(str(path))
    executor = graph_executor.GraphModule(tvm.runtime.load_module(str(path))["default"](GPU))
    check(executor)
    second = graph_executor.GraphModule(tvm.runtime.load_module(str(path))["default"](GPU))
    del executor
    check(second)


def test_each_operator_is_timed_on_its_device(mixed: Any) -> None:
    executor = debug_executor.create(mixed.get_graph_json(), mixed.get_lib(), [CPU, GPU])
    for name, value in mixed.get_params().items():
        executor.set_input(name, value)
    check(executor)
    assert {"__copy", "__copy1"} <= set(executor.debug_datum.get_debug_result().split())


def test_the_virtual_machine_runs_on_the_device() -> None:
    machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(network(), GPU_TARGET), [GPU, CPU])
    np.testing.assert_allclose(machine.invoke("main", DATA).numpy(), EXPECTED, rtol=1e-5, atol=1e-5)


def machine_of(mod: tvm.IRModule, targets: dict[str, str], folder: Path) -> Any:
    """A machine for both devices of a program that was saved and loaded."""
    code, library = relay.vm.compile(mod, targets).save()
    library.export_library(folder / "lib.so")
    loaded = tvm.runtime.vm.Executable.load_exec(code, tvm.runtime.load_module(folder / "lib.so"))
    return tvm.runtime.vm.VirtualMachine(loaded, [GPU, CPU])


def test_the_virtual_machine_runs_on_both_devices(tmp_path: Path) -> None:
    machine = machine_of(network(on_device), {"cpu": "llvm", GPU_KIND: GPU_TARGET}, tmp_path)
    np.testing.assert_allclose(machine.invoke("main", DATA).numpy(), EXPECTED, rtol=1e-5, atol=1e-5)


def test_the_virtual_machine_runs_any_number_of_rows_on_both_devices(tmp_path: Path) -> None:
    x = relay.var("x", relay.TensorType((DimVar("rows", 1, 100), 6), "float32"))
    left, right = relay.split(on_device(relay.exp(x), GPU_KIND), 2, axis=1)
    body = relay.concatenate([relay.tanh(left), on_device(relay.sqrt(right), "cpu")], axis=1)
    machine = machine_of(
        tvm.IRModule.from_expr(relay.Function([x], body)), {"cpu": "llvm", GPU_KIND: GPU_TARGET}, tmp_path
    )
    for rows in (1, 13, 100):
        data = np.random.default_rng(rows).random((rows, 6), "float32")
        expected = np.concatenate([np.tanh(np.exp(data[:, :3])), np.sqrt(np.exp(data[:, 3:]))], axis=1)
        np.testing.assert_allclose(machine.invoke("main", data).numpy(), expected, rtol=1e-5)


def test_values_that_decide_a_shape_are_read_on_the_host() -> None:
    x, shape = relay.var("x", shape=(4, 6)), relay.var("shape", shape=(2,), dtype="int64")
    body = on_device(relay.reshape(relay.exp(x), shape), GPU_KIND)
    exe = relay.vm.compile(
        tvm.IRModule.from_expr(relay.Function([x, shape], body)), {"cpu": "llvm", GPU_KIND: GPU_TARGET}
    )
    data = np.random.default_rng(0).random((4, 6), "float32")
    found = tvm.runtime.vm.VirtualMachine(exe, [GPU, CPU]).invoke("main", data, np.array([8, 3], "int64"))
    np.testing.assert_allclose(found.numpy(), np.exp(data).reshape(8, 3), rtol=1e-5)


def test_the_virtual_machine_does_on_the_cpu_what_a_gpu_does_badly(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    boxes, scores = rng.random((1, 9, 4), "float32"), rng.random((1, 2, 9), "float32")
    boxes[..., 2:] += boxes[..., :2]
    b, s = relay.var("b", shape=(1, 9, 4)), relay.var("s", shape=(1, 2, 9))
    rows = relay.vision.all_class_non_max_suppression(b, s, 3, 0.5, 0.1)[0]
    mod = tvm.IRModule.from_expr(relay.Function([b, s], relay.add(relay.cast(rows, "float32"), relay.const(1.0))))
    expected = relay.create_executor("debug", mod).evaluate()(boxes, scores).numpy()
    machine = machine_of(mod, {"cpu": "llvm", "gpu": GPU_TARGET}, tmp_path)
    np.testing.assert_array_equal(machine.invoke("main", boxes, scores).numpy(), expected)


def test_the_virtual_machine_takes_marks_of_its_own_device() -> None:
    x = relay.var("x", shape=(4, 16))
    mod = tvm.IRModule.from_expr(relay.Function([x], on_device(relay.tanh(x), GPU_KIND)))
    machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(mod, GPU_TARGET), [GPU, CPU])
    np.testing.assert_allclose(machine.invoke("main", DATA).numpy(), np.tanh(DATA), rtol=1e-5)


def test_a_remote_device_is_one_like_others(built: Any, tmp_path: Path) -> None:
    path = tmp_path / "remote.so"
    built.export_library(str(path))
    server = rpc.Server("127.0.0.1")
    try:
        session = rpc.connect("127.0.0.1", server.port)
        session.upload(str(path))
        device = session.device(GPU_KIND, 0)
        assert device.exist and device.device_name == GPU.device_name
        executor = graph_executor.GraphModule(session.load_module("remote.so")["default"](device))
        check(executor)
        assert executor.module.time_evaluator("run", device, number=2)().mean > 0
        for make in (graph_executor.create, debug_executor.create):  # of the graph's text, in the session
            executor = make(built.get_graph_json(), session.load_module("remote.so"), device)
            for name, value in built.get_params().items():
                executor.set_input(name, value)
            check(executor)
    finally:
        server.terminate()


def test_a_c_program_runs_a_network_on_the_device(tmp_path: Path) -> None:
    """The program of docs/gpu.md prints the sum of relu(x W^T) where x is all ones."""
    (program,) = re.findall(r"```c\n(.*?)```", (ROOT / "docs" / "gpu.md").read_text(), re.DOTALL)
    (tmp_path / "program.c").write_text(
        program.replace("kDLOpenCL", {"opencl": "kDLOpenCL", "cuda": "kDLCUDA"}[GPU_KIND])
    )
    x = relay.var("x", shape=(4, 16))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.dense(x, relay.const(WEIGHT)))))
    relay.build(mod, GPU_TARGET).export_library(str(tmp_path / "network.so"))
    native = tvm.runtime.native_dir()
    flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{native / 'include'}",
        f"-L{native}",
        f"-Wl,-rpath,{native}",
    ]
    command = ["gcc", *flags, "program.c", "-ltilewright_runtime", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["./program", "network.so"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert float(done.stdout) == pytest.approx(4 * np.maximum(WEIGHT.sum(axis=1), 0).sum(), rel=1e-4)


@pytest.mark.parametrize(("groups", "inputs", "outputs"), [(4, 6, 28), (2, 8, 17), (3, 5, 1)])
def test_groups_that_tiles_do_not_divide_with_what_follows(groups: int, inputs: int, outputs: int) -> None:
    """28 channels of a group are no multiple of 16: a block of results must end where its group does."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((1, groups * inputs, 7, 9)).astype("float32")
    weight = rng.standard_normal((groups * outputs, inputs, 1, 1)).astype("float32")
    scale = rng.standard_normal((groups * outputs, 1, 1)).astype("float32")
    x = relay.var("x", shape=data.shape)
    convolved = relay.nn.conv2d(x, relay.const(weight), groups=groups, channels=groups * outputs, kernel_size=(1, 1))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.add(convolved, relay.const(scale)))))
    executor = graph_executor.GraphModule(relay.build(mod, GPU_TARGET)["default"](GPU))
    executor.run(x=data)
    parts = weight.reshape(groups, outputs, inputs), data.reshape(groups, inputs, -1)
    want = np.einsum("goi,gip->gop", *parts).reshape(1, groups * outputs, 7, 9)
    np.testing.assert_allclose(executor.get_output(0).numpy(), np.maximum(want + scale, 0), rtol=1e-4, atol=1e-4)


def test_small_temporary_memory_of_a_kernel_is_the_devices() -> None:
    """Two kernels hand 128 numbers on: what the host would keep on its stack is out of their reach."""
    source = te.placeholder((128,), name="source")
    half = te.compute((128,), lambda i: source[i] * 2, name="half")
    out = te.compute((128,), lambda i: half[127 - i] + 1, name="out")
    schedule = te.create_schedule(out.op)
    for stage in (half, out):
        block, thread = schedule[stage].split(stage.op.axis[0], factor=32)
        schedule[stage].bind(block, te.thread_axis("blockIdx.x"))
        schedule[stage].bind(thread, te.thread_axis("threadIdx.x"))
    module = tvm.build(schedule, [source, out], GPU_TARGET)
    assert "TVMBackendAllocWorkspace" in module.get_source()
    values = np.arange(128, dtype="float32")
    result = tvm.nd.empty((128,), device=GPU)
    module(tvm.nd.array(values, GPU), result)
    np.testing.assert_array_equal(result.numpy(), values[::-1] * 2 + 1)


def test_shapes_that_are_not_known_are_computed_on_the_host() -> None:
    x, y = (relay.var(name, shape=(relay.Any(), 3)) for name in "xy")
    mod = tvm.IRModule.from_expr(relay.Function([x, y], relay.tanh(relay.add(x, y))))
    machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(mod, GPU_TARGET), GPU)
    for rows in (1, 5, 64):
        a, b = (np.random.default_rng(rows).random((rows, 3), np.float32) for _ in range(2))
        np.testing.assert_allclose(machine.invoke("main", a, b).numpy(), np.tanh(a + b), rtol=1e-5)


def test_operators_that_a_gpu_does_badly_run_on_the_cpu() -> None:
    boxes = relay.var("boxes", shape=(1, 37, 6))
    counts, valid, indices = relay.vision.get_valid_counts(relay.nn.relu(boxes), 0.2, 0, 1)
    kept = relay.vision.non_max_suppression(valid, counts, indices, -1, 0.4, return_indices=False)
    mod = tvm.IRModule.from_expr(relay.Function([boxes], kept))
    data = np.abs(np.random.default_rng(5).standard_normal((1, 37, 6))).astype("float32")
    results = []
    for target, devices in (("llvm", [CPU]), ({"cpu": "llvm", "gpu": GPU_TARGET}, [CPU, GPU])):
        lib = relay.build(mod, target)
        executor = graph_executor.GraphModule(lib["default"](*devices))
        executor.run(boxes=data)
        results.append(executor.get_output(0))
    assert results[1].device == CPU
    np.testing.assert_allclose(results[1].numpy(), results[0].numpy(), rtol=1e-6)
    kernels = lib.get_lib().imported_modules[0].get_source()
    assert "relu" in kernels and "max_suppression" not in kernels
