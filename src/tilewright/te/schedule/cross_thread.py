"""Reductions whose loops are bound to threads: each thread reduces its part, then the parts are combined.

``B[i] = sum(A[i, k])`` with ``k`` split into ``k.outer`` and ``k.inner``, which is bound to threadIdx.x::

    attr [IterVar(threadIdx.x)] "thread_extent" = 32
      realize(normal_reduce_temp0, [[0:1]]), realize(reduce_temp0, [[0:1]])
        normal_reduce_temp0[0] = 0f32
        for (k.outer, 0, 4) {
          normal_reduce_temp0[0] = (normal_reduce_temp0[0] + A[i, ((k.outer*32) + threadIdx.x)])
        }
        attr [combiner] "reduce_scope" = 0
          @tir.tvm_thread_allreduce(1, normal_reduce_temp0[0], True, reduce_temp0, threadIdx.x)
        B[i] = reduce_temp0[0]

The other loops are outside. Iterations past the end contribute the identity, so that all threads reach the allreduce
together. Every thread stores the whole result, or those for which ``set_store_predicate`` holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.memory import decl_buffer
from tilewright.ir.prim_expr import PrimExpr, Var
from tilewright.te.operation import ComputeOp
from tilewright.te.schedule.nest import Frame, Nest, when, wrap
from tilewright.te.schedule.stage import Stage
from tilewright.tir.expr import BufferLoad, Call, IterVar, IterVarType, Range, Reduce
from tilewright.tir.stmt import AttrStmt, BufferRealize, BufferStore, Evaluate, Stmt, seq, store_together
from tilewright.tir.visitor import stmt_vars, substitute

if TYPE_CHECKING:
    from tilewright.te.schedule.lower import LowerExpr, ScheduleLowering

_VIRTUAL = ("vthread", "cthread")


def _thread_of(stage: Stage, iv: IterVar) -> IterVar | None:
    """Return the GPU thread axis that a reduction loop is bound to."""
    attr = stage.iter_var_attrs.get(iv)
    thread = attr.bind_thread if attr is not None else None
    together = thread is not None and thread.thread_tag not in _VIRTUAL and iv.iter_type is IterVarType.CommReduce
    return thread if together else None


def reduced_by_threads(stage: Stage, op: ComputeOp) -> bool:
    """Return whether threads reduce together."""
    return any(_thread_of(stage, iv) is not None for iv in stage.leaf_iter_vars)


def cross_thread_reduction(
    lowering: ScheduleLowering, stage: Stage, op: ComputeOp, reduce: Reduce, nest: Nest, lower: LowerExpr
) -> Stmt:
    """Build the statement of a reduction that threads do together."""
    common, serial = _sort_loops(lowering, stage, nest)
    _, only_reduced = lowering.reduction_start(stage, op)
    inside = lowering.predicates(stage, nest.values)
    condition = lower.visit_expr(reduce.condition)
    if not ops.is_const_int(condition, 1):
        inside.append(condition)
    changed = {v for iv in _serial_axes(stage) for v in stmt_vars(nest.values[iv])}
    inside.sort(key=lambda test: not changed.isdisjoint(stmt_vars(test)))  # what the loops do not change comes first
    stores = [] if stage.store_predicate is None else [stage.store_predicate]
    stores += lowering.predicates(stage, nest.values, only_reduced)
    combiner, count = reduce.combiner, len(reduce.source)
    axes = {iv.var: nest.values[iv] for iv in op.axis}
    combined = [decl_buffer((1,), s.dtype, f"reduce_temp{k}", scope="local") for k, s in enumerate(reduce.source)]
    values = [lower.visit_expr(s) for s in reduce.source]
    identity = [substitute(e, axes) for e in combiner.identity_element]
    zero = ops.const(0, "int32")
    body: list[Stmt] = []
    temps = []
    if serial or inside:
        temps = [decl_buffer((1,), s.dtype, f"normal_reduce_temp{k}", scope="local") for k, s in enumerate(values)]
        body += [BufferStore(t, e, [zero]) for t, e in zip(temps, identity, strict=True)]
        so_far = [BufferLoad(t, [zero]) for t in temps]
        update = store_together(temps, _combine(reduce, so_far, values, axes), [zero])
        body.append(wrap([*serial, *when(inside)], update))
        values = list(so_far)
    threads = [t.var for iv in stage.leaf_iter_vars if (t := _thread_of(stage, iv)) is not None]
    arguments = (ops.const(count, "uint32"), *values, ops.const(True), *(b.data for b in combined), *threads)
    together = Evaluate(Call("handle", "tir.tvm_thread_allreduce", arguments))
    body.append(AttrStmt(combiner, "reduce_scope", ops.const(0, "int32"), together))
    results: list[PrimExpr] = [BufferLoad(b, [zero]) for b in combined]
    if reduce.init:
        results = _combine(reduce, [lower.visit_expr(e) for e in reduce.init], results, axes)
    buffers = [lowering.buffers[t] for t in op.outputs]
    indices = [nest.values[iv] for iv in op.axis]
    kept = [results[load.value_index] for load in op.body if isinstance(load, Reduce)]
    body.append(wrap(when(stores), seq(*(BufferStore(b, v, indices) for b, v in zip(buffers, kept, strict=True)))))
    result = seq(*body)
    for buffer in reversed([*temps, *combined]):
        result = BufferRealize(buffer, (Range(0, 1),), ops.const(True), result)
    return wrap(common, result)


def _serial_axes(stage: Stage) -> list[IterVar]:
    """Return the reduction loops that each thread runs."""
    reduced = [iv for iv in stage.leaf_iter_vars if iv.iter_type is IterVarType.CommReduce]
    return [iv for iv in reduced if _thread_of(stage, iv) is None]


def _sort_loops(lowering: ScheduleLowering, stage: Stage, nest: Nest) -> tuple[list[Frame], list[Frame]]:
    """Return the loops around the whole, and those of each thread's own part."""
    common: list[Frame] = []
    serial: list[Frame] = []
    before: IterVar | None = None
    for iv, level in zip(stage.leaf_iter_vars, nest.levels, strict=True):
        if iv.iter_type is IterVarType.CommReduce and _thread_of(stage, iv) is None:
            serial += level
            before = iv if level else before
            continue
        attached = lowering.attached.get((stage, iv))
        if attached and before is not None:
            raise TilewrightError(
                f"stage {attached[0].op.name} is computed at loop {iv.var.name} of {stage.op.name}, inside the "
                f"reduction loop {before.var.name}; since threads reduce {stage.op.name} together, that loop comes to "
                f"stand innermost: reorder {iv.var.name} before {before.var.name}, or compute "
                f"{attached[0].op.name} elsewhere"
            )
        common += level
    return common, serial


def _combine(
    reduce: Reduce, lhs: Sequence[PrimExpr], rhs: Sequence[PrimExpr], axes: dict[Var, PrimExpr]
) -> list[PrimExpr]:
    combiner = reduce.combiner
    operands = {**dict(zip(combiner.lhs, lhs, strict=True)), **dict(zip(combiner.rhs, rhs, strict=True)), **axes}
    return [substitute(r, operands) for r in combiner.result]
