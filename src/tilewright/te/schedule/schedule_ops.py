"""``InferBound``, ``ScheduleOps``, ``SchedulePostProcToPrimFunc``: the single steps of lowering, by TVM's names.

``tvm.lower`` runs all of them (``te/lower.py``); these are for programs that inspect intermediate results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from tilewright.ir.memory import Buffer, decl_buffer
from tilewright.te.operation import PlaceholderOp
from tilewright.te.schedule.bounds import infer_bound
from tilewright.te.schedule.lower import ScheduleLowering
from tilewright.te.schedule.nest import BindBuffers
from tilewright.te.schedule.schedule import Schedule
from tilewright.te.tensor import Tensor
from tilewright.tir.expr import IterVar
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import FROM_SCHEDULE
from tilewright.tir.stmt import BufferRealize, Stmt


def InferBound(sch: Schedule) -> dict[Any, Any]:
    """Return the range of every iteration variable of a schedule."""
    return infer_bound(sch.normalize()).ranges


def ScheduleOps(
    sch: Schedule, bounds: Mapping[IterVar, Any] | None = None, debug_keep_trivial_loop: bool = False
) -> Stmt:
    """Convert a schedule to loops, before any pass; every computed tensor is realized inside the statement.

    Parameters
    ----------
    sch : the schedule
    bounds : the result of ``InferBound``; the same is inferred again here
    debug_keep_trivial_loop : keep loops that run once
    """
    inputs = [t for stage in sch.stages if isinstance(stage.op, PlaceholderOp) for t in stage.op.outputs]
    buffers = {t: decl_buffer(t.shape, t.dtype, t.name) for t in inputs}
    normal = sch.normalize()
    lowering = ScheduleLowering(normal, infer_bound(normal), buffers, debug_keep_trivial_loop)
    stmt = lowering.run()
    for tensor in (t for op in sch.outputs for t in op.outputs):
        buffers[tensor] = lowering.buffers[normal[tensor].op.output(tensor.value_index)]
    _BUFFERS_OF[stmt] = buffers
    return stmt


_BUFFERS_OF: WeakKeyDictionary[Stmt, dict[Tensor, Buffer]] = WeakKeyDictionary()  # what ScheduleOps gave


class _Outside(BindBuffers):
    """Removes the realization of arguments, and replaces the schedule's buffers of them by the arguments' own."""

    def __init__(self, buffers: Mapping[Buffer, Buffer]) -> None:
        super().__init__(buffers)
        self.arguments = set(buffers)

    def visit_buffer_realize(self, s: BufferRealize) -> Stmt:
        return self.visit_stmt(s.body) if s.buffer in self.arguments else super().visit_buffer_realize(s)


def SchedulePostProcToPrimFunc(
    arg_list: Sequence[Any], body: Stmt, extern_buffer: Mapping[Tensor, Buffer] | None = None
) -> PrimFunc:
    """Build a function from the result of ``ScheduleOps``.

    Parameters
    ----------
    arg_list : tensors, buffers and variables, the function's parameters
    body : the statement
    extern_buffer : buffers of tensors; others get compact ones
    """
    known, given = _BUFFERS_OF.get(body, {}), dict(extern_buffer or {})
    for arg in arg_list:
        if isinstance(arg, Tensor) and arg not in given:
            given[arg] = decl_buffer(arg.shape, arg.dtype, arg.name)
    params = [given[arg] if isinstance(arg, Tensor) else arg for arg in arg_list]
    outside = _Outside({known[t]: buffer for t, buffer in given.items() if t in known})
    return PrimFunc(params, outside.visit_stmt(body), attrs={FROM_SCHEDULE.key: True})
