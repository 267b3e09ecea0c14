"""Runs computes under schedules, by the reference interpreter of TIR or compiled, on given arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import te, topi
from tilewright.target import Target
from tilewright.te.lower import schedule_to_primfunc
from tilewright.testing.tir_interpreter import run

Array = np.ndarray
Schedule = Callable[[Any], te.Schedule]


def random(*shape: int, seed: int = 0) -> Array:
    """float32 numbers in [-1, 1), the same for a shape and seed."""
    return np.random.default_rng([seed, *shape]).uniform(-1, 1, shape).astype("float32")


def placeholders(*arrays: Array, read_between: int = 0) -> list[te.Tensor]:
    """A placeholder for each array."""
    return [te.placeholder(a.shape, str(a.dtype), f"in{k}", read_between) for k, a in enumerate(arrays)]


def evaluate(
    compute: Callable[..., Any],
    *arrays: Array,
    schedule: Schedule = topi.cpu.schedule_injective,
    target: str = "llvm",
) -> Any:
    """What ``compute`` gives for the arrays under ``schedule``: the loops interpreted before any pass."""
    arrays = tuple(np.ascontiguousarray(a) for a in arrays)
    with Target(target):
        inputs = placeholders(*arrays)
        outs = compute(*inputs)
        tensors = list(outs) if isinstance(outs, (list, tuple)) else [outs]
        func = schedule_to_primfunc(schedule(tensors), [*inputs, *tensors], "kernel")
    results = [_empty(t) for t in tensors]
    run(func, *arrays, *results)
    return results if isinstance(outs, (list, tuple)) else results[0]


def compiled(
    compute: Callable[..., Any],
    *arrays: Array,
    schedule: Schedule = topi.cpu.schedule_injective,
    target: str = "llvm",
    read_between: int = 0,
) -> Any:
    """What ``compute`` gives for the arrays under ``schedule``: built to machine code and run."""
    arrays = tuple(np.ascontiguousarray(a) for a in arrays)
    with Target(target):
        inputs = placeholders(*arrays, read_between=read_between)
        outs = compute(*inputs)
        tensors = list(outs) if isinstance(outs, (list, tuple)) else [outs]
        module = tvm.build(schedule(tensors), [*inputs, *tensors], target, name="kernel")
    results = [tvm.nd.array(_empty(t)) for t in tensors]
    module["kernel"](*(tvm.nd.array(a) for a in arrays), *results)
    found = [r.numpy() for r in results]
    return found if isinstance(outs, (list, tuple)) else found[0]


def _empty(tensor: te.Tensor) -> Array:
    return np.zeros([int(d) for d in tensor.shape], tensor.dtype)  # type: ignore[call-overload]


def pack_channels(array: Array, block: int) -> Array:
    """(n, c, h, w) to (n, c / block, h, w, block)."""
    n, c, h, w = array.shape
    return np.ascontiguousarray(array.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2))


def pack_kernel(kernel: Array, in_block: int, out_block: int) -> Array:
    """(o, i, kh, kw) to (o / out_block, i / in_block, kh, kw, in_block, out_block)."""
    o, i, kh, kw = kernel.shape
    parts = kernel.reshape(o // out_block, out_block, i // in_block, in_block, kh, kw)
    return np.ascontiguousarray(parts.transpose(0, 2, 4, 5, 3, 1))


def close(found: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """Compare arrays, or lists of them: shapes, and values within the tolerances."""
    pairs: Sequence[tuple[Any, Any]] = (
        list(zip(found, expected, strict=True)) if isinstance(found, list) else [(found, expected)]
    )
    for a, b in pairs:
        assert a.shape == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
