"""MLPerf Tiny's networks in plain C: the host library's answers to the bit, on integers, in little memory."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.micro.test_boards import board_here
from tests.micro.tiny_networks import NETWORKS
from tests.relay.frontend.tflite_networks import MobileNet

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


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_tflite_network_has_the_answers_of_the_host(tmp_path: Path, dtype: str) -> None:
    network = MobileNet(dtype, 16, 8, 2)
    mod, params = relay.frontend.from_tflite(network.file.data)
    data = network.data()
    check(tmp_path, in_c(mod, params), "t0", data, answers(mod, params, data))
