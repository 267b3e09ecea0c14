"""MergeCompilerRegions: make one region of neighbours that one compiler takes.

Before, between two operators for the compiler ``my``::

    %2 = annotation.compiler_end(%1, compiler="my");
    %3 = annotation.compiler_begin(%2, compiler="my");
    nn.relu(%3)

after::

    nn.relu(%1)

Two regions stay apart where a way from one to the other leads through a region of another compiler: as one function,
they would have to run before and after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.annotated_regions import AnnotatedRegion, AnnotatedRegionSet
from tilewright.relay.expr import Call, Function
from tilewright.relay.transform.annotate_target import BEGIN, END
from tilewright.relay.transform.common import open_children, typed_function_pass
from tilewright.relay.visitor import ExprMutator


def regions_of(func: RelayExpr, name: str = "default") -> AnnotatedRegionSet:
    """The regions of a marked function."""
    return AnnotatedRegionSet(func, Op.get(BEGIN), Op.get(END), name)


class _Merger:
    """Merges each region with those that it reads, in program order.

    Sets of regions are bits of an integer: ``barred`` those that a region must not be merged with, and ``within``
    those that have been merged into one.
    """

    def __init__(self, regions: AnnotatedRegionSet) -> None:
        self.regions = regions
        self.done: set[int] = set()
        self.within = {r.id: 1 << r.id for r in regions}
        self.barred = {r.id: 0 for r in regions}

    def run(self, root: RelayExpr) -> None:
        """Walk ``root``, children first; a region waits for all that it reads."""
        seen: set[RelayExpr] = set()
        stack: list[tuple[RelayExpr, int]] = [(root, 0)]
        while stack:
            node, step = stack.pop()
            region = self.regions.get_region(node) if self.regions.is_end(node) else None
            if step == 0 and node not in seen:
                seen.add(node)
                stack.append((node, 1))
                stack.extend((child, 0) for child in reversed(open_children(node)))
            elif step == 1 and region is not None and region.id not in self.done:
                stack.append((node, 2))
                stack.extend((begin.args[0], 0) for begin in reversed(region.args))
            elif step == 2 and region is not None and region.id not in self.done:
                self._merge(region)

    def _merge(self, region: AnnotatedRegion) -> None:
        found = (self.regions.get_region(begin.args[0]) for begin in region.args)
        sources = [r for r in dict.fromkeys(found) if r is not None and r is not region]
        barred = 0
        for source in sources:
            barred |= self.barred[source.id]
            if source.target != region.target:
                barred |= self.within[source.id]
        self.barred[region.id] = barred
        for source in sources:
            if source.target == region.target and not barred & self.within[source.id]:
                self.regions.merge(source, region)
                self.within[region.id] |= self.within[source.id]
        self.done.add(region.id)


class _Unmarker(ExprMutator):
    """Takes out the marks that are inside of one region now."""

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
        _Merger(regions).run(func)
        return _Unmarker(regions).visit(func)

    return typed_function_pass(merge, "MergeCompilerRegions")
