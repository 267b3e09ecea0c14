"""Backward graphs: gradients of convolutions and pooling by Tilewright's kernels, beside PyTorch's."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tilewright.torch_compile.compiler import CompileWarning, compile_graph
from tilewright.torch_compile.decompositions import decompositions
from tilewright.torch_compile.options import Options

F = torch.nn.functional


def check(function: Any, *shapes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in shapes]

    def backward(*values: torch.Tensor) -> list[torch.Tensor]:
        given = [v.detach().requires_grad_() for v in values]
        result = function(*given)
        return list(torch.autograd.grad(result, given, torch.ones_like(result).cumsum(-1)))

    graph = make_fx(backward, decompositions(), tracing_mode="fake")(*inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)
        found = compile_graph(Options(fallback=False), graph, inputs)(list(inputs))
    for a, b in zip(found, backward(*inputs), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        (((2, 3, 7, 6), (4, 3, 3, 3)), {"stride": 2, "padding": 1}),
        (((1, 4, 5, 5), (4, 1, 3, 3)), {"groups": 4, "dilation": 2, "padding": 2}),
        (((2, 3, 9), (5, 3, 4)), {"stride": 3}),
    ],
)
def test_convolutions(shapes: Any, options: dict[str, Any]) -> None:
    convolution = F.conv1d if len(shapes[0]) == 3 else F.conv2d
    check(lambda x, w: convolution(x, w, **options), *shapes)


def test_transposed_convolutions() -> None:
    check(lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), (1, 3, 4, 5), (3, 2, 3, 3))


def test_the_gradient_of_a_bias() -> None:
    check(lambda x, w, b: F.conv2d(x, w, b), (2, 3, 5, 5), (4, 3, 2, 2), (4,))


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda x: F.avg_pool2d(x, 2, 2, 1, count_include_pad=False),
        lambda x: F.adaptive_avg_pool2d(x, 3),
        lambda x: F.adaptive_avg_pool2d(x, 1),
    ],
    ids=["max", "avg", "adaptive", "global"],
)
def test_pooling(pool: Any) -> None:
    check(pool, (2, 3, 6, 9))


def test_losses_and_normalizations() -> None:
    check(lambda x, w: F.mse_loss(F.log_softmax(F.layer_norm(x, (5,), w), 1), x).reshape(1), (2, 5), (5,))


def masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention of a mask that hides all keys from the third row."""
    rows, keys = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
    mask = (rows != 2) & (keys >= rows - 2)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.mark.parametrize(
    "attend",
    [
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        masked,
    ],
    ids=["all", "causal", "masked"],
)
def test_attention(attend: Any) -> None:
    check(attend, (1, 2, 5, 4), (1, 2, 3, 4), (1, 2, 3, 4))
