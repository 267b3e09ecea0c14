"""Regions of interest, and YOLO's reorg."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .convolution import per_dimension, sample_bilinear, wide

Array = np.ndarray


def roi_align_nchw_python(
    a_np: Array, rois_np: Array, pooled_size: Any, spatial_scale: float, sample_ratio: int, mode: Any = b"avg"
) -> Array:
    """Pool regions from interpolated points (He et al., Mask R-CNN, 2017).

    Parameters
    ----------
    a_np : (n, c, h, w)
    rois_np : (regions, 5): which image, left, top, right, bottom, to be multiplied by ``spatial_scale``
    pooled_size : rows and columns of bins
    sample_ratio : points of a bin in each dimension; 0 or less: as many as it covers pixels
    mode : "avg" or "max"

    Returns (regions, c, rows, columns).
    """
    kinds: dict[Any, Callable[..., Array]] = {
        b"avg": np.mean,
        "avg": np.mean,
        0: np.mean,
        b"max": np.max,
        "max": np.max,
        1: np.max,
    }
    if mode not in kinds:
        raise ValueError(f'mode is "avg" or "max", found {mode!r}')
    bins, sizes = per_dimension(pooled_size, 2), a_np.shape[2:]
    result = np.zeros((len(rois_np), a_np.shape[1], *bins), a_np.dtype)
    for i, (image, left, top, right, bottom) in enumerate(rois_np):
        places, inside = [], []
        for begin, end, count, size in zip((top, left), (bottom, right), bins, sizes, strict=True):
            start, length = begin * spatial_scale, max((end - begin) * spatial_scale, 1.0)
            points = int(sample_ratio) if sample_ratio > 0 else math.ceil(length / count)
            at = start + (np.arange(count * points) + 0.5) * (length / count / points)
            places.append(np.clip(at, 0, size - 1).reshape(count, points))
            inside.append(((at >= -1) & (at <= size)).reshape(count, points))
        y, x = places[0][:, None, :, None], places[1][None, :, None, :]
        y, x = np.broadcast_arrays(y, x)
        values = sample_bilinear(wide(a_np[int(image)])[None], y[None], x[None])[0]
        values = values * (inside[0][:, None, :, None] & inside[1][None, :, None, :])
        result[i] = kinds[mode](values, axis=(-2, -1))
    return result


def roi_align_nhwc_python(
    a_np: Array, rois_np: Array, pooled_size: Any, spatial_scale: float, sample_ratio: int, mode: Any = b"avg"
) -> Array:
    """Pool regions of (n, h, w, c) as ``roi_align_nchw_python`` does, to (regions, rows, columns, c)."""
    data = np.moveaxis(a_np, -1, 1)
    return np.moveaxis(roi_align_nchw_python(data, rois_np, pooled_size, spatial_scale, sample_ratio, mode), 1, -1)


def roi_pool_nchw_python(a_np: Array, rois_np: Array, pooled_size: Any, spatial_scale: float) -> Array:
    """Return the maximum in each bin of regions (Girshick, Fast R-CNN, 2015); 0 for empty bins.

    ``a_np`` (n, c, h, w) and ``rois_np`` (regions, 5) as for ``roi_align_nchw_python``, edges rounded to pixels.
    """
    bins = per_dimension(pooled_size, 2)
    result = np.zeros((len(rois_np), a_np.shape[1], *bins), a_np.dtype)
    for i, (image, left, top, right, bottom) in enumerate(rois_np):
        rows = _bins(top, bottom, spatial_scale, bins[0], a_np.shape[2])
        columns = _bins(left, right, spatial_scale, bins[1], a_np.shape[3])
        for y, row in enumerate(rows):
            for x, column in enumerate(columns):
                part = a_np[int(image), :, row, column]
                if part.size:
                    result[i, :, y, x] = part.max(axis=(1, 2))
    return result


def _bins(begin: float, end: float, scale: float, count: int, size: int) -> Sequence[slice]:
    """Return the pixels of each of ``count`` bins, clipped to ``size``; bins share pixels on their edges."""
    first, last = round(float(begin * scale)), round(float(end * scale))
    step = max(last - first + 1, 1) / count
    edges = ((first + math.floor(b * step), first + math.ceil((b + 1) * step)) for b in range(count))
    return [slice(min(max(low, 0), size), min(max(high, 0), size)) for low, high in edges]


def reorg_python(a_np: Array, stride: int) -> Array:
    """Compute Darknet's reorg layer of (n, c, h, w), as (n, c * stride**2, h / stride, w / stride).

    It reads the image's memory as an image of c / stride**2 channels, stride times as high and as wide.
    """
    n, c, h, w = a_np.shape
    parts = a_np.reshape(n, c // stride**2, h, stride, w, stride).transpose(0, 3, 5, 1, 2, 4)
    return parts.reshape(n, c * stride**2, h // stride, w // stride)
