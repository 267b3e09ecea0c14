"""The schedule for any target: loops in declared order, run serially, with injective computes inlined."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.topi import tag
from tilewright.topi.utils import as_list, operations


def default_schedule(outs: Any, auto_inline: bool = False) -> te.Schedule:
    """Create the default schedule; with ``auto_inline``, injective computes are inlined.

    Inputs of a hand-written loop (an extern) stay in memory.
    """
    tensors = as_list(outs)
    s = te.create_schedule([t.op for t in tensors])
    if auto_inline:
        computes = operations(tensors)
        kept = {t.op for op in operations(tensors) if not isinstance(op, te.ComputeOp) for t in op.input_tensors}
        for op in computes:
            if isinstance(op, te.ComputeOp) and tag.is_injective(op.tag) and op not in s.outputs and op not in kept:
                s[op].compute_inline()
    return s


def schedule_extern(outs: Any) -> te.Schedule:
    """Schedule loops in declared order, with injective computes inlined."""
    return default_schedule(outs, auto_inline=True)


def schedule_injective_from_existing(sch: te.Schedule, out: te.Tensor) -> te.Schedule:
    """Leave the loops of the injective ``out`` in ``sch`` unchanged."""
    return sch


def schedule_pool(outs: Any, layout: str = "NCHW") -> te.Schedule:
    """Schedule a pooling by ``schedule_extern``; the layout does not matter."""
    return schedule_extern(outs)
