"""The references of topi.testing against PyTorch, numpy's own functions, and loops written out."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from tests.topi.harness import random
from torch.nn import functional

from tilewright import topi
from tilewright.topi import testing

Array = np.ndarray


def torched(*arrays: Array) -> list[torch.Tensor]:
    return [torch.from_numpy(np.ascontiguousarray(a)).double() for a in arrays]


def close(found: Array, expected: Any, tolerance: float = 1e-5) -> None:
    wanted = expected.numpy() if isinstance(expected, torch.Tensor) else expected
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def last(array: Array) -> Array:
    return np.moveaxis(array, 1, -1)


@pytest.mark.parametrize(("stride", "padding", "groups"), [(1, 0, 1), (2, (1, 2), 1), ((2, 1), 1, 2), (3, 0, 4)])
def test_convolutions_of_two_dimensions(stride: Any, padding: Any, groups: int) -> None:
    data, weight = random(2, 4, 7, 9), random(8, 4 // groups, 3, 2)
    expected = functional.conv2d(*torched(data, weight), None, stride, padding, 1, groups)
    close(testing.conv2d_nchw_python(data, weight, stride, padding, groups), expected)
    hwio = weight.transpose(2, 3, 1, 0)
    close(testing.conv2d_nhwc_python(last(data), hwio, stride, padding, groups), last(expected.numpy()))
    if groups == 1:
        hwcn = testing.conv2d_hwcn_python(data.transpose(2, 3, 1, 0), hwio, stride, padding)
        close(hwcn, expected.numpy().transpose(2, 3, 1, 0))
    if groups == 4:  # each channel by itself, two filters for each
        filters = weight.reshape(4, 2, 3, 2)
        close(testing.depthwise_conv2d_python_nchw(data, filters, stride, padding), expected)
        found = testing.depthwise_conv2d_python_nhwc(last(data), filters.transpose(2, 3, 0, 1), stride, padding)
        close(found, last(expected.numpy()))


def test_depthwise_convolutions_of_packed_channels() -> None:
    data, weight = random(2, 6, 5, 4), random(6, 1, 3, 2)
    packed = np.moveaxis(data.reshape(2, 2, 3, 5, 4), 2, -1)
    filters = np.moveaxis(weight.reshape(2, 3, 1, 1, 3, 2), 1, -1).transpose(0, 1, 3, 4, 2, 5)
    found = testing.depthwise_conv2d_python_nchwc(packed, filters, 1, 1)
    expected = functional.conv2d(*torched(data, weight), None, 1, 1, 1, 6).numpy()
    close(found, np.moveaxis(expected.reshape(2, 2, 3, *expected.shape[2:]), 2, -1))


def test_convolutions_of_one_and_three_dimensions() -> None:
    data, weight = random(2, 3, 9), random(5, 3, 3)
    close(
        testing.conv1d_ncw_python(data, weight, 2, (1, 1), 2), functional.conv1d(*torched(data, weight), None, 2, 1, 2)
    )
    data, weight = random(1, 4, 5, 6, 7), random(6, 2, 3, 2, 1)
    expected = functional.conv3d(*torched(data, weight), None, (2, 1, 3), (1, 0, 2), 1, 2)
    close(testing.conv3d_ncdhw_python(data, weight, (2, 1, 3), (1, 0, 2), 2), expected)
    found = testing.conv3d_ndhwc_python(last(data), weight.transpose(2, 3, 4, 1, 0), (2, 1, 3), (1, 0, 2), 2)
    close(found, last(expected.numpy()))


def test_whole_numbers_are_summed_without_rounding() -> None:
    data, weight = np.full((1, 300, 2, 2), 127, "int32"), np.full((1, 300, 1, 1), 2**20, "int32")
    total = 300 * 127 * 2**20
    wrapped = (total + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(testing.conv2d_nchw_python(data, weight, 1, 0), np.full((1, 1, 2, 2), wrapped))


@pytest.mark.parametrize(("stride", "padding", "extra"), [(1, 0, 0), (2, 1, 1), ((2, 3), (1, 0), (1, 2)), (1, 2, 0)])
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolutions(stride: Any, padding: Any, extra: Any, groups: int) -> None:
    data, weight = random(2, 4, 5, 6), random(4, 3, 3, 2)
    expected = functional.conv_transpose2d(*torched(data, weight), None, stride, padding, extra, groups)
    close(testing.conv2d_transpose_nchw_python(data, weight, stride, padding, extra, groups), expected)
    if groups == 1:
        for order in ("HWIO", "HWOI", "OIHW", "IOHW"):
            kernel = weight.transpose(["IOHW".index(letter) for letter in order])
            found = testing.conv2d_transpose_nhwc_python(last(data), kernel, order, stride, padding, extra)
            close(found, last(expected.numpy()))


def test_transposed_convolutions_of_one_and_three_dimensions() -> None:
    data, weight = random(2, 3, 9), random(3, 5, 4)
    expected = functional.conv_transpose1d(*torched(data, weight), None, 3, 2, 1)
    close(testing.conv1d_transpose_ncw_python(data, weight, 3, (2, 2), (1,)), expected)
    data, weight = random(1, 3, 2, 3, 4), random(3, 2, 3, 1, 2)
    expected = functional.conv_transpose3d(*torched(data, weight), None, 2, (1, 0, 1), (0, 1, 1))
    close(testing.conv3d_transpose_ncdhw_python(data, weight, 2, (1, 0, 1), (0, 1, 1)), expected)


def test_deformable_convolutions_move_their_points() -> None:
    data, weight = random(2, 4, 6, 7), random(3, 4, 3, 3)
    still = np.zeros((2, 36, 6, 7), "float32")
    found = testing.deformable_conv2d_nchw_python(data, still, weight, 1, 1, 1, 2, 1)
    close(found, functional.conv2d(*torched(data, weight), None, 1, 1))
    down = still.reshape(2, 2, 3, 3, 2, 6, 7).copy()
    down[:, 1, :, :, 0] = 0.25  # the points of the second half of the channels, a quarter of a pixel
    moved = data.copy()
    below = np.pad(data, ((0, 0), (0, 0), (0, 1), (0, 0)))
    moved[:, 2:] = 0.75 * data[:, 2:] + 0.25 * below[:, 2:, 1:]
    found = testing.deformable_conv2d_nchw_python(data, down.reshape(2, 36, 6, 7), weight, 1, 1, 1, 2, 1)
    expected = functional.conv2d(*torched(moved, weight), None, 1, 1).numpy()
    close(found[:, :, 1:], expected[:, :, 1:])  # the first row's windows begin between the padding and the image


def test_correlation_of_displaced_images() -> None:
    first, second = random(1, 3, 8, 9), random(1, 3, 8, 9, seed=1)
    found = testing.correlation_nchw_python(first, second, 3, 2, 2, 2, 3, True)
    a, b = (np.pad(v, ((0, 0), (0, 0), (3, 3), (3, 3))) for v in (first, second))
    for (i, j), (p, q) in itertools.product(np.ndindex(*found.shape[2:]), np.ndindex(3, 3)):
        y, x = 2 * i + 2, 2 * j + 2
        other = b[0, :, y + 2 * p - 2 : y + 2 * p + 1, x + 2 * q - 2 : x + 2 * q + 1]
        assert found[0, 3 * p + q, i, j] == pytest.approx((a[0, :, y : y + 3, x : x + 3] * other).mean(), abs=1e-6)


def test_products_and_losses() -> None:
    x, y = random(1, 5, 4), random(3, 5, 6)
    close(testing.batch_matmul(x, y, None, True, False), np.matmul(x.swapaxes(1, 2), y))
    a, w, bias = random(3, 4), random(5, 4), random(5)
    close(testing.dense(a, w, bias, True, True), np.maximum(a @ w.T + bias, 0))
    scores, weights = random(3, 4, 5), np.abs(random(4))
    targets = np.random.default_rng(0).integers(0, 4, (3, 5))
    targets[0, 0] = -100
    for reduction in ("mean", "sum", "none"):
        expected = functional.nll_loss(
            torch.from_numpy(scores).double(), torch.from_numpy(targets), torch.from_numpy(weights).double(),
            reduction=reduction,
        )  # fmt: skip
        close(testing.nll_loss(scores, targets, weights, reduction), expected)


def test_normalisation() -> None:
    x = random(4, 5)
    (wide,) = torched(x)
    close(testing.softmax_python(x), functional.softmax(wide, -1))
    close(testing.log_softmax_python(x), functional.log_softmax(wide, -1))
    x = random(2, 6, 3, 4)
    close(testing.lrn_python(x, 5, 1, 2.0, 0.5, 0.7), functional.local_response_norm(*torched(x), 5, 0.5, 0.7, 2.0))
    close(testing.l2_normalize_python(x, 1e-6, (1,)), functional.normalize(*torched(x), dim=1))


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("counted", [False, True])
def test_pools(ceil: bool, counted: bool) -> None:
    data = random(2, 3, 8, 9)  # PyTorch leaves out last windows that lie in the padding alone; here there are none
    arguments = ([3, 3], [2, 3])
    around = ([1, 1], [1, 1])
    found = testing.poolnd_python(data, *arguments, [1, 1], *around, "avg", counted, ceil)
    close(found, functional.avg_pool2d(*torched(data), *arguments, 1, ceil, counted))
    found = testing.poolnd_python(last(data), *arguments, [1, 1], *around, "max", counted, ceil, layout="NHWC")
    close(found, last(functional.max_pool2d(*torched(data), *arguments, 1, 1, ceil).numpy()))


def test_a_pool_of_nothing_but_padding() -> None:
    line = -np.ones((1, 1, 2), "float32")
    for counted, nothing in ((True, 0), (False, -np.inf)):
        found = testing.poolnd_python(line, [1], [1], [1], [1], [0], "max", counted)
        np.testing.assert_array_equal(found, [[[nothing, -1, -1]]])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_adaptive_pools(layout: str) -> None:
    data = random(2, 3, 7, 9)
    arranged = data if layout == "NCHW" else last(data)
    for kind, pool in (("avg", functional.adaptive_avg_pool2d), ("max", functional.adaptive_max_pool2d)):
        expected = pool(*torched(data), (3, 4)).numpy()
        close(testing.adaptive_pool(arranged, (3, 4), kind, layout), expected if layout == "NCHW" else last(expected))


@pytest.mark.parametrize("counted", [False, True])
def test_gradients_of_pools(counted: bool) -> None:
    data, grad = random(2, 3, 8, 7), random(2, 3, 4, 4)
    for kind in ("avg", "max"):
        (x,) = torched(data)
        x.requires_grad_()
        y = functional.avg_pool2d(x, 3, 2, 1, False, counted) if kind == "avg" else functional.max_pool2d(x, 3, 2, 1)
        y.backward(*torched(grad))
        assert x.grad is not None
        close(testing.pool_grad_nchw(data, grad, (3, 3), (2, 2), (1, 1, 1, 1), kind, False, counted), x.grad)


@pytest.mark.parametrize(("mode", "corners"), [("half_pixel", False), ("align_corners", True)])
def test_resizing(mode: str, corners: bool) -> None:
    data = random(2, 3, 5, 6)
    for size, scale in (((10, 9), (2, 1.5)), ((3, 6), (0.6, 1))):
        expected = functional.interpolate(*torched(data), size, mode="bilinear", align_corners=corners).numpy()
        close(testing.resize2d_python(data, scale, "NCHW", "linear", mode), expected)
        close(testing.resize2d_python(last(data), scale, "NHWC", "linear", mode), last(expected))
    line, block = random(1, 2, 7), random(1, 2, 3, 4, 5)
    found = testing.resize1d_python(line, (2,), "NCW", "linear", mode)
    close(found, functional.interpolate(*torched(line), 14, mode="linear", align_corners=corners))
    found = testing.resize3d_python(last(block), (2, 1, 2), "NDHWC", "linear", mode)
    close(
        found,
        last(functional.interpolate(*torched(block), (6, 4, 10), mode="trilinear", align_corners=corners).numpy()),
    )


def test_resizing_to_the_nearest_and_by_cubics() -> None:
    data = random(1, 4, 3, 5)
    expected = data.repeat(2, 2).repeat(3, 3)
    close(testing.resize2d_python(data, (2, 3), "NCHW", "nearest_neighbor", "asymmetric"), expected)
    packed = np.moveaxis(data.reshape(1, 2, 2, 3, 5), 2, -1)
    found = testing.resize2d_python(packed, (2, 3), "NCHW2c", "nearest_neighbor", "asymmetric")
    close(found, np.moveaxis(expected.reshape(1, 2, 2, 6, 15), 2, -1))
    x = np.arange(12.0).reshape(1, 1, 12)  # cubics go through lines, away from the ends
    found = testing.resize1d_python(x, (2,), "NCW", "cubic", "half_pixel")
    close(found[..., 4:20], np.arange(4, 20)[None, None] / 2 - 0.25)


def test_crops_and_grids() -> None:
    data = random(2, 3, 5, 6)
    found = testing.crop_and_resize_python(
        data, np.array([[0, 0, 1, 1], [1, 0, 0, 2]], "float32"), [1, 0], (5, 6), "NCHW", "bilinear", 9
    )
    close(found[0], data[1])
    close(found[1, :, :, :3], data[0, :, ::-1][:, :, [0, 2, 4]])
    assert (found[1, :, :, 3:] == 9).all()
    nearest = testing.crop_and_resize_python(
        last(data), np.array([[0, 0, 1, 1]]), [0], (1, 1), "NHWC", "nearest_neighbor"
    )
    close(nearest[0, 0, 0], data[0, :, 2, 3])  # ties away from 0, as TensorFlow
    affine = random(2, 2, 3)
    grid = testing.affine_grid_python(affine, (4, 7))
    expected = functional.affine_grid(*torched(affine), [2, 3, 4, 7], align_corners=True)
    close(grid, np.moveaxis(expected.numpy(), -1, 1))
    sampled = functional.grid_sample(*torched(data), expected, align_corners=True)
    close(testing.grid_sample_nchw_python(data, grid), sampled)


def test_regions() -> None:
    line = np.tile(np.arange(10, dtype="float32"), (1, 1, 8, 1))  # each pixel is its column
    regions = np.array([[0, 2, 1, 6, 5]], "float32")
    found = testing.roi_align_nchw_python(line, regions, (2, 4), 1.0, 2)
    close(found, np.tile([2.5, 3.5, 4.5, 5.5], (1, 1, 2, 1)))
    close(
        testing.roi_align_nchw_python(line, regions, (2, 4), 1.0, 2, "max")[0, 0, 0], np.array([2.75, 3.75, 4.75, 5.75])
    )
    close(testing.roi_align_nhwc_python(last(line), regions * [[1, 2, 2, 2, 2]], (2, 4), 0.5, 0), last(found))
    close(testing.roi_pool_nchw_python(line, regions, (1, 2), 1.0)[0, 0, 0], np.array([4.0, 6.0]))
    image = np.arange(4 * 4 * 6, dtype="float32").reshape(1, 4, 4, 6)
    expected = np.array([image.ravel().reshape(8, 12)[i::2, j::2] for i in range(2) for j in range(2)])
    close(testing.reorg_python(image, 2), expected.reshape(1, 16, 2, 3))


def test_gathering_and_slicing() -> None:
    data = random(4, 5, 6)
    index = np.random.default_rng(0).integers(0, 5, (4, 3, 6))
    close(testing.gather_python(data, 1, index), np.take_along_axis(data, index, 1))
    close(testing.gather_nd_python(data, np.array([[3, 0], [1, 4]])), data[[3, 0], [1, 4]])
    close(testing.strided_slice_python(data, [1, 4], [4, 0], [2, -2]), data[1:4:2, 4:0:-2])
    close(testing.strided_slice_python(data, [1, 2], [2, -1], None, "size"), data[1:3, 2:])
    close(testing.strided_slice_python(data, [1], [6], [3], axes=[-1]), data[:, :, 1:6:3])
    close(testing.strided_slice_python(data, *np.array([[1, 4], [4, 0], [2, -2]])), data[1:4:2, 4:0:-2])
    changed = data.copy()
    changed[1:4:2] = 7
    close(testing.strided_set_python(data, np.float32(7), [1], [4], [2]), changed)
    close(testing.slice_axis_python(data, -1, 1, 0), data[:, :, 1:])


def test_marks() -> None:
    data, lengths = random(3, 4, 2), np.array([0, 2, 4])
    expected = data.copy()
    expected[0] = -1
    expected[1, 2:] = -1
    close(testing.sequence_mask(data, lengths, -1.0, 1), expected)
    marks = np.eye(5)[[3, 0, 1]] * 3 - 1
    close(testing.one_hot(np.array([3, 0, 1]), 2, -1, 5, -1, "float32"), marks)
    close(testing.one_hot(np.array([3, 0, 1]), 2, -1, 5, 0, "float32"), marks.T)
    assert (testing.one_hot(np.array([5, -1]), 1, 0, 5, 0, "int32") == 0).all()
    matrix, diagonals = np.zeros((4, 5)), np.array([[1.0, 2, 3, 4], [5, 6, 7, 0]])
    close(testing.matrix_set_diag(matrix, np.array([1.0, 2, 3]), 2), np.diag([1.0, 2, 3], 2)[:4, :5])
    both = np.diag([1.0, 2, 3, 4], 1)[:4, :5] + np.pad(np.diag([5.0, 6, 7], -1), ((0, 0), (0, 1)))
    close(
        testing.matrix_set_diag(matrix, np.stack([diagonals[0], 0 * diagonals[0], diagonals[1]]), (-1, 1), "LEFT_LEFT"),
        both,
    )
    right = np.stack([diagonals[0], 0 * diagonals[0], np.roll(diagonals[1], 1)])
    close(testing.matrix_set_diag(matrix, right, (-1, 1), "LEFT_RIGHT"), both)
    rows, values = np.sort(random(3, 9), -1), random(3, 4)
    found = testing.searchsorted_ref(rows, values, True, "int32")
    close(found, (rows[:, None, :] <= values[:, :, None]).sum(-1))
    close(testing.searchsorted_ref(rows[0], values, False, "int32"), (rows[0] < values[:, :, None]).sum(-1))


def test_blocks_go_there_and_back() -> None:
    data = random(2, 8, 3, 5)
    close(testing.depth_to_space_python(data, 2, "CRD"), functional.pixel_shuffle(*torched(data), 2))
    close(testing.space_to_depth_python(testing.depth_to_space_python(data, 2), 2), data)
    image = random(2, 4, 6, 3)
    batches = testing.space_to_batch_nd_python(image, [3, 2], [1, 1], [1, 1], 5.0)
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=5)
    close(batches.reshape(3, 2, 2, 2, 4, 3)[1, 0], padded[:, 1::3, ::2])
    close(testing.batch_to_space_nd_python(batches, [3, 2], [1, 1], [1, 1]), image)


def test_what_is_not_known_is_refused() -> None:
    data = random(1, 2, 3, 3)
    for call in (
        lambda: testing.resize2d_python(data, (2, 2), "NCHW", "lanczos"),
        lambda: testing.resize2d_python(data, (2, 2), "NCHW", "linear", "corners"),
        lambda: testing.poolnd_python(data, [1, 1], [1, 1], [1, 1], [0, 0], [0, 0], "median"),
        lambda: testing.dilate_python(data, [2, 2]),
        lambda: testing.conv2d_transpose_nhwc_python(data, data, "HWII", 1, 0),
    ):
        with pytest.raises(ValueError, match="found"):
            call()


def test_schedules_are_found_by_target() -> None:
    assert testing.get_injective_schedule("llvm") is topi.x86.schedule_injective
    assert testing.get_reduce_schedule("cuda") is topi.cuda.schedule_reduce
    assert testing.get_conv2d_nchw_implement("llvm")[0] is topi.x86.conv2d_nchw
    assert testing.dispatch("c", {"generic": 1, "gpu": 2}) == 1


def test_a_comparison_tells_what_differs() -> None:
    x, y = random(3, 4), random(3, 4, seed=1)
    arguments = ("llvm", None, topi.add, testing.get_broadcast_schedule("llvm"))
    testing.compare_numpy_tvm([x, y], x + y, *arguments)
    with pytest.raises(AssertionError):
        testing.compare_numpy_tvm([x, y], x - y, *arguments)
