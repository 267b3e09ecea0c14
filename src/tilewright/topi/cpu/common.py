"""Helpers of the CPU schedules: the target's vector unit, when threads pay, and walks to the anchor operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright import te
from tilewright.arith.analyzer import Analyzer
from tilewright.autotvm.task.choices import choose
from tilewright.ir import dtype as dt
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Call
from tilewright.target.features import CpuFeatures, features
from tilewright.target.intrinsics import FLOAT_MATH
from tilewright.target.processors import Processor
from tilewright.tir.expr import IntImm, IterVar
from tilewright.tir.visitor import post_order_visit
from tilewright.topi import tag
from tilewright.topi.kinds import PAD
from tilewright.topi.utils import as_list, get_const_tuple, operations

PREFETCH_STEPS = (0, 2, 4, 8, 16)  # steps ahead that tuning tries; 0: none
TUNING_CANDIDATES = 64  # choices of a knob that tuning tries, the cheapest by the model


def machine() -> CpuFeatures:
    """The processor of the current target."""
    return features()


def measured() -> Processor:
    """The record of the current target's processor."""
    return machine().processor


def stays_in_cache(weight: te.Tensor) -> bool:
    """Return whether ``weight`` and all that a run reads besides stay in the last-level cache until the next run."""
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


_TYPICAL_EXTENT = 64
_MOST_IDLE = 1.15  # times the even share, from which another way to cut the work is looked for


def typical_extent(dim: Any) -> int:
    """Return the extent to schedule for: the number itself, or a likely value of an expression.

    A named dimension of a wide range is taken as 64, whatever it is part of: schedules for that many rows do well for
    more, and for fewer cost little beside what is read.
    """
    if isinstance(dim, (int, IntImm)):
        return int(dim)
    bound = Analyzer().const_int_bound(dim)
    return max(1, bound.min_value, min(_TYPICAL_EXTENT, bound.max_value))


def element_count(tensor: te.Tensor) -> int | None:
    """Number of elements, or None when it is not known."""
    shape = get_const_tuple(tensor.shape)
    return math.prod(shape) if all(isinstance(d, int) for d in shape) else None


def reduction_size(op: Any) -> int:
    """Iterations of an operation's reduction axes; unknown ones count as 1."""
    return math.prod(constant_extent(a) or 1 for a in getattr(op, "reduce_axis", ()))


def worth_threads(op: Any, limit: int | None = None) -> bool:
    """Return whether the operation takes more than ``limit`` element operations; where the shape is unknown, yes.

    ``limit``: the record's ``threads.least_work`` by default.
    """
    if limit is None:
        limit = measured().threads.least_work
    elements = element_count(op.output(0))
    return choose("threads", [True, False], elements is None or elements * reduction_size(op) > limit)


def idleness(tasks: int) -> float:
    """Return the time of equal tasks on the machine's cores, over the time if they were shared evenly."""
    cores = machine().cores
    return -(-tasks // cores) * cores / tasks


def shares_evenly(tasks: int) -> bool:
    """Return whether the cores have so many equal tasks that they idle little."""
    return idleness(tasks) <= _MOST_IDLE


def output_tensors(outs: Any) -> list[te.Tensor]:
    """Return one tensor or several as a list."""
    return as_list(outs)


def create_schedule(outs: Sequence[te.Tensor]) -> te.Schedule:
    """Create the default schedule of the operations of ``outs``."""
    return te.create_schedule([out.op for out in outs])


def find_anchor(outs: Sequence[te.Tensor], match: Callable[[Any], bool]) -> Any | None:
    """Return the first operation, from ``outs`` downwards, that ``match`` accepts."""
    return next((op for op in operations(list(outs)) if match(op)), None)


def calls_functions(outs: Sequence[te.Tensor], anchor: Any) -> bool:
    """Return whether an operation after ``anchor`` evaluates a function such as exp, which takes many instructions."""
    before = set(operations([anchor.output(0)]))
    return evaluates_functions([op for op in operations(list(outs)) if op not in before])


def evaluates_functions(computes: Iterable[Any]) -> bool:
    """Return whether one of the operations evaluates a function such as exp."""
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


def same_shape(a: Any, b: Any) -> bool:
    """Return whether two operations have output axes of the same extents."""
    return len(a.axis) == len(b.axis) and all(
        constant_extent(x) == constant_extent(y) for x, y in zip(a.axis, b.axis, strict=True)
    )


def padding_of(anchor: Any) -> Any | None:
    """Return the operation that pads the anchor's data, or None."""
    return next((t.op for t in anchor.input_tensors if isinstance(t.op, te.ComputeOp) and PAD(t.op)), None)
