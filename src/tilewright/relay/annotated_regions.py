"""Regions of an annotated program: ``relay.analysis.AnnotatedRegionSet``.

A region begins at marks on its inputs (``annotation.compiler_begin``) and ends at marks on its outputs
(``annotation.compiler_end``)::

    %0 = compiler_begin(%x, "a");        region 0, compiler a: input %0, output %2
    %1 = nn.relu(%0);
    %2 = compiler_end(%1, "a");
    %3 = compiler_begin(%2, "default");  region 1
    ...

Each begin mark makes a region, numbered in program order; an expression joins the regions of its operands into one,
which keeps the number of the first. So numbers have gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.relay.expr import Call, Constant, RefCreate, RefRead, RefWrite, Tuple, TupleGetItem
from tilewright.relay.visitor import direct_children, post_order


class _Row:
    """Marks in order. Joining two rows takes time proportional to the shorter one."""

    def __init__(self) -> None:
        self.place: dict[Call, int] = {}
        self.first, self.last = 0, 0

    def append(self, item: Call) -> None:
        self.place[item] = self.last
        self.last += 1

    def remove(self, item: Call) -> None:
        self.place.pop(item, None)

    def joined(self, behind: _Row) -> _Row:
        """Return one row of both, with ``behind`` after this; neither is valid afterwards."""
        if len(behind.place) <= len(self.place):
            for item in behind:
                self.append(item)
            return self
        for item in reversed([*self]):
            behind.first -= 1
            behind.place[item] = behind.first
        return behind

    def __iter__(self) -> Iterator[Call]:
        return iter(sorted(self.place, key=self.place.__getitem__))

    def __len__(self) -> int:
        return len(self.place)


class AnnotatedRegion:
    """A region of one compiler: ``nodes`` between the begin marks ``args`` and the end marks ``rets``."""

    def __init__(self, number: int, target: str, func_name: str) -> None:
        self.id = number
        self.target = target
        self.func_name = func_name
        self.ins, self.outs = _Row(), _Row()
        self.members: dict[RelayExpr, None] = {}
        self.exits: dict[RelayExpr, None] = {}  # what begin marks of other regions read
        self.merged_into: AnnotatedRegion | None = None

    @property
    def args(self) -> list[Call]:
        """Return the begin marks."""
        return list(self.ins)

    @property
    def rets(self) -> list[Call]:
        """Return the end marks of results that are used outside."""
        return list(self.outs)

    @property
    def nodes(self) -> list[RelayExpr]:
        """Return all nodes in the region, marks included."""
        return list(self.members)


class AnnotatedRegionSet:
    """The regions of ``expr``; raises TilewrightError where marks do not match."""

    def __init__(self, expr: RelayExpr, region_begin_op: Op, region_end_op: Op, func_name: str = "default") -> None:
        self.begin_op, self.end_op = region_begin_op, region_end_op
        self.func_name = func_name
        self._regions: dict[AnnotatedRegion, None] = {}
        self._home: dict[RelayExpr, AnnotatedRegion] = {}
        self._readers: dict[RelayExpr, list[Call]] = {}
        self._used_without_mark: set[RelayExpr] = {expr}
        self._count = 0
        for node in post_order(expr):
            self._visit(node)

    @property
    def regions(self) -> list[AnnotatedRegion]:
        """Return the regions, by number."""
        return sorted(self._regions, key=lambda region: region.id)

    def __len__(self) -> int:
        return len(self._regions)

    def __iter__(self) -> Iterator[AnnotatedRegion]:
        return iter(self.regions)

    def get_region(self, expr: RelayExpr) -> AnnotatedRegion | None:
        """Return the region that an expression is in, or None."""
        region = self._home.get(expr)
        while region is not None and region.merged_into is not None:
            region = self._home[expr] = region.merged_into
        return region

    def is_begin(self, expr: RelayExpr) -> bool:
        """Return whether this is a begin mark."""
        return isinstance(expr, Call) and expr.op is self.begin_op

    def is_end(self, expr: RelayExpr) -> bool:
        """Return whether this is an end mark."""
        return isinstance(expr, Call) and expr.op is self.end_op

    def merge(self, src: AnnotatedRegion, dest: AnnotatedRegion) -> None:
        """Merge two regions; the result keeps the number of ``dest``, and the inputs of ``dest`` come first."""
        if src is dest:
            return
        inner = self._between(src, dest)
        dest.ins, dest.outs = dest.ins.joined(src.ins), dest.outs.joined(src.outs)
        dest.members = _union(dest.members, src.members)
        dest.exits = _union(dest.exits, src.exits)
        src.merged_into = dest
        del self._regions[src]
        for begin in inner:
            self._close(begin, dest)

    def _between(self, src: AnnotatedRegion, dest: AnnotatedRegion) -> list[Call]:
        """Return the begin marks of ``dest`` that read ``src``."""
        if len(dest.ins) <= len(src.exits):
            return [begin for begin in dest.ins if self.get_region(begin.args[0]) is src]
        return [b for e in src.exits for b in self._readers[e] if b in dest.ins.place and self.get_region(b) is dest]

    def _close(self, begin: Call, region: AnnotatedRegion) -> None:
        """Move the argument of ``begin`` inside of its region; it is an output only for other readers."""
        source = begin.args[0]
        region.ins.remove(begin)
        others = any(self.get_region(reader) is not region for reader in self._readers[source])
        if not others and source not in self._used_without_mark:
            region.exits.pop(source, None)
            if isinstance(source, Call):
                region.outs.remove(source)

    def _visit(self, node: RelayExpr) -> None:
        if self.is_begin(node):
            assert isinstance(node, Call)
            self._open(node)
            return
        self._used_without_mark.update(child for child in direct_children(node) if self.is_end(child))
        if self.is_end(node):
            assert isinstance(node, Call)
            self._end(node)
        elif isinstance(node, (Call, Tuple, TupleGetItem, RefCreate, RefRead, RefWrite)):
            self._join(node, node.args if isinstance(node, Call) else direct_children(node))

    def _open(self, begin: Call) -> None:
        source = begin.args[0]
        region = AnnotatedRegion(self._count, _compiler(begin), self.func_name)
        self._count += 1
        self._regions[region] = None
        self._add(begin, region)
        region.ins.append(begin)
        self._readers.setdefault(source, []).append(begin)
        if (read := self.get_region(source)) is not None:
            read.exits[source] = None

    def _end(self, end: Call) -> None:
        region = self.get_region(end.args[0])
        if region is None:
            raise TilewrightError(
                f"compiler_end for {_compiler(end)!r} stands on what no compiler_begin leads to:\n{end.args[0]}"
            )
        if region.target != _compiler(end):
            raise TilewrightError(
                f"a region begins for the compiler {region.target!r} and ends for {_compiler(end)!r}; "
                f"put compiler_end and compiler_begin between the two, in:\n{end}"
            )
        self._add(end, region)
        region.outs.append(end)

    def _join(self, node: RelayExpr, operands: Sequence[RelayExpr]) -> None:
        """Put ``node`` into the region of its operands, which becomes one; constants need no mark."""
        open_ones = [o for o in operands if not self.is_end(o) and not isinstance(o, Constant)]
        found = [self.get_region(operand) for operand in open_ones]
        region = next((r for r in found if r is not None), None)
        if region is None:
            return
        for operand in open_ones:
            other = self.get_region(operand)
            if other is None:
                raise TilewrightError(
                    f"an operand of what is in a region for the compiler {region.target!r} is in none; "
                    f"put compiler_begin on it:\n{operand}\nin:\n{node}"
                )
            self.merge(other, region)
        self._add(node, region)

    def _add(self, node: RelayExpr, region: AnnotatedRegion) -> None:
        self._home[node] = region
        region.members[node] = None


def _compiler(mark: Call) -> str:
    attrs: Any = mark.attrs
    return str(attrs.compiler)


def _union(a: dict[RelayExpr, None], b: dict[RelayExpr, None]) -> dict[RelayExpr, None]:
    small, large = sorted((a, b), key=len)
    large.update(small)
    return large
