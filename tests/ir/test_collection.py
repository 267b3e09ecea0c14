"""Garbage is collected rarely while the compiler works."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tilewright.ir.collection import rare_collections


@pytest.fixture
def usual() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield gc.get_threshold()
    gc.set_threshold(*before)


def test_the_thresholds_come_back_with_the_last_builder(usual: tuple[int, int, int]) -> None:
    with rare_collections():
        assert gc.get_threshold()[0] > usual[0]
        with rare_collections():
            pass
        assert gc.get_threshold()[0] > usual[0]
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("own", [0, 10**6])
def test_what_the_program_chose_stays(usual: tuple[int, int, int], own: int) -> None:
    gc.set_threshold(own, 5, 5)
    with rare_collections():
        assert gc.get_threshold() == (own, 5, 5)
    assert gc.get_threshold() == (own, 5, 5)
