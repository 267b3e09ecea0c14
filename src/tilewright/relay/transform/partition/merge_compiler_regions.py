"""MergeCompilerRegions: merge adjacent regions of one compiler.

Before, between two operators for the compiler ``my``::

    %2 = annotation.compiler_end(%1, compiler="my");
    %3 = annotation.compiler_begin(%2, compiler="my");
    nn.relu(%3)

after::

    nn.relu(%1)

Two regions stay apart where a path from one to the other leads through a region of another compiler, a branch or a let:
as one function, they would have to run before and after it. So do regions inside and outside of a branch or a function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.annotated_regions import AnnotatedRegion, AnnotatedRegionSet
from tilewright.relay.expr import Call, Function, Let
from tilewright.relay.scopes import Scopes
from tilewright.relay.transform.common import open_children, typed_function_pass
from tilewright.relay.transform.partition.annotate_target import BEGIN, DEFAULT, END
from tilewright.relay.visitor import ExprMutator, post_order


def regions_of(func: RelayExpr, name: str = "default") -> AnnotatedRegionSet:
    """Return the regions of a marked function."""
    return AnnotatedRegionSet(func, BEGIN, END, name)


def region_in_a_circle(func: Function, regions: AnnotatedRegionSet) -> AnnotatedRegion | None:
    """Return a region that depends on its own results, and so cannot be one function; None where all can.

    Regions of the default compiler do not become functions, and do not count.
    """

    def place_of(node: RelayExpr) -> Any:
        return _taken(regions, node) or node

    edges: list[tuple[Any, Any]] = []
    for node in post_order(func.body, open_children):
        edges += [(place_of(child), place_of(node)) for child in open_children(node)]
        if isinstance(node, Let):
            edges.append((place_of(node.value), node.var))
    readers: dict[Any, list[Any]] = {}
    waiting: dict[Any, int] = {}
    for source, place in dict.fromkeys(edges):
        if source is not place:
            readers.setdefault(source, []).append(place)
            waiting[place] = waiting.get(place, 0) + 1
    ready = [source for source in readers if source not in waiting]
    while ready:
        for place in readers.get(ready.pop(), ()):
            waiting[place] -= 1
            if not waiting[place]:
                ready.append(place)
    return next((p for p, count in waiting.items() if count and isinstance(p, AnnotatedRegion)), None)


def _taken(regions: AnnotatedRegionSet, expr: RelayExpr) -> AnnotatedRegion | None:
    """Return the region of an expression; None also where that is the default compiler's."""
    region = regions.get_region(expr)
    return None if region is None or region.target == DEFAULT else region


class _Behind(NamedTuple):
    """The dependencies of an expression, as bits: regions, and variables of lets."""

    regions: int = 0
    lets: int = 0

    def __or__(self, other: _Behind) -> _Behind:
        return _Behind(self.regions | other.regions, self.lets | other.lets)


class _Merger:
    """Merger of each region with those that it reads, in program order.

    Sets of regions are bits of an integer: ``barred`` are those that a region must not be merged with, and ``within``
    those merged into one. ``behind`` are the dependencies of an expression outside of regions, and ``above`` those of
    a region. Only regions of one scope that need the same lets are merged: the work of a branch waits for its
    condition, and regions before the value of a variable stay before it.

    The bits are those of the time when a region was reached, and do not include later merges of its neighbours, which
    may close a cycle of several regions. ``careful`` checks for that before each merge, by a walk.
    """

    def __init__(self, regions: AnnotatedRegionSet, root: RelayExpr, careful: bool = False) -> None:
        self.regions = regions
        self.careful = careful
        self.done: set[int] = set()
        self.within = {r.id: 1 << r.id for r in regions}
        self.barred = {r.id: 0 for r in regions}
        self.above = {r.id: _Behind() for r in regions}
        self.behind: dict[RelayExpr, _Behind] = {}
        self.bound: dict[RelayExpr, tuple[int, RelayExpr]] = {}
        scopes = Scopes(root, open_children).of
        self.scope = {r.id: min((scopes[node] for node in r.nodes), key=lambda s: s.depth) for r in regions}

    def run(self, root: RelayExpr) -> None:
        """Walk ``root``, children first; a region waits for all that it reads."""
        seen: set[RelayExpr] = set()
        stack: list[tuple[RelayExpr, int]] = [(root, 0)]
        while stack:
            node, step = stack.pop()
            region = self.regions.get_region(node) if self.regions.is_end(node) else None
            if step == 0 and node not in seen:
                seen.add(node)
                if isinstance(node, Let):
                    self.bound[node.var] = len(self.bound), node.value
                stack.append((node, 1))
                stack.extend((child, 0) for child in reversed(open_children(node)))
            elif step == 1 and region is not None and region.id not in self.done:
                stack.append((node, 2))
                stack.extend((begin.args[0], 0) for begin in reversed(region.args))
            elif step == 1 and self.regions.get_region(node) is None:
                self.behind[node] = self._needs(open_children(node))
            elif step == 2 and region is not None and region.id not in self.done:
                self._merge(region)

    def _needs(self, exprs: Sequence[RelayExpr]) -> _Behind:
        """Return the regions that some expressions depend on, with the dependencies of these."""
        found = _Behind()
        for expr in exprs:
            if expr in self.bound:
                number, value = self.bound[expr]
                found |= _Behind(0, 1 << number) | self._needs([value])
            elif (region := self.regions.get_region(expr)) is not None:
                found |= _Behind(self.within[region.id]) | self.above[region.id]
            else:
                found |= self.behind.get(expr, _Behind())
        return found

    def _merge(self, region: AnnotatedRegion) -> None:
        inputs = [begin.args[0] for begin in region.args]
        found = (self.regions.get_region(expr) for expr in inputs)
        sources = [r for r in dict.fromkeys(found) if r is not None and r is not region]
        called = [node.op for node in region.nodes if isinstance(node, Call) and not isinstance(node.op, Op)]
        outside = [expr for expr in (*inputs, *called) if self.regions.get_region(expr) is not region]
        above = self._needs(outside)
        barred = self._needs([expr for expr in outside if self.regions.get_region(expr) is None]).regions
        for source in sources:
            barred |= self.barred[source.id]
            if source.target != region.target:
                barred |= self.within[source.id]
        self.barred[region.id], self.above[region.id] = barred, above
        for source in sources:
            alike = source.target == region.target and self.scope[source.id] is self.scope[region.id]
            if not alike or self.above[source.id].lets != above.lets or barred & self.within[source.id]:
                continue
            if not (self.careful and self._closes_a_circle(source, region)):
                self.regions.merge(source, region)
                self.within[region.id] |= self.within[source.id]
        self.done.add(region.id)

    def _closes_a_circle(self, source: AnnotatedRegion, region: AnnotatedRegion) -> bool:
        """Return whether one of two regions depends, through expressions outside of both, on results of the two."""
        both: set[AnnotatedRegion | None] = {source, region}
        waiting = [e for r in (source, region) for e in _inputs(r) if self.regions.get_region(e) not in both]
        seen: set[Any] = set()
        while waiting:
            expr = waiting.pop()
            place = _taken(self.regions, expr)
            if place is not None and place in both:
                return True
            if (place or expr) in seen:
                continue
            seen.add(place or expr)
            bound = [self.bound[expr][1]] if expr in self.bound else []
            waiting += _inputs(place) if place is not None else [*open_children(expr), *bound]
        return False


def _inputs(region: AnnotatedRegion) -> list[RelayExpr]:
    """Return the inputs of a region, and the functions that it calls."""
    called = [node.op for node in region.nodes if isinstance(node, Call) and not isinstance(node.op, Op)]
    return [*(begin.args[0] for begin in region.args), *called]


class _Unmarker(ExprMutator):
    """Remove the marks that are inside of one region now."""

    def __init__(self, regions: AnnotatedRegionSet) -> None:
        super().__init__()
        self.regions = regions

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        if self.regions.is_begin(expr):
            end = expr.args[0]
            if isinstance(end, Call) and self.regions.is_end(end):
                if self.regions.get_region(end) is self.regions.get_region(expr):
                    return self.visit(end.args[0])
        return super().visit_call(expr)

    def visit_function(self, expr: Function) -> RelayExpr:
        return super().visit_function(expr) if open_children(expr) else expr


def MergeCompilerRegions() -> Pass:
    """Merge the regions that ``AnnotateTarget`` marked; ``PartitionGraph`` then makes a function of each."""

    def merge(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        regions = regions_of(func)
        _Merger(regions, func).run(func)
        if region_in_a_circle(func, regions) is not None:
            regions = regions_of(func)
            _Merger(regions, func, careful=True).run(func)
        return _Unmarker(regions).visit(func)

    return typed_function_pass(merge, "MergeCompilerRegions", required=())
