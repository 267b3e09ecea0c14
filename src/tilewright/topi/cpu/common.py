"""What the CPU schedules share: the target's vector unit, when to use threads, and walks to the anchor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright import te
from tilewright.ir import dtype as dt
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Call
from tilewright.target.features import CpuFeatures, features
from tilewright.target.intrinsics import FLOAT_MATH
from tilewright.target.processors import Processor
from tilewright.te.operation import producer_loads
from tilewright.tir.expr import IntImm, IterVar, ProducerLoad
from tilewright.tir.visitor import free_vars, post_order_visit
from tilewright.topi import tag
from tilewright.topi.utils import as_list, get_const_tuple, operations

TUNING_CANDIDATES = 64  # choices of a knob that tuning tries, the cheapest by the model


def machine() -> CpuFeatures:
    """The processor of the current target."""
    return features()


def measured() -> Processor:
    """The record of the current target's processor."""
    return machine().processor


def stays_in_cache(weight: te.Tensor) -> bool:
    """Whether the last-level cache keeps ``weight``, and with it all that is read in between, until the next run."""
    own = (element_count(weight) or 0) * dt.nbytes(weight.dtype)
    between = [op.read_between for op in operations(weight) if isinstance(op, te.PlaceholderOp)]
    return max(own, *between) <= max(machine().l2_bytes, machine().l3_bytes)


def vector_lanes(dtype: str) -> int:
    """Lanes of one vector register for elements of ``dtype``."""
    return machine().lanes(max(8, dt.bits(dtype)))


def constant_extent(axis: IterVar) -> int | None:
    """The extent of a root axis, or None when it is not known."""
    extent = axis.dom.extent if axis.dom is not None else None
    return int(extent) if isinstance(extent, IntImm) else None


def element_count(tensor: te.Tensor) -> int | None:
    """Number of elements, or None when it is not known."""
    shape = get_const_tuple(tensor.shape)
    return math.prod(shape) if all(isinstance(d, int) for d in shape) else None


def reduction_size(op: Any) -> int:
    """Iterations of an operation's reduction axes; unknown ones count as 1."""
    return math.prod(constant_extent(a) or 1 for a in getattr(op, "reduce_axis", ()))


def worth_threads(op: Any, limit: int | None = None) -> bool:
    """Whether the operation takes more than ``limit`` element operations; where the shape is unknown, yes.

    ``limit``: the record's ``threads.least_work`` by default.
    """
    if limit is None:
        limit = measured().threads.least_work
    elements = element_count(op.output(0))
    return elements is None or elements * reduction_size(op) > limit


def output_tensors(outs: Any) -> list[te.Tensor]:
    """One tensor or several, as a list."""
    return as_list(outs)


def create_schedule(outs: Sequence[te.Tensor]) -> te.Schedule:
    """The default schedule of the operations of ``outs``."""
    return te.create_schedule([out.op for out in outs])


def find_anchor(outs: Sequence[te.Tensor], match: Callable[[Any], bool]) -> Any | None:
    """The first operation, from ``outs`` downwards, that ``match`` accepts."""
    return next((op for op in operations(list(outs)) if match(op)), None)


def calls_functions(outs: Sequence[te.Tensor], anchor: Any) -> bool:
    """Whether what follows ``anchor`` evaluates functions, such as exp, which take many instructions an element."""
    before = set(operations([anchor.output(0)]))
    return evaluates_functions([op for op in operations(list(outs)) if op not in before])


def evaluates_functions(computes: Iterable[Any]) -> bool:
    """Whether one of the operations evaluates a function such as exp."""
    found: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, Call) and isinstance(node.op, Op):
            found.append(node.op.name)

    for op in computes:
        if isinstance(op, te.ComputeOp):
            for value in op.body:
                post_order_visit(value, visit)
    return any(name.removeprefix("tir.") in FLOAT_MATH for name in found)


def inline_injective(s: te.Schedule, outs: Sequence[te.Tensor], keep: Sequence[Any] = ()) -> None:
    """Inline every injective operation that is no output and not in ``keep``."""
    for op in operations(list(outs)):
        if isinstance(op, te.ComputeOp) and tag.is_injective(op.tag) and op not in s.outputs and op not in keep:
            s[op].compute_inline()


def split_vector(stage: te.Stage, axis: IterVar, extent: int | None, lanes: int) -> tuple[IterVar, IterVar | None]:
    """Split ``axis`` by the vector width and vectorize the inner loop; gives (outer, inner or None when scalar).

    An extent that is no multiple of the width gets a remainder loop: the outer loop is marked for partitioning.
    """
    if extent is None or extent < 2:
        return axis, None
    if extent < lanes:
        width = 1 << (extent.bit_length() - 1)
        if width != extent:  # 3, 5, 6, 7: too short for a loop of vectors
            return axis, None
        stage.vectorize(axis)
        return axis, axis
    outer, inner = stage.split(axis, factor=lanes)
    stage.vectorize(inner)
    if extent % lanes:
        stage.pragma(outer, "loop_partition_hint", 1)
    return outer, inner


def fuse_all(stage: te.Stage, axes: Sequence[IterVar]) -> IterVar | None:
    """The axes fused into one; None when there are none."""
    if not axes:
        return None
    return axes[0] if len(axes) == 1 else stage.fuse(*axes)


def _fuse_rows(stage: te.Stage) -> tuple[IterVar, int | None]:
    """The innermost reduction axes, as far as they run through elements in memory one by one, as one; its extent."""
    loads = producer_loads(stage.op.body[0].source)
    axes, extents = list(stage.op.reduce_axis), [constant_extent(a) for a in stage.op.reduce_axis]

    def in_order(load: ProducerLoad, count: int) -> bool:
        reduced = [axis.var for axis in axes[-count:]]
        if not any(v in reduced for index in load.indices for v in free_vars(index)):
            return True
        shape = get_const_tuple(load.producer.shape)[1 - count :]
        indices = list(load.indices[-count:])
        together = len(indices) == count and all(i is v for i, v in zip(indices, reduced, strict=True))
        return together and list(shape) == extents[1 - count :]

    count = 1
    while count < len(axes) and None not in extents and all(in_order(load, count + 1) for load in loads):
        count += 1
    fused = fuse_all(stage, axes[-count:])
    assert fused is not None
    return fused, extents[-1] if count == 1 else math.prod(e or 0 for e in extents[-count:])


def sum_registers() -> int:
    """Vectors of partial results that a long sum takes: enough to overlap, with registers left for what it reads."""
    return 4 if machine().vector_registers >= 16 else 2


def reduce_in_lanes(s: te.Schedule, tensor: te.Tensor, registers: int = 1) -> te.Stage | None:
    """Reduce the innermost reduction axes of ``tensor`` with vectors of partial results, combined at the end.

    Before and after, for a sum of a row of 40 elements with 8 lanes::

        for k in 0..40: B += A[k]
        ->
        for k.outer in 0..5: P[0:8] += A[k.outer*8 : k.outer*8 + 8]
        Q[0:4] = P[0:4] + P[4:8];  R[0:2] = Q[0:2] + Q[2:4];  B = R[0] + R[1]

    What does not fill a vector gets a loop of its own. ``registers`` vectors are used where the extent allows them.
    Gives the stage of P; None for rows shorter than a vector and reductions of several values, which stay as they are.
    """
    stage = s[tensor]
    lanes = vector_lanes(tensor.dtype)
    if len(stage.op.body) > 1:
        return None
    axis, extent = _fuse_rows(stage)
    if extent is None or extent < lanes:
        return None
    while registers > 1 and (extent % (lanes * registers) and extent < 16 * lanes * registers):
        registers //= 2
    width = lanes * registers
    outer_axes = len(stage.op.axis)
    _, part = stage.split(axis, factor=width)
    partial = s.rfactor(tensor, part, factor_axis=outer_axes)
    partial_stage = s[partial]
    partial_stage.set_scope("local")
    lane_axis = partial_stage.op.axis[-1]
    order = [a for a in partial_stage.leaf_iter_vars if a is not lane_axis]
    partial_stage.reorder(*order, lane_axis)
    if extent % width:
        partial_stage.pragma(order[-1], "loop_partition_hint", 1)
    if registers > 1:
        register, lane_axis = partial_stage.split(lane_axis, factor=lanes)
        partial_stage.unroll(register)
    partial_stage.vectorize(lane_axis)
    stages = [partial_stage, *_combine_by_halves(s, tensor, width)]
    if outer_axes:
        for each in stages:
            each.compute_at(s[tensor], s[tensor].op.axis[-1])
    return partial_stage


def _combine_by_halves(s: te.Schedule, tensor: te.Tensor, width: int) -> list[te.Stage]:
    """Combine ``width`` partial results as a tree of ever shorter vectors; gives the stages of the tree."""
    stages = []
    while width > 2 and width % 2 == 0:
        width //= 2
        _, inner = s[tensor].split(s[tensor].op.reduce_axis[0], factor=width)
        half = s[s.rfactor(tensor, inner, factor_axis=len(s[tensor].op.axis))]
        half.set_scope("local")
        lane_axis = half.op.axis[-1]
        order = [a for a in half.leaf_iter_vars if a is not lane_axis]
        half.reorder(*order, lane_axis)
        half.unroll(order[-1])
        half.vectorize(lane_axis)
        stages.append(half)
    s[tensor].unroll(s[tensor].op.reduce_axis[0])
    return stages
