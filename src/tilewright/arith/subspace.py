"""Division of indices between the loops inside a block and those around it.

``subspace_divide`` brings each index to ``outer * extent + inner``, where ``inner``, in [0, extent), is an iterator of
``sub_iters`` and ``outer`` one of the other variables: with x in [0, 3), of ``z*12 + y*3 + x`` and [x], ``z*4 + y`` and
``x``.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.iter_map import (
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    detect_iter_map,
    divides,
    normalize_iter_map_to_expr,
)
from tilewright.ir import prim_ops as ops
from tilewright.ir.iter_var import Range
from tilewright.ir.prim_expr import PrimExpr, Var
from tilewright.ir.prim_vars import expr_vars


@dataclass(frozen=True)
class _Division:
    """A number of [0, outer.extent * inner.extent): ``outer * inner.extent + inner``."""

    outer: IterMark
    inner: IterMark


class _NotDivided(Exception):
    """Iterators of the block and others mix."""


class _Divider:
    def __init__(self, inside: Collection[Var]) -> None:
        self.inside = inside
        self.analyzer = Analyzer()
        self.memo: dict[IterMark, _Division] = {}
        self.outer_conditions: list[PrimExpr] = []
        self.inner_conditions: list[PrimExpr] = []

    def index(self, index: IterSumExpr) -> _Division:
        """Return an index as ``detect_iter_map`` does: one iterator at most, and an offset."""
        found = self._whole(index)
        sum_ = found.inner.source
        assert isinstance(sum_, IterSumExpr)
        moved = IterSumExpr(sum_.args, self.analyzer.simplify(sum_.base + index.base))
        return _Division(found.outer, IterMark(moved, found.inner.extent))

    def _whole(self, index: IterSumExpr) -> _Division:
        nothing = IterMark(IterSumExpr((), ops.const(0, index.dtype)), 1)
        if not index.args:
            return _Division(nothing, nothing)
        (split,) = index.args
        equal = self.analyzer.can_prove_equal
        all_of_it = ops.is_const_int(split.lower_factor, 1) and equal(split.extent, split.source.extent)
        if isinstance(split.source.source, IterSumExpr) and all_of_it and ops.is_const_int(split.scale, 1):
            return self._mark(split.source)
        inner, part = self._split(split)
        mark = IterMark(IterSumExpr((part,), ops.const(0, index.dtype)), split.extent)
        return _Division(nothing, mark) if inner else _Division(mark, nothing)

    def _split(self, split: IterSplitExpr) -> tuple[bool, IterSplitExpr]:
        """Return whether a split belongs to the block, and the split over its part of the iterator."""
        source = split.source.source
        if not isinstance(source, IterSumExpr):
            used = [v for v in expr_vars(source) if v in self.inside]
            return bool(used), split
        division = self._mark(split.source)
        if ops.is_const_int(division.outer.extent, 1):
            return True, split
        below = division.inner.extent
        if ops.is_const_int(below, 1):
            return False, split
        if divides(below, split.lower_factor, self.analyzer):
            lower = self.analyzer.simplify(ops.floordiv(split.lower_factor, below))
            return False, split.replace(source=division.outer, lower_factor=lower)
        if divides(self.analyzer.simplify(split.lower_factor * split.extent), below, self.analyzer):
            return True, split.replace(source=division.inner)
        raise _NotDivided

    def _mark(self, mark: IterMark) -> _Division:
        if mark not in self.memo:
            self.memo[mark] = self._divide(mark)
        return self.memo[mark]

    def _divide(self, mark: IterMark) -> _Division:
        source = mark.source
        assert isinstance(source, IterSumExpr)
        simplify = self.analyzer.simplify
        extents = {True: ops.const(1, source.dtype), False: ops.const(1, source.dtype)}
        parts: dict[bool, list[IterSplitExpr]] = {True: [], False: []}
        for arg in reversed(source.args):
            inner, part = self._split(arg)
            if inner and parts[False]:
                raise _NotDivided
            if not inner:
                part = part.replace(scale=simplify(ops.floordiv(arg.scale, extents[True])))
            parts[inner].insert(0, part)
            extents[inner] = simplify(extents[inner] * arg.extent)
        if not self.analyzer.can_prove_equal(extents[True] * extents[False], mark.extent):
            if parts[True] and parts[False]:
                raise _NotDivided
            side = bool(parts[True])
            bounded = normalize_iter_map_to_expr(IterSumExpr(parts[side], ops.const(0, source.dtype))) < mark.extent
            (self.inner_conditions if side else self.outer_conditions).append(bounded)
            extents[side] = mark.extent
        zero = ops.const(0, source.dtype)
        return _Division(*(IterMark(IterSumExpr(parts[side], zero), extents[side]) for side in (False, True)))


def subspace_divide(
    bindings: Sequence[Any],
    input_iters: Mapping[Var, Range],
    sub_iters: Sequence[Var],
    predicate: Any = True,
    require_bijective: bool = False,
) -> list[list[IterMark]]:
    """Write each of ``bindings`` as ``outer * inner.extent + inner``, where only ``inner`` depends on ``sub_iters``.

    Args:
        bindings: integer expressions.
        input_iters: the ranges of their variables.
        sub_iters: the variables of the block; all others are of the loops around it.
        predicate: upper bounds that hold, as :func:`detect_iter_map` takes them.
        require_bijective: whether every value of every variable must be used just once.

    Returns:
        ``[outer, inner]`` for each binding, and last one such pair whose extents are the conditions that are left of
        ``predicate`` on the loops around the block and inside of it. [] when there is no such form.
    """
    found = detect_iter_map(bindings, input_iters, predicate, require_bijective)
    if not found:
        return []
    divider = _Divider(frozenset(sub_iters))
    try:
        divisions = [divider.index(one) for one in found]
    except _NotDivided:
        return []
    zero = IterSumExpr((), ops.const(0, "int32"))
    conditions = [
        IterMark(zero, functools.reduce(ops.logical_and, given, ops.const(True, "bool")))
        for given in (divider.outer_conditions, divider.inner_conditions)
    ]
    return [[d.outer, d.inner] for d in divisions] + [conditions]
