"""The code generators in examples/byoc."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "byoc"


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("in_process", "modules: llvm, in_process, in_process\n"),
        ("c_source", "modules: llvm, c, c\n"),
        ("json_runtime", "modules: llvm, example_json, example_json\nparameters of the graph: 0\n"),
    ],
)
def test_the_example_runs_and_says_which_modules_there_are(
    name: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out == printed


def test_the_lesson_tells_where_operators_go_and_compares(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES.parent / "06_bring_your_own_codegen.py"))
    *fates, modules, end = capsys.readouterr().out.splitlines()
    assert [fate.split()[0] for fate in fates if " host " in fate] == ["argsort"]
    assert modules == "modules: llvm, dnnl_json" and end == "the same ranking as Tilewright's own kernels"


def test_every_example_is_run() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == ["c_source", "in_process", "json_runtime"]
