"""Quasi-affine maps of iterators: indices that are sums, splits and fusions of loop variables.

Grammar::

    mark  ::= IterMark(source, extent)                           a number of [0, extent): a variable, or a sum
    split ::= IterSplitExpr(mark, lower_factor, extent, scale)   floormod(floordiv(mark, lower_factor), extent) * scale
    sum   ::= IterSumExpr(split*, base)

``detect_iter_map`` brings indices to that form: with x in [0, 3) and y in [0, 4), ``y*3 + x + 7`` is one iterator of
[0, 12) plus 7. A condition such as ``y*3 + x < 10`` makes it one of [0, 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.bounds import INDEX_DTYPES
from tilewright.arith.int_set import IntSet
from tilewright.ir import prim_ops as ops
from tilewright.ir.iter_var import Range
from tilewright.ir.node import InternedNode
from tilewright.ir.prim_expr import GE, GT, LE, LT, And, IntImm, Mul, PrimExpr, Var
from tilewright.ir.prim_functor import ExprFunctor
from tilewright.ir.prim_vars import expr_vars


class IterMark(InternedNode):
    """An iterator of [0, extent): ``source`` is a variable, or a sum of other iterators."""

    source: PrimExpr
    extent: PrimExpr

    def __new__(cls, source: Any, extent: Any) -> Self:
        return cls._of(source, ops.as_expr(extent))


class IterMapExpr(PrimExpr):
    """Base of sums and splits."""

    def __str__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self.field_values())})"


class IterSplitExpr(IterMapExpr):
    """``floormod(floordiv(source, lower_factor), extent) * scale``; the whole iterator by default."""

    source: IterMark
    lower_factor: PrimExpr
    extent: PrimExpr
    scale: PrimExpr

    def __new__(cls, source: IterMark, lower_factor: Any = 1, extent: Any = None, scale: Any = 1) -> Self:
        dtype = source.source.dtype
        extent = source.extent if extent is None else extent
        return cls._of(dtype, source, *(ops.as_expr(e, dtype) for e in (lower_factor, extent, scale)))

    def replace(self, **changes: Any) -> IterSplitExpr:
        """Return a copy of this split with some fields changed; its dtype is the source's."""
        return IterSplitExpr(**({name: value for name, value in self.field_values() if name != "dtype"} | changes))


class IterSumExpr(IterMapExpr):
    """``sum(args) + base``."""

    args: tuple[IterSplitExpr, ...]
    base: PrimExpr

    def __new__(cls, args: Sequence[IterSplitExpr], base: Any) -> Self:
        base = ops.as_expr(base, args[0].dtype if args else None)
        return cls._of(base.dtype, tuple(args), base)


Flat = tuple[IterSplitExpr, ...]


class _Unresolved(Exception):
    """Raised when an expression is no such map."""


def _is_same(a: IterSplitExpr, b: IterSplitExpr) -> bool:
    """Return whether two splits differ by their scales at most."""
    return a.source is b.source and a.lower_factor is b.lower_factor and a.extent is b.extent


class _Detector(ExprFunctor[IterSumExpr]):
    """Rewrites expressions to sums of splits; fused iterators are known by their parts without groups ("flat")."""

    def __init__(self, iterators: Mapping[Var, Range], analyzer: Analyzer) -> None:
        super().__init__()
        self.analyzer = analyzer
        self.sums: dict[Var, IterSumExpr] = {}
        self.inputs: list[IterMark] = []
        self.fused: dict[Flat, IterMark] = {}
        self.flat: dict[PrimExpr, Flat] = {}
        self.constraints: list[Flat] = []
        for var, dom in iterators.items():
            if ops.is_const_int(dom.extent, 1):
                self.sums[var] = IterSumExpr((), dom.min)
                continue
            mark = IterMark(var if ops.is_const_int(dom.min, 0) else var - dom.min, dom.extent)
            self.inputs.append(mark)
            self.sums[var] = IterSumExpr((IterSplitExpr(mark),), dom.min)

    # ---- expressions ----

    def visit_prim(self, e: PrimExpr) -> IterSumExpr:
        """Refuse iterators inside anything but arithmetic."""
        if any(v in self.sums for v in expr_vars(e)):
            raise _Unresolved
        return IterSumExpr((), e)

    def visit_var(self, e: Var) -> IterSumExpr:
        """An iterator, or a constant."""
        return self.sums[e] if e in self.sums else IterSumExpr((), e)

    def visit_add(self, e: Any) -> IterSumExpr:
        """Sums."""
        return self._plus(self.visit_expr(e.a), self.visit_expr(e.b), 1) if _is_index(e) else self.visit_prim(e)

    def visit_sub(self, e: Any) -> IterSumExpr:
        """Differences."""
        return self._plus(self.visit_expr(e.a), self.visit_expr(e.b), -1) if _is_index(e) else self.visit_prim(e)

    def _plus(self, a: IterSumExpr, b: IterSumExpr, sign: int) -> IterSumExpr:
        args = list(a.args)
        for arg in b.args:
            at = next((i for i, known in enumerate(args) if _is_same(known, arg)), None)
            scale = self._simple(arg.scale * sign)
            if at is None:
                args.append(arg.replace(scale=scale))
                continue
            scale = self._simple(args[at].scale + scale)
            args[at : at + 1] = [] if ops.is_const_int(scale, 0) else [arg.replace(scale=scale)]
        return IterSumExpr(args, self._simple(a.base + b.base * sign))

    def visit_mul(self, e: Any) -> IterSumExpr:
        """Multiply by a value without iterators."""
        if not _is_index(e):
            return self.visit_prim(e)
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        if a.args and b.args:
            raise _Unresolved
        if b.args:
            a, b = b, a
        if ops.is_const_int(b.base, 0):
            return IterSumExpr((), b.base)
        args = [arg.replace(scale=self._simple(arg.scale * b.base)) for arg in a.args]
        return IterSumExpr(args, self._simple(a.base * b.base))

    def visit_floor_div(self, e: Any) -> IterSumExpr:
        """Quotients of an iterator."""
        split, by = self._operands(e)
        if not isinstance(split, IterSplitExpr):
            return IterSumExpr((), self._simple(ops.floordiv(split, by)))
        if not ops.is_const_int(split.scale, 1):
            if self._divides(by, split.scale):
                return self._sum(split.replace(scale=self._quotient(split.scale, by)))
            if not self._divides(split.scale, by):
                raise _Unresolved
            split, by = split.replace(scale=ops.const(1, split.dtype)), self._quotient(by, split.scale)
        if not self._divides(by, split.extent):
            raise _Unresolved
        lower = self._simple(split.lower_factor * by)
        return self._sum(split.replace(lower_factor=lower, extent=self._quotient(split.extent, by)))

    def visit_floor_mod(self, e: Any) -> IterSumExpr:
        """Remainders of an iterator."""
        split, by = self._operands(e)
        if not isinstance(split, IterSplitExpr):
            return IterSumExpr((), self._simple(ops.floormod(split, by)))
        if self._divides(by, split.scale):
            return IterSumExpr((), ops.const(0, split.dtype))
        if not ops.is_const_int(split.scale, 1):
            if not self._divides(split.scale, by):
                raise _Unresolved
            by = self._quotient(by, split.scale)
        if not self._divides(by, split.extent):
            raise _Unresolved
        return self._sum(split.replace(extent=by))

    def _operands(self, e: Any) -> tuple[PrimExpr, PrimExpr]:
        """Return one iterator, or a value without iterators, and its divisor."""
        if not _is_index(e):
            raise _Unresolved
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        if b.args or (a.args and not ops.is_const_int(a.base, 0)):
            raise _Unresolved
        if not a.args:
            return a.base, b.base
        return a.args[0] if len(a.args) == 1 else self.fuse(a.args), b.base

    @staticmethod
    def _sum(split: IterSplitExpr) -> IterSumExpr:
        return IterSumExpr((split,), ops.const(0, split.dtype))

    def _simple(self, e: PrimExpr) -> PrimExpr:
        return self.analyzer.simplify(e)

    def _quotient(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        left = _without_factors(a, b)
        return self._simple(ops.floordiv(a, b) if left is None else left)

    def _divides(self, divisor: PrimExpr, e: PrimExpr) -> bool:
        return divides(divisor, e, self.analyzer)

    # ---- fusion ----

    def fuse(self, args: Flat) -> IterSplitExpr:
        """A sum of splits as one iterator: each scale is the product of those below it."""
        literals = [arg for arg in args if isinstance(arg.scale, IntImm)]
        if not literals:
            raise _Unresolved
        arg: IterSplitExpr | None = min(literals, key=lambda a: a.scale.value)  # type: ignore[attr-defined]
        assert arg is not None
        base, ratio = arg.scale, ops.const(1, arg.dtype)
        left = list(args)
        flat: list[IterSplitExpr] = []
        grouped: list[IterSplitExpr] = []
        while left:
            if flat:
                arg = self._with_scale(left, base * ratio)
            assert arg is not None
            constraint = self._constraint_from(arg)
            if constraint is None:
                left = [one for one in left if one is not arg]
                flat.append(arg.replace(scale=ratio))
                grouped.append(flat[-1])
            else:
                taken, left = self._take(left, constraint, base, ratio)
                flat += taken
                grouped.append(IterSplitExpr(self.fused[constraint], scale=ratio))
            ratio = self._simple(ratio * grouped[-1].extent)
        key = tuple(reversed(flat))
        if key not in self.fused:
            source = IterSumExpr(grouped[::-1], ops.const(0, arg.dtype))
            self.fused[key] = IterMark(source, ratio)
            self.flat[source] = key
        return IterSplitExpr(self.fused[key], scale=base)

    def _with_scale(self, args: Iterable[IterSplitExpr], scale: PrimExpr) -> IterSplitExpr:
        for arg in args:
            if self.analyzer.can_prove_equal(arg.scale, scale):
                return arg
        raise _Unresolved

    def _constraint_from(self, arg: IterSplitExpr) -> Flat | None:
        """The longest condition whose innermost iterator is ``arg``."""
        found = [c for c in self.constraints if _is_same(c[-1], arg)]
        return max(found, key=len) if found else None

    def _take(
        self, left: list[IterSplitExpr], constraint: Flat, base: PrimExpr, ratio: PrimExpr
    ) -> tuple[list[IterSplitExpr], list[IterSplitExpr]]:
        """Return the iterators of a condition, and the remaining ones."""
        taken = []
        for wanted in reversed(constraint):
            same = [arg for arg in left if _is_same(arg, wanted)]
            arg = self._with_scale(same, wanted.scale * base * ratio)
            left = [one for one in left if one is not arg]
            taken.append(arg.replace(scale=self._simple(wanted.scale * ratio)))
        return taken, left

    # ---- conditions ----

    def constrain(self, e: PrimExpr, bound: PrimExpr) -> None:
        """Record ``e < bound``."""
        found = self.visit_expr(e)
        if not found.args or not ops.is_const_int(found.base, 0):
            raise _Unresolved
        split = self.fuse(found.args)
        if not ops.is_const_int(split.scale, 1):
            raise _Unresolved
        key = self.flat[split.source.source]
        extent = self._simple(ops.minimum(bound, split.source.extent))
        self.fused[key] = IterMark(split.source.source, extent)
        self.constraints.append(key)

    def constraints_are_nested(self) -> bool:
        """Return whether of any two conditions the iterators of one are all among those of the other, or none."""
        for i, inner in enumerate(self.constraints):
            for outer in self.constraints[i + 1 :]:
                if len({any(_is_same(a, b) for b in outer) for a in inner}) > 1:
                    return False
        return True

    def constraints_hold_in(self, splits: Mapping[IterMark, Any]) -> bool:
        """Return whether the iterators of a condition are used only together, as the one that the condition bounds."""
        return all(self.fused[key] in splits or not any(s.source in splits for s in key) for key in self.constraints)

    def index(self, e: PrimExpr) -> IterSumExpr:
        """An index as one iterator and an offset."""
        found = self.visit_expr(e)
        if not found.args or (len(found.args) == 1 and self._constraint_from(found.args[0]) is None):
            return found
        return IterSumExpr((self.fuse(found.args),), found.base)


def _is_index(e: PrimExpr) -> bool:
    return e.dtype in INDEX_DTYPES


def _factors(e: PrimExpr) -> list[PrimExpr]:
    return _factors(e.a) + _factors(e.b) if isinstance(e, Mul) else [e]


def _without_factors(e: PrimExpr, divisor: PrimExpr) -> PrimExpr | None:
    """Return ``e`` divided by ``divisor``, if that is a product of some of its factors; extents are not 0."""
    left = _factors(e)
    for factor in _factors(divisor):
        at = next((i for i, one in enumerate(left) if one is factor), None)
        if at is None:
            return None
        del left[at]
    result = ops.const(1, e.dtype)
    for one in left:
        result = result * one
    return result


def divides(divisor: PrimExpr, e: PrimExpr, analyzer: Analyzer) -> bool:
    """Return whether ``e`` is certainly a multiple of ``divisor``."""
    if isinstance(divisor, IntImm) and isinstance(e, IntImm):
        return divisor.value != 0 and e.value % divisor.value == 0
    if _without_factors(e, divisor) is not None:
        return True
    return analyzer.can_prove_equal(e, divisor) or analyzer.can_prove(ops.equal(ops.floormod(e, divisor), 0))


def _upper_bounds(predicate: Any) -> list[tuple[PrimExpr, PrimExpr]]:
    """Return the upper bounds in a conjunction: of ``a < m && b < n``, [(a, m), (b, n)]."""
    found, work = [], [ops.as_expr(predicate)]
    while work:
        cond = work.pop()
        if isinstance(cond, And):
            work += [cond.b, cond.a]
        elif isinstance(cond, (LT, LE)):
            found.append((cond.a, cond.b if isinstance(cond, LT) else cond.b + 1))
        elif isinstance(cond, (GT, GE)):
            found.append((cond.b, cond.a if isinstance(cond, GT) else cond.a + 1))
        elif not (isinstance(cond, IntImm) and cond.value):
            raise _Unresolved
    return found


# ---- independence ----


def collect_splits(sums: Iterable[IterSumExpr]) -> dict[IterMark, list[IterSplitExpr]]:
    """The splits in which each iterator is used."""
    splits: dict[IterMark, list[IterSplitExpr]] = {}
    work = list(sums)
    while work:
        for split in work.pop().args:
            if split.source not in splits and isinstance(split.source.source, IterSumExpr):
                work.append(split.source.source)
            splits.setdefault(split.source, []).append(split)
    return splits


def _are_independent(mark: IterMark, splits: list[IterSplitExpr], bijective: bool, analyzer: Analyzer) -> bool:
    """Return whether splits do not overlap, and cover the iterator or leave whole factors of it."""
    left, factor = list(splits), ops.const(1, mark.source.dtype)
    while left:
        found = next((s for s in left if analyzer.can_prove_equal(s.lower_factor, factor)), None)
        if found is None:
            if bijective or not all(divides(factor, s.lower_factor, analyzer) for s in left):
                return False
            found = left[0]
            for split in left[1:]:
                if divides(split.lower_factor, found.lower_factor, analyzer):
                    found = split
        left.pop(next(i for i, split in enumerate(left) if split is found))
        factor = analyzer.simplify(found.lower_factor * found.extent)
    return analyzer.can_prove_equal(factor, mark.extent) if bijective else divides(factor, mark.extent, analyzer)


def detect_iter_map(
    indices: Sequence[Any], input_iters: Mapping[Var, Range], predicate: Any = True, require_bijective: bool = False
) -> list[IterSumExpr]:
    """Each of ``indices`` as an iterator and an offset; [] when they are not of that form, or not independent.

    Args:
        indices: integer expressions.
        input_iters: the ranges of their variables.
        predicate: upper bounds that hold, ``a < m && b < n``, of parts of the indices.
        require_bijective: whether every value of every variable must be used just once.
    """
    analyzer = Analyzer()
    if any(v in input_iters for dom in input_iters.values() for e in (dom.min, dom.extent) for v in expr_vars(e)):
        return []
    detector = _Detector(input_iters, analyzer)
    try:
        for e, bound in sorted(_upper_bounds(predicate), key=lambda pair: len(str(pair[0]))):
            detector.constrain(e, bound)
        if not detector.constraints_are_nested():
            return []
        detector.memo.clear()
        found = [detector.index(ops.as_expr(e)) for e in indices]
    except _Unresolved:
        return []
    splits = collect_splits(found)
    if not detector.constraints_hold_in(splits):
        return []
    if require_bijective and not all(mark in splits for mark in detector.inputs):
        return []
    if all(_are_independent(mark, uses, require_bijective, analyzer) for mark, uses in splits.items()):
        return found
    return []


# ---- back to expressions ----


def normalize_iter_map_to_expr(expr: IterMapExpr) -> PrimExpr:
    """A sum or split as an expression of its variables."""
    analyzer = Analyzer()
    if isinstance(expr, IterSumExpr):
        total = ops.const(0, expr.dtype)
        for arg in expr.args:
            total = total + _expr_of_split(arg, analyzer)
        return total + expr.base
    assert isinstance(expr, IterSplitExpr)
    return _expr_of_split(expr, analyzer)


def _expr_of_split(split: IterSplitExpr, analyzer: Analyzer) -> PrimExpr:
    mark = split.source
    value = normalize_iter_map_to_expr(mark.source) if isinstance(mark.source, IterMapExpr) else mark.source
    if ops.is_const_int(split.lower_factor, 1) and analyzer.can_prove_equal(split.extent, mark.extent):
        return value * split.scale
    value = ops.floordiv(value, split.lower_factor)
    if not analyzer.can_prove_equal(mark.extent, split.lower_factor * split.extent):
        value = ops.floormod(value, split.extent)
    return value * split.scale


def inverse_affine_iter_map(iter_map: Sequence[IterSumExpr], outputs: Sequence[Any]) -> dict[Var, PrimExpr]:
    """Return the variables in terms of a bijective map's values: of [l // 16, l % 16] and (a, b), {l: a*16 + b}.

    Raises:
        ValueError: the map has another number of values, or is not bijective.
    """
    if len(iter_map) != len(outputs):
        raise ValueError(f"a map of {len(iter_map)} values has no inverse of {len(outputs)}")
    analyzer = Analyzer()
    values: dict[PrimExpr, PrimExpr] = {}
    inverse: dict[Var, PrimExpr] = {}
    for expr, output in zip(iter_map, outputs, strict=True):
        _accumulate(values, expr, ops.as_expr(output))
    for one in _from_outputs(iter_map):
        if one not in values:
            continue
        if isinstance(one, IterSumExpr):
            _split_value(one, values[one] - one.base, values)
            continue
        assert isinstance(one, IterSplitExpr)
        source, part = one.source.source, values[one] * one.lower_factor
        if isinstance(source, IterSumExpr):
            _accumulate(values, source, part)
            continue
        if not isinstance(source, Var):
            raise ValueError(f"the range of {source} does not begin with 0; the map has no inverse here")
        inverse[source] = analyzer.simplify(inverse[source] + part) if source in inverse else part
    return {var: analyzer.simplify(value) for var, value in inverse.items()}


def _accumulate(values: dict[PrimExpr, PrimExpr], key: PrimExpr, value: PrimExpr) -> None:
    values[key] = values[key] + value if key in values else value


def _split_value(expr: IterSumExpr, value: PrimExpr, values: dict[PrimExpr, PrimExpr]) -> None:
    """Distribute the value of a sum over its splits."""
    for arg in expr.args:
        part = ops.floordiv(value, arg.scale)
        _accumulate(values, arg, part if len(expr.args) == 1 else ops.floormod(part, arg.extent))


def _from_outputs(sums: Sequence[IterSumExpr]) -> list[PrimExpr]:
    """All sums and splits, each after those that it is part of."""
    order: list[PrimExpr] = []
    seen: set[PrimExpr] = set()
    stack: list[tuple[PrimExpr, bool]] = [(e, False) for e in sums]
    while stack:
        e, done = stack.pop()
        if done:
            order.append(e)
            continue
        if e in seen:
            continue
        seen.add(e)
        stack.append((e, True))
        parts = e.args if isinstance(e, IterSumExpr) else (e.source.source,)  # type: ignore[attr-defined]
        stack += [(part, False) for part in parts if isinstance(part, IterMapExpr)]
    return order[::-1]


# ---- regions ----


def estimate_region_lower_bound(
    region: Sequence[Range], var_dom: Mapping[Var, Range], predicate: Any
) -> list[IntSet] | None:
    """Return intervals, by dimension, whose elements a region that moves with variables certainly reaches.

    None if that is not known.

    Args:
        region: the ranges of the dimensions.
        var_dom: the ranges of the variables in them.
        predicate: what holds of the variables, as in :func:`detect_iter_map`.
    """
    found = detect_iter_map([r.min for r in region], var_dom, predicate)
    if len(found) != len(region):
        return None
    analyzer = Analyzer()
    result = []
    for one, dim in zip(found, region, strict=True):
        extent = dim.extent
        for split in one.args:  # it steps by the scale: without gaps if the range is as wide
            if not analyzer.can_prove(ops.logical_and(split.scale >= 1, dim.extent >= split.scale)):
                return None
            extent = extent + (split.extent - 1) * split.scale
        result.append(IntSet.from_range(Range.from_min_extent(one.base, analyzer.simplify(extent))))
    return result
