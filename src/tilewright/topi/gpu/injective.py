"""Schedules of element-wise, broadcasting and data-moving computes: a thread for each element or short vector."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.topi.gpu.common import bind_elements
from tilewright.topi.gpu.kernels import schedule_kernels


def schedule_injective_from_existing(sch: te.Schedule, out: te.Tensor) -> te.Schedule:
    """Bind the elements of the injective ``out`` of a schedule to threads."""
    bind_elements(sch, out.op)
    return sch


def schedule_injective(outs: Any) -> te.Schedule:
    """Schedule one kernel for each output, with its injective producers inlined."""
    return schedule_kernels(outs)
