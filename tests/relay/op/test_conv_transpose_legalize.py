"""Transposed convolutions as convolutions, against PyTorch."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.relay.op.harness import random

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

CASES: list[tuple[int, ...]] = [  # batch, in, out, height, width, kernel, stride, padding, output padding
    (1, 16, 32, 5, 7, 2, 2, 0, 0), (2, 5, 3, 4, 4, 4, 2, 1, 0), (1, 8, 16, 3, 3, 3, 2, 1, 1),
    (1, 4, 4, 6, 5, 3, 1, 1, 0), (1, 4, 6, 3, 3, 5, 3, 2, 2), (1, 3, 2, 1, 1, 4, 1, 0, 0),
    (1, 2, 3, 1, 4, 1, 2, 0, 1), (3, 7, 16, 4, 2, 7, 4, 3, 0),
]  # fmt: skip


def legalized(func: relay.Function) -> Any:
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(func))
    with tvm.transform.PassContext(opt_level=3):
        return relay.transform.Legalize()(mod)["main"]


def operators(func: relay.Function) -> list[str]:
    names: list[str] = []
    relay.analysis.post_order_visit(func, lambda e: names.append(e.op.name) if isinstance(e, relay.Call) else None)
    return names


def run(func: relay.Function, x: np.ndarray) -> np.ndarray:
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(func), "llvm")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.set_input("x", x)
    module.run()
    return module.get_output(0).numpy()


@pytest.mark.parametrize(("n", "ci", "co", "h", "w", "k", "s", "p", "extra"), CASES)
def test_in_two_dimensions(n: int, ci: int, co: int, h: int, w: int, k: int, s: int, p: int, extra: int) -> None:
    data, weight = random(n, ci, h, w), random(ci, co, k, k)
    want = F.conv_transpose2d(torch.tensor(data), torch.tensor(weight), None, s, p, extra).numpy()
    x = relay.var("x", shape=data.shape)
    func = relay.Function(
        [x],
        relay.nn.conv2d_transpose(
            x, relay.const(weight), strides=s, padding=p, output_padding=extra, channels=co, kernel_size=k,
            kernel_layout="IOHW",
        ),
    )  # fmt: skip
    names = operators(legalized(func))
    assert "nn.conv2d" in names and "nn.conv2d_transpose" not in names
    np.testing.assert_allclose(run(func, data), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("groups", "each", "outputs", "k", "s", "p", "extra"),
    [(2, 2, 3, 3, 2, 1, 1), (5, 1, 1, 4, 2, 1, 0), (3, 1, 2, 5, 3, 0, 0), (21, 1, 1, 16, 8, 4, 0),
     (4, 8, 4, 2, 2, 0, 0), (16, 1, 1, 3, 1, 1, 0)],
)  # fmt: skip
def test_in_groups(groups: int, each: int, outputs: int, k: int, s: int, p: int, extra: int) -> None:
    data, weight = random(2, groups * each, 5, 7), random(groups * each, outputs, k, k)
    want = F.conv_transpose2d(torch.tensor(data), torch.tensor(weight), None, s, p, extra, groups).numpy()
    x = relay.var("x", shape=data.shape)
    func = relay.Function(
        [x],
        relay.nn.conv2d_transpose(
            x, relay.const(weight), strides=s, padding=p, output_padding=extra, channels=groups * outputs,
            groups=groups, kernel_size=k, kernel_layout="IOHW",
        ),
    )  # fmt: skip
    names = operators(legalized(func))
    assert "nn.conv2d" in names and "nn.conv2d_transpose" not in names
    np.testing.assert_allclose(run(func, data), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("rank", "op"), [(1, F.conv_transpose1d), (3, F.conv_transpose3d)])
def test_in_other_dimensions(rank: int, op: Any, groups: int) -> None:
    data, weight = random(2, 6, *(5, 4, 3)[:rank]), random(6, 8 // groups, *(3, 4, 2)[:rank])
    want = op(torch.tensor(data), torch.tensor(weight), None, 2, 1, 0, groups).numpy()
    x = relay.var("x", shape=data.shape)
    make = {1: relay.nn.conv1d_transpose, 3: relay.nn.conv3d_transpose}[rank]
    layout = {1: "IOW", 3: "IODHW"}[rank]
    func = relay.Function(
        [x],
        make(
            x, relay.const(weight), strides=2, padding=1, channels=8, groups=groups, kernel_size=weight.shape[2:],
            kernel_layout=layout,
        ),
    )  # fmt: skip
    assert f"nn.conv{rank}d" in operators(legalized(func))
    np.testing.assert_allclose(run(func, data), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{"dilation": (2, 2)}, {"output_padding": (1, 1), "strides": (3, 3)}])
def test_dilation_and_padding_beyond_the_data_keep_the_operator(options: dict) -> None:
    data, weight = random(1, 4, 5, 5), random(4, 6, 3, 3)
    x = relay.var("x", shape=data.shape)
    func = relay.Function(
        [x],
        relay.nn.conv2d_transpose(
            x, relay.const(weight), channels=6, kernel_size=(3, 3), kernel_layout="IOHW", **options
        ),
    )
    assert operators(legalized(func)) == ["nn.conv2d_transpose"]
    want = F.conv_transpose2d(
        torch.tensor(data), torch.tensor(weight), None, options.get("strides", 1), 0, options.get("output_padding", 0),
        1, options.get("dilation", 1),
    ).numpy()  # fmt: skip
    np.testing.assert_allclose(run(func, data), want, rtol=1e-4, atol=1e-4)


def test_a_concatenation_with_packed_data_stays_packed() -> None:
    x = relay.var("x", shape=(1, 16, 6, 6))
    down = relay.nn.conv2d(x, relay.const(random(32, 16, 3, 3)), padding=1, channels=32, kernel_size=3)
    up = relay.nn.conv2d_transpose(
        relay.nn.max_pool2d(down, pool_size=2, strides=2), relay.const(random(32, 16, 2, 2)), strides=2, channels=16,
        kernel_size=2, kernel_layout="IOHW",
    )  # fmt: skip
    both = relay.concatenate([up, down], axis=1)
    out = relay.nn.conv2d(both, relay.const(random(16, 48, 3, 3)), padding=1, channels=16, kernel_size=3)
    mod = tvm.IRModule.from_expr(relay.Function([x], out))
    with tvm.transform.PassContext(opt_level=3), tvm.target.Target("llvm -mcpu=skylake-avx512"):
        optimized, _ = relay.optimize(mod, "llvm -mcpu=skylake-avx512", fuse=False)
    shapes: list[tuple] = []
    relay.analysis.post_order_visit(
        optimized["main"],
        lambda e: (
            shapes.append(e.checked_type.concrete_shape)
            if isinstance(e, relay.Call) and e.op.name == "concatenate"
            else None
        ),
    )
    assert shapes == [(1, 3, 6, 6, 16)]
