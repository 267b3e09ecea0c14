"""Positions that come as data: beside a tensor, no number, or so large that they do not fit; nothing is read there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib.graph_executor import GraphModule
from tilewright.runtime.error import TVMError

Array = np.ndarray[Any, Any]
FAR = (np.nan, np.inf, -np.inf, 1e38, -1e30, 3e9)


def _executor(make: Callable[..., Any], *inputs: Array, target: str = "llvm") -> Callable[..., list[Array]]:
    params = [relay.var(f"p{i}", shape=a.shape, dtype=str(a.dtype)) for i, a in enumerate(inputs)]
    body = make(*params)
    body = body.astuple() if hasattr(body, "astuple") else body
    with tvm.transform.PassContext(opt_level=1):
        factory = relay.build(tvm.IRModule.from_expr(relay.Function(params, body)), target)
    executor = GraphModule(factory["default"](tvm.cpu()))

    def run(*arrays: Array) -> list[Array]:
        for i, array in enumerate(arrays):
            executor.set_input(f"p{i}", array)
        executor.run()
        return [executor.get_output(k).numpy() for k in range(executor.get_num_outputs())]

    return run


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic"])
def test_grids_may_point_anywhere(method: str, padding: str) -> None:
    image = np.random.default_rng(1).standard_normal((1, 2, 5, 4)).astype("float32")
    grid = np.zeros((1, 2, 1, 16), "float32")
    sample = functools.partial(relay.image.grid_sample, method=method, padding_mode=padding)
    run = _executor(sample, image, grid)
    centre = run(image, grid)[0][0, :, 0, 0]
    for value in FAR:
        far = grid.copy()
        far[:, :, :, ::2] = value
        found = run(image, far)[0][0, :, 0]
        np.testing.assert_array_equal(found[:, 1::2], np.repeat(centre[:, None], 8, 1))
        if padding == "zeros" and not np.isnan(value):
            assert not found[:, ::2].any()
        if method == "nearest" and padding != "zeros":
            assert np.isin(found, image).all()


@pytest.mark.parametrize("method", ["bilinear", "nearest_neighbor"])
def test_crops_may_lie_anywhere(method: str) -> None:
    image, box = np.ones((2, 1, 4, 5), "float32"), np.array([[0, 0, 1, 1], [0, 0, 1, 1]], "float32")
    of = np.array([0, 1], "int32")
    crop = functools.partial(
        relay.image.crop_and_resize, crop_size=(3, 3), layout="NCHW", method=method, extrapolation_value=7.0
    )
    run = _executor(crop, image, box, of)
    for value in FAR:
        far = box.copy()
        far[0, 0] = value
        found = run(image, far, of)[0]
        assert np.isin(found, (1, 7)).all() and (found[0, 0, :2] == 7).all() and (found[1] == 1).all()
    for bad in (2, -1, 10**8):
        with pytest.raises(TVMError, match=rf"crop_and_resize: box index {bad} is out of range: expected 0 to 1"):
            run(image, box, np.array([0, bad], "int32"))


@pytest.mark.parametrize("ratio", [2, -1])
def test_regions_may_lie_anywhere(ratio: int) -> None:
    image = np.ones((1, 2, 4, 5), "float32")
    near = np.array([[0, 1, 1, 2, 2], [0, 1, 1, 2, 2]], "float32")
    align = functools.partial(relay.vision.roi_align, pooled_size=(2, 2), spatial_scale=1.0, sample_ratio=ratio)
    run = _executor(align, image, near)
    np.testing.assert_allclose(run(image, near)[0], 1)
    for value in FAR:
        for side in (1, 2, 3, 4):
            far = near.copy()
            far[0, side] = value
            found = run(image, far)[0]
            np.testing.assert_allclose(found[1], 1)
            assert ((found[0] >= 0) & (found[0] <= 1)).all()


def test_samples_of_a_large_region_are_those_in_the_image() -> None:
    image = np.random.default_rng(2).standard_normal((1, 1, 4, 5)).astype("float32")
    rois = np.array([[0, -900, -70, 1000, 80], [0, -3, 1, 700, 3]], "float32")
    run = _executor(lambda x, r: relay.vision.roi_align(x, r, (2, 3), 1.0), image, rois)
    attrs = relay.vision.roi_align(relay.const(image), relay.const(rois), (2, 3), 1.0)
    expected = attrs.op.get_attr("FEvaluate")(attrs.attrs, [image, rois])[0]
    np.testing.assert_allclose(run(image, rois)[0], expected, rtol=1e-4, atol=1e-6)


def test_pools_of_regions_may_lie_anywhere() -> None:
    image = np.ones((1, 2, 4, 5), "float32")
    near = np.array([[0, 1, 1, 2, 2], [0, 1, 1, 2, 2]], "float32")
    run = _executor(lambda x, r: relay.vision.roi_pool(x, r, (2, 2), 1.0), image, near)
    for value in FAR:
        for side in (1, 2, 3, 4):
            far = near.copy()
            far[0, side] = value
            found = run(image, far)[0]
            assert np.isin(found, (0, 1)).all() and (found[1] == 1).all()


_SPARSE: dict[str, tuple[Callable[..., Any], Array | None]] = {
    "sparse_dense": (lambda x, *parts: relay.nn.sparse_dense(x, parts), np.ones((2, 4), "float32")),
    "sparse_add": (lambda x, *parts: relay.nn.sparse_add(x, parts), np.ones((2, 4), "float32")),
    "sparse_conv2d": (
        lambda x, *parts: relay.nn.sparse_conv2d(x, parts, layout="NHWC", kernel_size=(1, 1)),
        np.ones((1, 2, 2, 4), "float32"),
    ),
    "sparse_transpose": (lambda *parts: relay.nn.sparse_transpose(parts), None),
}


@pytest.mark.parametrize("name", _SPARSE)
def test_places_of_sparse_matrices_are_checked(name: str) -> None:
    make, dense = _SPARSE[name]
    data = np.ones((3, 1, 1) if name == "sparse_conv2d" else 3, "float32")
    columns, starts = np.array([0, 1, 1], "int32"), np.array([0, 2, 3], "int32")
    given = [] if dense is None else [dense]
    run = _executor(make, *given, data, columns, starts)
    expected = run(*given, data, columns, starts)
    width = 2 if dense is None else 4
    for bad in (width, -1, 10**8, -(10**8)):
        with pytest.raises(TVMError, match=rf"{name}: column {bad} is out of range: expected 0 to {width - 1}"):
            run(*given, data, np.array([0, bad, 1], "int32"), starts)
    for bad in (4, -1, 10**8):
        with pytest.raises(TVMError, match=rf"{name}: indptr {bad} is out of range: expected 0 to 3"):
            run(*given, data, columns, np.array([0, bad, 3], "int32"))
    for falling in ([3, 0, 3], [2, 1, 0]):
        run(*given, data, columns, np.array(falling, "int32"))
    for found, value in zip(run(*given, data, columns, starts), expected, strict=True):
        np.testing.assert_array_equal(found, value)


def test_a_transpose_of_rows_given_twice_writes_no_more_than_there_is() -> None:
    columns, twice = np.zeros(3, "int32"), np.array([0, 3] * 40 + [0], "int32")
    run = _executor(lambda *parts: relay.nn.sparse_transpose(parts), np.ones(3, "float32"), columns, twice)
    assert run(np.ones(3, "float32"), columns, twice)[0].tolist() == [1, 1, 1]


def test_places_of_a_sparse_tensor_are_compared_in_their_own_type() -> None:
    values = np.array([1, 2], "float32")
    run = _executor(lambda i, v: relay.sparse_to_dense(i, (3,), v), np.array([[0], [2]]), values)
    assert run(np.array([[0], [2]]), values)[0].tolist() == [1, 0, 2]
    assert run(np.array([[0], [2**32 + 1]]), values)[0].tolist() == [1, 0, 0]


def test_targets_of_a_loss_are_classes_or_ignored() -> None:
    scores, targets, weights = np.ones((3, 2), "float32"), np.array([0, 1, -100], "int32"), np.ones(2, "float32")
    run = _executor(lambda *args: relay.nn.nll_loss(*args, reduction="none"), scores, targets, weights)
    assert run(scores, targets, weights)[0].tolist() == [-1, -1, 0]
    for bad in (2, -1, 10**8):
        with pytest.raises(TVMError, match=rf"nll_loss: target {bad} is out of range: expected 0 to 1"):
            run(scores, np.array([0, bad, 1], "int32"), weights)


def test_boxes_that_count_are_no_more_than_there_are() -> None:
    boxes = np.array([[[0, 0.9, 0, 0, 1, 1], [0, 0.8, 5, 5, 6, 6]]], "float32")
    places = np.array([[0, 1]], "int32")

    def suppress(data: Any, count: Any, indices: Any) -> Any:
        found = relay.vision.non_max_suppression(data, count, indices, relay.const(-1), relay.const(0.5))
        return found.astuple()

    run = _executor(suppress, boxes, np.array([2], "int32"), places)
    for count, kept in ((2, 2), (1, 1), (10**8, 2), (-5, 0)):
        assert run(boxes, np.array([count], "int32"), places)[1].tolist() == [[kept]]


def test_coordinates_in_a_shape_of_negative_numbers_divide_by_one() -> None:
    at, shape = np.array([-(2**63), 5]), np.array([2, 3])
    run = _executor(lambda i, s: relay.unravel_index(i, s), at, shape)
    assert run(at, shape)[0][:, 1].tolist() == [1, 2]
    assert run(at, np.array([-1, 0]))[0].shape == (2, 2)
