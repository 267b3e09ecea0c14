"""Schedules by target, and comparison of a compute with numpy's result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tilewright import te, topi
from tilewright.runtime import ndarray as nd
from tilewright.target.build import build
from tilewright.target.target import Target
from tilewright.testing.numerical import assert_allclose

T = TypeVar("T")
Schedule = Callable[[Any], te.Schedule]

_INJECTIVE: dict[str, Schedule] = {
    "generic": topi.generic.schedule_injective,
    "cpu": topi.x86.schedule_injective,
    "gpu": topi.cuda.schedule_injective,
    "hls": topi.hls.schedule_injective,
}
_REDUCE: dict[str, Schedule] = {
    "generic": topi.generic.schedule_reduce,
    "cpu": topi.x86.schedule_reduce,
    "gpu": topi.cuda.schedule_reduce,
    "hls": topi.hls.schedule_reduce,
}
_CONV2D_NCHW: dict[str, tuple[Callable[..., te.Tensor], Schedule]] = {
    "generic": (topi.nn.conv2d_nchw, topi.generic.schedule_conv2d_nchw),
    "cpu": (topi.x86.conv2d_nchw, topi.x86.schedule_conv2d_nchw),
    "gpu": (topi.cuda.conv2d_nchw, topi.cuda.schedule_conv2d_nchw),
    "hls": (topi.nn.conv2d_nchw, topi.hls.schedule_conv2d_nchw),
}


def dispatch(target: Any, dispatch_map: Mapping[str, T]) -> T:
    """Return the entry of the first key of ``target`` that has one, or ``"generic"``; raises KeyError without both."""
    keys = (Target(target) if isinstance(target, str) else target).keys
    return dispatch_map[next((key for key in keys if key in dispatch_map), "generic")]


def get_injective_schedule(target: Any) -> Schedule:
    """Return the schedule of injective computes for ``target``."""
    return dispatch(target, _INJECTIVE)


get_broadcast_schedule = get_injective_schedule
get_elemwise_schedule = get_injective_schedule


def get_reduce_schedule(target: Any) -> Schedule:
    """Return the schedule of reductions for ``target``."""
    return dispatch(target, _REDUCE)


def get_conv2d_nchw_implement(target: Any) -> tuple[Callable[..., te.Tensor], Schedule]:
    """Return compute and schedule of NCHW convolutions for ``target``."""
    return dispatch(target, _CONV2D_NCHW)


def compare_numpy_tvm(
    inputs: Sequence[np.ndarray],
    output: np.ndarray,
    target: Any,
    device: Any,
    compute: Callable[..., te.Tensor],
    schedule: Callable[[Any], te.Schedule],
) -> None:
    """Build ``compute`` under ``schedule``, run it on ``inputs``, compare with ``output`` to 1e-4.

    Raises AssertionError where they differ.
    """
    tensors = [te.placeholder(a.shape, str(a.dtype), f"in{i}") for i, a in enumerate(inputs)]
    with Target(target):
        out = compute(*tensors)
        module = build(schedule([out]), [*tensors, out], target)
    found = nd.array(np.zeros(output.shape, output.dtype), device)
    module(*(nd.array(a, device) for a in inputs), found)
    assert_allclose(found.numpy(), output, rtol=1e-4, atol=1e-4)


__all__ = [
    "compare_numpy_tvm", "dispatch", "get_broadcast_schedule", "get_conv2d_nchw_implement", "get_elemwise_schedule",
    "get_injective_schedule", "get_reduce_schedule",
]  # fmt: skip
