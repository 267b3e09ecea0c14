"""The pages of ``compile --report`` and ``bench --report``, and the trace: what they hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from onnx import helper
from tests.doctor.test_diagnosis import MACHINE
from tests.driver.command import DIGITS, model, tilewright
from tests.report.pages import chain, data_of

from tilewright.doctor import peak
from tilewright.report.model import ModelPage


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tanh(x + exp(x)), a softmax of that, and a dropout, which a pass removes."""
    nodes = [
        helper.make_node("Exp", ["x"], ["e"], name="block/exp"),
        helper.make_node("Add", ["x", "e"], ["a"], name="block/add"),
        helper.make_node("Dropout", ["a"], ["d"], name="drop"),
        helper.make_node("Softmax", ["d"], ["y"], name="softmax"),
    ]
    return model(tmp_path_factory.mktemp("network") / "network.onnx", *nodes, shape=[4, 33])


@pytest.fixture(scope="module")
def page(network: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    result = tilewright("compile", network, "-o", folder / "network.so", "--report", folder / "page.html", "-q")
    assert result.returncode == 0, result.stderr
    assert sorted(p.name for p in folder.iterdir()) == ["network.so", "page.html"]
    return folder / "page.html"


@pytest.fixture(scope="module")
def data(page: Path) -> dict[str, Any]:
    return data_of(page)


def test_a_page_is_one_small_file_that_asks_for_nothing_else(page: Path) -> None:
    text = page.read_text()
    assert len(text) < 1_000_000
    assert "default-src 'none'" in text and not re.search(r"(src|href)=[\"'](?!#)", text)


def test_kernels_have_the_models_nodes_and_their_operators(data: dict[str, Any]) -> None:
    (softmax,) = (node for node in data["nodes"] if node["sources"] == ["softmax"])
    assert [operator for operator, _ in softmax["operators"]] == ["nn.softmax"] and softmax["device"] == "cpu"
    assert softmax["inputs"] == [len(data["nodes"]) - 2]
    assert data["nodes"][0]["sources"] == ["block/exp", "block/add"] and data["nodes"][0]["group"] == "block"


def test_memory_is_that_of_the_plan(data: dict[str, Any]) -> None:
    assert data["memory"]["peak"][0] > 0
    for _, first, last, _, nbytes, _ in data["memory"]["tensors"]:
        assert 0 <= first <= last <= data["memory"]["steps"] and nbytes > 0


def test_passes_show_what_they_changed(data: dict[str, Any]) -> None:
    (fuse,) = (p for p in data["passes"] if p["name"] == "FuseOps")
    assert fuse["added"] > 0 and any("Primitive=1" in line for hunk in fuse["hunks"] for line in hunk if line[0] == "+")


def test_each_instruction_leads_to_the_line_that_it_computes(data: dict[str, Any]) -> None:
    (code,) = (code for name, code in data["code"].items() if name.endswith("fused_nn_softmax"))
    assert len(code["asm"]) == len(code["asmOf"]) and len(code["schedule"]) == len(code["scheduleOf"])
    of_instructions = {line for line in code["asmOf"] if line >= 0}
    written = {i for i, line in enumerate(code["tir"]) if re.match(r"\s*T_softmax_norm\w*\[.* = ", line)}
    assert of_instructions & written, "no instruction belongs to the store of the result"
    assert any(code["scheduleOf"])


def test_a_measured_model_has_times_shares_and_a_trace(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peak, "measure", lambda *args, **kwargs: MACHINE)
    files = "--report", tmp_path / "page.html", "--trace", tmp_path / "trace.json"
    result = tilewright(
        "bench", network, "--threads", "1", "--repeat", "1", "--seconds", "0.01", *files, "-q"
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    found = data_of(tmp_path / "page.html")
    assert sum(k["share"] for k in found["kernels"]) == pytest.approx(1)
    assert all(0 < k["roofline"] <= 1 for k in found["kernels"] if k["ms"] > 0 and k["bytes"])
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert [e["ts"] for e in spans[1:]] == pytest.approx([e["ts"] + e["dur"] for e in spans[:-1]])
    assert spans[-1]["args"]["nodes of the model"] == "softmax"


def test_a_library_has_its_graph_and_times(library: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = tilewright("bench", library, "--repeat", "1", "--seconds", "0.01", "--report", page, "-q")
    assert result.returncode == 0, result.stderr
    found = data_of(page)
    assert found["nodes"][-1]["sources"] == ["/Softmax"] and found["nodes"][-1]["ms"] > 0 and "code" not in found


def test_a_page_of_five_thousand_kernels_is_small(tmp_path: Path) -> None:
    page = ModelPage("large")
    page.add_graph(chain(5000))
    page.write(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 1_000_000
    assert len(data_of(tmp_path / "page.html")["nodes"]) == 5000


def test_a_page_that_cannot_be_written_is_told_before_compiling(tmp_path: Path) -> None:
    result = tilewright("compile", DIGITS, "-o", tmp_path / "a.so", "--report", tmp_path / "none" / "page.html")
    assert result.returncode == 1 and "none" in result.stderr and not (tmp_path / "a.so").exists()
