"""Libraries with named dimensions on the command line: compile, run, bench."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from tests.driver.command import fails, tilewright

from tilewright import __version__ as tilewright_version
from tilewright import runtime

MODEL = """<ir_version: 8, opset_import: ["": 18]>
g (float[batch, seq] x, float[batch, 1] w) => (float[batch, seq] y) { y = Mul(x, w) }"""


def _model() -> onnx.ModelProto:
    model = onnx.parser.parse_model(MODEL)
    model.graph.node[0].name = "scale"  # the text form has no names before onnx 1.17
    return model


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dims")
    onnx.save(_model(), folder / "m.onnx")
    done = tilewright("compile", folder / "m.onnx", "-o", folder / "m.so", "--dim", "batch=1:8", "--dim", "seq=2:64:2")
    assert "dimensions\tbatch 1:8, seq 2:64:2" in done.stdout
    return folder / "m.so"


def test_run_takes_any_shape_in_range(library: Path, tmp_path: Path) -> None:
    x, w = np.arange(12, dtype="float32").reshape(3, 4), np.full((3, 1), 2, "float32")
    np.savez(tmp_path / "in.npz", x=x, w=w)
    tilewright("run", library, "--inputs", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["y"], x * w)


def test_made_up_inputs_need_numbers(library: Path) -> None:
    assert "(3, 4)" in tilewright("run", library, "--fill", "ones", "--dim", "batch=3", "--dim", "seq=4").stdout
    for options, said in (
        ([], "give --dim batch=N"),
        (["--dim", "rows=3"], "its dimensions are batch (from 1 to 8), seq (from 2 to 64, a multiple of 2)"),
        (["--dim", "batch=9", "--dim", "seq=4"], "batch is 9; the program was compiled for 1 to 8"),
        (["--dim", "batch=1", "--dim", "seq=5"], "multiples of 2"),
    ):
        fails(tilewright("run", library, "--fill", "ones", *options), said)


def test_bench_sweeps_shapes(library: Path) -> None:
    sizes = ("--dim", "batch=1,2", "--dim", "seq=2,64")
    done = tilewright("bench", library, *sizes, "--repeat", "1", "--seconds", "0.01", "--json")
    found = [result["dims"] for result in json.loads(done.stdout)["results"]]
    assert found == [{"batch": b, "seq": s} for b in (1, 2) for s in (2, 64)]


def test_bench_profiles_kernels(library: Path) -> None:
    sizes = ("--dim", "batch=2", "--dim", "seq=64", "--repeat", "1", "--seconds", "0.01")
    (result,) = json.loads(tilewright("bench", library, *sizes, "--profile", "--json").stdout)["results"]
    assert {row["operator"]: row["sources"] for row in result["operators"]}["fused_multiply"] == ["scale"]
    assert sum(row["share"] for row in result["operators"]) == pytest.approx(1)


def test_info_tells_inputs_dimensions_and_features(library: Path) -> None:
    text = tilewright("info", library).stdout
    assert "input\tx: float32 (batch, seq)" in text and "output\ty: float32 (batch, seq)" in text
    assert "dimension\tseq (from 2 to 64, a multiple of 2)" in text and "executor\tvirtual machine" in text
    assert f"made by\tTilewright {tilewright_version}" in text and "target\tllvm" in text
    found = json.loads(tilewright("info", library, "--json").stdout)
    assert found["inputs"]["w"] == {"shape": ["batch", 1], "dtype": "float32"} and found["activation_bytes"] is None
    assert found["dimensions"] == {"batch": [1, 8, 1], "seq": [2, 64, 2]} and found["kernel_calls"] > 0
    assert set(found["cpu_features"]) <= set(runtime.host_cpu_features())


def test_damaged_libraries_are_one_clear_error(library: Path, tmp_path: Path) -> None:
    whole = library.read_bytes()
    for end in range(0, len(whole) // 2, len(whole) // 40):
        (tmp_path / "cut.so").write_bytes(whole[:end])
        fails(tilewright("info", tmp_path / "cut.so"), "cut.so")


def test_interface_of_a_library_that_was_loaded(library: Path) -> None:
    lines = runtime.vm.Executable(runtime.load_module(library)).interface.splitlines()
    assert lines[0] == "input\tfloat32\tbatch,seq\tx"
    assert "output\tfloat32\tbatch,seq\ty" in lines
    checked = lines[: lines.index("")]
    assert checked[-2:] == ["dim\tbatch\t1\t8\t1", "dim\tseq\t2\t64\t2"]
    assert lines[-1] == "kernel\tfused_multiply\tscale"


def test_versions_for_some_numbers(tmp_path: Path) -> None:
    onnx.save(_model(), tmp_path / "m.onnx")
    dims = ("--dim", "batch=1:8", "--specialize", "batch=2,seq=4", "--specialize", "seq=5:6")
    tilewright("compile", tmp_path / "m.onnx", "-o", tmp_path / "m.so", *dims)
    names = runtime.vm.Executable(runtime.load_module(tmp_path / "m.so")).globals
    assert names == ["main", "main$batch=2,seq=4", "main$seq=5:6"]
    for batch, seq in ((2, 4), (2, 5), (3, 4)):
        x, w = np.arange(batch * seq, dtype="float32").reshape(batch, seq), np.full((batch, 1), 2, "float32")
        np.savez(tmp_path / "in.npz", x=x, w=w)
        tilewright("run", tmp_path / "m.so", "--inputs", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
        np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["y"], x * w)


def test_versions_for_what_is_no_dimension_are_refused(tmp_path: Path) -> None:
    onnx.save(_model(), tmp_path / "m.onnx")
    compile_it = ("compile", tmp_path / "m.onnx", "-o", tmp_path / "m.so")
    fails(tilewright(*compile_it, "--specialize", "rows=2"), "main has no dimension 'rows'")
    fails(tilewright(*compile_it, "--dim", "seq=1:8", "--specialize", "seq=9"), "seq=9 is not within 1:8")
    fixed = ("--dim", "seq=4", "--dim", "batch=2")
    fails(tilewright(*compile_it, *fixed, "--specialize", "seq=4"), "its named dimensions are none")
