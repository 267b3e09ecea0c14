"""What the CPU schedules share: the target's vector unit, when to use threads, and walks to the anchor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.ir import dtype as dt
from tilewright.target.features import CpuFeatures, features
from tilewright.tir.expr import IntImm, IterVar
from tilewright.topi import tag
from tilewright.topi.utils import as_list, get_const_tuple, operations

PARALLEL_WORK = 32768  # element operations below which starting threads (about 5 us) costs more than it saves


def machine() -> CpuFeatures:
    """The processor of the current target."""
    return features()


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


def output_tensors(outs: Any) -> list[te.Tensor]:
    """One tensor or several, as a list."""
    return as_list(outs)


def create_schedule(outs: Sequence[te.Tensor]) -> te.Schedule:
    """The default schedule of the operations of ``outs``."""
    return te.create_schedule([out.op for out in outs])


def find_anchor(outs: Sequence[te.Tensor], match: Callable[[Any], bool]) -> Any | None:
    """The first operation, from ``outs`` downwards, that ``match`` accepts."""
    return next((op for op in operations(list(outs)) if match(op)), None)


def inline_injective(s: te.Schedule, outs: Sequence[te.Tensor], keep: Sequence[Any] = ()) -> None:
    """Inline every injective operation that is no output and not in ``keep``."""
    for op in operations(list(outs)):
        if isinstance(op, te.ComputeOp) and tag.is_injective(op.tag) and op not in s.outputs and op not in keep:
            s[op].compute_inline()


def largest_divisor(n: int, limit: int) -> int:
    """The largest divisor of ``n`` that is at most ``limit``."""
    return max((d for d in range(1, min(n, limit) + 1) if n % d == 0), default=1)


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
