"""Convolutions of every kind against PyTorch."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.topi.harness import close, evaluate, random

from tilewright import te, topi
from tilewright.topi import InvalidShapeError

T = torch.tensor
direct = partial(evaluate, schedule=topi.cpu.schedule_conv_direct)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"), [(1, 1, 1, 1), (2, 0, 1, 1), (1, 2, 2, 2), ((1, 2), (0, 1), 1, 1)]
)
def test_conv2d_nchw(stride: int | tuple, padding: int | tuple, dilation: int, groups: int) -> None:
    x, w = random(2, 4, 7, 9), random(6, 4 // groups, 3, 3)
    expected = F.conv2d(T(x), T(w), None, stride, padding, dilation, groups).numpy()
    if groups == 1:
        found = direct(lambda a, b: topi.nn.conv2d_nchw(a, b, stride, padding, dilation), x, w)
    else:
        found = direct(lambda a, b: topi.nn.group_conv2d_nchw(a, b, stride, padding, dilation, groups), x, w)
    close(found, expected)


def test_conv2d_by_layout() -> None:
    x, w = random(1, 3, 6, 5), random(4, 3, 3, 2)
    expected = F.conv2d(T(x), T(w), None, 1, (1, 0)).numpy()
    nhwc = evaluate(
        lambda a, b: topi.nn.conv2d(a, b, 1, (1, 0), 1, "NHWC"),
        x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), schedule=topi.cpu.schedule_conv2d_nhwc,
    )  # fmt: skip
    close(nhwc, expected.transpose(0, 2, 3, 1))
    hwcn = direct(
        lambda a, b: topi.nn.conv2d(a, b, 1, (1, 0), 1, "HWCN"), x.transpose(2, 3, 1, 0), w.transpose(2, 3, 1, 0)
    )
    close(hwcn, expected.transpose(2, 3, 1, 0))
    with pytest.raises(InvalidShapeError, match="found 'CHWN'"):
        topi.nn.conv2d(te.placeholder((1, 1, 1, 1)), te.placeholder((1, 1, 1, 1)), 1, 0, 1, "CHWN")


def test_channels_that_do_not_fit_are_named() -> None:
    with pytest.raises(InvalidShapeError, match="data has 3 channels, the kernel takes 4"):
        topi.nn.conv2d_nchw(te.placeholder((1, 3, 8, 8)), te.placeholder((8, 4, 3, 3)), 1, 1, 1)


def test_same_padding() -> None:
    x, w = random(1, 2, 5, 5), random(3, 2, 3, 3)
    close(direct(lambda a, b: topi.nn.conv2d_nchw(a, b, 1, "SAME", 1), x, w), F.conv2d(T(x), T(w), padding=1).numpy())


@pytest.mark.parametrize("groups", [1, 2])
def test_conv1d(groups: int) -> None:
    x, w = random(2, 4, 9), random(6, 4 // groups, 3)
    found = direct(lambda a, b: topi.nn.group_conv1d_ncw(a, b, 2, 1, 2, groups), x, w)
    close(found, F.conv1d(T(x), T(w), None, 2, 1, 2, groups).numpy())


@pytest.mark.parametrize("groups", [1, 2])
def test_conv3d(groups: int) -> None:
    x, w = random(1, 4, 5, 4, 6), random(2, 4 // groups, 3, 3, 3)
    found = direct(lambda a, b: topi.nn.conv3d_ncdhw(a, b, (1, 2, 1), 1, 1, groups=groups), x, w)
    close(found, F.conv3d(T(x), T(w), None, (1, 2, 1), 1, 1, groups).numpy(), rtol=1e-4)


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_depthwise(layout: str, multiplier: int) -> None:
    x, w = random(1, 4, 7, 8), random(4, multiplier, 3, 3)
    expected = F.conv2d(T(x), T(w.reshape(-1, 1, 3, 3)), None, 2, 1, 1, 4).numpy()
    if layout == "NCHW":
        close(direct(lambda a, b: topi.nn.depthwise_conv2d_nchw(a, b, 2, 1, 1), x, w), expected)
    else:
        found = direct(
            lambda a, b: topi.nn.depthwise_conv2d_nhwc(a, b, 2, 1, 1), x.transpose(0, 2, 3, 1), w.transpose(2, 3, 0, 1)
        )
        close(found, expected.transpose(0, 2, 3, 1))


TRANSPOSED = [(2, 1, 1, 3), (1, 0, 0, 3), (3, 2, 2, 5), (2, 0, 0, 2), (4, 0, 1, 3)]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("stride", "padding", "extra", "k"), TRANSPOSED)
def test_conv2d_transpose(stride: int, padding: int, extra: int, k: int, packed: bool) -> None:
    x, w = random(1, 3, 4, 5), random(3, 2, k, k)
    expected = F.conv_transpose2d(T(x), T(w), None, stride, padding, extra).numpy()
    module, schedule = (
        (topi.cpu, topi.cpu.schedule_conv2d_transpose_nchw) if packed else (topi.nn, topi.cpu.schedule_conv_direct)
    )
    found = evaluate(
        lambda a, b: module.conv2d_transpose_nchw(a, b, stride, padding, "float32", extra), x, w, schedule=schedule
    )
    close(found, expected)


def test_grouped_conv2d_transpose() -> None:
    x, w = random(1, 4, 4, 5), random(4, 3, 3, 3)
    expected = F.conv_transpose2d(T(x), T(w), None, 2, 1, 1, 2).numpy()
    close(direct(lambda a, b: topi.nn.group_conv2d_transpose_nchw(a, b, 2, 1, "float32", 1, 2), x, w), expected)
    schedule = topi.cpu.schedule_conv2d_transpose_nchw
    found = evaluate(lambda a, b: topi.cpu.conv2d_transpose_nchw(a, b, 2, 1, "float32", 1, 2), x, w, schedule=schedule)
    close(found, expected)


def test_transposed_convolution_of_other_ranks() -> None:
    x, w = random(1, 4, 5), random(4, 3, 3)
    expected = F.conv_transpose1d(T(x), T(w), None, 2, 1, 1).numpy()
    close(direct(lambda a, b: topi.nn.conv1d_transpose_ncw(a, b, 2, 1, "float32", 1), x, w), expected)
    x, w = random(1, 2, 3, 2, 4), random(2, 3, 2, 3, 2)
    expected = F.conv_transpose3d(T(x), T(w), None, 2, (0, 1, 0)).numpy()
    close(direct(lambda a, b: topi.nn.conv3d_transpose_ncdhw(a, b, 2, (0, 1, 0), "float32", 0), x, w), expected)


def test_integer_convolution_sums_in_the_output_type() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (1, 3, 5, 5)).astype("int8")
    w = rng.integers(-128, 128, (4, 3, 3, 3)).astype("int8")
    expected = F.conv2d(T(x).int(), T(w).int(), padding=1).numpy()
    found = direct(lambda a, b: topi.nn.conv2d_nchw(a, b, 1, 1, 1, "int32"), x, w)
    assert found.dtype == np.int32
    assert (found == expected).all()
