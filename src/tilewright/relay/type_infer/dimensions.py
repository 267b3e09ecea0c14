"""Assumptions of type inference about dimensions that are variables.

A relation that meets a variable where it needs a number cannot decide. ``noted`` collects the conditions; shape
functions check them at run time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any as AnyType

from tilewright.ir.prim_expr import Any, DimVar, IntImm, PrimExpr


@dataclass(frozen=True)
class Equal:
    """Condition that two dimensions are equal; or, with ``or_one``, that one of them is 1."""

    a: PrimExpr
    b: PrimExpr
    or_one: bool = False


@dataclass(frozen=True)
class AtLeast:
    """Condition that a dimension is no less than a number, or another dimension."""

    dim: PrimExpr
    least: PrimExpr | int


Condition = Equal | AtLeast

_noted: ContextVar[list[Condition] | None] = ContextVar("noted dimensions", default=None)


@contextmanager
def noted() -> Iterator[list[Condition]]:
    """Collect the assumptions made in the block."""
    found: list[Condition] = []
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def note_equal(a: AnyType, b: AnyType, or_one: bool = False) -> bool:
    """Note that two dimensions must be equal, where one is a variable; return whether one may rely on that.

    Outside of a ``noted`` block equality is assumed too, and found again for each kernel, which checks it; a
    dimension that may be 1 instead is then unknown.
    """
    found = _noted.get()
    if isinstance(a, Any) or isinstance(b, Any) or a is b:
        return False
    if not any(isinstance(d, PrimExpr) and not isinstance(d, IntImm) for d in (a, b)):
        return False
    if found is None:
        return not or_one
    found.append(Equal(a, b, or_one))
    return True


def note_at_least(dim: PrimExpr, least: PrimExpr | int) -> None:
    """Note that a dimension must be ``least`` or more, where one is a variable and that is not known to hold."""
    found = _noted.get()
    known = isinstance(dim, IntImm) and isinstance(least, (int, IntImm))
    if found is None or known or dim is least or isinstance(dim, Any) or isinstance(least, Any):
        return
    if isinstance(dim, DimVar) and isinstance(least, (int, IntImm)) and dim.low >= int(least):
        return
    found.append(AtLeast(dim, least))
