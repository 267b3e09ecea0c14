"""``tilewright doctor``, with limits of a machine that is not measured."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from tests.doctor.test_diagnosis import MACHINE
from typer.testing import CliRunner

from tilewright.doctor import peak
from tilewright.driver.cli import app


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """x + exp(x), and a machine of known limits."""
    monkeypatch.setattr(peak, "measure", lambda *args, **kwargs: MACHINE)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 33]) for name in ("x", "y")]
    nodes = [helper.make_node("Exp", ["x"], ["e"], name="exp"), helper.make_node("Add", ["x", "e"], ["y"], name="add")]
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:])), path)
    return path


def test_kernels_are_told_with_the_models_nodes(model: Path) -> None:
    page = model.with_name("page.html")
    done = CliRunner().invoke(app, ["doctor", str(model), "--threads", "1", "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert "kernels take" in done.output and "add, exp" in done.output
    assert "add, exp" in page.read_text()


def test_the_report_as_json(model: Path) -> None:
    done = CliRunner().invoke(app, ["doctor", str(model), "--no-alternatives", "--processor", "--json"])
    (found,) = json.loads(done.output)["kernels"]
    assert found["sources"] == ["add", "exp"] and found["ms"] >= found["lost_ms"] >= 0 and found["alternative"] is None
    assert sorted(found["operators"].split()) == ["add", "exp"] and found["shape"] == "4x33 4x33 -> 4x33"


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["doctor", str(tmp_path / "none.onnx")])
    assert done.exit_code != 0 and "none.onnx" in str(done.exception or done.output)
