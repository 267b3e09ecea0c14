"""Results that are kept by key and arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilewright.contrib.pickle_memoize import Cache, memoize

CALLS: list[int] = []


def product_with(factor: int) -> Any:
    """A function that multiplies, and says so in ``CALLS``."""

    @memoize("tests.contrib.product")
    def product(x: int) -> int:
        CALLS.append(x)
        return factor * x

    return product


def test_a_result_is_computed_once_for_the_same_arguments_and_closure() -> None:
    CALLS.clear()
    assert [product_with(f)(x) for f, x in ((2, 3), (2, 3), (5, 3), (2, 4))] == [6, 6, 15, 8]
    assert CALLS == [3, 3, 4]


def test_results_are_there_for_the_next_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("atexit.register", lambda func: None)
    first = Cache("tests.contrib.saved", save_at_exit=True)
    first.results[b"arguments"] = 7
    first.save()
    assert Cache("tests.contrib.saved", save_at_exit=True).results == {b"arguments": 7}
