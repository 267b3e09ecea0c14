"""Schedule of hand-written loops, and of computes of unknown kind."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.topi import tag
from tilewright.topi.cpu.common import create_schedule, operations, output_tensors
from tilewright.topi.cpu.injective import schedule_injective_from_existing


def schedule_extern(outs: Any) -> te.Schedule:
    """Keep externs and reductions unchanged, inline injective computes, vectorise injective outputs."""
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    read_by_extern = {t.op for op in operations(tensors) if not isinstance(op, te.ComputeOp) for t in op.input_tensors}
    for op in operations(tensors):
        if not isinstance(op, te.ComputeOp) or not tag.is_injective(op.tag):
            continue
        if op in s.outputs or op in read_by_extern:  # an extern reads memory: its inputs cannot be inlined
            schedule_injective_from_existing(s, op.output(0))
        else:
            s[op].compute_inline()
    return s
