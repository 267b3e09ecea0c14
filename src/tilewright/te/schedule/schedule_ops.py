"""``InferBound``, ``ScheduleOps``, ``SchedulePostProcToPrimFunc``: the single steps of lowering, by TVM's names.

``tvm.lower`` runs all of them (``te/lower.py``); these are for programs that inspect intermediate results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from tilewright.ir.errors import TilewrightError
from tilewright.ir.memory import Buffer, decl_buffer
from tilewright.ir.prim_expr import PrimExpr
from tilewright.runtime.registry import convert, register_func
from tilewright.te.operation import ComputeOp, PlaceholderOp
from tilewright.te.schedule.bounds import Bounds, infer_bound
from tilewright.te.schedule.lower import ScheduleLowering
from tilewright.te.schedule.nest import BindBuffers
from tilewright.te.schedule.schedule import Schedule
from tilewright.te.schedule.stage import Stage
from tilewright.te.schedule.tensorized import block_sets, cover, find_tensorized, in_terms_of_intrinsic, input_regions
from tilewright.te.tensor import Tensor
from tilewright.te.tensorize import TensorIntrin
from tilewright.tir.expr import IterVar, Range, Reduce
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


def _bounds_of(ranges: Mapping[IterVar, Range]) -> Bounds:
    bounds = Bounds(ranges=dict(ranges))
    for iv, r in ranges.items():
        bounds.analyzer.bind(iv.var, r)
        bounds.loops[iv.var] = r
    return bounds


@register_func("test.op.InferTensorizeRegion", override=True)
def InferTensorizeRegion(stage: Stage, ranges: Mapping[IterVar, Range]) -> tuple[Any, Any]:
    """Return what one block of a tensorized stage computes and reads.

    Parameters
    ----------
    stage : a stage of a normalized schedule, one of whose loops is tensorized
    ranges : the result of ``InferBound``

    Returns the range of each axis of the operation, and the ranges of each input that it reads.
    """
    axis = find_tensorized(stage)
    if axis is None:
        raise TilewrightError(f"InferTensorizeRegion: stage {stage.op.name} has no tensorized loop; call tensorize")
    bounds = _bounds_of(ranges)
    sets = block_sets(bounds, stage, stage.leaf_iter_vars.index(axis))
    outs = {iv: cover(sets[iv.var], iv, bounds.analyzer) for iv in stage.op.root_iter_vars}
    return convert(outs), convert(input_regions(bounds, stage.op, sets))


@register_func("test.op.MatchTensorizeBody", override=True)
def MatchTensorizeBody(
    stage: Stage, out_dom: Mapping[IterVar, Range], in_dom: Mapping[Tensor, Sequence[Range]], intrin: TensorIntrin
) -> tuple[PrimExpr, ...]:
    """Return what a block computes, over the axes and inputs of the intrinsic that is to compute it.

    Parameters
    ----------
    stage : the tensorized stage
    out_dom, in_dom : the result of ``InferTensorizeRegion``
    intrin : the intrinsic

    Raises TilewrightError when the block has other extents than the intrinsic.
    """
    op, meaning = stage.op, intrin.op
    assert isinstance(op, ComputeOp) and isinstance(meaning, ComputeOp)
    outs, reductions = [out_dom[iv] for iv in op.axis], {iv: out_dom[iv] for iv in op.reduce_axis}
    reads = {t: tuple(in_dom[t]) for t in op.input_tensors}
    mapper = in_terms_of_intrinsic(op, intrin, outs, reductions, reads, _bounds_of({}))

    def mapped(e: PrimExpr) -> PrimExpr:
        if not isinstance(e, Reduce):
            return mapper.analyzer.simplify(mapper.visit_expr(e))
        source = [mapper.analyzer.simplify(mapper.visit_expr(s)) for s in e.source]
        condition = mapper.analyzer.simplify(mapper.visit_expr(e.condition))
        return Reduce(e.combiner, source, meaning.reduce_axis, condition, e.value_index, e.init)

    return tuple(mapped(e) for e in op.body)
