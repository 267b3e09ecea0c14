"""Normal forms of ``floordiv`` and ``floormod`` of affine expressions by a positive literal.

With ``a = c*q + r``, where ``r`` gathers the terms whose coefficient ``c`` does not divide::

    floordiv(a, c) = q + floordiv(r, c)        floormod(a, c) = floormod(r, c)
    0 <= r < c     : floordiv(r, c) = 0        floormod(r, c) = r
    r = g*s, g | c : floordiv(s, c/g)          g*floormod(s, c/g)
    r = g*s + t, 0 <= t < g, g | c : floordiv(s, c/g)   g*floormod(s, c/g) + t

The remaining terms form one ``FloorDiv`` or ``FloorMod`` atom.
"""

from __future__ import annotations

import math

from tilewright.arith.affine import Affine, Terms, add_affine, affine, as_split, build, drop_multiples
from tilewright.arith.bounds import NEG_INF, POS_INF, BoundAnalyzer
from tilewright.arith.context import Context
from tilewright.arith.modular import ModularAnalyzer
from tilewright.ir.prim_expr import FloorDiv, FloorMod, IntImm


class Divider:
    """Divides affine expressions, using bounds and modular sets of the context."""

    def __init__(self, context: Context, bounds: BoundAnalyzer, modular: ModularAnalyzer) -> None:
        self.context = context
        self.bounds = bounds
        self.modular = modular

    def quotient(self, terms: Terms, const: int, divisor: int) -> int | None:
        """floordiv of the affine form when it is one known constant."""
        low, high = self.bounds.of_affine(terms, const)
        if low == NEG_INF or high == POS_INF or low // divisor != high // divisor:
            return None
        return low // divisor

    def floordiv(self, terms: Terms, const: int, divisor: int, dtype: str) -> Affine:
        """floordiv(terms + const, divisor) as an affine form."""
        whole = {a: c // divisor for a, c in terms.items() if c % divisor == 0}
        rest = {a: c for a, c in terms.items() if c % divisor}
        whole_const, const = divmod(const, divisor)
        if not rest:
            return whole, whole_const
        known = self.quotient(rest, const, divisor)
        if known is not None:
            return whole, whole_const + known
        reduced = self._reduce(rest, const, divisor)
        if reduced is not None:
            big, big_const, small_divisor, _, _ = reduced
            inner, inner_const = self.floordiv(big, big_const, small_divisor, dtype)
        else:
            inner, inner_const = self._quotient_atom(rest, const, divisor, dtype)
        add_affine(whole, inner, 1)
        return whole, whole_const + inner_const

    def _reduce(self, rest: Terms, const: int, divisor: int) -> tuple[Terms, int, int, Terms, int] | None:
        """Write ``rest + const`` as ``g*big + small`` with ``0 <= small < g`` and g dividing the divisor.

        Returns (big, its constant, divisor / g, small, its constant) for the largest such g.
        """
        factors = {math.gcd(divisor, c) for c in rest.values()}
        for g in sorted(factors, reverse=True):
            if g == 1:
                break
            small = {a: c for a, c in rest.items() if c % g}
            low, high = self.bounds.of_affine(small, const % g)
            if low == NEG_INF or high == POS_INF or low // g != high // g:
                continue
            shift = low // g
            big = {a: c // g for a, c in rest.items() if c % g == 0}
            return big, const // g + shift, divisor // g, small, const % g - shift * g
        common = math.gcd(divisor, *rest.values())
        if common > 1:
            return {a: c // common for a, c in rest.items()}, const // common, divisor // common, {}, const % common
        return None

    def _quotient_atom(self, rest: Terms, const: int, divisor: int, dtype: str) -> Affine:
        if len(rest) == 1:
            ((atom, coef),) = rest.items()
            if coef == 1 and type(atom) is FloorDiv and type(atom.b) is IntImm and atom.b.value > 0:
                inner = atom.b.value  # floordiv(floordiv(x, inner) + k, c) = floordiv(x + k*inner, inner*c)
                x_terms, x_const = affine(atom.a, self.context.affine_memo)
                return self.floordiv(x_terms, x_const + const * inner, divisor * inner, dtype)
        return {FloorDiv(build(rest, const, dtype), IntImm(dtype, divisor)): 1}, 0

    def floormod(self, terms: Terms, const: int, divisor: int, dtype: str) -> Affine:
        """floormod(terms + const, divisor) as an affine form."""
        rest, const = drop_multiples(terms, const, divisor, self.context.affine_memo)
        if not rest:
            return {}, const
        known = self.quotient(rest, const, divisor)
        if known is not None:
            return rest, const - known * divisor
        coeff, base = self.modular.of_affine(rest, const)
        if coeff % divisor == 0:
            return {}, base % divisor
        reduced = self._reduce(rest, const, divisor)
        if reduced is not None:
            big, big_const, small_divisor, small, small_const = reduced
            factor = divisor // small_divisor
            inner, inner_const = self.floormod(big, big_const, small_divisor, dtype)
            result = dict(small)
            scaled: Terms = {}
            add_affine(scaled, inner, factor)
            add_affine(scaled, result, 1)
            return scaled, small_const + inner_const * factor
        return self._remainder_atom(rest, const, divisor, dtype)

    def _remainder_atom(self, rest: Terms, const: int, divisor: int, dtype: str) -> Affine:
        if len(rest) == 1 and const == 0:
            ((atom, coef),) = rest.items()
            x, lower, upper = as_split(atom)
            if coef == 1 and lower > 1 and (upper is None or upper % (lower * divisor) == 0):
                x_terms, x_const = affine(x, self.context.affine_memo)
                inner, inner_const = self.floormod(x_terms, x_const, lower * divisor, dtype)
                return self.floordiv(inner, inner_const, lower, dtype)
        return {FloorMod(build(rest, const, dtype), IntImm(dtype, divisor)): 1}, 0
