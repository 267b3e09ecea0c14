"""``tilewright bench``: what it measures and how it tells."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.driver.command import DIGITS, fails, tilewright

SHORT = ("--repeat", "2", "--seconds", "0.01")


def table(text: str) -> list[dict[str, str]]:
    """Lines of tab-separated values below their headings."""
    headings, *rows = [line.split("\t") for line in text.splitlines()]
    return [dict(zip(headings, row, strict=True)) for row in rows]


def test_the_latency_is_a_line_of_values(library: Path) -> None:
    result = tilewright("bench", library, *SHORT)
    assert result.returncode == 0, result.stderr
    (row,) = table(result.stdout)
    assert list(row) == ["median (ms)", "mean (ms)", "min (ms)", "max (ms)", "std (ms)"]
    assert 0 < float(row["min (ms)"]) <= float(row["median (ms)"]) <= float(row["max (ms)"])


def test_several_numbers_of_threads_give_a_line_each(library: Path) -> None:
    rows = table(tilewright("bench", library, *SHORT, "--threads", "1,2").stdout)
    assert [row["threads"] for row in rows] == ["1", "2"]


def test_percentiles_time_every_run(library: Path) -> None:
    result = tilewright("bench", library, *SHORT, "--percentiles", "0,50,99.9,100", "--json")
    (found,) = json.loads(result.stdout)["results"]
    assert found["measurements"] > 10
    assert found["min_ms"] == found["p0_ms"] <= found["p50_ms"] <= found["p99.9_ms"] <= found["p100_ms"]
    assert found["p50_ms"] == pytest.approx(found["median_ms"])


def test_the_profile_gives_the_time_of_each_operator(library: Path) -> None:
    result = tilewright("bench", library, *SHORT, "--profile", "--json", "--threads", "1", "--warmup", "3")
    (found,) = json.loads(result.stdout)["results"]
    operators = found["operators"]
    assert any("softmax" in o["operator"] for o in operators)
    assert sum(o["share"] for o in operators) == pytest.approx(1)
    assert [o["mean_ms"] for o in operators] == sorted((o["mean_ms"] for o in operators), reverse=True)
    text = tilewright("bench", library, *SHORT, "--profile").stdout
    assert len(table(text.partition("threads\n")[2])) == len(operators)


def test_inputs_may_be_given(library: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 1, 8, 8), "float32"))
    assert tilewright("bench", library, *SHORT, "--inputs", tmp_path / "x.npy").returncode == 0
    fails(tilewright("bench", library, *SHORT, "--inputs", tmp_path / "y.npy"), "y.npy", "no such file")


def test_quiet_prints_the_median_alone(library: Path) -> None:
    assert float(tilewright("bench", library, *SHORT, "-q").stdout) >= 0


@pytest.mark.parametrize(
    ("option", "value"),
    [("--threads", "0"), ("--threads", "a"), ("--threads", "1,"), ("--percentiles", "101"), ("--percentiles", "x"),
     ("--warmup", "-1"), ("--repeat", "0"), ("--seconds", "0")],
)  # fmt: skip
def test_wrong_options_are_refused(library: Path, option: str, value: str) -> None:
    fails(tilewright("bench", library, option, value), option)


def test_a_profile_names_the_nodes_of_the_model(library: Path) -> None:
    (result,) = json.loads(tilewright("bench", library, *SHORT, "--profile", "--json").stdout)["results"]
    named = {name for row in result["operators"] for name in row["sources"]}
    assert all(row["sources"] for row in result["operators"])
    nodes = [node for node in onnx.load(DIGITS).graph.node if node.op_type != "Constant"]
    assert named == {node.name for node in nodes}
    assert any(len(row["sources"]) == 3 for row in result["operators"])  # a convolution, its normalization, a ReLU
