"""What commands print of names in files cannot drive a terminal."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from tests.driver.command import ROOT, tilewright

_EVIL = "\x1b]0;evil\x07\x9b2J"
_SHOWN = "\\x1b]0;evil\\x07\\x9b2J"


def _model(path: Path, op: str = "Relu") -> Path:
    shape = [1, 4]
    x, y = (helper.make_tensor_value_info(f"{n}{_EVIL}", TensorProto.FLOAT, shape) for n in "xy")
    node = helper.make_node(op, [x.name], [y.name], name=f"n{_EVIL}", domain="" if op == "Relu" else f"d{_EVIL}")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(f"d{_EVIL}", 1)]
    onnx.save(helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets), path)
    return path


def _safe(text: str, shown: str = _SHOWN) -> None:
    assert shown in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    result = tilewright("compile", _model(folder / "m.onnx"), "-o", folder / "m.so", "-q")
    assert result.returncode == 0, result.stderr
    return folder / "m.so"


@pytest.mark.parametrize("options", [["--fill", "ones"], ["--fill", "ones", "--json"], []])
def test_names_of_outputs_and_inputs(library: Path, options: list[str]) -> None:
    result = tilewright("run", library, *options)
    _safe(result.stdout + result.stderr, "evil")


def test_info(library: Path) -> None:
    _safe(tilewright("info", library).stdout)


def test_show(tmp_path: Path) -> None:
    _safe(tilewright("show", _model(tmp_path / "m.onnx")).stdout, "evil")


def test_errors_of_the_importer(tmp_path: Path) -> None:
    _safe(tilewright("compile", _model(tmp_path / "m.onnx", f"Op{_EVIL}"), "-o", tmp_path / "m.so").stderr, "evil")


def test_the_commands_print_by_one_module() -> None:
    files = sorted((ROOT / "src/tilewright/driver").glob("*.py"))
    direct = [f.name for f in files if f.name != "report.py" and re.search(r"(?<![\w.])print\(", f.read_text())]
    assert not direct, f"{direct} print what may be names from files: use report.print_text, which escapes them"
