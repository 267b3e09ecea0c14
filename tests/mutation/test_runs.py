"""A mutant's code takes the original's place in functions that are loaded, and in processes that load it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.mutation.__main__ import report
from tests.mutation.patch import Calls, LoadedFunctions
from tests.mutation.runs import environment

SOURCE = """LIMIT = 1

def add(x, y):
    return x + y

class Scale:
    factor = 2

    def by(self, x):
        return (lambda v: v * self.factor)(x)
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "mutated.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("mutated", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["mutated"] = module
    return module


def found(module: ModuleType, old: str, new: str) -> list[str] | None:
    """Give functions of a module their mutants' code; return their names."""
    functions = LoadedFunctions(str(Path(str(module.__file__)).parent))
    changed = functions.find(str(module.__file__), SOURCE, SOURCE.replace(old, new))
    for function, code in changed or ():
        function.__code__ = code
    return changed if changed is None else [f.__qualname__ for f, _ in changed]


def test_a_function_gets_its_mutants_code(module: ModuleType) -> None:
    assert found(module, "x + y", "x - y") == ["add"] and module.add(5, 3) == 2


def test_a_function_inside_a_method_is_changed_with_the_method(module: ModuleType) -> None:
    assert found(module, "v * self", "v + self") == ["Scale.by"] and module.Scale().by(5) == 7


@pytest.mark.parametrize("old", ["LIMIT = 1", "factor = 2"])
def test_constants_of_modules_and_classes_need_a_new_process(module: ModuleType, old: str) -> None:
    assert found(module, old, old[:-1] + "7") is None


def test_what_is_not_loaded_needs_no_change(module: ModuleType) -> None:
    assert LoadedFunctions("/nowhere").find("/nowhere/a.py", SOURCE, SOURCE.replace("+", "-")) == []


def test_code_that_ran_is_known(module: ModuleType) -> None:
    calls = Calls()
    calls.start()
    module.add(1, 2)
    calls.stop()
    assert id(module.add.__code__) in calls.codes and id(module.Scale.by.__code__) not in calls.codes


def test_processes_load_the_mutants_text(tmp_path: Path) -> None:
    (tmp_path / "mutated.py").write_text(SOURCE)
    (tmp_path / "mutant").write_text(SOURCE.replace("LIMIT = 1", "LIMIT = 7"))
    variables = environment(str(tmp_path / "mutated.py"), str(tmp_path / "mutant"))
    command = [sys.executable, "-c", "import mutated; print(mutated.LIMIT)"]
    for expected, more in (("1", {}), ("7", variables)):
        path = os.pathsep.join([str(tmp_path), more.get("PYTHONPATH", "")])
        said = subprocess.run(command, env=os.environ | more | {"PYTHONPATH": path}, capture_output=True, text=True)
        assert said.stdout == f"{expected}\n"


def test_the_report_counts_each_area() -> None:
    results = {("arith", "test"): "killed", ("te/schedule", "test"): "survived", ("te/schedule", "full"): "timed out"}
    records = [{"path": f"src/tilewright/{a}/x.py", "tier": t, "result": r} for (a, t), r in results.items()]
    lines = report(records).splitlines()
    assert lines[2] == "| `arith` | 1 | 1 | 0 | 0 | 0 of 0 tried |"
    assert lines[-1] == "| all | 2 | 1 | 0 | 1 | 1 of 1 tried |"
