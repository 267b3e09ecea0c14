"""Winograd convolution: the compiled kernel against PyTorch's convolution."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.topi.harness import compiled, pack_channels, pack_kernel, random

from tilewright import te, topi
from tilewright.target import Target
from tilewright.target.features import features
from tilewright.topi.cpu import winograd
from tilewright.topi.nn.winograd import convolve_tiles, transform_weight, winograd_weight_transform
from tilewright.topi.nn.winograd_forms import Split, split_window
from tilewright.topi.utils import InvalidShapeError

TARGETS = ["llvm", "llvm -mcpu=core-avx2", "llvm -mcpu=x86-64"]
TOLERANCE = {2: 5e-6, 4: 5e-5, 6: 5e-4}  # of the largest value

# batch, input channels, output channels, height, width, padding
SHAPES = [
    (1, 16, 16, 4, 4, 1),
    (1, 16, 32, 3, 3, 0),
    (1, 32, 16, 1, 1, 1),
    (2, 16, 48, 7, 5, 1),
    (3, 48, 16, 13, 11, 0),
    (1, 64, 64, 30, 17, 1),
    (1, 16, 16, 58, 56, (1, 0, 2, 1)),
]


def convolution(x: np.ndarray, w: np.ndarray, padding: int | tuple, dilation: int | tuple = 1) -> np.ndarray:
    top, left, bottom, right = padding if isinstance(padding, tuple) else (padding,) * 4
    padded = F.pad(torch.tensor(x, dtype=torch.float64), (left, right, top, bottom))
    return F.conv2d(padded, torch.tensor(w, dtype=torch.float64), dilation=dilation).numpy()


def check(found: np.ndarray, want: np.ndarray, tile_size: int) -> None:
    assert found.shape == want.shape
    assert np.abs(found - want).max() <= TOLERANCE[tile_size] * np.abs(want).max()


@pytest.mark.covering(1)
@pytest.mark.parametrize("tile_size", [2, 4, 6])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_shape_agrees_with_the_convolution(shape: tuple, tile_size: int) -> None:
    n, ci, co, h, w, padding = shape
    x, weight = random(n, ci, h, w), random(co, ci, 3, 3)
    transformed = transform_weight(pack_kernel(weight, 16, 16), tile_size)
    found = compiled(
        lambda a, b: winograd.conv2d_NCHWc_winograd(a, b, padding, tile_size),
        pack_channels(x, 16),
        transformed,
        schedule=winograd.schedule_conv2d_NCHWc_winograd,
    )
    check(found, pack_channels(convolution(x, weight, padding), 16), tile_size)


# batch, input channels, output channels, height, width, padding, dilation
DILATED = [
    (1, 16, 32, 16, 16, 2, 2),
    (2, 16, 16, 13, 11, 4, 4),
    (1, 32, 16, 9, 20, (1, 0, 5, 3), (2, 3)),
    (1, 16, 16, 7, 30, 0, (1, 5)),
    (1, 16, 16, 5, 5, 6, 6),
    (1, 16, 16, 13, 13, 0, 6),
]


@pytest.mark.covering(1)
@pytest.mark.parametrize("tile_size", [2, 4, 6])
@pytest.mark.parametrize("shape", DILATED, ids=str)
def test_dilation(shape: tuple, tile_size: int) -> None:
    n, ci, co, h, w, padding, dilation = shape
    x, weight, bias = random(n, ci, h, w), random(co, ci, 3, 3), random(co)
    transformed = transform_weight(pack_kernel(weight, 16, 16), tile_size)
    want = pack_channels(convolution(x, weight, padding, dilation) + bias[:, None, None], 16)
    found = compiled(
        lambda a, k, b: winograd.conv2d_NCHWc_winograd(a, k, padding, tile_size, dilation) + b,
        pack_channels(x, 16),
        transformed,
        bias.reshape(1, co // 16, 1, 1, 16),
        schedule=winograd.schedule_conv2d_NCHWc_winograd,
    )
    check(found, want, tile_size)
    sides, steps = (p if isinstance(p, tuple) else (p,) * k for p, k in ((padding, 4), (dilation, 2)))
    meant = convolve_tiles(pack_channels(x, 16), transformed, sides, tile_size, steps)
    check(meant + bias.reshape(1, co // 16, 1, 1, 16), want, tile_size)


# batch, height, width, window, padding, dilation
WINDOWS = [
    (1, 17, 17, (1, 7), (0, 3, 0, 3), 1),
    (2, 17, 9, (7, 1), (3, 0, 3, 0), 1),
    (1, 35, 33, (5, 5), 2, 1),
    (1, 8, 8, (1, 3), (0, 1, 0, 1), 1),
    (1, 8, 5, (3, 1), (1, 0, 1, 0), 1),
    (1, 1, 61, (1, 11), (0, 25, 0, 25), (1, 5)),
    (1, 9, 12, (2, 4), (0, 1, 1, 2), 1),
    (1, 13, 13, (4, 1), 0, (3, 1)),
    (3, 7, 7, (7, 7), 3, 1),
    (1, 12, 20, (3, 9), (1, 4, 1, 4), 1),
]


@pytest.mark.covering(1)
@pytest.mark.parametrize("tile_size", [2, 4, 6])
@pytest.mark.parametrize("shape", WINDOWS, ids=str)
def test_any_window_agrees_with_the_convolution(shape: tuple, tile_size: int) -> None:
    n, h, w, window, padding, dilation = shape
    x, weight, bias = random(n, 32, h, w), random(48, 32, *window), random(48)
    transformed = transform_weight(pack_kernel(weight, 16, 16), tile_size)
    want = pack_channels(convolution(x, weight, padding, dilation) + bias[:, None, None], 16)
    found = compiled(
        lambda a, k, b: winograd.conv2d_NCHWc_winograd(a, k, padding, tile_size, dilation, window) + b,
        pack_channels(x, 16),
        transformed,
        bias.reshape(1, 3, 1, 1, 16),
        schedule=winograd.schedule_conv2d_NCHWc_winograd,
    )
    check(found, want, tile_size)
    sides, steps = (p if isinstance(p, tuple) else (p,) * k for p, k in ((padding, 4), (dilation, 2)))
    meant = convolve_tiles(pack_channels(x, 16), transformed, sides, tile_size, steps, window)
    check(meant + bias.reshape(1, 3, 1, 1, 16), want, tile_size)


# batch, input and output channels of a group, groups, height, width, window, dilation
GROUPED = [
    (1, 16, 16, 3, 14, 14, (3, 3), 1),
    (2, 32, 16, 4, 7, 9, (3, 3), 1),
    (1, 16, 48, 2, 9, 17, (1, 7), 1),
    (1, 16, 32, 5, 11, 13, (5, 3), (1, 2)),
    (1, 16, 16, 25, 7, 7, (3, 3), 1),
]


@pytest.mark.covering(1)
@pytest.mark.parametrize("tile_size", [2, 4, 6])
@pytest.mark.parametrize("shape", GROUPED, ids=str)
def test_groups_of_channels(shape: tuple, tile_size: int) -> None:
    n, ci, co, groups, h, w, window, dilation = shape
    x, weight, bias = random(n, ci * groups, h, w), random(co * groups, ci, *window), random(co * groups)
    sides = window[0] // 2, window[1] // 2
    padding = (*sides, *sides)
    exact = torch.tensor(x, dtype=torch.float64), torch.tensor(weight, dtype=torch.float64)
    plain = F.conv2d(*exact, padding=sides, dilation=dilation, groups=groups).numpy() + bias[:, None, None]
    want = pack_channels(plain, 16)
    transformed = transform_weight(pack_kernel(weight, 16, 16), tile_size)
    rows = bias.reshape(1, -1, 1, 1, 16)
    found = compiled(
        lambda a, k, b: winograd.conv2d_NCHWc_winograd(a, k, padding, tile_size, dilation, window, groups) + b,
        pack_channels(x, 16), transformed, rows, schedule=winograd.schedule_conv2d_NCHWc_winograd,
    )  # fmt: skip
    check(found, want, tile_size)
    steps = dilation if isinstance(dilation, tuple) else (dilation, dilation)
    meant = convolve_tiles(pack_channels(x, 16), transformed, padding, tile_size, steps, window, groups)
    check(meant + rows, want, tile_size)


@pytest.mark.covering(1)
@pytest.mark.parametrize("tile_size", [2, 4, 6])
@pytest.mark.parametrize("window", [(1, 7), (5, 5), (2, 1), (3, 4)], ids=str)
def test_weights_of_any_window_are_transformed_alike(window: tuple, tile_size: int) -> None:
    weight = pack_kernel(random(32, 32, *window), 16, 16)
    found = compiled(
        lambda a: winograd_weight_transform(a, tile_size), weight,
        schedule=winograd.schedule_winograd_weight_transform,
    )  # fmt: skip
    np.testing.assert_allclose(found, transform_weight(weight, tile_size), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("extent", "tile_size", "expected"),
    [
        (1, 4, Split(1, 1, 1)),
        (3, 2, Split(2, 3, 1)),
        (3, 4, Split(4, 3, 1)),
        (3, 6, Split(6, 3, 1)),
        (5, 4, Split(4, 3, 2)),
        (7, 4, Split(3, 4, 2)),
    ],
)
def test_windows_are_split_for_the_fewest_products(extent: int, tile_size: int, expected: Split) -> None:
    assert split_window(extent, tile_size) == expected


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tile_size", [2, 4, 6])
def test_bias_residual_and_relu_run_on_each_tile(target: str, tile_size: int) -> None:
    lanes = features(Target(target)).lanes(32)
    x, weight, bias, other = random(2, 32, 9, 14), random(32, 32, 3, 3), random(32), random(2, 32, 9, 14, seed=1)
    found = compiled(
        lambda a, k, b, r: topi.nn.relu(winograd.conv2d_NCHWc_winograd(a, k, 1, tile_size) + b + r),
        pack_channels(x, lanes),
        transform_weight(pack_kernel(weight, lanes, lanes), tile_size),
        bias.reshape(1, 32 // lanes, 1, 1, lanes),
        pack_channels(other, lanes),
        schedule=winograd.schedule_conv2d_NCHWc_winograd,
        target=target,
    )
    want = np.maximum(convolution(x, weight, 1) + bias[:, None, None] + other, 0)
    check(found, pack_channels(want, lanes), tile_size)


@pytest.mark.parametrize("tile_size", [2, 4, 6])
def test_the_numpy_meaning_agrees_with_the_convolution(tile_size: int) -> None:
    x, weight = random(2, 32, 7, 10), random(48, 32, 3, 3)
    transformed = transform_weight(pack_kernel(weight, 16, 16), tile_size)
    found = convolve_tiles(pack_channels(x, 16), transformed, (1, 0, 2, 1), tile_size)
    check(found, pack_channels(convolution(x, weight, (1, 0, 2, 1)), 16), tile_size)


@pytest.mark.parametrize("tile_size", [2, 4, 6])
def test_weights_that_are_no_constants_are_transformed_alike(tile_size: int) -> None:
    weight = random(5, 3, 3, 3)
    found = compiled(lambda a: winograd_weight_transform(a, tile_size), weight)
    want = transform_weight(weight, tile_size)
    assert found.shape == want.shape == (5, tile_size + 2, tile_size + 2, 3)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_weights_of_other_tiles_are_refused() -> None:
    data, weight = te.placeholder((1, 1, 8, 8, 8)), te.placeholder((1, 4, 4, 1, 8, 8))
    with (
        Target("llvm -mcpu=core-avx2"),
        pytest.raises(InvalidShapeError, match="do not fit for a window of 3 x 3 and tiles of 4x4"),
    ):
        winograd.conv2d_NCHWc_winograd(data, weight, 1, 4)
