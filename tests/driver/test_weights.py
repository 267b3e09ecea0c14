"""``compile --weights``, and what other commands make of such libraries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.driver.command import DIGITS, fails, tilewright
from tests.driver.test_rpc import service

import tilewright as tvm
from tilewright.driver.compile import CompileOptions, build_library


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library, digits.so, and the file of its weights, w.bin."""
    folder = tmp_path_factory.mktemp("weights")
    done = tilewright("compile", DIGITS, "-o", folder / "digits.so", "--weights", folder / "w.bin", "-q")
    assert done.returncode == 0, done.stderr
    return folder


def test_info_names_the_file_and_compares_checksums(folder: Path, tmp_path: Path) -> None:
    done = tilewright("info", folder / "digits.so", "--verify")
    assert done.returncode == 0 and "tensors, in w.bin" in done.stdout, done.stderr
    for name in ("digits.so", "w.bin"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with (tmp_path / "w.bin").open("r+b") as file:
        file.seek(200)
        file.write(b"other")
    fails(tilewright("info", tmp_path / "digits.so", "--verify"), "w.bin is damaged: the", "have another checksum")
    assert tilewright("info", tmp_path / "digits.so").returncode == 0


def test_a_board_gets_the_file_too(folder: Path, library: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here.npz", tmp_path / "there.npz"
    tilewright("run", library, "--fill", "ones", "-o", here)
    with service("rpc-server", "--key", "k", "--port", "9500", "--port-end", "9550") as port:
        where = ("--rpc", f"127.0.0.1:{port}", "--rpc-key", "k")
        done = tilewright("run", folder / "digits.so", "--fill", "ones", "-o", there, *where)
    assert done.returncode == 0, done.stderr
    with np.load(here) as a, np.load(there) as b:
        for name in a.files:
            np.testing.assert_array_equal(a[name], b[name])


def test_a_step_and_a_prompt_hold_a_large_matrix_once(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((1024, 1500)).astype("float32")
    for name, rows in ("step", 1), ("prompt", 32):
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, w]) for n, w in (("x", 1024), ("y", 1500))]
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        graph = helper.make_graph([node], name, ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / f"{name}.onnx")
        build_library(CompileOptions(tmp_path / f"{name}.onnx", tmp_path / f"{name}.so", weights=tmp_path / "w.bin"))
        x = np.random.default_rng(rows).standard_normal((rows, 1024)).astype("float32")
        found = tvm.load(tmp_path / f"{name}.so")(x)
        np.testing.assert_allclose(found, x @ weight, rtol=1e-4, atol=1e-3)
    assert (tmp_path / "w.bin").stat().st_size < 1.1 * weight.nbytes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "x.o"), "beside a shared library (.so)"),
        (("-o", "x.so", "--for", "tvm-0.8"), "exclude each other"),
        (("-o", "x", "-f", "c"), "--weights is for libraries"),
        (("-o", "x.so", "--executor", "aot"), "part of its code"),
    ],
)
def test_what_has_no_such_file_is_refused(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fails(tilewright("compile", DIGITS, *arguments, "--weights", "w.bin"), message)
    assert not list(tmp_path.iterdir())
