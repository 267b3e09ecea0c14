"""Convolutions whose groups are narrower than a vector: several of them share one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.processors.x86 import TARGETS, runs_here
from tests.topi.harness import random

import tilewright as tvm
from tilewright import relay, te, topi
from tilewright.contrib import graph_executor
from tilewright.topi.cpu.model.conv2d import conv2d_layouts
from tilewright.topi.utils import InvalidShapeError

# batch, channels, channels of a group, height, width, kernel, stride, padding, dilation
CASES = [
    (1, 128, 4, 14, 17, 3, 1, 1, 1),
    (2, 256, 8, 7, 13, 3, 1, 1, 1),
    (1, 64, 4, 13, 7, 3, 2, 1, 1),
    (3, 96, 2, 9, 11, 5, 2, 2, 1),
    (4, 32, 8, 7, 7, 3, 1, 2, 2),
    (1, 48, 4, 1, 5, 1, 1, 0, 1),
    (1, 16, 8, 5, 5, 3, 1, 1, 1),
    (1, 24, 4, 6, 6, 3, 1, 1, 1),
]


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", [*TARGETS.values(), "c"])
@pytest.mark.parametrize("shape", CASES, ids=str)
def test_groups_that_share_vectors(shape: tuple[int, ...], target: str) -> None:
    if not runs_here(target if target != "c" else "llvm"):
        pytest.skip("this processor cannot run the code")
    batch, channels, each, height, width, kernel, stride, padding, dilation = shape
    data, weight, bias = (
        random(batch, channels, height, width),
        random(channels, each, kernel, kernel),
        random(channels),
    )
    options = {"padding": padding, "dilation": dilation, "groups": channels // each}
    x = relay.var("x", shape=data.shape)
    conv = relay.nn.conv2d(x, relay.const(weight), strides=stride, channels=channels, kernel_size=kernel, **options)
    func = relay.Function([x], relay.nn.relu(relay.nn.bias_add(conv, relay.const(bias))))
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(func), target)
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(x=data)
    wide = [torch.tensor(a, dtype=torch.float64) for a in (data, weight, bias)]
    want = F.relu(F.conv2d(*wide, stride=stride, **options)).numpy()
    np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_nothing_to_compute() -> None:
    x = relay.var("x", shape=(1, 32, 3, 0))
    conv = relay.nn.conv2d(x, relay.const(random(32, 4, 1, 1)), channels=32, kernel_size=1, groups=8)
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(conv), "llvm")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(x=np.zeros((1, 32, 3, 0), "float32"))
    assert module.get_output(0).shape == (1, 32, 3, 0)


def test_layouts() -> None:
    target = tvm.target.Target("llvm -mcpu=skylake-avx512")
    shared = conv2d_layouts(128, 128, 32, target=target)
    assert shared is not None
    assert (shared.data_layout, shared.kernel_layout, shared.out_layout) == ("NCHW16c", "OIHW4i16o", "NCHW16c")
    apart = conv2d_layouts(128, 256, 32, target=target)  # results of a group are not as many as its channels
    assert apart is not None
    assert apart.data_layout == "NCHW4c"


def test_blocks_that_do_not_fit_are_refused() -> None:
    data, kernel = te.placeholder((1, 8, 5, 5, 16)), te.placeholder((16, 1, 3, 3, 4, 16))
    with tvm.target.Target("llvm"), pytest.raises(InvalidShapeError, match=r"\(1, 8, 5, 5, 16\).*do not fit"):
        topi.cpu.conv2d_NCHWc(data, kernel, 1, 1, 1, "NCHW16c", "NCHW16c", "float32")
