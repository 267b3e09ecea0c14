"""Weights in a model's file or beside it: they are read once, to where they stay."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.tiers import full

import tilewright as tvm
from tilewright import relay
from tilewright.relay.frontend.onnx.context import OnnxImportError
from tilewright.relay.frontend.onnx.loading import load_model, open_model

ARRAYS = {
    "large": np.arange(40 * 50, dtype="float32").reshape(40, 50),
    "whole": np.arange(3000, dtype="int64"),
    "half": np.arange(2000).astype(ml_dtypes.bfloat16),
    "flags": np.arange(1500) % 3 == 0,
    "small": np.arange(5, dtype="float32"),
    "none": np.zeros((0, 3), "float32"),
}


def save(folder: Path, arrays: dict[str, np.ndarray] = ARRAYS) -> Path:
    """A model that gives its weights, which lie in a file beside it."""
    initializers = [numpy_helper.from_array(a, name) for name, a in arrays.items()]
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in arrays]
    outputs = [helper.make_tensor_value_info(f"{t.name}_out", t.data_type, t.dims) for t in initializers]
    graph = helper.make_graph(nodes, "weights", [], outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save_model(model, folder / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    return folder / "model.onnx"


def test_large_weights_stay_in_their_files_until_they_are_read(tmp_path: Path) -> None:
    model = open_model(save(tmp_path))
    assert sorted(model.weights) == ["flags", "half", "large", "whole"]
    _, params = relay.frontend.from_onnx(model)
    _, expected = relay.frontend.from_onnx(onnx.load(tmp_path / "model.onnx"))
    assert params.keys() == expected.keys()
    for name, array in params.items():
        np.testing.assert_array_equal(array.numpy(), ARRAYS[name])
        assert array.dtype == expected[name].dtype and array.shape == expected[name].shape


def test_a_loaded_model_holds_its_weights(tmp_path: Path) -> None:
    model = load_model(save(tmp_path))
    for tensor in model.graph.initializer:
        assert tensor.data_location == TensorProto.DEFAULT and not tensor.external_data
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), ARRAYS[tensor.name])


def test_a_weight_of_another_size_than_its_shape_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path)
    model = onnx.load(path, load_external_data=False)
    tensor = next(t for t in model.graph.initializer if t.name == "large")
    tensor.dims[0] = 39
    path.write_bytes(model.SerializeToString())
    with pytest.raises(OnnxImportError, match=r"'large'.* its data has 8000 bytes, and its shape takes 7800"):
        relay.frontend.from_onnx(path)


def test_a_file_that_became_shorter_is_noticed(tmp_path: Path) -> None:
    model = open_model(save(tmp_path))
    (tmp_path / "weights.bin").write_bytes(b"")
    with pytest.raises(OnnxImportError, match=r"initializer 'large'.* weights\.bin has become shorter"):
        relay.frontend.from_onnx(model)


def save_inside(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    """The same model with its weights in its own file."""
    path = folder / "inside.onnx"
    onnx.save_model(onnx.load(save(folder, arrays)), path)
    return path


LARGE = {
    **ARRAYS,
    "large": np.arange(200 * 100, dtype="float32").reshape(200, 100),
    "bytes": np.arange(70_000) % 7 == 0,
}


def test_large_weights_inside_the_model_are_read_like_those_beside_it(tmp_path: Path) -> None:
    path = save_inside(tmp_path, LARGE)
    assert sorted(open_model(path).weights) == ["bytes", "large"]
    _, params = relay.frontend.from_onnx(path)
    assert params.keys() == relay.frontend.from_onnx(onnx.load(path))[1].keys()
    for name, array in params.items():
        np.testing.assert_array_equal(array.numpy(), LARGE[name])
    for tensor in load_model(path).graph.initializer:
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), LARGE[tensor.name])


def test_a_model_that_is_a_link_has_its_weights(tmp_path: Path) -> None:
    path = save_inside(tmp_path, LARGE)
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "model.onnx"
    link.symlink_to(path)
    _, params = relay.frontend.from_onnx(link)
    np.testing.assert_array_equal(params["large"].numpy(), LARGE["large"])


def test_a_model_with_weights_inside_that_is_damaged_is_refused_or_whole(tmp_path: Path) -> None:
    path = save_inside(tmp_path, LARGE)
    data, rng = path.read_bytes(), np.random.default_rng(0)
    for end in (*range(40), *rng.integers(0, len(data), 40)):
        path.write_bytes(data[:end])
        with pytest.raises(OnnxImportError):
            relay.frontend.from_onnx(path)
    for at in (*range(200), *rng.integers(0, len(data), 40)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with contextlib.suppress(tvm.TVMError):
            relay.frontend.from_onnx(path)


MEASURE = """
import resource, sys
import numpy as np
from tilewright import relay
import tilewright as tvm

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

x = relay.var("x", shape=(1, 8))
relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.exp(x))), "llvm")
before = peak()
mod, params = relay.frontend.from_onnx(sys.argv[1])
with tvm.transform.PassContext(opt_level=3):
    lib = relay.build(mod, "llvm", params=params)
lib.export_library(sys.argv[2])
print(peak() - before)
"""


@pytest.mark.parametrize("inside", [False, *full(True)])
def test_compiling_takes_two_copies_of_the_weights_in_memory(tmp_path: Path, inside: bool) -> None:
    """Those that the caller holds, and those that are packed; matrices that ONNX has transposed are no third."""
    extent, layers = 2048, 8
    rng = np.random.default_rng(0)
    weights = [rng.random((extent, extent), "float32") for _ in range(layers)]
    names = [f"h{i}" for i in range(layers + 1)]
    nodes = [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(layers)]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, extent]) for n in (names[0], names[-1])]
    initializers = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=not inside, location="m.bin")
    command = [sys.executable, "-c", MEASURE, tmp_path / "m.onnx", tmp_path / "m.so"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2.3 * sum(w.nbytes for w in weights) + (32 << 20)
