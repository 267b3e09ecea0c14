"""Convolutions whose lanes stand for an output and one of several inputs, and blocks of any number of channels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.processors.x86 import TARGETS, runs_here
from tests.topi.harness import random

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

# batch, channels, results, height, width, kernel, stride, padding, dilation, groups
CASES = [
    (1, 144, 24, 14, 14, 1, 1, 0, 1, 1),
    (2, 32, 16, 7, 13, 1, 1, 0, 1, 1),
    (1, 16, 40, 5, 3, 1, 2, 0, 1, 1),
    (1, 48, 112, 9, 11, 1, 1, 0, 1, 1),
    (1, 24, 20, 6, 17, 3, 1, 1, 1, 1),
    (3, 32, 24, 8, 9, 3, 2, 1, 2, 1),
    (1, 64, 48, 7, 7, 1, 1, 0, 1, 2),
    (1, 4, 12, 1, 1, 1, 1, 0, 1, 1),
    (1, 32, 8, 28, 28, 1, 1, 0, 1, 1),
    (1, 512, 1000, 1, 5, 1, 1, 0, 1, 1),
    (1, 18, 18, 6, 11, 3, 1, 1, 1, 1),
    (1, 54, 17, 5, 7, 1, 1, 0, 1, 1),
    (2, 32, 1, 9, 17, 1, 1, 0, 1, 1),
    (1, 64, 3, 8, 8, 3, 1, 1, 1, 1),
    (1, 7, 9, 5, 6, 3, 2, 1, 1, 1),
    (1, 36, 30, 4, 9, 1, 1, 0, 1, 2),
    (1, 48, 34, 7, 7, 5, 1, 2, 1, 1),
]

ENDINGS = [
    *((2, ending) for ending in ("none", "residual", "transposed")),
    (4, "residual"),
    (8, "transposed"),
    (8, "none"),
    (16, "residual"),
]


def outputs_of(func: Any, target: str, **inputs: np.ndarray) -> np.ndarray:
    with tvm.transform.PassContext(opt_level=3, config={"relay.conv2d.winograd": "off"}):
        lib = relay.build(tvm.IRModule.from_expr(func), target)
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(**inputs)
    return module.get_output(0).numpy()


def take(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many inputs side by side as divide a block, at most so many."""
    choice = "tilewright.topi.cpu.model.conv2d._times"
    monkeypatch.setattr(choice, lambda cpu, products, in_block, *_, **__: {math.gcd(most, in_block): 1.0})


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS.values())
@pytest.mark.parametrize("shape", CASES, ids=str)
@pytest.mark.parametrize(("side", "ending"), ENDINGS)
def test_sums_of_lanes(
    shape: tuple[int, ...], target: str, side: int, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with what follows on the tile, and with what does not."""
    if not runs_here(target):
        pytest.skip("this processor cannot run the code")
    take(side, monkeypatch)
    batch, channels, results, height, width, kernel, stride, padding, dilation, groups = shape
    data, weight = random(batch, channels, height, width), random(results, channels // groups, kernel, kernel)
    options = {"padding": padding, "dilation": dilation, "groups": groups}
    wide = [torch.tensor(a, dtype=torch.float64) for a in (data, weight)]
    want = F.conv2d(*wide, stride=stride, **options)
    x, inputs = relay.var("x", shape=data.shape), {"x": data}
    out = relay.nn.conv2d(x, relay.const(weight), strides=stride, channels=results, kernel_size=kernel, **options)
    if ending == "residual":
        inputs["y"] = random(*want.shape)
        out = relay.nn.relu(relay.add(out, relay.var("y", shape=tuple(want.shape))))
        want = F.relu(want + torch.tensor(inputs["y"]))
    if ending == "transposed":
        out, want = relay.transpose(out, (0, 2, 3, 1)), want.permute(0, 2, 3, 1)
    found = outputs_of(relay.Function(relay.analysis.free_vars(out), out), target, **inputs)
    expected = want.numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_merged_rows_and_copied_windows_of_pairs() -> None:
    """As AVX2 code, where 40 channels are pairs, and seven columns fit no tile."""
    target = "llvm -mcpu=haswell -num-cores=2"
    if not runs_here(target):
        pytest.skip("this processor cannot run the code")
    for kernel, stride in ((1, 1), (3, 2)):
        extent = 7 * stride
        data, weight = random(1, 96, extent, extent), random(40, 96, kernel, kernel)
        x = relay.var("x", shape=data.shape)
        options = {"strides": stride, "padding": kernel // 2}
        conv = relay.nn.conv2d(x, relay.const(weight), channels=40, kernel_size=kernel, **options)
        wide = [torch.tensor(a, dtype=torch.float64) for a in (data, weight)]
        want = F.relu(F.conv2d(*wide, stride=stride, padding=kernel // 2)).numpy()
        found = outputs_of(relay.Function([x], relay.nn.relu(conv)), target, x=data)
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("side", [2, 4])
def test_other_dtypes(dtype: str, side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    take(side, monkeypatch)
    data, weight = random(1, 32, 5, 7), random(24, 32, 1, 1)
    x = relay.var("x", shape=data.shape)
    narrow, kernel = relay.cast(x, dtype), relay.cast(relay.const(weight), dtype)
    out = relay.cast(relay.nn.conv2d(narrow, kernel, channels=24, kernel_size=1), "float32")
    found = outputs_of(relay.Function([x], out), "llvm", x=data)
    want = np.einsum("oi,nihw->nohw", weight[:, :, 0, 0], data)
    error = {"float16": 4e-3, "bfloat16": 3e-2, "float64": 1e-6}[dtype]
    np.testing.assert_allclose(found, want, rtol=error, atol=error * np.abs(want).max())
