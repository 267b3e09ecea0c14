"""What differs is read from git's text, and pytest runs the closest cases while there is time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.selection.__main__ import parse_diff
from tests.selection.closeness import ROOT
from tests.selection.plugin import Durations, ordered


class Case(SimpleNamespace):
    """What the plug-in reads of a case."""

    def __init__(self, nodeid: str):
        super().__init__(nodeid=nodeid, name="", originalname=nodeid.split("::")[1].split("[")[0])


CASES = [Case(f"test_a.py::test_far[{i}]") for i in range(20)] + [
    Case("test_a.py::test_near"),
    Case("test_b.py::test_b"),
]


def names(scores: dict[str, dict[str, float]], slow: dict[str, float]) -> list[str]:
    return [case.originalname for case in ordered(CASES, scores, slow)]  # type: ignore[arg-type]


def test_changed_lines_are_those_of_the_new_file() -> None:
    text = """--- a/src/a.py
+++ b/src/a.py
@@ -3 +4,2 @@ def f():
-x
+y
+z
@@ -9,2 +11,0 @@
-gone
-gone
--- a/old.py
+++ /dev/null
@@ -1,5 +0,0 @@
"""
    assert parse_diff(text) == {"src/a.py": {4, 5, 11, 12}, "old.py": {0, 1}}


def test_close_functions_and_files_come_first_and_many_cases_in_rounds() -> None:
    first = ["test_near", *["test_far"] * 7, "test_b"]
    assert names({"test_a.py": {"test_near": 5.0}, "test_b.py": {}}, {}) == first + ["test_far"] * 13
    assert names({"test_b.py": {}, "test_a.py": {}}, {})[0] == "test_b"


def test_slow_cases_come_last() -> None:
    assert names({"test_b.py": {}, "test_a.py": {}}, {"test_b.py::test_b": 4.0})[-1] == "test_b"


def test_slow_cases_are_those_of_the_last_run_of_each() -> None:
    kept = {"a": 9.0, "b": 5.0}
    cache = SimpleNamespace(get=lambda key, default: kept, set=lambda key, value: kept.update({"set": value}))
    durations = Durations(SimpleNamespace(cache=cache))  # type: ignore[arg-type]
    for case, phases in {"a": (0.1, 0.2), "c": (2.0, 1.5)}.items():
        for seconds in phases:
            durations.pytest_runtest_logreport(SimpleNamespace(nodeid=case, duration=seconds))  # type: ignore[arg-type]
    durations.pytest_sessionfinish()
    assert kept["set"] == {"b": 5.0, "c": 3.5}


@pytest.mark.parametrize(("until", "ran"), [(0, "1 passed"), (1, "no tests ran")])
def test_nothing_starts_when_the_time_is_over(tmp_path: Path, until: int, ran: str) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_a.py").write_text("def test_a(): pass\n")
    (tmp_path / "order.json").write_text("{}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.selection.plugin", f"--until={until}", tmp_path]
    said = subprocess.run([*command, f"--order={tmp_path}/order.json"], cwd=ROOT, capture_output=True, text=True).stdout
    assert ran in said
