"""Kernels of networks have no races, no barriers in divergent code, and stay inside their buffers (the emulator)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.module import IRModule
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.target import Target
from tilewright.target.build import ModuleBuilder
from tilewright.target.device_build import before_split
from tilewright.testing.block_emulator import run
from tilewright.tir.function import PrimFunc

OPERATORS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "softmax": (lambda x: relay.nn.softmax(x), [(7, 130)]),
    "sum": (lambda x: relay.sum(x, 1), [(5, 300)]),
    "argmax": (lambda x: relay.argmax(x, 1), [(5, 300)]),
    "dense": (lambda x, w: relay.nn.dense(x, w), [(33, 70), (50, 70)]),
    "batch_matmul": (lambda x, y: relay.nn.batch_matmul(x, y), [(3, 33, 70), (3, 50, 70)]),
    "conv2d": (
        lambda x, w: relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1), channels=16, kernel_size=(3, 3))),
        [(1, 8, 14, 14), (16, 8, 3, 3)],
    ),
    "depthwise": (
        lambda x, w: relay.nn.conv2d(x, w, padding=(1, 1), channels=8, groups=8, kernel_size=(3, 3)),
        [(1, 8, 14, 14), (8, 1, 3, 3)],
    ),
    "max_pool2d": (lambda x: relay.nn.max_pool2d(x, (2, 2), (2, 2)), [(1, 8, 14, 14)]),
    "global_avg_pool2d": (lambda x: relay.nn.global_avg_pool2d(x), [(1, 8, 14, 14)]),
    "layer_norm": (lambda x, g, b: relay.nn.layer_norm(x, g, b), [(6, 70), (70,), (70,)]),
    "topk": (lambda x: relay.topk(x, k=3, ret_type="values"), [(4, 50)]),
    "cumsum": (lambda x: relay.cumsum(x, 1), [(4, 50)]),
}


def lowered(monkeypatch: pytest.MonkeyPatch, make: Callable[..., Any], shapes: list[tuple[int, ...]]) -> list[PrimFunc]:
    """The functions that a build sends to the device's code generator, with host and device in one."""
    found: list[PrimFunc] = []
    parts = ModuleBuilder._parts

    def note(self: ModuleBuilder, func: PrimFunc) -> list[PrimFunc]:
        found.append(func)
        return parts(self, func)

    monkeypatch.setattr(ModuleBuilder, "_parts", note)
    inputs = [relay.var(f"x{k}", shape=shape) for k, shape in enumerate(shapes)]
    relay.build(tvm.IRModule.from_expr(relay.Function(inputs, make(*inputs))), Target("opencl"))
    return [func for func in found if func.buffer_map]


@pytest.mark.parametrize("name", list(OPERATORS))
def test_kernels_of_operators_have_no_races(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    functions = lowered(monkeypatch, *OPERATORS[name])
    assert functions
    rng = np.random.default_rng(0)
    for func in functions:
        symbol, mod = str(func.attrs["global_symbol"]), IRModule()
        mod[symbol] = func
        for step in before_split():
            mod = step(mod)
        arrays = []
        for param in func.params:
            buffer = func.buffer_map[param]
            shape = [int(d) for d in buffer.shape]  # type: ignore[call-overload]
            arrays.append((rng.random(shape) * 3).astype(numpy_dtype(buffer.dtype)))
        run(mod[symbol], *arrays)
