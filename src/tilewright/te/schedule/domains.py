"""Propagation of ranges, values and marks through the splits and fuses of a stage.

"Down" goes from the root axes to the leaves, "up" from the leaves to the root axes. For ``i`` in 0..10 split by 4:

    pass_down_domain   i: [0, 10)                      ->  i.outer: [0, 3), i.inner: [0, 4)
    pass_up_index      i.outer: a, i.inner: b          ->  i: a*4 + b
    pass_up_domain     i.outer: {a}, i.inner: [0, 3]   ->  i: [a*4, a*4 + 3]
    bound_predicates                                   ->  i.outer*4 + i.inner < 10
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from tilewright.arith import Analyzer, IntSet
from tilewright.arith.int_set import IntSetEvaluator
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm, PrimExpr, Var
from tilewright.te.schedule.stage import Fuse, Rebase, Relation, Split, Stage
from tilewright.tir.expr import IterVar, IterVarType, Range
from tilewright.tir.visitor import stmt_vars

Ranges = dict[IterVar, Range]


def zero_range(extent: PrimExpr) -> Range:
    """Return the range 0 .. extent - 1."""
    return Range.from_min_extent(ops.const(0, extent.dtype), extent)


def _ceil_div(a: PrimExpr, b: PrimExpr, analyzer: Analyzer) -> PrimExpr:
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return IntImm(a.dtype, -(-a.value // b.value))
    return analyzer.simplify(ops.floordiv(a + (b - 1), b))


def _smaller(extent: PrimExpr, limit: PrimExpr, analyzer: Analyzer) -> PrimExpr:
    """Return ``extent`` if it is known to be below ``limit``, else ``limit``: a split never makes a loop longer.

    A literal limit stays when the extent is none: loops that are unrolled or vectorized need literal extents.
    """
    if isinstance(limit, IntImm):
        return extent if isinstance(extent, IntImm) and extent.value < limit.value else limit
    return extent if analyzer.can_prove(extent < limit) else limit


def pass_down_domain(stage: Stage, ranges: Ranges, analyzer: Analyzer, private: Container[IterVar] = ()) -> None:
    """Fill in the ranges of all axes from those of the root axes; loops of ``private`` are serial, though bound."""
    on_threads = _leads_to_thread(stage, private)
    for relation in stage.relations:
        if isinstance(relation, Split):
            _split_range(relation, ranges, analyzer, on_threads)
        elif isinstance(relation, Fuse):
            ranges[relation.fused] = zero_range(
                analyzer.simplify(ranges[relation.outer].extent * ranges[relation.inner].extent)
            )
        elif isinstance(relation, Rebase):
            ranges[relation.rebased] = zero_range(ranges[relation.parent].extent)
        else:
            ranges[relation.iter] = Range(0, 1)


def _split_range(relation: Split, ranges: Ranges, analyzer: Analyzer, on_threads: Container[IterVar]) -> None:
    extent = ranges[relation.parent].extent
    if relation.factor is not None:
        factor = ops.cast(extent.dtype, relation.factor)
        inner = factor if relation.inner in on_threads else _smaller(extent, factor, analyzer)
        outer = _ceil_div(extent, factor, analyzer)
    else:
        assert relation.nparts is not None
        nparts = ops.cast(extent.dtype, relation.nparts)
        outer = nparts if relation.outer in on_threads else _smaller(extent, nparts, analyzer)
        inner = _ceil_div(extent, nparts, analyzer)
    ranges[relation.outer], ranges[relation.inner] = zero_range(outer), zero_range(inner)


def _leads_to_thread(stage: Stage, private: Container[IterVar]) -> set[IterVar]:
    """Return axes that are bound to threads, or from which a bound loop is made: their extents are not reduced."""
    bound = {iv for iv, attr in stage.iter_var_attrs.items() if attr.bind_thread is not None}
    marked = {iv for iv in bound if iv not in private}
    for relation in reversed(stage.relations):
        if isinstance(relation, Split) and relation.inner in marked:
            marked.add(relation.parent)
        elif isinstance(relation, Fuse) and relation.fused in marked:
            marked |= {relation.outer, relation.inner}
    return marked


def pass_up_index(stage: Stage, ranges: Mapping[IterVar, Range], values: dict[IterVar, PrimExpr]) -> None:
    """Fill in the values of all axes from those of the leaves; axes made from leaves without a value are left out."""
    for relation in reversed(stage.relations):
        if isinstance(relation, Split):
            if relation.outer in values and relation.inner in values:
                value = values[relation.outer] * ranges[relation.inner].extent + values[relation.inner]
                values[relation.parent] = _offset(ranges[relation.parent].min, value)
        elif isinstance(relation, Fuse):
            if relation.fused in values:
                value, factor = values[relation.fused], ranges[relation.inner].extent
                outer, inner = _div_mod(value, factor, ranges[relation.fused].extent)
                values[relation.outer] = _offset(ranges[relation.outer].min, outer)
                values[relation.inner] = _offset(ranges[relation.inner].min, inner)
        elif isinstance(relation, Rebase) and relation.rebased in values:
            values[relation.parent] = _offset(ranges[relation.parent].min, values[relation.rebased])


def _offset(low: PrimExpr, value: PrimExpr) -> PrimExpr:
    """Add ``low`` to ``value``, with the outer loops first for readability."""
    return value + low if isinstance(low, IntImm) else low + value


def _div_mod(value: PrimExpr, factor: PrimExpr, extent: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    if extent is factor:  # the outer loop has one iteration
        return ops.const(0, value.dtype), value
    return ops.floordiv(value, factor), ops.floormod(value, factor)


def _covers(found: IntSet, whole: Range) -> bool:
    """Return whether ``found`` is exactly the range ``whole``."""
    return found.low is whole.min and found.high is _last(whole)


def _last(r: Range) -> PrimExpr:
    return IntSet.from_range(r).max_value


def pass_up_domain(
    stage: Stage, ranges: Mapping[IterVar, Range], state: dict[IterVar, IntSet], analyzer: Analyzer
) -> None:
    """Fill in the sets of values of all axes from those of the leaves."""
    for relation in reversed(stage.relations):
        if isinstance(relation, Split):
            state[relation.parent] = _split_set(relation, ranges, state, analyzer)
        elif isinstance(relation, Fuse):
            _fused_sets(relation, ranges, state, analyzer)
        elif isinstance(relation, Rebase):
            whole = ranges[relation.parent]
            rebased = state[relation.rebased]
            if _covers(rebased, ranges[relation.rebased]):
                state[relation.parent] = IntSet.from_range(whole)
            else:
                state[relation.parent] = shift(rebased, whole.min, analyzer)


def shift(found: IntSet, offset: PrimExpr, analyzer: Analyzer) -> IntSet:
    """Add ``offset`` to every element."""
    if ops.is_const_int(offset, 0):
        return found
    if found.is_single_point():
        return IntSet.single_point(analyzer.simplify(found.min_value + offset))
    return IntSet.interval(analyzer.simplify(found.min_value + offset), analyzer.simplify(found.max_value + offset))


def _split_set(
    relation: Split, ranges: Mapping[IterVar, Range], state: Mapping[IterVar, IntSet], analyzer: Analyzer
) -> IntSet:
    outer, inner, whole = state[relation.outer], state[relation.inner], ranges[relation.parent]
    # One block that is longer than the axis may be: what is computed for it stays of literal length.
    padded = isinstance(ranges[relation.inner].extent, IntImm) and not isinstance(whole.extent, IntImm)
    padded = padded and ops.is_const_int(ranges[relation.outer].extent, 1)
    if not padded and _covers(outer, ranges[relation.outer]) and _covers(inner, ranges[relation.inner]):
        return IntSet.from_range(whole)
    factor = ranges[relation.inner].extent
    low = analyzer.simplify(outer.min_value * factor + inner.min_value + whole.min)
    if outer.is_single_point() and inner.is_single_point():
        return IntSet.single_point(low)
    high = analyzer.simplify(outer.max_value * factor + inner.max_value + whole.min)
    return IntSet(low, high, factor.value if inner.is_single_point() and isinstance(factor, IntImm) else 1)


def _fused_sets(
    relation: Fuse, ranges: Mapping[IterVar, Range], state: dict[IterVar, IntSet], analyzer: Analyzer
) -> None:
    fused, outer_range, inner_range = state[relation.fused], ranges[relation.outer], ranges[relation.inner]
    extent = inner_range.extent
    if _covers(fused, ranges[relation.fused]):
        state[relation.outer], state[relation.inner] = IntSet.from_range(outer_range), IntSet.from_range(inner_range)
        return
    if fused.is_single_point():
        outer, inner = _div_mod(fused.min_value, extent, ranges[relation.fused].extent)
        state[relation.outer] = IntSet.single_point(analyzer.simplify(outer + outer_range.min))
        state[relation.inner] = IntSet.single_point(analyzer.simplify(inner + inner_range.min))
        return
    low, high = fused.min_value, fused.max_value
    length = analyzer.simplify(high - low + 1)
    state[relation.outer] = IntSet.interval(
        analyzer.simplify(ops.floordiv(low, extent) + outer_range.min),
        analyzer.simplify(ops.floordiv(high, extent) + outer_range.min),
    )
    one_row = _divides(length, extent, analyzer) and _divides(length, low, analyzer)
    if one_row:  # the values never wrap around to the next iteration of the outer loop
        start = ops.floormod(low, extent) + inner_range.min
        state[relation.inner] = IntSet.interval(analyzer.simplify(start), analyzer.simplify(start + length - 1))
    else:
        state[relation.inner] = IntSet.from_range(inner_range)


def _divides(divisor: PrimExpr, value: PrimExpr, analyzer: Analyzer) -> bool:
    if ops.is_const_int(divisor, 0):
        return False
    return ops.is_const_int(analyzer.simplify(ops.floormod(value, divisor)), 0)


def pass_down_mask(stage: Stage, marks: dict[IterVar, int]) -> None:
    """Or the bits of root axes into everything made from them; axes without a mark have none."""
    for relation in stage.relations:
        if isinstance(relation, Split):
            mark = marks.get(relation.parent, 0)
            for iv in (relation.outer, relation.inner):
                marks[iv] = marks.get(iv, 0) | mark
        elif isinstance(relation, Fuse):
            marks[relation.fused] = marks.get(relation.outer, 0) | marks.get(relation.inner, 0)
        elif isinstance(relation, Rebase):
            marks[relation.rebased] = marks.get(relation.parent, 0)
        else:
            marks.setdefault(relation.iter, 0)


def _children(relation: Relation) -> tuple[IterVar, ...]:
    if isinstance(relation, Split):
        return relation.outer, relation.inner
    if isinstance(relation, Fuse):
        return (relation.fused,)
    return (relation.rebased,) if isinstance(relation, Rebase) else (relation.iter,)


def _axes_to_test(stage: Stage, ranges: Mapping[IterVar, Range], analyzer: Analyzer) -> set[IterVar]:
    """Return the axes that need a test, since an uneven split makes their loops run past their range.

    An axis that is the outer part of a split, or part of a fuse, needs none: the test of what it is split from, or of
    the fused axis, implies it.
    """
    overrun: set[IterVar] = set()
    needed: set[IterVar] = set()
    for relation in reversed(stage.relations):
        if isinstance(relation, Split):
            if relation.inner in overrun:
                needed.add(relation.inner)
            whole = ranges[relation.parent].extent
            product = ranges[relation.outer].extent * ranges[relation.inner].extent
            divides = product is whole or analyzer.can_prove_equal(whole, product)
            if relation.outer in overrun or not divides:
                overrun.add(relation.parent)
        elif isinstance(relation, Fuse) and relation.fused in overrun:
            needed.add(relation.fused)
        elif isinstance(relation, Rebase) and relation.rebased in overrun:
            overrun.add(relation.parent)
    return needed | (overrun & set(stage.op.root_iter_vars))


def bound_predicates(
    stage: Stage,
    ranges: Mapping[IterVar, Range],
    values: Mapping[IterVar, PrimExpr],
    skip_domain: bool,
    skip: Container[IterVar],
    analyzer: Analyzer,
    outer_ranges: Mapping[Var, Range],
) -> list[PrimExpr]:
    """Return conditions that keep the loops of ``stage`` inside its axes; those that always hold are left out.

    Parameters
    ----------
    values : the axes in terms of the loop variables
    skip_domain : do not test that root axes stay inside the operation's own domain
    skip : axes that have no loop here
    outer_ranges : ranges of every loop variable that may occur, for proofs
    """
    found: list[PrimExpr] = []

    def limits(value: PrimExpr) -> IntSet:
        used = {v: outer_ranges[v] for v in stmt_vars(value) if v in outer_ranges}
        return IntSetEvaluator(used, analyzer).evaluate(value)

    def in_loops(condition: PrimExpr) -> PrimExpr:
        known = Analyzer()
        for v in stmt_vars(condition):
            if v in outer_ranges:
                known.bind(v, outer_ranges[v])
        return known.simplify(condition)

    to_test = _axes_to_test(stage, ranges, analyzer)
    for iv in stage.all_iter_vars:
        if iv in skip or iv not in to_test:
            continue
        whole = ranges[iv]
        value = analyzer.simplify(values[iv] - whole.min)
        if not _below(limits(value), whole.extent, analyzer):
            found.append(in_loops(value < whole.extent))
    for iv in stage.op.root_iter_vars:
        if iv in skip or iv.iter_type is IterVarType.Opaque or skip_domain or iv.dom is None:
            continue
        if iv.dom.min is ranges[iv].min and iv.dom.extent is ranges[iv].extent:
            continue
        value = analyzer.simplify(values[iv] - iv.dom.min)
        region = limits(value)
        if region.low is None or not analyzer.can_prove(region.low >= 0):
            found.append(in_loops(value >= 0))
        if not _below(region, iv.dom.extent, analyzer):
            found.append(in_loops(value < iv.dom.extent))
    return list(dict.fromkeys(found))


def _below(region: IntSet, extent: PrimExpr, analyzer: Analyzer) -> bool:
    return region.high is not None and analyzer.can_prove(region.high < extent)
