"""The Rust crate: its own tests run a network that is compiled here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tvm
from tilewright import relay
from tilewright.runtime._ffi import find_library

ROOT = Path(__file__).resolve().parents[2]
CRATE = ROOT / "bindings" / "rust"

pytestmark = [  # compilers of half a gigabyte, which continuous integration does not install
    pytest.mark.full,
    pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed"),
]


def network() -> onnx.ModelProto:
    """A convolution, its activations' mean and a dense layer, of any number of pictures."""
    rng = np.random.default_rng(0)
    weights = {"w": (4, 3, 3, 3), "v": (4, 10), "b": (10,)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "v", "b"], ["y"]),
    ]
    values = [numpy_helper.from_array(rng.random(shape, "float32"), name) for name, shape in weights.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y], values))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the network's library, an input, and the output that Python gets."""
    folder = tmp_path_factory.mktemp("model")
    module, params = relay.frontend.from_onnx(network())
    executable = relay.vm.compile(module, "llvm", params=params)
    executable.mod.export_library(folder / "model.so")
    x = np.random.default_rng(1).random((2, 3, 8, 8), "float32")
    y = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).run(x).numpy()
    (folder / "x.f32").write_bytes(x.tobytes())
    (folder / "y.f32").write_bytes(y.tobytes())
    return folder


@pytest.mark.parametrize("static", ["0", "1"])
def test_the_crates_own_tests_pass(recorded: Path, resnet: Path, static: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TILEWRIGHT_TEST_MODEL": str(recorded),
        "TILEWRIGHT_TEST_RESNET": str(resnet),
        "TILEWRIGHT_LIB_DIR": str(find_library().parent),
        "TILEWRIGHT_STATIC": static,
        "CARGO_TARGET_DIR": str(tmp_path),
    }
    command = ["cargo", "test", "--quiet", "--offline", "--manifest-path", CRATE / "Cargo.toml"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test result: ok. 5 passed" in done.stdout
    assert "warning" not in done.stderr
