"""``tilewright compare``, and models given to ``run`` and ``bench``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from tests.driver.command import DIGITS, fails, tilewright

from tilewright.driver import compare
from tilewright.target import features

BRANCH = """<ir_version: 8, opset_import: ["": 18]>
g (float[n, 3] x) => (float[n, 3] y, int64[n] best) {
    [exponents] e = Exp(x)
    [sums] s = ReduceSum(e)
    y = Div(e, s)
    best = ArgMax<axis = 1, keepdims = 0>(y)
}"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(BRANCH), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("engine", compare.ENGINES)
def test_a_model_agrees_with_other_engines(model: Path, tmp_path: Path, engine: str) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((5, 3), "float32"))
    done = tilewright("compare", model, "--with", engine, "--inputs", tmp_path / "x.npy", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["agrees"] and report["first_node_that_differs"] is None
    assert [(t["tensor"], t["shape"]) for t in report["tensors"]] == [("y", [5, 3]), ("best", [5])]
    assert 0 <= report["tensors"][0]["relative"] < 1e-5 and report["tensors"][1]["largest"] == 0


def test_the_first_node_that_differs_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = compare._RUNNERS["reference"]

    def wrong(file: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = right(file, inputs)
        return {**found, "s": found["s"] * 2, "y": found["y"] / 2}

    monkeypatch.setitem(compare._RUNNERS, "reference", wrong)
    done = tilewright("compare", model, "--with", "reference", "--layers", "--dim", "n=2")
    assert done.returncode == 1
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [(row[0], row[-1]) for row in rows[1:-1]] == [("e", ""), ("s", "differs"), ("y", "differs"), ("best", "")]
    assert rows[-1] == ["the first node that differs is sums (ReduceSum), in s"]
    assert tilewright("compare", model, "--with", "reference", "--dim", "n=2", "-q").stdout == ""


def test_a_tolerance_of_nothing_is_passed_by_nothing(model: Path) -> None:
    assert tilewright("compare", model, "--dim", "n=2", "--tolerance", "0").returncode in (0, 1)
    assert tilewright("compare", DIGITS, "--tolerance", "1e-4").returncode == 0


@pytest.mark.parametrize(
    ("ours", "theirs", "agrees"),
    [
        ([1.0, 2.0], [1.0, 2.001], True),
        ([1.0, 2.0], [1.0, 2.1], False),
        ([np.nan, np.inf], [np.nan, np.inf], True),
        ([np.nan], [1.0], False),
        ([np.inf], [1e30], False),
        ([1, 2], [1, 3], False),
        ([True], [True], True),
        ([], [], True),
        ([0.0], [0.0], True),
        ([1.0], [1.0, 1.0], False),
    ],
)
def test_how_far_two_tensors_are_apart(ours: list[float], theirs: list[float], agrees: bool) -> None:
    assert compare._difference("t", "n", np.array(ours), np.array(theirs), 1e-3).agrees is agrees


def test_what_another_engine_refuses_is_one_clear_error(model: Path) -> None:
    fails(tilewright("compare", model, "--with", "torch"), "onnxruntime or reference")
    fails(tilewright("compare", model), "give --dim n=N")
    fails(tilewright("compare", model.with_name("none.onnx")), "none.onnx")


def test_run_and_bench_take_a_model(model: Path) -> None:
    assert "best: int64 (2,)" in tilewright("run", model, "--fill", "ones", "--dim", "n=2").stdout
    assert float(tilewright("bench", model, "--dim", "n=2", "--repeat", "1", "--seconds", "0.01", "-q").stdout) > 0
    assert tilewright("run", DIGITS, "--fill", "ones", "-q").returncode == 0


def test_the_precision_of_products_is_passed_on(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 18]>
    g (float[128, 256] x) => (float[128, 256] y) <float[256, 256] w> { y = MatMul(x, w) }"""
    network = onnx.parser.parse_model(text)
    del network.graph.initializer[:]
    weight = np.random.default_rng(0).standard_normal((256, 256), "float32")
    network.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(network, tmp_path / "m.onnx")
    apart = {}
    for precision in ("highest", "medium"):
        done = tilewright(
            "compare", tmp_path / "m.onnx", "--matmul-precision", precision, "--tolerance", "0.1", "--json"
        )
        assert done.returncode == 0, done.stderr
        apart[precision] = json.loads(done.stdout)["tensors"][0]["relative"]
    assert apart["highest"] < 1e-5
    assert (apart["medium"] > 1e-4) == features("llvm").has("amx-bf16")  # elsewhere nothing is less exact
    fails(tilewright("compare", tmp_path / "m.onnx", "--matmul-precision", "tf32"), "highest, high, medium", "tf32")
