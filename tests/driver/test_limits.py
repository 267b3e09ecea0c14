"""Limits of the command line: what compiling may make, and how long commands and programs may take."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
import typer
from onnx import TensorProto, helper, numpy_helper
from tests.driver.command import DIGITS, fails, tilewright

from tilewright.driver.limits import Limits, parse_bytes


def _endless(path: Path) -> Path:
    """A loop that ends after as many rounds as the input ``n`` says."""
    value = helper.make_tensor_value_info
    ins = [value("i", TensorProto.INT64, ()), value("c", TensorProto.BOOL, ()), value("v", TensorProto.FLOAT, (2,))]
    nodes = [helper.make_node("Add", ["v", "one"], ["o"]), helper.make_node("Identity", ["c"], ["k"])]
    body = helper.make_graph(
        nodes, "b", ins, [value("k", TensorProto.BOOL, ()), value("o", TensorProto.FLOAT, (2,))],
        [numpy_helper.from_array(np.float32(1), "one")],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], name="loop", body=body)
    inputs = [value("n", TensorProto.INT64, ()), value("x", TensorProto.FLOAT, ("rows",))]
    inputs[1].type.tensor_type.shape.dim[0].dim_value = 2
    graph = helper.make_graph([loop], "g", inputs, [value("y", TensorProto.FLOAT, (2,))])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize(("text", "size"), [("4GiB", 4 << 30), ("500M", 500 << 20), ("1.5 kb", 1536), ("7", 7)])
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "4XB", "-1G", "1e9", "..", "0.1"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="takes a size"):
        parse_bytes(text)


def test_limits_become_options() -> None:
    assert Limits().config() == {}
    assert Limits(5, "1M", 2.5).config() == {
        "relay.budget.nodes": 5, "relay.budget.memory": 1 << 20, "relay.budget.seconds": 2.5,
    }  # fmt: skip


def test_a_model_of_too_many_nodes_is_refused(tmp_path: Path) -> None:
    fails(tilewright("compile", DIGITS, "-o", tmp_path / "d.so", "--max-nodes", 3), "ONNX node", "3 nodes")


def test_compiling_ends_with_its_time(tmp_path: Path) -> None:
    result = tilewright("compile", DIGITS, "-o", tmp_path / "d.so", "--timeout", 0.01, env=dict(os.environ))
    fails(result, f"compiling {DIGITS} takes longer", "0.01 seconds")
    assert result.returncode == 1
    assert not (tmp_path / "d.so").exists()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loop")
    from tilewright import relay
    from tilewright.relay.frontend.onnx.importer import from_onnx

    mod, params = from_onnx(str(_endless(folder / "loop.onnx")), shape={"x": ("rows",)})
    relay.vm.compile(mod, "llvm", params=params).export_library(folder / "loop.so")
    return folder / "loop.so"


def _inputs(path: Path, rounds: int) -> Path:
    np.savez(path, n=np.int64(rounds), x=np.zeros(2, "float32"))
    return path


def test_a_program_ends_after_its_steps(program: Path, tmp_path: Path) -> None:
    few, many = _inputs(tmp_path / "few.npz", 10), _inputs(tmp_path / "many.npz", 1 << 62)
    done = tilewright("run", program, "--inputs", few, "--max-steps", 1000)
    assert done.returncode == 0, done.stderr
    assert "[10, 10]" in done.stdout
    fails(tilewright("run", program, "--inputs", many, "--max-steps", 1000), "1000")
    fails(tilewright("bench", program, "--inputs", many, "--max-steps", 1000), "1000")


def test_native_code_ends_with_the_time_of_its_command(program: Path, tmp_path: Path) -> None:
    many = _inputs(tmp_path / "many.npz", 1 << 62)
    result = tilewright("run", program, "--inputs", many, "--timeout", 0.5, env=dict(os.environ))  # ends its process
    fails(result, f"running {program} takes longer", "0.5 seconds")
    assert result.returncode == 1
