"""The harness that compares engines, on small networks."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchmarks.client import Client, EngineError
from benchmarks.flops import Work
from benchmarks.plot import ratios_svg
from rich.console import Console

from benchmarks import latency, quantized, report
from tilewright.doctor.peak import Machine
from tilewright.testing import zoo

PLAN = latency.Plan(processes=2, rounds=2, block_seconds=0.01, pause_seconds=0.0)
MACHINE = Machine({"wide": {1: 100.0, 2: 200.0}}, {"DRAM": {1: 1.0, 2: 1.0}}, {"DRAM": {1: 10.0, 2: 20.0}})


def engine_result(*blocks: list[float]) -> report.EngineResult:
    """A result with these run times."""
    return report.EngineResult("1.0", 0.0, 0.0, None, list(blocks), [1.0])


def test_peers_are_measured_and_agree(tmp_path: Path) -> None:
    path = zoo.export("squeezenet1_1", tmp_path, **zoo.small_options("squeezenet1_1"))
    inputs, _ = zoo.reference(path)
    peers = ["onnxruntime", "openvino"]
    result = latency.measure_model("squeezenet1_1", path, inputs, peers, 1, PLAN)
    assert result.errors == {}
    assert list(result.engines) == peers
    for engine in result.engines.values():
        assert len(engine.blocks) == PLAN.processes * PLAN.rounds
        assert 0 < engine.median < 0.1
        assert engine.difference is not None
        assert engine.difference < 1e-4
    assert result.fastest_peer() in peers
    assert result.ratio() is None


@pytest.mark.soak  # half a minute, most of it in the C++ compiler
def test_torch_compile_is_a_peer_of_networks_of_the_zoo(tmp_path: Path) -> None:
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("inductor needs a C++ compiler")
    options = zoo.small_options("vit_b16")
    path = zoo.export("vit_b16", tmp_path, **options)
    inputs, _ = zoo.reference(path)
    plan = latency.Plan(processes=1, rounds=1, block_seconds=0.01, pause_seconds=0.0)
    result = latency.measure_model("vit_b16", path, inputs, ["onnxruntime", "torch"], 1, plan, options)
    assert result.errors == {}
    difference = result.engines["torch"].difference
    assert difference is not None
    assert difference < 1e-4


def test_torch_compile_is_left_out_for_files() -> None:
    assert latency.engines_for("resnet50", ["tilewright", "torch"]) == ["tilewright", "torch"]
    assert latency.engines_for("models/resnet50.onnx", ["tilewright", "torch"]) == ["tilewright"]
    assert "torch" not in latency.parse_arguments([]).peers
    assert latency.parse_arguments(["--peers", "torch"]).peers == ["torch"]


def test_tilewright_is_built_measured_and_right(tmp_path: Path) -> None:
    path = zoo.export("bilstm", tmp_path, **zoo.small_options("bilstm"))
    inputs, _ = zoo.reference(path)
    result = latency.measure_model("bilstm", path, inputs, ["tilewright", "onnxruntime"], 1, PLAN)
    assert result.errors == {}
    ours = result.engines["tilewright"]
    assert ours.build is not None
    assert ours.build.library_bytes > 0
    assert ours.difference is not None
    assert ours.difference < 1e-5
    assert result.ratio() is not None


def test_engine_that_cannot_load_is_reported_and_the_others_measured(tmp_path: Path) -> None:
    path = zoo.export("bilstm", tmp_path, **zoo.small_options("bilstm"))
    inputs, _ = zoo.reference(path)
    wrong = {"data": inputs["data"][:, :, :5]}
    result = latency.measure_model("bilstm", path, wrong, ["onnxruntime"], 1, PLAN)
    assert result.engines == {}
    assert "onnxruntime" in result.errors["onnxruntime"]


def test_worker_that_dies_is_reported_with_its_last_words(tmp_path: Path) -> None:
    missing = tmp_path / "no_inputs.npz"
    with (
        Client("onnxruntime", tmp_path / "m.onnx", missing, tmp_path, 1) as client,
        pytest.raises(EngineError, match=r"(?s)ended with status 1.*no_inputs"),
    ):
        client.ask("run", count=1)


def test_random_inputs_follow_the_files_shapes_and_types(tmp_path: Path) -> None:
    inputs = latency.random_inputs(zoo.export("distilbert", tmp_path, **zoo.small_options("distilbert")))
    assert {name: (value.shape, str(value.dtype)) for name, value in inputs.items()} == {
        "input_ids": ((1, 9), "int64"),
        "attention_mask": ((1, 9), "int64"),
    }


def test_ratio_is_the_fastest_peers_median_over_ours() -> None:
    engines = {
        "tilewright": engine_result([1.0, 2.0, 3.0]),
        "onnxruntime": engine_result([4.0, 5.0, 6.0], [5.0]),
        "openvino": engine_result([7.0]),
    }
    result = report.ModelResult("m", 2, Work(0, 0), engines, {})
    assert result.fastest_peer() == "onnxruntime"
    assert result.ratio() == 2.5


def test_ratio_in_turns_does_not_mix_phases_of_the_machine() -> None:
    engines = {
        "tilewright": engine_result([2.0], [2.0, 2.0], [1.0]),
        "onnxruntime": engine_result([3.0], [3.0], [9.0]),
        "openvino": engine_result([4.0], [4.0], [1.5]),
    }
    result = report.ModelResult("m", 2, Work(0, 0), engines, {})
    assert result.ratio_in_turns() == 1.5
    del engines["onnxruntime"], engines["openvino"]
    assert result.ratio_in_turns() is None


def test_spread_is_the_median_absolute_deviation_over_the_median() -> None:
    assert engine_result([1.0, 2.0], [4.0, 8.0, 100.0]).spread == pytest.approx(3.0 / 4.0)


def test_shares_are_of_the_peak_with_as_many_threads() -> None:
    result = report.ModelResult("m", 2, Work(10**9, 10**8), {"onnxruntime": engine_result([0.01])}, {})
    assert result.compute_share("onnxruntime", MACHINE) == pytest.approx(0.5)
    assert result.bandwidth_share("onnxruntime", MACHINE) == pytest.approx(0.5)


def test_geometric_mean() -> None:
    assert report.geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


def test_json_holds_every_block_and_the_derived_figures(tmp_path: Path) -> None:
    engines = {"tilewright": engine_result([1.0]), "onnxruntime": engine_result([2.0], [2.0])}
    result = report.ModelResult("m", 1, Work(1, 1), engines, {"openvino": "no such thing"})
    path = tmp_path / "deep" / "latency.json"
    report.write_json(path, report.as_json([result], MACHINE, {"threads": [1]}))
    (model,) = json.loads(path.read_text())["models"]
    assert model["ratio"] == 2.0
    assert model["errors"] == {"openvino": "no such thing"}
    assert model["engines"]["onnxruntime"]["blocks"] == [[2.0], [2.0]]
    assert model["engines"]["onnxruntime"]["median_seconds"] == 2.0


def test_plot_has_a_bar_for_each_ratio_as_long_as_it_is() -> None:
    def result(ours: float) -> report.ModelResult:
        engines = {"tilewright": engine_result([ours]), "openvino": engine_result([2.0])}
        return report.ModelResult(f"takes {ours} & more", 1, Work(1, 1), engines, {})

    alone = report.ModelResult("peer alone", 1, Work(1, 1), {"openvino": engine_result([1.0])}, {})
    root = ElementTree.fromstring(ratios_svg([result(1.0), alone, result(4.0)]))
    bars = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if rect.get("x")]
    fast, slow = (float(bar.get("width", 0)) for bar in bars)
    assert fast / slow == pytest.approx(4.0, rel=1e-3)


def test_table_and_markdown_have_a_row_for_each_engine_and_failure() -> None:
    engines = {"tilewright": engine_result([0.001]), "onnxruntime": engine_result([0.002])}
    result = report.ModelResult("net", 2, Work(10**8, 10**6), engines, {"openvino": "no such thing"})
    lines = report.markdown([result], MACHINE).splitlines()
    assert len(lines) == 2 + 3
    assert len({line.count("|") for line in lines}) == 1
    assert "| net | 2 | tilewright | 1.000 | 0.0 % | 2.00 |" in lines[2]
    assert "| net | 2 | openvino | failed |" in lines[4]
    console = Console(width=160, file=io.StringIO(), force_terminal=False)
    console.print(report.table([result], MACHINE))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert all(word in text for word in ("tilewright", "onnxruntime", "openvino", "failed"))


def test_our_own_float32_form_is_no_peer() -> None:
    engines = {"tilewright": engine_result([1.0]), "float32": engine_result([3.0]), "openvino": engine_result([2.0])}
    result = report.ModelResult("net", 1, Work(1, 1), engines, {})
    assert result.fastest_peer() == "openvino"
    assert (result.ratio(), result.ratio_in_turns(), result.gain_of_integers()) == (2.0, 2.0, 3.0)


@pytest.mark.full
def test_quantized_networks_lie_beside_what_they_were_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_ZOO", str(tmp_path))
    path, inputs = quantized.find_quantized(quantized.DETECTOR)
    assert path.exists() and quantized.float32_of(path).exists()
    assert inputs["image"].shape == (1, 3, 320, 320)
