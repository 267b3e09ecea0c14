"""Gradients of depthwise convolutions against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.topi.harness import close, evaluate, random
from torch.nn import functional

from tilewright import topi


@pytest.mark.parametrize(
    ("shape", "kernel", "multiplier", "stride", "padding"),
    [
        ((2, 5, 4, 3), (3, 2), 2, (2, 1), (1, 0)),
        ((1, 1, 1, 1), (1, 1), 1, 1, 0),
        ((1, 7, 6, 2), (3, 3), 1, 3, 1),
        ((0, 5, 4, 3), (3, 2), 2, 1, 1),
    ],
)
def test_gradients(shape: tuple[int, ...], kernel: tuple[int, int], multiplier: int, stride: Any, padding: Any) -> None:
    channels = shape[-1]
    data, weight = random(*shape), random(*kernel, channels, multiplier)
    x, w = (torch.from_numpy(a).double().requires_grad_() for a in (data, weight))
    filters = w.permute(2, 3, 0, 1).reshape(channels * multiplier, 1, *kernel)
    y = functional.conv2d(x.permute(0, 3, 1, 2), filters, None, stride, padding, 1, channels).permute(0, 2, 3, 1)
    grad = random(*y.shape, seed=1)
    y.backward(torch.from_numpy(grad).double())
    assert x.grad is not None and w.grad is not None
    options = (stride, list(padding) if isinstance(padding, tuple) else padding)
    schedule = topi.generic.schedule_depthwise_conv2d_nhwc
    found = evaluate(
        lambda f, g: topi.nn.depthwise_conv2d_backward_input_nhwc(f, g, list(y.shape), shape, *options), weight, grad,
        schedule=schedule,
    )  # fmt: skip
    close(found, x.grad.numpy())
    found = evaluate(
        lambda d, g: topi.nn.depthwise_conv2d_backward_weight_nhwc(d, g, list(y.shape), weight.shape, *options),
        data, grad, schedule=schedule,
    )  # fmt: skip
    close(found, np.asarray(w.grad.numpy()))
