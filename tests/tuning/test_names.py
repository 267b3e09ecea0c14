"""What tuning is made of has TVM 0.8's names too, and those of earlier releases: one module under each."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from tilewright.moved import MOVED, SameModule


@pytest.mark.parametrize(("name", "own"), MOVED.items())
def test_a_module_that_moved_is_itself_under_its_other_name(name: str, own: str) -> None:
    module = importlib.import_module(name)
    assert module is importlib.import_module(own)
    assert module.__name__ == own
    assert module.__spec__ is not None
    assert module.__spec__.name == own


def test_a_module_of_a_package_that_moved_is_not_loaded_twice() -> None:
    from tilewright.autotvm.tuner.ga_tuner import GATuner

    from tilewright.tuning.tuner import ga_tuner

    assert GATuner is ga_tuner.GATuner


def test_a_name_that_only_begins_like_a_moved_one_is_not_found() -> None:
    assert SameModule({"a.b": "x"}).own_name("a.bc") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tilewright.autotvm.tuner.no_such")


def test_templates_and_records_load_nothing_that_runs_a_tuning() -> None:
    program = "import sys, tilewright.autotvm.store; print([m for m in sys.modules if 'tuning' in m or 'relay' in m])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
