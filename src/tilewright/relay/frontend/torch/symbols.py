"""Torch's symbolic sizes as named dimensions, and their arithmetic as expressions over these.

An integer of a program is a Python number, or a :class:`Size`: an expression over named dimensions that is known while
compiling, or a scalar that is computed when the program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import DimVar, PrimExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.relay.frontend.dimensions import element, is_number
from tilewright.relay.op.relations import dim_add, dim_floordiv, dim_map, dim_mul

_MOST = 1 << 31  # bounds from here on mean that there is none


@dataclass(frozen=True)
class Size:
    """An integer that is not known as a number: its expression over dimensions (None: unknown), and its value."""

    dim: PrimExpr | None
    value: RelayExpr | None = None


class Symbols:
    """The named dimensions of a program, one for each symbol of torch's.

    ``names`` are other names of symbols, ``limits`` what is known of dimensions by name, ``ranges`` torch's bounds.
    """

    def __init__(
        self, names: Mapping[str, str] | None = None, limits: Mapping[str, Any] | None = None, ranges: Any = None
    ) -> None:
        self._names, self._limits = dict(names or {}), dict(limits or {})
        self._ranges = {str(symbol): bounds for symbol, bounds in dict(ranges or {}).items()}
        self._dims: dict[str, PrimExpr] = {}
        self._used: set[str] = set()

    def check_limits(self) -> None:
        """Refuse limits of names that no dimension has."""
        if unknown := [name for name in self._limits if name not in self._used]:
            names = sorted({d.name for d in self._dims.values() if isinstance(d, DimVar)} | self._used)
            known = ", ".join(names) or "none"
            raise TilewrightError(f"no input has a dimension {unknown[0]!r}; the named dimensions are: {known}")

    @property
    def known(self) -> dict[str, PrimExpr]:
        """The dimensions by name."""
        return dict(self._dims)

    def declare(self, value: Any, what: str) -> Any:
        """Return a dimension of an input: a number or an expression; its symbols get dimensions, of the name ``what``
        if they have none.
        """
        if not isinstance(value, torch.SymInt):
            return int(value)
        if is_plain(value):
            return int(value)
        for symbol in sorted(value.node.expr.free_symbols, key=str):
            name = what if value.node.expr.is_Symbol else str(symbol)
            self._declare_symbol(str(symbol), self._names.get(str(symbol), name), value.node.shape_env)
        found = self.dim(value)
        return AnyDim() if found is None else found

    def _declare_symbol(self, symbol: str, name: str, shape_env: Any) -> None:
        if symbol in self._dims:
            return
        bounds = self._ranges.get(symbol)
        if bounds is None and shape_env is not None:
            bounds = {str(s): r for s, r in shape_env.var_to_range.items()}.get(symbol)
        low, high = (0, None) if bounds is None else (_bound(bounds.lower, 0), _bound(bounds.upper, None))
        multiple = 1
        if name in self._limits:
            low, high, multiple = _given(name, self._limits[name], low or 0, high)
            self._used.add(name)
        self._dims[symbol] = as_expr(low) if low == high else DimVar(name, low or 0, high, multiple)

    def dim(self, value: Any) -> Any:
        """Return a size as a number or an expression over dimensions; None where it has none."""
        if isinstance(value, Size):
            return value.dim
        if not isinstance(value, torch.SymInt):
            return int(value)
        if is_plain(value):
            return int(value)
        found = self._expr(value.node.expr)
        return element(found) if isinstance(found, PrimExpr) else found

    def size(self, value: Any) -> Any:
        """Return a size of torch's as an integer of the program."""
        found = self.dim(value)
        return int(found) if is_number(found) else Size(found)

    def _expr(self, expr: Any) -> Any:
        if expr.is_Symbol:
            return self._dims.get(str(expr))
        if expr.is_Integer:
            return int(expr)
        rule = _RULES.get(type(expr).__name__)
        parts = [self._expr(arg) for arg in expr.args]
        if rule is None or any(part is None for part in parts):
            return None
        return element(as_expr(rule(*parts)))


def is_plain(value: Any) -> bool:
    """Return whether a symbolic number is a number."""
    return not isinstance(value, torch.SymInt) or value.node.expr.is_number


def _bound(value: Any, default: int | None) -> int | None:
    try:
        number = int(value)
    except (TypeError, OverflowError, ValueError, AttributeError):  # infinities of sympy
        return default
    return default if number >= _MOST or number < 0 else number


def _given(name: str, given: Any, low: int, high: int | None) -> tuple[int, int | None, int]:
    limits = (given, given) if isinstance(given, int) else tuple(given)
    if len(limits) not in (2, 3) or not all(x is None or isinstance(x, int) for x in limits):
        raise TilewrightError(
            f"the dimension {name!r} is a number, (least, largest) or (least, largest, multiple), not {given!r}"
        )
    least, most, multiple = (*limits, 1)[:3]
    if least < low or (high is not None and (most is None or most > high)):
        known = f"from {low}" + ("" if high is None else f" to {high}")
        raise TilewrightError(f"the dimension {name!r} was exported {known}; the limits {given!r} are not within")
    return least, most, multiple


def _power(base: Any, exponent: Any) -> Any:
    return dim_mul(*[base] * exponent) if is_number(exponent) and 0 <= exponent <= 8 else None


def _mod(a: Any, b: Any) -> Any:
    return a % b if is_number(a) and is_number(b) else dim_map(lambda x, y: as_expr(x) % y, as_expr(a), as_expr(b))


def _extreme(which: str) -> Callable[..., Any]:
    from tilewright.tir import max as larger
    from tilewright.tir import min as smaller

    build = larger if which == "max" else smaller

    def apply(first: Any, *rest: Any) -> Any:
        for other in rest:
            first = dim_map(lambda x, y: build(as_expr(x), as_expr(y)), as_expr(first), as_expr(other))
        return first

    return apply


_RULES: dict[str, Callable[..., Any]] = {
    "Add": dim_add, "Mul": dim_mul, "Pow": _power, "PowByNatural": _power,
    "FloorDiv": dim_floordiv, "CleanDiv": dim_floordiv,
    "Mod": _mod, "PythonMod": _mod, "Max": lambda *xs: _extreme("max")(*xs), "Min": lambda *xs: _extreme("min")(*xs),
}  # fmt: skip
