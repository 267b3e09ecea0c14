"""Affine view of index expressions: ``const + sum(coefficient * atom)``.

An atom is anything that is no sum, difference or product with a literal. Terms keep the order in which they appear, so
that a rebuilt expression reads like the original.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.ir.prim_expr import Add, Div, FloorDiv, FloorMod, IntImm, Mod, Mul, PrimExpr, Sub

Terms = dict[PrimExpr, int]
Affine = tuple[Terms, int]


def add_affine(terms: Terms, other: Terms, scale: int) -> None:
    """Add ``scale * other`` to ``terms`` in place, dropping terms that cancel."""
    for atom, coef in other.items():
        total = terms.get(atom, 0) + coef * scale
        if total:
            terms[atom] = total
        else:
            del terms[atom]


def flatten(expr: PrimExpr, memo: dict[PrimExpr, Affine]) -> tuple[list[tuple[PrimExpr, int]], int]:
    """The atoms of ``expr`` with their coefficients, unmerged, in order of appearance, and the constant."""
    atoms: list[tuple[PrimExpr, int]] = []
    const = 0
    stack = [(expr, 1)]
    while stack:
        node, scale = stack.pop()
        known = memo.get(node)
        if known is not None:
            atoms += [(atom, coef * scale) for atom, coef in known[0].items()]
            const += known[1] * scale
            continue
        cls = type(node)
        if cls is Add:
            stack.append((node.b, scale))  # type: ignore[attr-defined]
            stack.append((node.a, scale))  # type: ignore[attr-defined]
        elif cls is Sub:
            stack.append((node.b, -scale))  # type: ignore[attr-defined]
            stack.append((node.a, scale))  # type: ignore[attr-defined]
        elif cls is IntImm:
            const += scale * node.value  # type: ignore[attr-defined]
        elif cls is Mul and type(node.b) is IntImm:  # type: ignore[attr-defined]
            stack.append((node.a, scale * node.b.value))  # type: ignore[attr-defined]
        elif cls is Mul and type(node.a) is IntImm:  # type: ignore[attr-defined]
            stack.append((node.b, scale * node.a.value))  # type: ignore[attr-defined]
        else:
            atoms.append((node, scale))
    return atoms, const


def merge(atoms: Iterable[tuple[PrimExpr, int]]) -> Terms:
    """Sum the coefficients of equal atoms."""
    terms: Terms = {}
    for atom, coef in atoms:
        terms[atom] = terms.get(atom, 0) + coef
    return terms if all(terms.values()) else {a: c for a, c in terms.items() if c}


def affine(expr: PrimExpr, memo: dict[PrimExpr, Affine]) -> Affine:
    """The affine view of ``expr``; the result is shared, do not change it."""
    known = memo.get(expr)
    if known is None:
        cls = type(expr)
        if cls is IntImm:
            known = ({}, expr.value)  # type: ignore[attr-defined]
        elif cls is Add or cls is Sub or cls is Mul:
            atoms, const = flatten(expr, memo)
            known = (merge(atoms), const)
        else:
            known = ({expr: 1}, 0)
        memo[expr] = known
    return known


def build(terms: Terms, const: int, dtype: str) -> PrimExpr:
    """The expression of an affine view: positive terms, a positive constant, negative terms, a negative constant."""
    result: PrimExpr | None = None
    negative = []
    for atom, coef in terms.items():
        if coef > 0:
            term = atom if coef == 1 else Mul(atom, IntImm(dtype, coef))
            result = term if result is None else Add(result, term)
        else:
            negative.append((atom, coef))
    if const > 0:
        literal = IntImm(dtype, const)
        result = literal if result is None else Add(result, literal)
    for atom, coef in negative:
        if result is None:
            result = Mul(atom, IntImm(dtype, coef))
        else:
            result = Sub(result, atom if coef == -1 else Mul(atom, IntImm(dtype, -coef)))
    if const < 0 and result is not None:
        result = Sub(result, IntImm(dtype, -const))
    return IntImm(dtype, const) if result is None else result


Monomial = tuple[PrimExpr, ...]
_LARGEST_POLYNOMIAL = 64


def _polynomial(expr: PrimExpr, memo: dict[PrimExpr, Affine], order: dict[PrimExpr, int]) -> dict[Monomial, int] | None:
    """Expand ``expr`` to coefficients of products of atoms; return None when it has too many terms."""
    atoms, const = flatten(expr, memo)
    total: dict[Monomial, int] = {(): const} if const else {}
    for atom, coef in atoms:
        parts: dict[Monomial, int] = {(atom,): 1}
        if type(atom) is Mul:
            a, b = _polynomial(atom.a, memo, order), _polynomial(atom.b, memo, order)
            if a is None or b is None or len(a) * len(b) > _LARGEST_POLYNOMIAL:
                return None
            parts = {}
            for x, cx in a.items():
                for y, cy in b.items():
                    product = tuple(sorted((*x, *y), key=lambda t: order.setdefault(t, len(order))))
                    parts[product] = parts.get(product, 0) + cx * cy
        for monomial, c in parts.items():
            total[monomial] = total.get(monomial, 0) + c * coef
    return {m: c for m, c in total.items() if c} if len(total) <= _LARGEST_POLYNOMIAL else None


def cancel_products(terms: Terms, const: int, dtype: str, memo: dict[PrimExpr, Affine]) -> Affine:
    """Expand products if terms cancel then: ``(x + 1)*n - x*n`` is ``n``."""
    if not any(type(t) is Mul for t in terms) or all(c > 0 for c in terms.values()):
        return terms, const
    order: dict[PrimExpr, int] = {}
    expanded = _polynomial(build(terms, const, dtype), memo, order)
    if expanded is None or len(expanded) - (() in expanded) >= len(terms):
        return terms, const
    const = expanded.pop((), 0)
    return {_product(m): c for m, c in expanded.items()}, const


def _product(factors: Monomial) -> PrimExpr:
    result = factors[0]
    for factor in factors[1:]:
        result = Mul(result, factor)
    return result


Split = tuple[PrimExpr, int, int | None]


def as_split(atom: PrimExpr) -> Split:
    """Return ``atom`` as ``(x % upper) // lower``: (x, lower, upper); ``upper`` None stands for no modulus."""
    cls = type(atom)
    if cls is FloorMod and type(atom.b) is IntImm:  # type: ignore[attr-defined]
        return atom.a, 1, atom.b.value  # type: ignore[attr-defined]
    if cls is FloorDiv and type(atom.b) is IntImm:  # type: ignore[attr-defined]
        inner, lower = atom.a, atom.b.value  # type: ignore[attr-defined]
        if type(inner) is FloorMod and type(inner.b) is IntImm and inner.b.value % lower == 0:
            return inner.a, lower, inner.b.value
        return inner, lower, None
    return atom, 1, None


def _any_split(atom: PrimExpr) -> tuple[PrimExpr, int, int | None, bool]:
    """Return ``as_split``, or the same for truncating division and remainder; the last item says which."""
    cls = type(atom)
    if cls is Mod and _by_positive(atom):
        return (*_truncated_split(atom.a, atom.b.value), True)  # type: ignore[attr-defined]
    if cls is Div and _by_positive(atom):
        inner, lower = atom.a, atom.b.value  # type: ignore[attr-defined]
        if type(inner) is Mod and _by_positive(inner) and inner.b.value % lower == 0:  # type: ignore[attr-defined]
            return inner.a, lower, inner.b.value, True  # type: ignore[attr-defined]
        return inner, lower, None, True
    return (*as_split(atom), False)


def _by_positive(e: PrimExpr) -> bool:
    return type(e.b) is IntImm and e.b.value > 0  # type: ignore[attr-defined]


def _truncated_split(x: PrimExpr, modulus: int) -> tuple[PrimExpr, int, int]:
    if type(x) is Div and _by_positive(x):
        return x.a, x.b.value, modulus * x.b.value  # type: ignore[attr-defined]
    return x, 1, modulus


def join_splits(terms: Terms, memo: dict[PrimExpr, Affine]) -> tuple[Terms, int]:
    """Put quotients and remainders of one value together again: ``(x//4)*4 + x%4`` is ``x``.

    Returns the new terms and a constant to add.
    """
    splits = [(a, _any_split(a)) for a in terms]
    if sum(1 for a, s in splits if s[0] is not a) == 0:
        return terms, 0
    const = 0
    changed = True
    while changed:
        changed = False
        for low_atom, (x, lower, upper, truncates) in splits:
            if upper is None:
                continue
            scale = terms[low_atom]
            for high_atom, (y, high_lower, high_upper, high_truncates) in splits:
                if high_lower != upper or high_truncates != truncates or terms[high_atom] * lower != scale * upper:
                    continue
                # either may have lost multiples of the divisor: (16*o + i) % 7 is (2*o + i) % 7
                if y is x or (lower == 1 and not truncates and _congruent(x, y, upper, memo)):
                    joined, extra = _joined(y, lower, high_upper, truncates, memo)
                    terms = {a: c for a, c in terms.items() if a is not low_atom and a is not high_atom}
                    add_affine(terms, joined, scale)
                    const += extra * scale
                    changed = True
                    break
            if changed:
                splits = [(a, _any_split(a)) for a in terms]
                break
    return terms, const


def join_named(terms: Terms, memo: dict[PrimExpr, Affine]) -> tuple[Terms, int]:
    """Put a quotient and a remainder by what is not a number together: ``(x//n)*n*4 + x%n*4`` is ``x*4``.

    Returns the new terms and a constant to add.
    """
    for low_atom, scale in terms.items():
        if type(low_atom) is not FloorMod or type(low_atom.b) is IntImm:
            continue
        quotient, divisor = FloorDiv(low_atom.a, low_atom.b), low_atom.b
        high_atom = next((m for m in (Mul(quotient, divisor), Mul(divisor, quotient)) if terms.get(m) == scale), None)
        if high_atom is not None:
            inner, const = affine(low_atom.a, memo)
            rest = {a: c for a, c in terms.items() if a is not low_atom and a is not high_atom}
            add_affine(rest, inner, scale)
            rest, more = join_named(rest, memo)
            return rest, const * scale + more
    return terms, 0


def remainders(terms: Terms, const: int, memo: dict[PrimExpr, Affine]) -> Affine:
    """Combine a value and its rounded-down part to a remainder: ``x - (x//4)*4`` is ``x%4``."""
    for atom, coef in terms.items():
        if type(atom) is not FloorDiv or type(atom.b) is not IntImm or coef % atom.b.value:
            continue
        times = -(coef // atom.b.value)
        inner, inner_const = affine(atom.a, memo)
        if len(inner) < len(terms) and all(terms.get(a) == c * times for a, c in inner.items()):
            rest = {a: c for a, c in terms.items() if a is not atom and a not in inner}
            add_affine(rest, {FloorMod(atom.a, atom.b): 1}, times)
            return remainders(rest, const - inner_const * times, memo)
    return terms, const


def _congruent(x: PrimExpr, y: PrimExpr, modulus: int, memo: dict[PrimExpr, Affine]) -> bool:
    """Return whether ``x - y`` is plainly a multiple of ``modulus``."""
    (x_terms, x_const), (y_terms, y_const) = affine(x, memo), affine(y, memo)
    difference = dict(x_terms)
    add_affine(difference, y_terms, -1)
    return drop_multiples(difference, x_const - y_const, modulus, memo) == ({}, 0)


def drop_multiples(terms: Terms, const: int, divisor: int, memo: dict[PrimExpr, Affine]) -> Affine:
    """Reduce a sum modulo ``divisor``: coefficients, and ``x % m`` to ``x`` if that makes no difference."""
    const %= divisor
    rest: Terms = {}
    again = False
    for atom, coef in terms.items():
        coef = coef % divisor if coef > 0 else -(-coef % divisor)
        if not coef:
            continue
        if type(atom) is FloorMod and type(atom.b) is IntImm and atom.b.value * coef % divisor == 0:
            x_terms, x_const = affine(atom.a, memo)
            add_affine(rest, x_terms, coef)
            const += x_const * coef
            again = True
        else:
            add_affine(rest, {atom: coef}, 1)
    return drop_multiples(rest, const, divisor, memo) if again else (rest, const)


def _joined(x: PrimExpr, lower: int, upper: int | None, truncates: bool, memo: dict[PrimExpr, Affine]) -> Affine:
    if upper is not None:
        x = (Mod if truncates else FloorMod)(x, IntImm(x.dtype, upper))
    if lower != 1:
        x = (Div if truncates else FloorDiv)(x, IntImm(x.dtype, lower))
    return affine(x, memo)
