"""What the tests of te share: the loops of a schedule as text, and running a schedule on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import dedent
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import te
from tilewright.te.lower import schedule_to_primfunc
from tilewright.te.schedule import Schedule
from tilewright.testing.tir_interpreter import run


def loops(sch: Schedule, args: Sequence[te.Tensor]) -> str:
    """The loops of a schedule, before any pass."""
    return str(schedule_to_primfunc(sch, args).body).strip() + "\n"


def text(expected: str) -> str:
    """An indented literal without its indentation."""
    return dedent(expected).strip() + "\n"


def compute(
    sch: Schedule,
    args: Sequence[te.Tensor],
    inputs: Sequence[np.ndarray],
    shapes: Sequence[tuple[int, ...]],
    externs: dict[str, Callable[..., Any]] | None = None,
) -> list[np.ndarray]:
    """Outputs of a schedule; the loops as they are and after all passes of ``lower`` must agree."""
    outputs = args[len(inputs) :]
    results = []
    for func in (schedule_to_primfunc(sch, args), tvm.lower(sch, args)["main"]):
        arrays = [np.full(s, 77, dtype=t.dtype) for s, t in zip(shapes, outputs, strict=True)]
        run(func, *inputs, *arrays, externs=externs)
        results.append(arrays)
    for before, after in zip(*results, strict=True):
        np.testing.assert_array_equal(before, after)
    return results[0]
