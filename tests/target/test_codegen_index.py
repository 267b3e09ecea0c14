"""What code generators know of indices."""

from __future__ import annotations

import pytest

from tilewright.target.codegen.common.index import Divisors
from tilewright.tir import Var


@pytest.mark.parametrize("row", [1, 3, 8, 1 << 20, 3 << 19, 1200001])
def test_what_is_said_to_divide_an_index_does(row: int) -> None:
    """Vectors are loaded as if they were aligned by it: a fault where it is not so."""
    i, j = Var("i", "int32"), Var("j", "int32")
    found = Divisors().of(i * row + j * 8)
    assert [(a * row + b * 8) % found for a in range(3) for b in range(3)] == [0] * 9
