"""``tilewright.compile`` and ``tilewright.load``: models that are called with arrays, whichever executor runs them."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright import nd, relay
from tilewright.relay.frontend.onnx.context import OnnxImportError
from tilewright.runtime.error import TVMError

SHAPES = {"graph": [2, 4], "virtual machine": ["n", 4]}
WEIGHT = np.random.default_rng(0).standard_normal((4, 3)).astype("float32")


def proto(rows: int | str) -> onnx.ModelProto:
    """``total`` is the sum of ``product = x @ w`` and ``b``; both are outputs."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="matmul"),
        helper.make_node("Add", ["product", "b"], ["total"], name="add"),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 4]),
        helper.make_tensor_value_info("b", TensorProto.FLOAT, [3]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 3]) for name in ("product", "total")]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(WEIGHT, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module", params=SHAPES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def library(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.so"
    tw.compile(proto(SHAPES[kind][0]), dims={"n": (1, 8)} if kind != "graph" else None).save(path)
    return path


@pytest.fixture(scope="module")
def model(library: Path) -> tw.Model:
    return tw.load(library)


X = np.arange(8, dtype="float32").reshape(2, 4)
B = np.array([1, 2, 3], "float32")


def test_a_model_describes_itself(model: tw.Model, kind: str) -> None:
    rows = SHAPES[kind][0]
    assert {name: (info.shape, info.dtype) for name, info in model.inputs.items()} == {
        "x": ((rows, 4), "float32"),
        "b": ((3,), "float32"),
    }
    assert {name: info.shape for name, info in model.outputs.items()} == {"product": (rows, 3), "total": (rows, 3)}
    assert model.dimensions == ({} if kind == "graph" else {"n": (1, 8, 1)})
    assert kind in model.report() and f"({rows}, 4)" in model.report()


def test_the_answers_are_those_of_onnx_runtime(model: tw.Model, kind: str) -> None:
    session = onnxruntime.InferenceSession(proto(SHAPES[kind][0]).SerializeToString())
    expected = session.run(None, {"x": X, "b": B})
    for got in (model(X, B), model(X, b=B), model(b=B, x=X), tuple(model.run({"b": B, "x": X}).values())):
        assert isinstance(got, tuple)
        for mine, theirs in zip(got, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    assert list(model.run({"b": B, "x": X})) == ["product", "total"]


def test_results_belong_to_the_caller(model: tw.Model) -> None:
    first = model(X, B)
    kept = [array.copy() for array in first]
    first[0][:] = 7
    second = model(X, B)
    model(2 * X, B)
    for mine, expected in zip(second, kept, strict=True):
        np.testing.assert_array_equal(mine, expected)


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy, nd.array, np.ndarray.tolist, np.float64])
def test_what_holds_numbers_is_an_input(model: tw.Model, make: object) -> None:
    (product, total) = model(make(X), make(B))  # type: ignore[operator]
    assert isinstance(product, torch.Tensor if make is torch.from_numpy else np.ndarray)
    np.testing.assert_allclose(np.asarray(total), X @ WEIGHT + B, rtol=1e-5)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "no value is given for the inputs: x (float32 of shape ("),
        ((X, B, B), "the model takes 2 inputs (x, b), not 3"),
        ((X[:, :3], B), "the input 'x' takes float32 of shape ("),
        ((X, nd.array(B.astype("float64"))), "'b' takes float32 of shape (3,); a value has the data type float64"),
        ((X, ["one", "two", "three"]), "is no array of real numbers"),
    ],
)  # fmt: skip
def test_a_wrong_input_is_one_clear_error(model: tw.Model, args: tuple[object, ...], words: str) -> None:
    with pytest.raises(TVMError) as caught:
        model(*args)
    assert words in str(caught.value)
    model(X, B)


def test_names_of_no_input_and_two_values_are_refused(model: tw.Model) -> None:
    with pytest.raises(TVMError, match=r"no input 'y'; its inputs are: x, b"):
        model(X, B, y=X)
    with pytest.raises(TVMError, match=r"the input 'x' has two values"):
        model(X, B, x=X)
    with pytest.raises(TypeError, match="run takes a mapping"):
        model.run(X)


def test_a_number_out_of_a_dimensions_limits_is_refused(model: tw.Model, kind: str) -> None:
    with pytest.raises(TVMError, match=r"n is 9|takes float32 of shape \(2, 4\)"):
        model(np.zeros((9, 4), "float32"), B)


def test_threads_share_a_model(model: tw.Model) -> None:
    def run(i: int) -> bool:
        return all(np.allclose(model(X * i, B)[0], X @ WEIGHT * i, rtol=1e-4) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(8)))


def test_a_run_in_the_background(model: tw.Model) -> None:
    waiting = [model.run_async(X * i, b=B) for i in range(6)]
    for i, future in enumerate(waiting):
        np.testing.assert_allclose(future.result()[1], X @ WEIGHT * i + B, rtol=1e-4, atol=1e-5)
    with pytest.raises(TVMError, match="no value"):
        model.run_async(X).result()


def test_a_profile_names_kernels(model: tw.Model) -> None:
    report = model.profile(X, B)
    assert any("dense" in str(call["Name"]) or "matmul" in str(call["Name"]) for call in report.calls)
    assert all(call["Duration (us)"] >= 0 for call in report.calls)


def test_a_model_is_not_pickled(model: tw.Model) -> None:
    with pytest.raises(TypeError, match=r"model\.save\(path\)"):
        pickle.dumps(model)


def test_loading_needs_no_compiler(library: Path) -> None:
    program = (
        "import sys, numpy as np\nfrom tilewright.runtime.model import load\n"
        f"print(load({str(library)!r})(np.ones((2, 4)), np.zeros(3))[0].shape)\n"
        "print([m for m in ('onnx', 'llvmlite', 'tilewright.relay', 'tilewright.tir') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "(2, 3)\n[]\n"


@pytest.mark.parametrize("data", [b"", b"abc"])
def test_bytes_that_are_no_model_are_told(data: bytes) -> None:
    with pytest.raises(OnnxImportError, match=f"{len(data)} bytes: not an ONNX model, or cut short"):
        tw.compile(data)


def test_bytes_and_paths_are_compiled(tmp_path: Path) -> None:
    onnx.save(proto(2), tmp_path / "model.onnx")
    for given in (str(tmp_path / "model.onnx"), tmp_path / "model.onnx", proto(2).SerializeToString()):
        np.testing.assert_allclose(tw.compile(given, opt_level=1)(X, B)[0], X @ WEIGHT, rtol=1e-5)


@pytest.mark.parametrize("executor", ["graph", "vm"])
def test_a_relay_module_is_compiled(executor: str) -> None:
    x, w = relay.var("x", shape=(2, 4)), relay.var("w", shape=(3, 4))
    func = relay.Function([x, w], relay.Tuple([relay.nn.dense(x, w), relay.exp(x)]))
    model = tw.compile(tw.IRModule.from_expr(func), params={"w": WEIGHT.T}, executor=executor)
    assert list(model.inputs) == ["x"] and list(model.outputs) == ["output_0", "output_1"]
    np.testing.assert_allclose(model(X)[0], X @ WEIGHT, rtol=1e-5)
    with pytest.raises(TypeError, match="states its shapes"):
        tw.compile(tw.IRModule.from_expr(func), dims={"n": 2})


@pytest.mark.parametrize("executor", ["graph", "vm"])
@pytest.mark.parametrize("make", [nd.array, torch.from_numpy, np.array], ids=["NDArray", "torch", "numpy"])
def test_results_share_memory_with_no_input_and_no_other_result(executor: str, make: Callable[..., Any]) -> None:
    x = relay.var("x", shape=(2, 4))
    flat = relay.reshape(x, (8,))
    func = relay.Function([x], relay.Tuple([x, flat, relay.reshape(flat, (4, 2)), x, relay.exp(x)]))
    model = tw.compile(tw.IRModule.from_expr(func), executor=executor)
    given = make(X)
    results = model(given)
    for i, result in enumerate(results):
        result[...] = i
    assert [result.reshape(-1)[0] for result in results] == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(given.numpy() if hasattr(given, "numpy") else given, X)


def test_models_of_one_file_share_its_module_until_the_file_is_another(library: Path, tmp_path: Path) -> None:
    copied = tmp_path / "model.so"
    copied.write_bytes(library.read_bytes())
    first, second = tw.load(copied), tw.load(copied)
    assert first.module is second.module
    (tmp_path / "new.so").write_bytes(library.read_bytes())
    (tmp_path / "new.so").replace(copied)
    third = tw.load(copied)
    assert third.module is not first.module
    for model in (first, second, third):
        np.testing.assert_array_equal(model(X, B)[0], X @ WEIGHT)
    kept = weakref.ref(first.module)
    del first, second, model
    gc.collect()
    assert kept() is None and third.module is not None


def test_a_file_that_is_no_library_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TVMError, match="there is no such file"):
        tw.load(tmp_path / "absent.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(TVMError, match=r"text\.so"):
        tw.load(tmp_path / "text.so")
