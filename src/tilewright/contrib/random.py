"""Random numbers inside of kernels, by numpy's generator: ``te.extern`` calls packed functions of TVM 0.8's names.

A library built with them needs Python, and this module imported, in the process that runs it. The operators of
``relay.random`` need neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te, tir
from tilewright.runtime import NDArray, register_func

_generator = np.random.default_rng()


@register_func("tvm.contrib.random.seed", override=True)
def _seed(seed: int) -> None:
    global _generator
    _generator = np.random.default_rng(seed)


@register_func("tvm.contrib.random.randint", override=True)
def _randint(low: int, high: int, out: NDArray) -> None:
    out.copyfrom(_generator.integers(low, high, out.shape).astype(out.dtype))


@register_func("tvm.contrib.random.uniform", override=True)
def _uniform(low: float, high: float, out: NDArray) -> None:
    out.copyfrom(_generator.uniform(low, high, out.shape).astype(out.dtype))


@register_func("tvm.contrib.random.normal", override=True)
def _normal(loc: float, scale: float, out: NDArray) -> None:
    out.copyfrom(_generator.normal(loc, scale, out.shape).astype(out.dtype))


def randint(low: int, high: int, size: Sequence[Any], dtype: str = "int32") -> te.Tensor:
    """Draw integers in [``low``, ``high``) of shape ``size``."""
    if "int" not in dtype:
        raise TypeError(f"randint gives whole numbers, not {dtype}")
    return _extern("randint", int(low), int(high), size, dtype)


def uniform(low: float, high: float, size: Sequence[Any]) -> te.Tensor:
    """Numbers between ``low`` and ``high``, all as likely; float32 of shape ``size``."""
    return _extern("uniform", float(low), float(high), size, "float32")


def normal(loc: float, scale: float, size: Sequence[Any]) -> te.Tensor:
    """Numbers of the normal distribution of mean ``loc`` and deviation ``scale``; float32 of shape ``size``."""
    return _extern("normal", float(loc), float(scale), size, "float32")


def _extern(name: str, first: float, second: float, size: Sequence[Any], dtype: str) -> te.Tensor:
    call = lambda ins, outs: tir.call_packed(f"tvm.contrib.random.{name}", first, second, outs[0])  # noqa: E731
    return te.extern(tuple(size), [], call, dtype=dtype, name=name)
