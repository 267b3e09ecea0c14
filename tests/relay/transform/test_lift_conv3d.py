"""3-D convolutions and what is between them as 2-D ones, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.transform import PassContext
from tilewright.relay import transform

# batch, in, out, data, kernel, strides, padding, dilation
CASES: list[tuple[Any, ...]] = [
    (1, 16, 32, (5, 7, 6), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    (2, 3, 16, (4, 9, 8), (3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1)),
    (1, 5, 4, (7, 4, 5), (3, 1, 1), (1, 1, 1), (1, 0, 0), (2, 1, 1)),
    (3, 8, 8, (2, 6, 6), (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1)),
    (1, 7, 9, (9, 5, 3), (4, 2, 3), (3, 1, 2), (2, 0, 1), (1, 2, 1)),
    (2, 16, 48, (1, 1, 1), (1, 1, 1), (1, 1, 1), (0, 0, 0), (1, 1, 1)),
    (1, 4, 8, (5, 3, 3), (1, 1, 1), (2, 1, 1), (0, 0, 0), (1, 1, 1)),
    (2, 6, 8, (7, 6, 5), (3, 1, 1), (2, 1, 1), (1, 0, 0), (2, 1, 1)),
    (1, 64, 8, (6, 8, 97), (5, 1, 1), (1, 1, 1), (2, 0, 0), (1, 1, 1)),  # images of 4 of 8 rows
]


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def operators(func: relay.Function) -> list[str]:
    mod = transform.InferType()(tvm.IRModule.from_expr(func))
    with PassContext(opt_level=3):
        lifted = transform.LiftConv3D()(mod)["main"]
    names: list[str] = []
    relay.analysis.post_order_visit(lifted, lambda e: names.append(e.op.name) if isinstance(e, relay.Call) else None)
    return names


def run(func: relay.Function, *arrays: np.ndarray) -> np.ndarray:
    with PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(func), "llvm")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    for param, array in zip(func.params, arrays, strict=True):
        module.set_input(param.name_hint, array)
    module.run()
    return module.get_output(0).numpy()


def conv3d(x: relay.Expr, weight: np.ndarray, **options: Any) -> relay.Expr:
    return relay.nn.conv3d(x, relay.const(weight), channels=len(weight), kernel_size=weight.shape[2:], **options)


@pytest.mark.parametrize("case", CASES)
def test_convolutions(case: tuple[Any, ...]) -> None:
    batch, inputs, outputs, extents, kernel, strides, padding, dilation = case
    data, weight = random(batch, inputs, *extents), random(outputs, inputs, *kernel)
    want = F.conv3d(torch.tensor(data), torch.tensor(weight), None, strides, padding, dilation).numpy()
    x = relay.var("x", shape=data.shape)
    func = relay.Function([x], conv3d(x, weight, strides=strides, padding=padding, dilation=dilation))
    names = operators(func)
    assert "nn.conv2d" in names and "nn.conv3d" not in names
    np.testing.assert_allclose(run(func, data), want, rtol=1e-4, atol=1e-4)


def test_windows_of_slices_alone_copy_no_slice() -> None:
    x = relay.var("x", shape=(1, 64, 6, 8, 97))
    func = relay.Function([x], conv3d(x, random(8, 64, 5, 1, 1), padding=(2, 0, 0)))
    assert "concatenate" not in operators(func) and "strided_slice" not in operators(func)


def test_unequal_padding() -> None:
    data, weight = random(1, 4, 3, 4, 5), random(8, 4, 2, 2, 2)
    x = relay.var("x", shape=data.shape)
    want = F.conv3d(F.pad(torch.tensor(data), (2, 1, 0, 1, 1, 0)), torch.tensor(weight)).numpy()
    func = relay.Function([x], conv3d(x, weight, padding=(1, 0, 2, 0, 1, 1)))
    np.testing.assert_allclose(run(func, data), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("outputs", "groups"), [(8, 2), (3, 1)])
def test_groups_and_few_channels_stay(outputs: int, groups: int) -> None:
    x = relay.var("x", shape=(1, 4, 3, 4, 5))
    func = relay.Function([x], conv3d(x, random(outputs, 4 // groups, 3, 3, 3), padding=(1, 1, 1), groups=groups))
    assert "nn.conv3d" in operators(func)


class Network(nn.Module):
    """A residual block, pooling, a concatenation and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv3d(3, 16, (3, 5, 5), (1, 2, 2), (1, 2, 2)), nn.BatchNorm3d(16)
        self.left, self.right = nn.Conv3d(16, 16, 3, padding=1), nn.Conv3d(16, 16, 1)
        self.last, self.head = nn.Conv3d(32, 24, (2, 3, 3), padding=(0, 1, 1)), nn.Linear(24, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool3d(torch.relu(self.norm(self.first(x))), (1, 2, 2))
        y = torch.relu(self.left(x) + x)
        joined = torch.cat([F.max_pool3d(y, 2), F.max_pool3d(self.right(x) * 0.5, 2)], 1)
        return self.head(torch.relu(self.last(joined)).mean((2, 3, 4)))


def as_relay(net: Network, shape: tuple[int, ...]) -> relay.Function:
    def conv(value: relay.Expr, layer: nn.Conv3d) -> relay.Expr:
        options = {"strides": layer.stride, "padding": layer.padding}
        result = conv3d(value, layer.weight.detach().numpy(), **options)
        return relay.nn.bias_add(result, relay.const(layer.bias.detach().numpy()))

    def pool(value: relay.Expr, size: tuple[int, ...]) -> relay.Expr:
        return relay.nn.max_pool3d(value, size, strides=size)

    x = relay.var("x", shape=shape)
    moments = [relay.const(t.detach().numpy()) for t in (
        net.norm.weight, net.norm.bias, net.norm.running_mean, net.norm.running_var,
    )]  # fmt: skip
    normed = relay.nn.batch_norm(conv(x, net.first), *moments)[0]
    value = pool(relay.nn.relu(normed), (1, 2, 2))
    inner = relay.nn.relu(relay.add(conv(value, net.left), value))
    other = relay.multiply(conv(value, net.right), relay.const(np.float32(0.5)))
    joined = relay.concatenate([pool(inner, (2, 2, 2)), pool(other, (2, 2, 2))], axis=1)
    mean = relay.mean(relay.nn.relu(conv(joined, net.last)), axis=[2, 3, 4])
    weight, bias = (relay.const(t.detach().numpy()) for t in (net.head.weight, net.head.bias))
    return relay.Function([x], relay.add(relay.nn.dense(mean, weight), bias))


@pytest.mark.parametrize("batch", [1, 2])
def test_a_network_stays_in_slices(batch: int) -> None:
    torch.manual_seed(0)
    net, data = Network().eval(), random(batch, 3, 7, 25, 22)
    net.norm.running_var.uniform_(0.5, 1.5)
    func = as_relay(net, data.shape)
    with PassContext(opt_level=3):
        simplified = transform.SimplifyInference()(transform.InferType()(tvm.IRModule.from_expr(func)))
    names = operators(simplified["main"])
    assert not {"nn.conv3d", "nn.max_pool3d"} & set(names)
    # of the data, of every weight, and for the mean of several images
    assert names.count("transpose") == 1 + 4 + (batch > 1)
    want = net(torch.tensor(data)).detach().numpy()
    np.testing.assert_allclose(run(func, data), want, rtol=1e-4, atol=1e-4)


def test_what_else_reads_a_value_gets_it_in_its_own_layout() -> None:
    data, weight = random(1, 4, 3, 5, 4), random(8, 4, 3, 3, 3)
    x = relay.var("x", shape=data.shape)
    value = relay.nn.relu(conv3d(x, weight, padding=(1, 1, 1)))
    func = relay.Function([x], relay.nn.softmax(relay.add(value, relay.var("y", shape=(8, 3, 5, 4))), axis=2))
    func = relay.Function([x, *relay.analysis.free_vars(func)], func.body)
    other = random(8, 3, 5, 4)
    inner = F.relu(F.conv3d(torch.tensor(data), torch.tensor(weight), padding=1)) + torch.tensor(other)
    np.testing.assert_allclose(run(func, data, other), F.softmax(inner, 2).numpy(), rtol=1e-4, atol=1e-5)


def test_a_gate_of_means() -> None:
    data, weight, bias = random(1, 4, 3, 5, 4), random(8, 4, 3, 3, 3), random(8)
    x = relay.var("x", shape=data.shape)
    value = relay.nn.bias_add(conv3d(x, weight, padding=(1, 1, 1)), relay.const(bias), axis=-4)
    func = relay.Function([x], relay.multiply(value, relay.sigmoid(relay.mean(value, axis=[2, 3, 4], keepdims=True))))
    inner = F.conv3d(torch.tensor(data), torch.tensor(weight), torch.tensor(bias), padding=1)
    want = inner * torch.sigmoid(inner.mean((2, 3, 4), keepdim=True))
    np.testing.assert_allclose(run(func, data), want.numpy(), rtol=1e-4, atol=1e-5)
