"""KeepHalfPrecision: tensor cores get float16, other targets what ComputeInFloat32 made of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tvm
from tilewright import relay


def kernels(target: str, dtype: str, make: Callable[..., Any], *shapes: tuple[int, ...]) -> str:
    """The PTX of a network of one operator."""
    inputs = [relay.var(f"x{k}", shape=shape, dtype=dtype) for k, shape in enumerate(shapes)]
    mod = tvm.IRModule.from_expr(relay.Function(inputs, make(*inputs)))
    return str(relay.build(mod, target).get_lib().imported_modules[0].get_source("ptx"))


CASES = {
    "dense": (lambda x, w: relay.nn.relu(relay.nn.dense(x, w)), (40, 64), (48, 64)),
    "batch_matmul": (relay.nn.batch_matmul, (2, 40, 64), (2, 48, 64)),
    "conv2d": (lambda x, w: relay.nn.conv2d(x, w, padding=1, channels=32, kernel_size=3), (1, 16, 14, 14),
               (32, 16, 3, 3)),
    "attention": (lambda q, k, v: relay.nn.attention(q, k, v, scale=0.125), *[(1, 2, 40, 64)] * 3),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_halves_are_multiplied_by_tensor_cores(name: str) -> None:
    make, *shapes = CASES[name]
    wanted = r"mma\.sync\.aligned\.m16n8k16" if name == "attention" else r"wmma\.mma\.sync.*f32\.f32"
    assert re.search(wanted, kernels("cuda -arch=sm_80", "float16", make, *shapes))
    assert "mma.sync" not in kernels("cuda -arch=sm_80", "float32", make, *shapes)


def test_bfloat16_is_from_sm_80_on() -> None:
    make, *shapes = CASES["dense"]
    assert "wmma.mma.sync" in kernels("cuda -arch=sm_80", "bfloat16", make, *shapes)
    assert "mma.sync" not in kernels("cuda -arch=sm_75", "bfloat16", make, *shapes)


def test_integers_are_multiplied_by_tensor_cores() -> None:
    ptx = kernels("cuda -arch=sm_75", "int8", lambda x, w: relay.nn.dense(x, w, out_dtype="int32"), (40, 64), (48, 64))
    assert "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32" in ptx


def test_other_targets_sum_what_was_widened() -> None:
    make, *shapes = CASES["dense"]
    inputs = [relay.var(f"x{k}", shape=shape, dtype="float16") for k, shape in enumerate(shapes)]
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(inputs, make(*inputs))))
    wide = relay.transform.ComputeInFloat32()(mod)
    for target in ("llvm", "opencl", "cuda -arch=sm_70"):
        with tvm.target.Target(target):
            made = relay.transform.KeepHalfPrecision()(wide)
            assert ("float32" in str(made).split("nn.dense")[0]) == (target != "cuda -arch=sm_70")
