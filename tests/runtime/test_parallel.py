"""Work on several threads: all of it is done, once, and an error goes on."""

from __future__ import annotations

import os

import pytest

from tilewright.runtime.parallel import in_parallel


@pytest.mark.parametrize("processors", [1, 3])
def test_each_item_is_worked_on_once(processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(processors)))
    done: list[int] = []
    in_parallel(done.append, range(100))
    assert sorted(done) == list(range(100))


@pytest.mark.parametrize("processors", [1, 3])
def test_an_error_goes_on(processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(processors)))

    def fail(item: int) -> None:
        if item == 7:
            raise ValueError("seven")

    with pytest.raises(ValueError, match="seven"):
        in_parallel(fail, range(100))
