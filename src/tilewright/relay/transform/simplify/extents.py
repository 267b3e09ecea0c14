"""Extents as products, so that named ones divide: ``batch*12`` is 12 times ``batch``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import IntImm, Mul


@dataclass(frozen=True)
class Extent:
    """``number`` times the expressions ``names``, which are in canonical order."""

    number: int
    names: tuple[Any, ...] = ()

    @staticmethod
    def of(dim: Any) -> Extent:
        """Return the extent of a number, or of an expression over named dimensions."""
        if isinstance(dim, Extent):
            return dim
        if isinstance(dim, (int, IntImm)):
            return Extent(int(dim))
        if isinstance(dim, Mul):
            return Extent.of(dim.a) * Extent.of(dim.b)
        return Extent(1, (dim,))

    def __mul__(self, other: Extent) -> Extent:
        return Extent(self.number * other.number, tuple(sorted((*self.names, *other.names), key=id)))

    def over(self, other: Extent) -> Extent | None:
        """Return the quotient, or None where ``other`` does not divide this."""
        rest = Counter(self.names)
        rest.subtract(other.names)
        if not other.number or self.number % other.number or any(n < 0 for n in rest.values()):
            return None
        return Extent(self.number // other.number, tuple(sorted(rest.elements(), key=id)))

    @property
    def is_one(self) -> bool:
        """Return whether it is the number 1."""
        return self == ONE


ONE = Extent(1)


def product(extents: Sequence[Extent]) -> Extent:
    """Return the product of extents."""
    return math.prod(extents, start=ONE)


def reshape_codes(have: Sequence[Extent], want: Sequence[Extent]) -> list[int] | None:
    """Return the ``newshape`` of a reshape from ``have`` to ``want``, with codes for named extents, or None.

    >>> reshape_codes([Extent(1, (batch,)), Extent(12), Extent(64)], [Extent(12, (batch,)), Extent(64)])
    [-3, 64]
    """
    unknown = sum(bool(e.names) for e in want)
    if unknown <= 1:
        return [-1 if e.names else e.number for e in want]
    codes: list[int] = []
    i = j = 0
    while any(e.names for e in want[j:]):
        if i == len(have):
            return None
        if have[i] == want[j]:
            codes.append(want[j].number if not want[j].names else 0)
            i, j = i + 1, j + 1
        elif i + 1 < len(have) and have[i] * have[i + 1] == want[j]:
            codes.append(-3)
            i, j = i + 2, j + 1
        elif j + 1 < len(want) and want[j] * want[j + 1] == have[i] and not (want[j].names and want[j + 1].names):
            codes += [-4, *(-1 if e.names else e.number for e in want[j : j + 2])]
            i, j = i + 1, j + 2
        else:
            return None
    return [*codes, *(e.number for e in want[j:])]


def known_extents(dims: Sequence[Any] | None) -> list[Extent] | None:
    """Return the dimensions as extents; None where one is unknown, or the tensor is empty."""
    if dims is None or any(isinstance(d, AnyDim) or (isinstance(d, int) and d == 0) for d in dims):
        return None
    return [Extent.of(d) for d in dims]
