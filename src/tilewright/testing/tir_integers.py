"""Integer expressions of the TIR interpreter, compiled to one Python function each."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.prim_ops import wrap_int
from tilewright.tir.expr import Add, FloorDiv, FloorMod, IntImm, Mul, PrimExpr, Sub, Var

Code = Callable[[dict[Any, Any]], Any]

OPERATORS: dict[type, str] = {Add: "+", Sub: "-", Mul: "*", FloorDiv: "//", FloorMod: "%"}
_DEEPEST = 20  # Python's parser takes some 100 parentheses


def _integer_source(e: PrimExpr, parts: list[Any], depth: int) -> str | None:
    """Python's source of an integer expression of ``env`` and ``p0``, ``p1``, ..., which are added to ``parts``.

    Each step wraps around as its dtype does. None where the expression has other parts, or is too deep.
    """
    if isinstance(e, (Var, IntImm)):
        parts.append(e if isinstance(e, Var) else e.value)
        return f"env[p{len(parts) - 1}]" if isinstance(e, Var) else f"p{len(parts) - 1}"
    sign = OPERATORS.get(type(e))
    if sign is None or depth > _DEEPEST or not dt.is_int(e.dtype) or dt.lanes(e.dtype) > 1:
        return None
    a, b = _integer_source(e.a, parts, depth + 1), _integer_source(e.b, parts, depth + 1)  # type: ignore[attr-defined]
    if a is None or b is None:
        return None
    if sign in ("//", "%"):  # by a positive constant the result is in range
        positive = isinstance(e.b, IntImm) and e.b.value > 0  # type: ignore[attr-defined]
        return f"({a} {sign} {b})" if positive else None
    low, high = dt.int_range(e.dtype)
    number = len(parts)
    parts.append(None)
    return f"(p{number} if {low} <= (p{number} := {a} {sign} {b}) <= {high} else wrap_int(int(p{number}), {e.dtype!r}))"


@cache
def _factory(source: str, count: int) -> Callable[..., Code]:
    """Return the factory of code for expressions of one form, from their parts."""
    made: Callable[..., Code] = eval(
        f"lambda {', '.join(f'p{i}' for i in range(count))}: lambda env: {source}", {"wrap_int": wrap_int}
    )
    return made


def integer_code(e: PrimExpr) -> Code | None:
    """Return code for sums and products of variables and constants; None if ``e`` has other parts."""
    parts: list[Any] = []
    source = _integer_source(e, parts, 0)
    return None if source is None else _factory(source, len(parts))(*parts)
