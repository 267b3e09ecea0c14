"""Schedules of element-wise, broadcasting and data-moving computes."""

from __future__ import annotations

import math
from typing import Any

from tilewright import te
from tilewright.arith import Analyzer, detect_linear_equation
from tilewright.ir.prim_expr import Call, FloorMod, IntImm, PrimExpr, Var
from tilewright.ir.prim_ops import is_const_int
from tilewright.te.operation import producer_loads
from tilewright.tir.expr import IterVar
from tilewright.tir.visitor import free_vars, post_order_visit, substitute
from tilewright.topi import tag
from tilewright.topi.cpu.common import (
    PARALLEL_WORK,
    constant_extent,
    create_schedule,
    evaluates_functions,
    fuse_all,
    inline_injective,
    operations,
    output_tensors,
    split_vector,
    vector_lanes,
)

_MIN_ROWS = 8  # outer iterations that suffice to occupy the threads
_MANY_ROWS = 32  # outer iterations that occupy the threads evenly
_SQUARE = 16  # rows of a square of a transposition: as many floats as a cache line holds
_SQUARE_WORK = 4096  # elements from which the order of a transposition matters
_MAX_LOADS = 32  # of a fused computation, as many reads are looked at


def fusable_suffix(op: Any) -> int:
    """How many of the last axes of ``op`` can be fused without adding divisions to an index.

    Every tensor that is read, through inlined operations too, must either have exactly these axes as its last
    indices, in full, or not depend on them.
    """
    count = len(op.axis)
    while count > 1 and not _suffix_is_contiguous(op, count):
        count -= 1
    return count


def _suffix_is_contiguous(op: Any, count: int) -> bool:
    pending, seen = [op], {op}
    for current in pending:
        if len(current.axis) < count:
            return False
        axes = current.axis[len(current.axis) - count :]
        names = {iv.var for iv in axes}
        for load in producer_loads(current.body):
            used = _used(load.indices, names)
            if not used:
                continue
            leading, trailing = load.indices[:-count], load.indices[-count:]
            whole = len(trailing) == count and all(
                index is iv.var and load.producer.shape[k - count] is iv.dom.extent
                for k, (index, iv) in enumerate(zip(trailing, axes, strict=True))
            )
            if not whole or _used(leading, names):
                return False
            producer = load.producer.op
            if isinstance(producer, te.ComputeOp) and tag.is_injective(producer.tag) and producer not in seen:
                seen.add(producer)
                pending.append(producer)
        if any(_used([e], names) for e in current.body if not producer_loads([e])):
            return False
    return True


def _used(exprs: Any, names: set[Var]) -> bool:
    return any(v in names for e in exprs if isinstance(e, PrimExpr) for v in free_vars(e))


def transposed_axis(op: Any) -> tuple[IterVar, int | None] | None:
    """The output axis along which ``op`` reads memory in order, when that is not the innermost one.

    None when the innermost axis is read in order, or nothing is known. The second value is the length of the runs
    that are contiguous, such as 16 for ``A[c // 16, w, c % 16]``, where the whole axis is not.
    """
    inner = op.axis[-1].var
    analyzer = Analyzer()
    for iv in op.axis:
        analyzer.bind(iv.var, iv.dom)
    for load in _outer_loads(op):
        index = analyzer.simplify(load[-1])
        used_elsewhere = any(inner in free_vars(i) for i in load[:-1])
        if inner in free_vars(index) or not used_elsewhere:
            continue
        for iv in op.axis[:-1]:
            coefficient = detect_linear_equation(index, [iv.var])
            if len(coefficient) and is_const_int(coefficient[0], 1):
                return iv, None
            if isinstance(index, FloorMod) and index.a is iv.var and isinstance(index.b, IntImm):
                return iv, int(index.b)
    return None


def _outer_loads(op: Any, bordered: set[Var] | None = None) -> list[tuple[PrimExpr, ...]]:
    """Indices, in the axes of ``op``, of everything that is read from memory; inlined operations are looked through.

    ``bordered`` takes the axes on which conditions depend that are marked likely, such as those of padding.
    """
    found: list[tuple[PrimExpr, ...]] = []
    pending: list[tuple[Any, dict[Var, PrimExpr]]] = [(op, {})]

    def note(node: Any) -> None:
        if bordered is not None and isinstance(node, Call) and node.op.name == "tir.likely":
            bordered.update(free_vars(substitute(node.args[0], mapping)))

    while pending and len(found) < _MAX_LOADS:
        current, mapping = pending.pop()
        for value in current.body:
            post_order_visit(value, note)
        for load in producer_loads(current.body):
            indices = tuple(substitute(i, mapping) for i in load.indices) if mapping else load.indices
            producer = load.producer.op
            if isinstance(producer, te.ComputeOp) and tag.is_injective(producer.tag):
                pending.append((producer, {iv.var: i for iv, i in zip(producer.axis, indices, strict=True)}))
            elif indices:
                found.append(indices)
    return found


def _period(op: Any) -> int | None:
    """After how many elements of the last axis ``op`` reads the same ones again, as ``tile`` does; None when never."""
    axis = op.axis[-1]
    extent = constant_extent(axis)
    periods = {
        int(index.b)
        for load in _outer_loads(op)
        for index in load
        if isinstance(index, FloorMod) and index.a is axis.var and isinstance(index.b, IntImm)
    }
    period = periods.pop() if len(periods) == 1 else None
    return period if period and extent and extent % period == 0 else None


def _schedule_transposed(stage: te.Stage, axis: IterVar, run: int | None, dtype: str, parallel: bool) -> None:
    """Work in small squares of the transposed axis and the innermost one, so that cache lines are used whole."""
    inner = stage.op.axis[-1]
    others = [a for a in stage.op.axis if a is not axis and a is not inner]
    outer, rows = stage.split(axis, factor=run or _SQUARE)
    extent = constant_extent(inner)
    blocks, vector = split_vector(stage, inner, extent, vector_lanes(dtype))
    if vector is None or vector is blocks:
        stage.reorder(*others, outer, rows, blocks)
    else:
        stage.reorder(*others, outer, blocks, rows, vector)
    fused = fuse_all(stage, [*others, outer])
    if parallel and fused is not None:
        stage.parallel(fused)


def schedule_injective_from_existing(s: te.Schedule, out: te.Tensor) -> te.Schedule:
    """Fuse, parallelise and vectorise the loops of ``out`` in the schedule ``s``.

    Trailing axes that all inputs share in full become one contiguous loop, which is vectorised; the axes before
    them become one loop, which runs in parallel when there is enough work. Transpositions work in squares.
    """
    axes = list(s[out].op.axis)
    extents = [constant_extent(a) for a in axes]
    if not axes or any(e == 0 for e in extents):
        return s
    stage = s[out]
    work = _product(extents)
    transposed = transposed_axis(stage.op) if work is not None and work >= _SQUARE_WORK else None
    if transposed is not None and min(constant_extent(transposed[0]) or 0, extents[-1] or 0) >= _SQUARE // 2:
        _schedule_transposed(stage, *transposed, out.dtype, parallel=work is None or work >= PARALLEL_WORK)
        return s
    count = fusable_suffix(stage.op)
    period = _period(stage.op) if count == 1 else None
    if period is not None and period >= vector_lanes(out.dtype):
        axes[-1:] = stage.split(axes[-1], factor=period)
        extents[-1:] = [(extents[-1] or 0) // period, period]
    lead = len(axes) - count
    inner = fuse_all(stage, axes[lead:])
    inner_extent = _product(extents[lead:])
    for _ in range(1 if len(axes) == len(stage.op.axis) else 2):
        if lead > 1 and (_product(extents[: lead - 1]) or 0) >= _MANY_ROWS:
            lead -= 1  # a loop of its own: the indices of what is broadcast along it are computed once
    outer = fuse_all(stage, axes[:lead])
    outer_extent = _product(extents[:lead])
    assert inner is not None
    bordered: set[Var] = set()
    _outer_loads(stage.op, bordered)
    if inner.var in bordered and not evaluates_functions(operations([out])):
        blocks, vector = inner, None  # rows without their border are for LLVM: it copies them, at any alignment
    else:
        blocks, vector = split_vector(stage, inner, inner_extent, vector_lanes(out.dtype))
    _partition_border(stage, bordered, inner, outer, blocks)
    if work is not None and work < PARALLEL_WORK:
        return s
    parallel = _parallel_axis(stage, outer, outer_extent, blocks, vector)
    if parallel is not None:
        stage.parallel(parallel)
    return s


def _partition_border(
    stage: te.Stage, bordered: set[Var], inner: IterVar, outer: IterVar | None, blocks: IterVar
) -> None:
    """Cut the border off the loops, but not off ``outer``, which may be shared out: once, not in three parts."""
    for iv in stage.leaf_iter_vars:
        if iv is not outer and (iv.var in bordered or (iv is blocks and inner.var in bordered)):
            stage.pragma(iv, "loop_partition_hint", 1)


def _parallel_axis(
    stage: te.Stage, outer: IterVar | None, outer_extent: int | None, blocks: IterVar, vector: IterVar | None
) -> IterVar | None:
    if outer is not None and (outer_extent is None or outer_extent >= _MIN_ROWS):
        return outer
    if blocks is vector:  # the whole inner loop is one vector
        return outer
    if outer is None:
        return blocks
    return stage.fuse(outer, blocks)


def _product(extents: list[int | None]) -> int | None:
    known = [e for e in extents if e is not None]
    return math.prod(known) if len(known) == len(extents) else None


def schedule_injective(outs: Any) -> te.Schedule:
    """Schedule injective outputs: producers inlined, loops fused, run in parallel and vectorised."""
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    inline_injective(s, tensors)
    for op in dict.fromkeys(t.op for t in tensors):
        if isinstance(op, te.ComputeOp):
            schedule_injective_from_existing(s, op.output(0))
    return s


schedule_elemwise = schedule_injective
schedule_broadcast = schedule_injective
schedule_concatenate = schedule_injective
