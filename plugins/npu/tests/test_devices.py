"""Networks on the CPU and the NPUs together: copies, executors with a model's name, two devices, faults."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.testing import zoo
from tilewright.testing.quantized import quantized
from tilewright_npu import chip, executor
from tilewright_npu.module import NpuModule
from tilewright_npu.patterns import partition_for_npu

TARGETS = {"cpu": "llvm", "npu": "npu"}


def build(name: str, kind: str = "int8", **partition: Any) -> tuple[Any, dict[str, Any], Any]:
    """A library for CPU and NPU, inputs, and the CPU's answer."""
    options = zoo.small_options(name)
    path = zoo.export(name, **options) if kind == "float32" else quantized(name, kind, **options)
    (mod, params), inputs = relay.frontend.from_onnx(onnx.load(path)), zoo.reference(path)[0]
    alone = graph_executor.GraphModule(relay.build(mod, "llvm", params=params)["default"](tvm.cpu()))
    alone.run(**inputs)
    part = partition_for_npu(mod, params, on_device=True, **partition)
    return relay.build(part, TARGETS), inputs, alone.get_output(0).numpy()


@pytest.fixture(autouse=True)
def devices_as_they_were() -> Iterator[None]:
    yield
    for device in (0, 1):
        chip.reset(device)


@pytest.fixture(scope="module")
def resnet() -> tuple[Any, dict[str, Any], Any]:
    return build("resnet18")


def test_values_are_copied_between_cpu_and_npu(resnet: tuple[Any, dict[str, Any], Any]) -> None:
    lib, inputs, expected = resnet
    graph = json.loads(lib.get_graph_json())
    assert {*graph["attrs"]["device_index"][1]} == {1, 90}
    assert any(node["attrs"]["func_name"] == "__copy" for node in graph["nodes"] if node["op"] == "tvm_op")
    found = graph_executor.GraphModule(lib["default"](tvm.cpu(), tvm.device("npu")))
    found.run(**inputs)
    np.testing.assert_array_equal(found.get_output(0).numpy(), expected)


def test_two_threads_run_on_two_devices(resnet: tuple[Any, dict[str, Any], Any]) -> None:
    lib, inputs, expected = resnet
    answers: dict[int, Any] = {}

    def work(device: int) -> None:
        made = graph_executor.GraphModule(lib["default"](tvm.cpu(), tvm.device("npu", device)))
        for _ in range(5):
            made.run(**inputs)
        answers[device] = made.get_output(0).numpy()

    threads = [threading.Thread(target=work, args=(device,)) for device in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for device in (0, 1):
        np.testing.assert_array_equal(answers[device], expected)


def test_an_executor_is_created_with_a_models_name_and_tells_addresses() -> None:
    lib, inputs, expected = build("resnet18", "float32")
    named = executor.create(lib, "classifier", device=1)
    named.run(**inputs)
    found = named.get_output(0).numpy()
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
    (name,) = inputs
    address, size = named.get_memory_address(name), inputs[name].nbytes
    with chip.Context(1) as context:  # a program of the vendor's that brings the picture by itself
        whole = np.zeros_like(inputs[name])
        chip.call("npu_write", context.handle, address, whole.ctypes.data, size, None)
    named.run()
    assert np.abs(named.get_output(0).numpy() - found).max() > 1e-3
    assert named.get_memory_address(0, output=True) != address


def test_addresses_of_what_is_on_the_host_are_refused(resnet: tuple[Any, dict[str, Any], Any]) -> None:
    lib, inputs, _ = resnet
    with pytest.raises(ValueError, match="lies on cpu"):
        executor.create(lib, "net").get_memory_address(next(iter(inputs)))
    with pytest.raises(ValueError, match="without a slash"):
        executor.create(lib, "a/b")


def test_a_target_says_how_much_memory_there_is() -> None:
    target = tvm.target.Target("npu -sram=131072")
    assert (target.attrs["sram"], target.attrs["ddr"]) == (131072, 1 << 28)
    lib, inputs, expected = build("resnet18", target="npu -sram=131072")
    assert "131072 bytes of SRAM" in next(executor.npu_modules(lib.lib)).get_source("txt")
    made = executor.create(lib, "small")
    made.run(**inputs)
    np.testing.assert_array_equal(made.get_output(0).numpy(), expected)


@pytest.mark.parametrize(("text", "message"), [("npu -sram=2097152", "the chip has 1048576 bytes of SRAM"),
                                               ("npu -ddr=0", "-ddr up to that")])  # fmt: skip
def test_memory_that_the_chip_lacks_is_refused(text: str, message: str) -> None:
    x = relay.var("x", shape=(4, 32))
    layer = relay.Function([x], relay.nn.dense(x, relay.const(np.ones((16, 32), "float32"))))
    with pytest.raises(tvm.TVMError, match=message):
        relay.build(partition_for_npu(tvm.IRModule.from_expr(layer), {}, on_device=True, target=text), TARGETS)


# ---- failures ----
def held() -> tuple[int, ...]:
    gc.collect()
    counts = chip.held()
    return tuple(getattr(counts, name) for name, *_ in counts._fields_)


FAULTS = [(chip.Fault.GONE, 3, "gone"), (chip.Fault.BUSY, 1, "busy"), (chip.Fault.FLIP, 2, "command 2")]


@pytest.mark.parametrize(("fault", "when", "message"), FAULTS)
def test_what_fails_on_the_device_is_an_error_and_the_next_run_is_right(
    fault: chip.Fault, when: int, message: str, resnet: tuple[Any, dict[str, Any], Any]
) -> None:
    lib, inputs, expected = resnet
    made = executor.create(lib, "net")
    made.run(**inputs)
    chip.inject(0, fault, when)
    with pytest.raises(tvm.TVMError, match=message):
        made.run(**inputs)
    chip.reset(0)
    del made
    again = executor.create(lib, "net")
    again.run(**inputs)
    np.testing.assert_array_equal(again.get_output(0).numpy(), expected)


def test_a_launch_that_never_ends_is_stopped() -> None:
    encoded = _program()
    before = held()
    module = NpuModule([encoded])
    loaded = module.loaded(0, next(iter(module.programs)))
    loaded.context.set_timeout(50)
    chip.inject(0, chip.Fault.HANG)
    with pytest.raises(chip.NpuError) as raised:
        loaded.model.launch(*(loaded.buffer(i) for i in range(len(loaded.regions))))
    assert raised.value.status == chip.Status.TIMEOUT
    chip.reset(0)
    module.close()
    assert held() == before


def _program() -> bytes:
    from tilewright_npu.codegen.generate import generate

    x = relay.var("x", shape=(1, 16, 4, 4))
    part = partition_for_npu(tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x))))
    (name,) = (var.name_hint for var in part.functions if var.name_hint != "main")
    return generate(part[name], name).encode()


def test_a_program_of_another_version_is_refused_and_nothing_leaks() -> None:
    before = held()
    module = NpuModule([_program()])
    (name,) = module.programs
    data = bytearray(module.encoded[name])
    data[4] += 1
    module.encoded[name] = bytes(data)
    with pytest.raises(chip.NpuError) as raised:
        module.load_all(0)
    assert raised.value.status == chip.Status.VERSION
    module.close()
    assert held() == before


def test_a_full_ddr_stops_the_making_of_an_executor(resnet: tuple[Any, dict[str, Any], Any]) -> None:
    lib, inputs, expected = build("resnet18")
    before = held()
    with chip.Context(0) as context:
        free = int(chip.device_info(0).ddr_free)
        context.alloc(free - 4096)
        with pytest.raises(chip.NpuError, match="DDR"):
            executor.create(lib, "net")
        with pytest.raises(tvm.TVMError, match="DDR"):
            lib["default"](tvm.cpu(), tvm.device("npu"))
    assert held() == before
    made = executor.create(lib, "net")
    made.run(**inputs)
    np.testing.assert_array_equal(made.get_output(0).numpy(), expected)


def test_a_library_says_what_to_install_where_the_package_is_absent(
    resnet: tuple[Any, dict[str, Any], Any], tmp_path: Path
) -> None:
    lib, _, _ = resnet
    path = tmp_path / "net.so"
    lib.export_library(path)
    code = (
        "import importlib.metadata as m; m.entry_points = lambda **_: []\n"  # as where nothing is installed
        f"import tilewright as tvm; tvm.runtime.load_module({str(path)!r})"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert "npu" in result.stderr and "install" in result.stderr


def test_every_function_of_a_library_is_on_the_device_once_an_executor_is_made() -> None:
    x = relay.var("x", shape=(1, 16, 4, 4))
    func = relay.Function([x], relay.nn.relu(relay.nn.softmax(relay.nn.relu(x), axis=1)))
    lib = relay.build(partition_for_npu(tvm.IRModule.from_expr(func), on_device=True), TARGETS)
    before = chip.held().models
    made = graph_executor.GraphModule(lib["default"](tvm.cpu(), tvm.device("npu")))
    assert chip.held().models == before + 2
    made.run(x=np.ones((1, 16, 4, 4), "float32"))
    np.testing.assert_allclose(made.get_output(0).numpy(), 1 / 16, rtol=1e-5)
