"""Static analyses of the accesses of a computation, for the search rules.

An access is *simple* when each index is one axis plus a constant, or a constant. An operation is *strictly inlineable*
when inlining it always pays: simple accesses in the order of its axes, no branch, no expensive function; it *needs
multi-level tiling* when its inputs are reused, because each lacks some of its axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilewright.ir.prim_expr import Add, Call, IntImm, PrimExpr, Select, Sub, Var
from tilewright.te.operation import ComputeOp, Operation, producer_loads, sub_expressions
from tilewright.te.schedule.schedule import post_order

Access = tuple[PrimExpr, ...]
Accesses = list[Access]

SIMPLIFY_CONST_TENSOR = "auto_scheduler_simplify_const_tensor_indices"
NO_SPLIT_AT_INNER = "auto_scheduler_no_split_at_inner"
ALWAYS_UNROLL_INNER = "auto_scheduler_always_unroll_inner"


class AccessAnalyzer:
    """The accesses of a computation, and the properties of its operations that follow."""

    def __init__(self, outputs: Sequence[Operation]) -> None:
        self.ops: list[Operation] = post_order(outputs)
        self.read_from: dict[Operation, dict[Operation, Accesses]] = {op: {} for op in self.ops}
        self.read_by: dict[Operation, dict[Operation, Accesses]] = {op: {} for op in self.ops}
        self.common_outer: dict[tuple[Operation, Operation], int] = {}
        for op in self.ops:
            if isinstance(op, ComputeOp):
                self._find_reads(op)
        self.outputs = frozenset(outputs) | {op for op in self.ops if not self.read_by[op]}
        self.simple = {op: self._is_simple(op) for op in self.ops}
        self.inlineable = {op: self._is_inlineable(op) for op in self.ops}
        self.tiled = {op: self._needs_tiling(op) for op in self.ops}

    def _find_reads(self, op: ComputeOp) -> None:
        reads = self.read_from[op]
        for load in producer_loads(op.body):
            reads.setdefault(load.producer.op, []).append(tuple(load.indices))
        for producer, accesses in reads.items():
            self.read_by[producer][op] = accesses
            self.common_outer[producer, op] = _common_outer(op, producer, accesses)

    def _is_simple(self, op: Operation) -> bool:
        accesses = [a for found in self.read_from[op].values() for a in found]
        return not isinstance(op, ComputeOp) or all(matched_axes(op, a) is not None for a in accesses)

    def _is_inlineable(self, op: Operation) -> bool:
        if not isinstance(op, ComputeOp):
            return False
        if not self.read_from[op]:
            return True  # a constant
        for access in (a for found in self.read_from[op].values() for a in found):
            axes = matched_axes(op, access)
            if axes is None or axes != sorted(axes) or len(set(axes)) < len(axes):
                return False
        return not any(_is_branch(e) or _is_expensive(e) for e in sub_expressions(op.body))

    def _needs_tiling(self, op: Operation) -> bool:
        if not isinstance(op, ComputeOp) or SIMPLIFY_CONST_TENSOR in op.attrs:
            return False
        missing = 0
        for accesses in self.read_from[op].values():
            used = {e for e in sub_expressions(i for a in accesses for i in a) if isinstance(e, Var)}
            if any(extent_of(iv) > 1 and iv.var not in used for iv in op.axis):
                missing += 1
        return missing >= 2 or (missing >= 1 and bool(op.reduce_axis))

    def consumers(self, op: Operation, inlined: Iterable[Operation] = ()) -> list[Operation]:
        """The operations that read ``op``, through inlined ones, each once."""
        return self._reached(op, self.read_by, frozenset(inlined))

    def producers(self, op: Operation, inlined: Iterable[Operation] = ()) -> list[Operation]:
        """The operations that ``op`` reads, through inlined ones, each once."""
        return self._reached(op, self.read_from, frozenset(inlined))

    @staticmethod
    def _reached(
        op: Operation, edges: Mapping[Operation, Mapping[Operation, Accesses]], through: frozenset[Operation]
    ) -> list[Operation]:
        found: dict[Operation, None] = {}
        stack = [op]
        while stack:
            for other in edges[stack.pop()]:
                if other in through:
                    stack.append(other)
                else:
                    found[other] = None
        return list(found)

    def num_common_outer(self, op: Operation, target: Operation) -> int:
        """Return how many of their outermost axes run together in ``op`` and in ``target``, which reads it somehow."""
        best: dict[Operation, int] = {op: len(op.output_shape(0))}
        for reader in self.ops:
            counts = [min(best[p], self.common_outer[p, reader]) for p in self.read_from[reader] if p in best]
            if counts:
                best[reader] = min(counts)
        return best.get(target, 0) if target is not op else best[op]

    def elementwise_match(self, op: Operation, target: Operation) -> bool:
        """Return whether ``target`` reads ``op`` element by element in place, directly or through operations
        that do.
        """
        while op is not target:
            readers = self.read_by[op]
            if len(readers) != 1:
                return False
            (reader, accesses), *_ = readers.items()
            if not isinstance(op, ComputeOp) or not isinstance(reader, ComputeOp):
                return False
            shapes = {_shape(o, k) for o in (op, reader) for k in range(o.num_outputs)}
            whole = list(range(len(reader.axis)))
            if len(shapes) != 1 or any(matched_axes(reader, a) != whole for a in accesses):
                return False
            op = reader
        return True


def extent_of(iv: Any) -> int:
    """The extent of an axis with constant bounds."""
    return int(iv.dom.extent.value)


def _shape(op: Operation, index: int) -> tuple[int, ...]:
    return tuple(d.value for d in op.output_shape(index) if isinstance(d, IntImm))


def _shifted(expr: PrimExpr) -> PrimExpr:
    """The expression without a constant that is added or subtracted."""
    if isinstance(expr, Add):
        return expr.a if isinstance(expr.b, IntImm) else expr.b if isinstance(expr.a, IntImm) else expr
    if isinstance(expr, Sub) and isinstance(expr.b, IntImm):
        return expr.a
    return expr


def matched_axes(op: ComputeOp, access: Access) -> list[int] | None:
    """Return, for each non-constant index, the axis of ``op`` that it equals up to a constant; None if one does not."""
    position = {iv.var: i for i, iv in enumerate(op.axis)}
    found: list[int] = []
    for index in access:
        if isinstance(index, IntImm):
            continue
        base = _shifted(index)
        if not isinstance(base, Var) or base not in position:
            return None
        found.append(position[base])
    return found


def _common_outer(op: ComputeOp, producer: Operation, accesses: Accesses) -> int:
    count = 0
    for iv, have, need in zip(op.axis, op.output_shape(0), producer.output_shape(0), strict=False):
        if have is not need or any(_shifted(a[count]) is not iv.var for a in accesses):
            break
        count += 1
    return count


def _is_branch(expr: PrimExpr) -> bool:
    return isinstance(expr, Select) or _calls(expr, "tir.if_then_else")


def _is_expensive(expr: PrimExpr) -> bool:
    return _calls(expr, "tir.exp")


def _calls(expr: PrimExpr, name: str) -> bool:
    return isinstance(expr, Call) and getattr(expr.op, "name", "") == name
