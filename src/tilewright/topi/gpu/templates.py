"""AutoTVM templates that share the schedule of contractions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import autotvm, te
from tilewright.topi.gpu.contraction_schedule import schedule_contraction
from tilewright.topi.utils import get_const_tuple


def template(task: str, compute: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the compute ``(*args)`` and the schedule ``(outs)`` of a task; ``compute`` takes ``(cfg, *args)``."""
    return autotvm.register_topi_compute(task, compute), autotvm.register_topi_schedule(task, schedule_contraction)


def constant_shapes(*tensors: te.Tensor) -> bool:
    """Return whether all extents are known; contractions with unknown ones run one element per thread."""
    return all(isinstance(d, int) for t in tensors for d in get_const_tuple(t.shape))
