"""Inlining by rule: ``AutoInlineElemWise``, ``AutoInlineBroadcast``, ``AutoInlineInjective``.

Before and after ``AutoInlineInjective``, of ``B = A + 1; C = B.T; D = sum(C)``::

    for i, j: B[i, j] = A[i, j] + 1
    for i, j: C[i, j] = B[j, i]
    for i, k: D[i] += C[i, k]              for i, k: D[i] += A[k, i] + 1
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.prim_ops import is_const_int
from tilewright.te.operation import ComputeOp, Operation, producer_loads
from tilewright.te.schedule.schedule import Schedule
from tilewright.te.schedule.stage import AttachType, Stage


def is_injective(op: Operation) -> bool:
    """Return whether each element comes from a fixed set of elements: a compute without reduction."""
    return isinstance(op, ComputeOp) and not op.reduce_axis


def is_broadcast(op: Operation) -> bool:
    """Return whether every read uses a selection of the axes, in their order; an only element may be read, too."""
    if not isinstance(op, ComputeOp) or op.reduce_axis:
        return False
    position = {iv.var: n for n, iv in enumerate(op.axis)}
    for load in producer_loads(op.body):
        pairs = zip(load.indices, load.producer.shape, strict=True)
        indices = [i for i, extent in pairs if not (is_const_int(i, 0) and is_const_int(extent, 1))]
        places = [position.get(i, -1) for i in indices]  # type: ignore[call-overload]
        if -1 in places or places != sorted(set(places)):
            return False
    return True


def is_elemwise(op: Operation) -> bool:
    """Return whether every read is at the element that is computed."""
    return is_broadcast(op) and all(
        len(load.indices) == len(op.axis)  # type: ignore[attr-defined]
        for load in producer_loads(op.body)  # type: ignore[attr-defined]
    )


def _auto_inline(sch: Schedule, rule: Callable[[Operation], bool]) -> None:
    for stage in sch.stages:
        if rule(stage.op) and not stage.is_output and not _is_scheduled(stage):
            stage.compute_inline()


def _is_scheduled(stage: Stage) -> bool:
    return bool(
        stage.relations
        or stage.iter_var_attrs
        or stage.attach_type is not AttachType.ROOT
        or stage.is_scan_update()
        or stage.leaf_iter_vars != list(stage.op.root_iter_vars)
    )


def AutoInlineElemWise(sch: Schedule) -> None:
    """Inline the element-wise stages that have not been scheduled."""
    _auto_inline(sch, is_elemwise)


def AutoInlineBroadcast(sch: Schedule) -> None:
    """Inline the broadcast and element-wise stages that have not been scheduled."""
    _auto_inline(sch, is_broadcast)


def AutoInlineInjective(sch: Schedule) -> None:
    """Inline every stage without reduction that has not been scheduled."""
    _auto_inline(sch, is_injective)
