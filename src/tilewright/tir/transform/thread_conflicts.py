"""Conflicts between threads: whether one writes an element of shared memory that another reads or writes.

An access is a buffer and the set of elements that each thread touches: the values of an index for all iterations of the
loops that belong to the access. If everything but the thread and those loops is the same for both accesses, the sets
are computed for all threads of a block, so the answer is exact. Anything else counts as a conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tilewright.arith.affine import build
from tilewright.arith.analyzer import Analyzer
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import FloorMod, IntImm, PrimExpr, Var
from tilewright.tir.transform.threads import THREAD_TAGS, NotKnownError, ThreadAxes, evaluate
from tilewright.tir.visitor import post_order_visit, stmt_vars, substitute

_MOST_VALUES = 1 << 21
_MOST_RESIDUES = 16


@dataclass(frozen=True)
class Access:
    """Elements of a buffer that each thread touches: ``index`` for all values of the variables ``inner``."""

    buffer: Var
    index: PrimExpr | None
    """None: any element."""
    write: bool
    inner: tuple[tuple[Var, int, int], ...] = ()
    """Variables with their first value and how many values they have."""
    masks: tuple[PrimExpr, ...] = ()
    """Conditions that hold."""

    def uses(self, var: Var) -> bool:
        """Return whether the elements depend on a variable from outside."""
        parts = [*self.masks, *([] if self.index is None else [self.index])]
        return any(v is var for part in parts for v in stmt_vars(part))

    def under(self, condition: PrimExpr) -> Access:
        """Return the access under a condition."""
        return replace(self, masks=(*self.masks, condition))

    def with_values(self, values: Mapping[Var, PrimExpr]) -> Access:
        """The access with variables from outside replaced."""
        if not any(self.uses(v) for v in values):
            return self
        index = None if self.index is None else substitute(self.index, values)
        return replace(self, index=index, masks=tuple([substitute(m, values) for m in self.masks]))

    def anywhere(self) -> Access:
        """The access of any element."""
        return Access(self.buffer, None, self.write)

    def over(self, var: Var, low: int | None, extent: int | None) -> Access:
        """The accesses of all iterations of a loop."""
        if not self.uses(var):
            return self
        if low is None or extent is None:
            return self.anywhere()
        own = Var(var.name, var.dtype)
        return replace(self.with_values({var: own}), inner=(*self.inner, (own, low, extent)))


@dataclass
class _Owners:
    """The first and the last thread that touches each element, from ``low`` on; -1 as the last one for none."""

    low: int
    first: np.ndarray
    last: np.ndarray


class Conflicts:
    """Answers for one kernel.

    Parameters
    ----------
    axes : its threads
    warp : 0, or how many threads along x have memory of their own together
    tags : the axes of those that share the memory
    """

    def __init__(self, axes: ThreadAxes, warp: int = 0, tags: tuple[str, ...] = THREAD_TAGS) -> None:
        self.axes = axes
        self.count = axes.threads(tags)
        self.indices = axes.indices(tags)
        self.warp = warp
        self.analyzer = Analyzer()
        self.known: dict[tuple[Access, Access], bool] = {}
        self.owners: dict[tuple[PrimExpr, Access], _Owners | None] = {}

    def find(self, earlier: Iterable[Access], later: Iterable[Access]) -> tuple[Access, Access] | None:
        """Two accesses that may meet in different threads."""
        for b in later:
            for a in earlier:
                if a.buffer is b.buffer and (a.write or b.write) and self.meet(a, b):
                    return a, b
        return None

    def meet(self, a: Access, b: Access) -> bool:
        """Return whether two accesses of one buffer may touch one element from different threads."""
        if self.count == 1:
            return False
        if a.index is None or b.index is None or self.indices is None:
            return True
        key = (a, b)
        if key not in self.known:
            self.known[key] = any(self._meet(x, y) for x, y in self._residues(a, b))
        return self.known[key]

    def _residues(self, a: Access, b: Access) -> Iterable[tuple[Access, Access]]:
        """Yield the pair, once for each remainder if a loop around both matters modulo a constant."""
        moduli: dict[Var, int] = {}

        def note(e: object) -> None:
            if isinstance(e, FloorMod) and isinstance(e.b, IntImm):
                for var in stmt_vars(e.a):
                    if self._is_outside(var, a, b):
                        moduli[var] = int(np.lcm(moduli.get(var, 1), e.b.value))

        for access in (a, b):
            assert access.index is not None
            post_order_visit(access.index, note)
        pairs = [(a, b)]
        for var, modulus in moduli.items():
            if len(pairs) * modulus > _MOST_RESIDUES:
                continue
            times = Var(f"{var.name}.times", var.dtype)
            values = [ops.add(ops.mul(times, modulus), r) for r in range(modulus)]
            pairs = [(x.with_values({var: v}), y.with_values({var: v})) for x, y in pairs for v in values]
        return pairs

    def _is_outside(self, var: Var, *accesses: Access) -> bool:
        assert self.indices is not None
        return var not in self.indices and not any(var is v for x in accesses for v, _, _ in x.inner)

    def _meet(self, a: Access, b: Access) -> bool:
        parts = [self._split(x) for x in (a, b)]
        if parts[0] is None or parts[1] is None or parts[0][0] != parts[1][0]:
            return True
        mine, theirs = (self._owners(rest, x) for (_, rest), x in zip(parts, (a, b), strict=True))  # type: ignore[misc]
        if mine is None or theirs is None:
            return True
        low = max(mine.low, theirs.low)
        size = min(mine.low + len(mine.last), theirs.low + len(theirs.last)) - low
        if size <= 0:
            return False
        at, to = slice(low - mine.low, low - mine.low + size), slice(low - theirs.low, low - theirs.low + size)
        both = (mine.last[at] >= 0) & (theirs.last[to] >= 0)
        alone = (mine.first[at] == mine.last[at]) & (theirs.first[to] == theirs.last[to])
        return bool(np.any(both & ~(alone & (mine.last[at] == theirs.last[to]))))

    def _split(self, a: Access) -> tuple[dict[PrimExpr, int], PrimExpr] | None:
        """The index as a sum of terms from outside and an expression of threads and inner loops."""
        assert a.index is not None
        index = self.analyzer.simplify(a.index)
        terms, const = self.analyzer.simplifier.difference(index, ops.const(0, index.dtype))
        outside: dict[PrimExpr, int] = {}
        rest: dict[PrimExpr, int] = {}
        for atom, factor in terms.items():
            used = [self._is_outside(v, a) for v in stmt_vars(atom)]
            if used and all(used):
                outside[atom] = factor
            elif any(used):
                return None
            else:
                rest[atom] = factor
        return outside, build(rest, const, index.dtype)

    def _owners(self, index: PrimExpr, a: Access) -> _Owners | None:
        key = (index, replace(a, index=None, write=False))
        if key not in self.owners:
            self.owners[key] = self._find_owners(index, a)
        return self.owners[key]

    def _find_owners(self, index: PrimExpr, a: Access) -> _Owners | None:
        assert self.indices is not None
        threads = self.count
        assert threads is not None
        used = {v for e in (index, *a.masks) for v in stmt_vars(e)}
        inner = [i for i in a.inner if i[0] in used]
        count = threads
        for _, _, extent in inner:
            count *= extent
        if count > _MOST_VALUES:
            return None
        shape = [threads, *(extent for _, _, extent in inner)]
        dims = len(shape)
        values = {v: x.reshape(-1, *[1] * (dims - 1)) for v, x in self.indices.items()}
        for k, (var, low, extent) in enumerate(inner):
            values[var] = (low + np.arange(extent)).reshape(-1, *[1] * (dims - 2 - k))
        try:
            elements = np.broadcast_to(evaluate(index, values), shape)
        except NotKnownError:
            return None
        inside = np.ones(shape, bool)
        for mask in a.masks:
            try:
                inside = inside & np.broadcast_to(evaluate(mask, values), shape)
            except NotKnownError:  # it may hold
                continue
        thread = np.broadcast_to(np.arange(threads).reshape(-1, *[1] * (dims - 1)), shape)
        if self.warp:
            x = self.axes.extent("threadIdx.x") or 1
            memory = thread // x * -(-x // self.warp) + thread % x // self.warp
            span = int(elements.max(initial=0)) - int(min(elements.min(initial=0), 0)) + 1
            elements = elements + memory * max(span, 1 << 16)
        elements, thread = elements[inside], thread[inside]
        if not elements.size:
            return _Owners(0, np.empty(0, int), np.empty(0, int))
        low = int(elements.min())
        if int(elements.max()) - low > 8 * _MOST_VALUES:
            return None
        first = np.zeros(int(elements.max()) - low + 1, "int64")
        last = np.full_like(first, -1)
        last[elements - low] = thread  # in the order of the threads: the last one stays
        first[elements[::-1] - low] = thread[::-1]
        return _Owners(low, first, last)
