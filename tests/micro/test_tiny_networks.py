"""MLPerf Tiny's networks in plain C: the host library's answers to the bit, on integers, in little memory."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.micro.test_boards import board_here
from tests.micro.tiny_networks import NETWORKS
from tests.relay.frontend.tflite_networks import MobileNet
from tests.tiers import full

import tilewright as tvm
from tilewright import relay
from tilewright.contrib.graph_executor import GraphModule
from tilewright.micro import BundleExample, export_bundle

WORKSPACE = {"autoencoder": 1200, "resnet8": 66000, "ds_cnn": 17500, "mobilenet": 65000}
STRICT = "-O2 -std=c99 -Wall -Wextra -Werror -pedantic"


def answers(mod: tvm.IRModule, params: Any, data: np.ndarray) -> np.ndarray:
    """The host library's."""
    with tvm.transform.PassContext(opt_level=3):
        module = GraphModule(relay.build(mod, "llvm", params=params)["default"](tvm.cpu()))
    module.set_input(0, data)
    module.run()
    result: np.ndarray = module.get_output(0).numpy()
    return result


def in_c(mod: tvm.IRModule, params: Any) -> Any:
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(mod, "c -runtime=c", params=params, executor="aot", mod_name="net")


def check(folder: Path, factory: Any, name: str, data: np.ndarray, wanted: np.ndarray) -> None:
    """Build the bundle with every warning an error, and run it."""
    export_bundle(factory, folder, "net", BundleExample({name: data}, [wanted]))
    command = ["make", "-s", f"CFLAGS={STRICT}", "test"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "as recorded" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_the_answers_of_the_host(tmp_path: Path, name: str) -> None:
    network = NETWORKS[name]()
    data = network.data()
    mod, params = relay.frontend.from_onnx(network.model())
    wanted = answers(mod, params, data)
    assert len(np.unique(wanted)) > 1
    factory = in_c(mod, params)
    assert factory.layout.workspace_bytes <= WORKSPACE[name]
    check(tmp_path, factory, "input", data, wanted)


@pytest.mark.parametrize(
    "name, board", [("autoencoder", "qemu_riscv32"), ("autoencoder", "mps3_an547"), ("ds_cnn", "mps2_an386")]
)
def test_boards_have_the_answers_of_the_host(tmp_path: Path, name: str, board: str) -> None:
    network, target = NETWORKS[name](), board_here(board).target
    data = network.data()
    mod, params = relay.frontend.from_onnx(network.model())
    with tvm.transform.PassContext(opt_level=3):
        factory = relay.build(mod, target, params=params, mod_name="net")
    check(tmp_path, factory, "input", data, answers(mod, params, data))


def q_operators() -> onnx.ModelProto:
    """Convolutions, a sum and a matrix product in ONNX's QOperator form, of uint8."""
    rng = np.random.default_rng(0)
    held = {
        "s": np.float32(0.04), "z": np.uint8(131), "ws": rng.uniform(0.002, 0.01, 6).astype("float32"),
        "wz": np.zeros(6, "int8"), "w": rng.integers(-128, 128, (6, 3, 3, 3), "int8"),
        "d": rng.integers(-128, 128, (6, 1, 3, 3), "int8"), "b": rng.integers(-900, 900, 6, "int32"),
        "shape": np.int64([1, 150]), "m": rng.integers(-128, 128, (150, 4), "int8"), "ms": np.float32(0.004),
        "mz": np.int8(0),
    }  # fmt: skip
    nodes = [
        helper.make_node("QLinearConv", ["x", "s", "z", "w", "ws", "wz", "s", "z", "b"], ["y"], pads=[1, 1, 0, 0]),
        helper.make_node("QLinearConv", ["y", "s", "z", "d", "ws", "wz", "s", "z", "b"], ["v"], group=6, pads=[1] * 4),
        helper.make_node("QLinearAdd", ["y", "s", "z", "v", "s", "z", "s", "z"], ["t"], domain="com.microsoft"),
        helper.make_node("Reshape", ["t", "shape"], ["r"]),
        helper.make_node("QLinearMatMul", ["r", "s", "z", "m", "ms", "mz", "s", "z"], ["out"]),
    ]
    ends = [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 3, 6, 6])]
    ends += [helper.make_tensor_value_info("out", TensorProto.UINT8, [1, 4])]
    constants = [numpy_helper.from_array(np.asarray(v), k) for k, v in held.items()]
    graph = helper.make_graph(nodes, "q", ends[:1], ends[1:], constants)
    versions = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=8)


def test_q_operators_have_the_answers_of_the_host(tmp_path: Path) -> None:
    mod, params = relay.frontend.from_onnx(q_operators())
    data = np.random.default_rng(1).integers(0, 256, (1, 3, 6, 6), "uint8")
    check(tmp_path, in_c(mod, params), "x", data, answers(mod, params, data))
    text = (tmp_path / "net.c").read_text()
    assert "tw_conv2d_uint8" in text and "tw_depthwise_uint8" in text and "float*" not in text


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_tflite_network_has_the_answers_of_the_host(tmp_path: Path, dtype: str) -> None:
    network = MobileNet(dtype, 16, 8, 2)
    mod, params = relay.frontend.from_tflite(network.file.data)
    data = network.data()
    check(tmp_path, in_c(mod, params), "t0", data, answers(mod, params, data))


@pytest.mark.parametrize("name, most", [("resnet8", 20000), *full(("mobilenet", 27000), several=True)])
def test_bands_of_rows_halve_the_memory(name: str, most: int) -> None:
    mod, params = relay.frontend.from_onnx(NETWORKS[name]().model())
    factory = relay.build(mod, f"c -runtime=c -workspace-pools=sram:{most}", params=params, executor="aot")
    assert factory.layout.workspace_bytes <= most
