"""Extents with names multiply and divide, and reshapes between them have codes."""

from __future__ import annotations

import pytest

from tilewright.ir.prim_expr import Any, DimVar
from tilewright.relay.transform.simplify.extents import ONE, Extent, known_extents, product, reshape_codes

B, S = DimVar("b"), DimVar("s")
b, s = Extent.of(B), Extent.of(S)


def test_products_have_no_order() -> None:
    assert Extent.of(B * 12) == Extent.of(12) * b == product([Extent(3), b, Extent(4)])
    assert Extent.of(B * S) == s * b


def test_quotients() -> None:
    assert Extent.of(B * 12).over(b) == Extent(12)
    assert Extent.of(B * 12).over(Extent(4)) == b * Extent(3)
    assert b.over(s) is None and Extent(12).over(Extent(5)) is None and b.over(b * b) is None
    assert (b * s).over(s * b) == ONE


@pytest.mark.parametrize(
    ("have", "want", "codes"),
    [
        ((2, 3, 4), (6, 4), [6, 4]),
        ((B, 12, 64), (B * 12, 64), [-1, 64]),
        ((B * 12, S, 64), (B, 12, S, 64), [-4, -1, 12, 0, 64]),
        ((B, 12, S, 64), (B * 12, S, 64), [-3, 0, 64]),
        ((B, S, 768), (B, S, 12, 64), [0, 0, 12, 64]),
        ((B, S, 12, 64), (B, S, 768), [0, 0, 768]),
        ((B, S), (S, B), None),
        ((B * S, 4), (B, S, 4), None),
    ],
)
def test_codes_of_reshapes(have: tuple, want: tuple, codes: list[int] | None) -> None:
    assert reshape_codes([Extent.of(d) for d in have], [Extent.of(d) for d in want]) == codes


def test_what_is_not_known_has_no_extents() -> None:
    assert known_extents((2, Any())) is None and known_extents((B, 0)) is None and known_extents(None) is None
    assert known_extents((2, B)) == [Extent(2), b]
