"""Image resizing: each dimension is a matrix of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .convolution import sample_bilinear, wide

Array = np.ndarray


def _places(size: int, target: int, mode: str) -> Array:
    """Return the coordinates of ``target`` outputs among ``size`` elements."""
    x = np.arange(target)
    if mode == "half_pixel":
        return (x + 0.5) * (size / target) - 0.5
    if mode == "align_corners":
        return (size - 1) / max(target - 1, 1) * x
    if mode == "asymmetric":
        return size / target * x
    raise ValueError(f"coordinates are half_pixel, align_corners or asymmetric, found {mode!r}")


def _cubic(t: Array) -> list[Array]:
    """Return weights of the elements at -1, 0, 1 and 2 for a point ``t`` past an element (Keys, 1981)."""
    a = -0.5
    near = lambda d: ((a + 2) * d - (a + 3)) * d * d + 1  # noqa: E731 -- the two pieces of one curve
    far = lambda d: ((a * d - 5 * a) * d + 8 * a) * d - 4 * a  # noqa: E731
    return [far(1 + t), near(t), near(1 - t), far(2 - t)]


def _weights(size: int, target: int, method: str, mode: str) -> Array:
    """Return weights (target, size) of each element in each result; the border elements repeat."""
    places = _places(size, target, mode)
    below = np.floor(places).astype("int64")
    if method == "nearest_neighbor":
        nearest = np.floor(places + 0.5).astype("int64") if mode == "align_corners" else below
        steps, parts = [0], [np.ones(target)]
        below = nearest
    elif method == "linear":
        steps, parts = [0, 1], [1 - (places - below), places - below]
    elif method == "cubic":
        steps, parts = [-1, 0, 1, 2], _cubic(places - below)
    else:
        raise ValueError(f"method is nearest_neighbor, linear or cubic, found {method!r}")
    result = np.zeros((target, size))
    for step, part in zip(steps, parts, strict=True):
        np.add.at(result, (np.arange(target), np.clip(below + step, 0, size - 1)), part)
    return result


def _resize(data: Array, scale: Sequence[float], letters: str, layout: str, method: str, mode: str) -> Array:
    result = wide(data)
    for letter, factor in zip(letters, scale, strict=True):
        axis = [c for c in layout if c.isupper()].index(letter)
        weights = _weights(data.shape[axis], round(data.shape[axis] * factor), method, mode)
        result = np.moveaxis(np.tensordot(weights, result, (1, axis)), 0, axis)
    return result.astype(data.dtype)


def resize1d_python(
    data: Array, scale: Sequence[float], layout: str = "NCW", method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
) -> Array:  # fmt: skip
    """Resize the width by ``scale[0]``; ``method`` is nearest_neighbor, linear or cubic."""
    return _resize(data, scale, "W", layout, method, coordinate_transformation_mode)


def resize2d_python(
    data: Array, scale: Sequence[float], layout: str = "NCHW", method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
) -> Array:  # fmt: skip
    """Resize height and width by ``scale``; ``layout`` may have packed channels and batches, such as NCHW4n4c."""
    return _resize(data, scale, "HW", layout, method, coordinate_transformation_mode)


def resize3d_python(
    data: Array, scale: Sequence[float], layout: str = "NCDHW", method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
) -> Array:  # fmt: skip
    """Resize depth, height and width by ``scale``."""
    return _resize(data, scale, "DHW", layout, method, coordinate_transformation_mode)


def crop_and_resize_python(
    image: Array, boxes: Array, box_indices: Array, crop_size: Sequence[int], layout: str, method: str = "bilinear",
    extrapolation_value: Any = 0,
) -> Array:  # fmt: skip
    """Crop parts of images, and resize them to ``crop_size``.

    Parameters
    ----------
    image : (n, h, w, c) or (n, c, h, w), as ``layout`` says
    boxes : (boxes, 4): top, left, bottom, right, of which 0 is the first pixel and 1 the last
    box_indices : (boxes,), of which image
    method : bilinear or nearest_neighbor
    extrapolation_value : of points outside of the image

    Returns (boxes, ...) in the layout of ``image``.
    """
    if method not in ("bilinear", "nearest_neighbor"):
        raise ValueError(f"method is bilinear or nearest_neighbor, found {method!r}")
    images = np.moveaxis(image, -1, 1) if layout == "NHWC" else image
    crops = []
    for box, index in zip(boxes, box_indices, strict=True):
        y, x = (
            _crop_places(box[axis], box[axis + 2], size, n)
            for axis, (size, n) in enumerate(zip(crop_size, images.shape[2:], strict=True))
        )
        grid = np.meshgrid(y, x, indexing="ij")
        inside = (grid[0] >= 0) & (grid[0] <= images.shape[2] - 1) & (grid[1] >= 0) & (grid[1] <= images.shape[3] - 1)
        if method == "nearest_neighbor":
            grid = (np.round(grid[0]), np.round(grid[1]))
        pixels = sample_bilinear(wide(images[int(index)])[None], grid[0][None], grid[1][None])[0]
        crops.append(np.where(inside, pixels, extrapolation_value))
    result = np.stack(crops) if crops else np.zeros((0, images.shape[1], *crop_size))
    return np.moveaxis(result, 1, -1) if layout == "NHWC" else result


def _crop_places(begin: float, end: float, target: int, size: int) -> Array:
    """Return ``target`` coordinates between ``begin`` and ``end``; a single one lies in the middle."""
    if target == 1:
        return np.array([0.5 * (begin + end) * (size - 1)])
    return np.linspace(float(begin), float(end), target) * (size - 1)  # ends at ``end``: 1 is inside


def affine_grid_python(data: Array, target_shape: Sequence[int]) -> Array:
    """Return source coordinates (n, 2, h, w): ``data`` (n, 2, 3) times (x, y, 1), x and y from -1 to 1."""
    y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in target_shape), indexing="ij")
    return np.einsum("nij,jhw->nihw", data, np.stack([x, y, np.ones_like(x)]))


def grid_sample_nchw_python(data: Array, grid: Array, method: str = "bilinear") -> Array:
    """Sample ``data`` (n, c, h, w) at the points of ``grid`` (n, 2, oh, ow), x and y from -1 to 1; 0 outside."""
    if method != "bilinear":
        raise ValueError(f"this reference samples bilinearly, found the method {method!r}")
    height, width = data.shape[2:]
    y, x = (grid[:, 1] + 1) * (height - 1) / 2, (grid[:, 0] + 1) * (width - 1) / 2
    return sample_bilinear(wide(data), y, x).astype(data.dtype)
