"""LiftConv1D: what it rewrites, by text, and that networks of 1-D convolutions give what PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.models import compiled
from tests.relay.transform.texts import check, parse

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.transform import LiftConv1D

RNG = np.random.default_rng(0)


def test_a_chain_is_lifted_as_a_whole() -> None:
    check(
        LiftConv1D(),
        """
        def @main(%x: Tensor[(1, 4, 10), float32], %w: Tensor[(8, 4, 3), float32], %bias: Tensor[(8, 1), float32]) {
          %0 = nn.conv1d(%x, %w, padding=[1, 1], channels=8, kernel_size=[3]);
          %1 = add(%0, %bias);
          nn.max_pool1d(%1, pool_size=[2], strides=[2], padding=[0, 0])
        }""",
        """
        def @main(%x: Tensor[(1, 4, 10), float32], %w: Tensor[(8, 4, 3), float32], %bias: Tensor[(8, 1), float32]) {
          %0 = expand_dims(%x, axis=2);
          %1 = expand_dims(%w, axis=2);
          %2 = nn.conv2d(%0, %1, padding=[0, 1, 0, 1], channels=8, kernel_size=[1, 3]);
          %3 = expand_dims(%bias, axis=1);
          %4 = add(%2, %3);
          %5 = nn.max_pool2d(%4, pool_size=[1, 2], strides=[1, 2], padding=[0, 0, 0, 0]);
          squeeze(%5, axis=[2])
        }""",
    )


def test_padding_slices_concatenations_and_means_are_lifted() -> None:
    inputs = "%x: Tensor[(1, 4, 10), float32], %w: Tensor[(4, 4, 3), float32]"
    check(
        LiftConv1D(),
        f"""
        def @main({inputs}) {{
          %0 = nn.pad(%x, 0f, pad_width=[[0, 0], [0, 0], [2, 0]]);
          %1 = nn.conv1d(%0, %w, padding=[0, 0], channels=4, kernel_size=[3]);
          %2 = strided_slice(%1, begin=[1], end=[9], strides=[1], axes=[2]);
          %3 = nn.relu(%2);
          %4 = (%2, %3);
          %5 = concatenate(%4, axis=1);
          mean(%5, axis=[-1])
        }}""",
        f"""
        def @main({inputs}) {{
          %0 = expand_dims(%x, axis=2);
          %1 = nn.pad(%0, 0f, pad_width=[[0, 0], [0, 0], [0, 0], [2, 0]]);
          %2 = expand_dims(%w, axis=2);
          %3 = nn.conv2d(%1, %2, padding=[0, 0, 0, 0], channels=4, kernel_size=[1, 3]);
          %4 = strided_slice(%3, begin=[1], end=[9], strides=[1], axes=[3]);
          %5 = nn.relu(%4);
          %6 = (%4, %5);
          %7 = concatenate(%6, axis=1);
          mean(%7, axis=[2, 3])
        }}""",
    )


@pytest.mark.parametrize(
    "text",
    [
        "def @main(%x: Tensor[(1, 4, 10), float32]) { nn.max_pool1d(%x, pool_size=[2], padding=[0, 0]) }",
        "def @main(%x: Tensor[(1, 4, 10), float32]) { nn.relu(%x) }",
        """def @main(%x: Tensor[(1, 10, 4), float32], %w: Tensor[(3, 4, 8), float32]) {
          nn.conv1d(%x, %w, padding=[0, 0], channels=8, kernel_size=[3], data_layout="NWC", kernel_layout="WIO")
        }""",
        """def @main(%x: Tensor[(1, 4, 10), float32], %w: Tensor[(3, 4, 3), float32]) {
          nn.conv1d(%x, %w, padding=[0, 0], channels=3, kernel_size=[3])
        }""",
        """def @main(%x: Tensor[(1, 4, ?), float32], %w: Tensor[(8, 4, 3), float32]) {
          nn.conv1d(%x, %w, padding=[0, 0], channels=8, kernel_size=[3])
        }""",
    ],
)
def test_what_is_no_chain_of_ncw_convolutions_stays(text: str) -> None:
    check(LiftConv1D(), text, text)


def weight(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(shape[1] * shape[2])).astype("float32")


def built(body: Callable[[Any], Any], x: np.ndarray, target: str = "llvm") -> graph_executor.GraphModule:
    """A network of one input, set to ``x``."""
    var = relay.var("x", shape=x.shape)
    result = body(var)
    result = relay.Tuple(result) if isinstance(result, list) else result
    mod = tvm.IRModule.from_expr(relay.Function([var], result))
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target)
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.set_input("x", x)
    return module


def run(body: Callable[[Any], Any], x: np.ndarray) -> list[np.ndarray]:
    """The outputs of a build that ran."""
    return compiled.run(built(body, x), threads=2)


def close(found: list[np.ndarray], expected: list[torch.Tensor]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-4, atol=1e-5)


CONVOLUTIONS = [  # batch, in, out, width, kernel, stride, padding, dilation, groups
    (1, 1, 64, 1601, 80, 4, (38, 38), 1, 1), (1, 16, 32, 997, 3, 1, (1, 1), 1, 1), (2, 7, 13, 50, 5, 2, (0, 3), 1, 1),
    (3, 32, 32, 1, 1, 1, (0, 0), 1, 1), (1, 48, 16, 700, 3, 1, (8, 8), 8, 1), (1, 32, 64, 333, 3, 3, (2, 0), 2, 4),
    (2, 24, 24, 129, 7, 1, (3, 3), 1, 24), (1, 16, 35, 512, 9, 1, (0, 0), 4, 1), (1, 128, 64, 331, 1, 1, (0, 0), 1, 1),
    (1, 6, 12, 40, 3, 1, (1, 1), 1, 6), (1, 16, 16, 3, 5, 1, (4, 4), 1, 1),
]  # fmt: skip


@pytest.mark.covering(1)
@pytest.mark.parametrize("cores", [2, 16])
@pytest.mark.parametrize("shape", CONVOLUTIONS)
def test_convolutions(shape: tuple[Any, ...], cores: int) -> None:
    """Kernels made for some number of cores are right on any number of threads."""
    batch, inputs, outputs, width, kernel, stride, padding, dilation, groups = shape
    x, w, bias = weight(batch, inputs, width), weight(outputs, inputs // groups, kernel), weight(outputs, 1, 1)
    attrs = {"strides": stride, "padding": padding, "dilation": dilation, "groups": groups}

    def body(data: Any) -> Any:
        return relay.nn.relu(relay.nn.bias_add(
            relay.nn.conv1d(data, relay.const(w), channels=outputs, kernel_size=kernel, **attrs),
            relay.const(bias.reshape(-1)),
        ))  # fmt: skip

    padded = F.pad(torch.tensor(x), padding)
    expected = F.conv1d(padded, torch.tensor(w), torch.tensor(bias.reshape(-1)), stride, 0, dilation, groups)
    module = built(body, x, f"llvm -num-cores={cores}")
    for threads in (1, 2, 3, 4):
        close(compiled.run(module, threads), [F.relu(expected)])


def conv(x: Any, w: np.ndarray, **attrs: Any) -> Any:
    return relay.nn.conv1d(x, relay.const(w), channels=w.shape[0], kernel_size=w.shape[2], **attrs)


@pytest.mark.parametrize(("batch", "channels", "width"), [(1, 32, 61), (3, 13, 17), (2, 64, 128)])
def test_residual_blocks_with_operands_of_every_rank(batch: int, channels: int, width: int) -> None:
    x, w = weight(batch, channels, width), weight(channels, channels, 3)
    column, row, full = weight(channels, 1, 1)[..., 0], weight(width, 1, 1).reshape(width), weight(channels, width, 1)

    def body(data: Any) -> Any:
        first = conv(data, w, padding=1) * relay.const(column) + relay.const(row)
        second = relay.sigmoid(first) * relay.const(2.0) + data
        return conv(second, w, padding=1) + first - relay.const(full[..., 0])

    def reference(data: torch.Tensor) -> torch.Tensor:
        first = F.conv1d(data, torch.tensor(w), padding=1) * torch.tensor(column) + torch.tensor(row)
        second = torch.sigmoid(first) * 2 + data
        return F.conv1d(second, torch.tensor(w), padding=1) + first - torch.tensor(full[..., 0])

    close(run(body, x), [reference(torch.tensor(x))])


@pytest.mark.parametrize(("batch", "channels", "width"), [(1, 16, 62), (2, 10, 33)])
def test_concatenations_pools_reductions_and_slices(batch: int, channels: int, width: int) -> None:
    x, w = weight(batch, channels, width), weight(channels, channels, 3)

    def body(data: Any) -> Any:
        value = conv(data, w, padding=1)
        joined = relay.concatenate([value, relay.tanh(value)], axis=1)
        long = relay.concatenate([value, value], axis=-1)
        return [
            relay.nn.max_pool1d(joined, 3, 2, 1, 1, ceil_mode=True),
            relay.nn.avg_pool1d(joined, 4, 3, 1, (1, 2), count_include_pad=True),
            relay.nn.adaptive_avg_pool1d(joined, 5),
            relay.mean(joined, axis=2),
            value - relay.max(value, axis=1, keepdims=True),
            relay.strided_slice(long, [0, 1, 2], [batch, channels, -3]),
            relay.nn.softmax(value, axis=1),
            relay.transpose(value, (0, 2, 1)),
        ]

    value = F.conv1d(torch.tensor(x), torch.tensor(w), padding=1)
    joined, long = torch.cat([value, torch.tanh(value)], 1), torch.cat([value, value], 2)
    expected = [
        F.max_pool1d(joined, 3, 2, 1, ceil_mode=True),
        F.avg_pool1d(F.pad(joined, (1, 2)), 4, 3),
        F.adaptive_avg_pool1d(joined, 5),
        joined.mean(2),
        value - value.amax(1, keepdim=True),
        long[:, 1:, 2:-3],
        F.softmax(value, 1),
        value.permute(0, 2, 1),
    ]
    close(run(body, x), expected)


def test_a_causal_network_folds_its_padding() -> None:
    x, w = weight(1, 16, 50), weight(16, 16, 3)

    def body(data: Any) -> Any:
        padded = relay.nn.pad(data, ((0, 0), (0, 0), (4, 0)), 0.0)
        return conv(padded, w, dilation=2)

    var = relay.var("x", shape=x.shape)
    with tvm.transform.PassContext(opt_level=3):
        mod, _ = relay.optimize(tvm.IRModule.from_expr(relay.Function([var], body(var))), "llvm", fuse=False)
    assert "nn.pad" not in str(mod)
    close(run(body, x), [F.conv1d(F.pad(torch.tensor(x), (4, 0)), torch.tensor(w), dilation=2)])


def test_the_few_channels_of_a_last_layer_are_computed_from_the_row() -> None:
    x, w, last = weight(1, 16, 50), weight(16, 16, 3), weight(1, 16, 5)
    found = run(lambda data: relay.tanh(conv(relay.nn.relu(conv(data, w)), last, padding=2)), x)
    value = F.relu(F.conv1d(torch.tensor(x), torch.tensor(w)))
    close(found, [torch.tanh(F.conv1d(value, torch.tensor(last), padding=2))])


def test_a_weight_that_is_computed() -> None:
    x, w = weight(2, 6, 20), weight(8, 6, 3)
    found = run(lambda data: relay.nn.conv1d(data, relay.exp(relay.const(w)), channels=8, kernel_size=3), x)
    close(found, [F.conv1d(torch.tensor(x), torch.tensor(np.exp(w)))])


def test_no_chain_is_too_long() -> None:
    """A value used twice at each step is lifted once."""
    text = "def @main(%x: Tensor[(1, 4, 8), float32], %w: Tensor[(4, 4, 1), float32]) {\n"
    text += "%0 = nn.conv1d(%x, %w, padding=[0, 0], channels=4, kernel_size=[1]);\n"
    steps = 1000
    text += "".join(f"%{i + 1} = add(%{i}, %{i});\n" for i in range(steps))
    after = LiftConv1D()(parse(text + f"nn.relu(%{steps})\n}}"))
    assert str(after).count("add(") == steps
    assert str(after).count("squeeze(") == 1


def test_a_bias_whose_axis_is_counted_from_the_end() -> None:
    x, w, bias = weight(1, 4, 10), weight(8, 4, 3), weight(8, 1, 1).reshape(8)
    found = run(lambda a: relay.nn.bias_add(conv(a, w), relay.const(bias), axis=-2), x)
    close(found, [F.conv1d(torch.tensor(x), torch.tensor(w), torch.tensor(bias))])
