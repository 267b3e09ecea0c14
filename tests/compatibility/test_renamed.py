"""Names of the last release work, and say what they are called now (docs/compatibility.md)."""

from __future__ import annotations

import importlib
import warnings

import numpy as np
import pytest

from tilewright.runtime import renamed, vm


@pytest.fixture(autouse=True)
def _nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process."""
    monkeypatch.setattr(renamed, "_noted", set())


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("tilewright.tir.transform", "SpecializeRests", "SpecializeTails"),
        ("tilewright.topi.loops", "team", "thread_group"),
        ("tilewright.topi.loops", "Team", "ThreadGroup"),
    ],
)
def test_an_old_name_is_the_new_object(module: str, old: str, new: str) -> None:
    namespace = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        assert getattr(namespace, old) is getattr(namespace, new)


def test_with_room_is_with_capacity() -> None:
    with pytest.warns(DeprecationWarning, match="now with_capacity"):
        assert vm.with_room(np.zeros((1, 0, 4), "float32"), 1, 8).shape == (1, 0, 4)


def test_a_name_is_announced_once(recwarn: pytest.WarningsRecorder) -> None:
    warnings.simplefilter("always")
    for _ in range(3):
        assert vm.with_room(np.zeros((1, 0, 4), "float32"), 1, 8).shape == (1, 0, 4)
    (told,) = recwarn
    assert told.filename == __file__
