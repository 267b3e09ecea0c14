"""``tilewright run``: inputs from files of each kind and standard input, outputs by suffix, models with --compile."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.driver.command import DIGITS, fails, tilewright
from tests.runtime.gpu_sources import need_opencl

X = np.arange(6, dtype="float32").reshape(2, 3)
K = np.array([1, -2, 2**40], "int64")
EXPECTED = {"sum": X + K.astype("float32"), "twice": 2 * K}


@pytest.fixture(scope="session")
def two_inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of x: float32 (2, 3), k: int64 (3,); it gives x + k and 2 * k."""
    folder = tmp_path_factory.mktemp("two")
    nodes = [
        helper.make_node("Cast", ["k"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["sum"]),
        helper.make_node("Add", ["k", "k"], ["twice"]),
    ]
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, [2, 3]), value("k", TensorProto.INT64, [3])]
    outputs = [value("sum", TensorProto.FLOAT, [2, 3]), value("twice", TensorProto.INT64, [3])]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "two.onnx")
    assert tilewright("compile", folder / "two.onnx", "-o", folder / "two.so").returncode == 0
    return folder / "two.so"


def test_a_library_for_a_gpu_runs_on_the_device_that_it_names(two_inputs: Path, tmp_path: Path) -> None:
    need_opencl()
    there = tmp_path / "two.so"
    assert tilewright("compile", two_inputs.with_suffix(".onnx"), "-o", there, "--target", "opencl").returncode == 0
    np.savez(tmp_path / "in.npz", x=X, k=K)
    done = tilewright("run", there, "--inputs", tmp_path / "in.npz", "--json")
    found = json.loads(done.stdout)["outputs"]
    for name, expected in EXPECTED.items():
        np.testing.assert_array_equal(np.asarray(found[name]["values"], expected.dtype), expected)


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def as_json(**values: Any) -> bytes:
    return json.dumps(values).encode()


def results(library: Path, folder: Path, *options: object, given: bytes | None = None) -> dict[str, np.ndarray]:
    """The outputs that the command wrote."""
    done = tilewright("run", library, *options, "-o", folder / "out.npz", given=given)
    assert done.returncode == 0, done.stdout + done.stderr
    with np.load(folder / "out.npz") as archive:
        return dict(archive)


def same(found: dict[str, np.ndarray]) -> None:
    assert list(found) == list(EXPECTED)
    for name, array in EXPECTED.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_running_a_library_does_not_load_the_compiler(two_inputs: Path) -> None:
    program = (
        "import sys; from tilewright.driver import main; import atexit; atexit.register(lambda: print(sorted(m for m in"
    )
    program += " sys.modules if m.split('.')[:2] in (['tilewright', 'relay'], ['tilewright', 'te'])))); main()"
    command = [sys.executable, "-c", program, "run", str(two_inputs), "--fill", "random"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.endswith("\n[]\n")


@pytest.mark.parametrize("content", [npz(x=X, k=K), as_json(x=X.tolist(), k=K.tolist())], ids=["npz", "json"])
@pytest.mark.parametrize("through", ["file", "stdin", "file of another name"])
def test_one_file_gives_all_inputs(two_inputs: Path, tmp_path: Path, content: bytes, through: str) -> None:
    if through == "stdin":
        same(results(two_inputs, tmp_path, "--inputs", "-", given=content))
        return
    suffix = "dat" if through != "file" else "json" if content[:1] == b"{" else "npz"
    (tmp_path / f"in.{suffix}").write_bytes(content)
    same(results(two_inputs, tmp_path, "--inputs", tmp_path / f"in.{suffix}"))


def test_each_input_may_come_from_a_file_of_its_own(two_inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(npy(X))
    options = ["--inputs", f"x={tmp_path / 'a.npy'}", "--inputs", "k=-"]
    same(results(two_inputs, tmp_path, *options, given=json.dumps(K.tolist()).encode()))
    same(results(two_inputs, tmp_path, *options, given=npy(K)))


def test_a_file_of_one_array_serves_the_only_input(library: Path, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).random((1, 1, 8, 8), "float32")
    (tmp_path / "x.npy").write_bytes(npy(pixels))
    expected = results(library, tmp_path, "--inputs", "-", given=npz(pixels=pixels))
    for options, given in (
        (tmp_path / "x.npy", None),
        ("-", npy(np.asfortranarray(pixels))),
        ("-", json.dumps(pixels.tolist()).encode()),
    ):
        found = results(library, tmp_path, "--inputs", options, given=given)
        np.testing.assert_array_equal(found["probabilities"], expected["probabilities"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (b"", ["standard input", "neither"]),
        (b"\x00\x01\x02", ["standard input", "neither"]),
        (b"{", ["standard input", "JSON"]),
        (b"[" * 100_000, ["standard input"]),
        (npy(X)[:-4], ["standard input", ".npy"]),
        (npy(X)[:9], ["standard input", ".npy"]),
        (npz(x=X, k=K)[:-30], ["standard input", ".npz"]),
        (npy(X), ["which input", "NAME=", "k (int64 (3,))"]),
        (as_json(x=X.tolist()), ["'k'"]),
        (as_json(x=X.tolist(), k=K.tolist(), z=1), ["'z'", "inputs are x"]),
        (as_json(x=[[1, 2], [3]], k=K.tolist()), ["'x'", "(2, 3)", "unequal"]),
        (as_json(x=[1, 2, 3], k=K.tolist()), ["'x'", "(2, 3)", "(3,)"]),
        (as_json(x=[["a", 1, 2]] * 2, k=K.tolist()), ["'x'", "numbers"]),
        (as_json(x=None, k=K.tolist()), ["'x'", "numbers"]),
        (as_json(x={"a": 1}, k=K.tolist()), ["'x'", "numbers"]),
        (as_json(x=X.tolist(), k=[1, 2, 2.5]), ["'k'", "whole"]),
        (as_json(x=X.tolist(), k=[1, 2, 2**63]), ["'k'"]),
        (as_json(x=X.tolist(), k=[True, False, True]), ["'k'", "true"]),
        (npz(x=X.astype("float64"), k=K), ["'x'", "float32", "float64", "astype"]),
    ],
)
def test_wrong_values_name_what_is_expected_and_found(two_inputs: Path, given: bytes, words: list[str]) -> None:
    fails(tilewright("run", two_inputs, "--inputs", "-", given=given), *words)


def test_no_truncation_of_an_input_file_gives_a_traceback(two_inputs: Path) -> None:
    from tilewright.driver.inputs import make_inputs
    from tilewright.driver.library import load_library
    from tilewright.runtime.error import TVMError

    loaded, file = load_library(two_inputs), two_inputs.with_suffix(".cut")
    stream = io.BytesIO()
    np.savez_compressed(stream, x=X, k=K)
    rng = np.random.default_rng(0)
    for whole in (npz(x=X, k=K), stream.getvalue(), as_json(x=X.tolist(), k=K.tolist())):
        for length in range(0, len(whole), 7):
            damaged = bytearray(whole)
            damaged[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
            for content in (whole[:length], bytes(damaged)):
                file.write_bytes(content)
                try:
                    make_inputs(loaded, [str(file)], None)
                except TVMError as error:
                    assert "two.cut" in str(error)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (["none.npz"], ["none.npz", "no such file"]),
        (["."], ["directory"]),
        (["q=x.npy"], ["no input 'q'", "x (float32"]),
        (["x=x.npy", "x=x.npy"], ["two values", "'x'"]),
        (["x=both.npz"], ["holds 2"]),
    ],
)
def test_sources_that_cannot_be_meant_are_refused(
    two_inputs: Path, inputs: list[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.npy").write_bytes(npy(X))
    (tmp_path / "both.npz").write_bytes(npz(x=X, k=K))
    monkeypatch.chdir(tmp_path)
    fails(tilewright("run", two_inputs, *(part for item in inputs for part in ("--inputs", item))), *words)


def test_outputs_are_written_by_suffix(two_inputs: Path, library: Path, tmp_path: Path) -> None:
    done = tilewright("run", two_inputs, "--inputs", "-", "-o", tmp_path / "y.json", given=npz(x=X, k=K))
    assert done.returncode == 0
    assert json.loads((tmp_path / "y.json").read_text()) == {n: a.tolist() for n, a in EXPECTED.items()}
    assert tilewright("run", library, "--fill", "ones", "-o", tmp_path / "y.npy").returncode == 0
    assert np.load(tmp_path / "y.npy").shape == (1, 10)
    fails(tilewright("run", two_inputs, "--fill", "ones", "-o", tmp_path / "z.npy"), "one array", ".npz")
    fails(tilewright("run", two_inputs, "--fill", "ones", "-o", tmp_path / "z.txt"), "z.txt", ".npz, .npy, .json")
    fails(tilewright("run", two_inputs, "--fill", "ones", "-o", tmp_path / "none" / "z.npz"), "none", "does not exist")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["y.json", "y.npy"]


def test_the_report_in_json_has_the_outputs(two_inputs: Path) -> None:
    done = tilewright("run", two_inputs, "--inputs", "-", "--json", given=npz(x=X, k=K))
    report = json.loads(done.stdout)
    assert report["outputs"]["twice"] == {"dtype": "int64", "shape": [3], "values": (2 * K).tolist()}
    assert report["seconds"] > 0


def test_quiet_and_verbose(two_inputs: Path) -> None:
    assert tilewright("run", two_inputs, "--fill", "ones", "-q").stdout == ""
    lines = tilewright("run", two_inputs, "--fill", "ones", "-v").stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["x", "k", "sum", "twice", "time"]
    fails(tilewright("run", two_inputs, "--fill", "ones", "-q", "-v"), "exclude")


def test_a_model_is_compiled_first_whatever_its_name_when_asked(tmp_path: Path) -> None:
    renamed = tmp_path / "digits.model"
    renamed.write_bytes(DIGITS.read_bytes())
    fails(tilewright("run", renamed, "--fill", "ones"), "digits.model")
    for done in (
        tilewright("run", renamed, "--compile", "--fill", "ones"),
        tilewright("run", DIGITS, "--fill", "ones"),
    ):
        assert done.returncode == 0, done.stderr
        assert "probabilities: float32 (1, 10)" in done.stdout


def test_compile_is_for_models_and_input_shape_for_compile(library: Path) -> None:
    fails(tilewright("run", library, "--compile", "--fill", "ones"), "compiled library already")
    fails(
        tilewright("run", library, "--input-shape", "pixels:1,1,8,8", "--fill", "ones"), "--input-shape is for models"
    )


@pytest.mark.parametrize(
    ("source", "expected"), [("a=b=x.npy", "a=b"), ("a=x.npy", "a"), ("a=b.npy", "a"), ("q=b=x.npy", "q")]
)
def test_names_of_inputs_may_have_an_equals_sign(source: str, expected: str) -> None:
    from types import SimpleNamespace

    from tilewright.driver.inputs import split_source

    library: Any = SimpleNamespace(inputs={"a": None, "a=b": None})
    name, equals, file = split_source(source, library)
    assert (name, equals + file) == (expected, source[len(expected) :])
