"""Regions of interest, and convolutions whose taps move."""

from __future__ import annotations

import numpy as np
from tests.random_operators.case import EXACT, Graph, Tolerance, generator
from tests.random_operators.draw import Discard


def regions(g: Graph, dtype: str, count: int, images: int) -> tuple[np.ndarray, np.ndarray]:
    """Images, and rows (left, top, right, bottom) in quarters of a pixel, which every type holds."""
    corners = [[g.draw.between(-4, 24) / 4 for _ in range(2)] for _ in range(count)]
    sizes = [[g.draw.of(4, 8, 16, 1, 0, 23) / 4 for _ in range(2)] for _ in range(count)]
    rows = np.array([[*c, c[0] + s[0], c[1] + s[1]] for c, s in zip(corners, sizes, strict=True)])
    which = np.array([g.draw.below(max(images, 1)) for _ in range(count)], "int64")
    return which, rows.reshape(count, 4).astype(dtype)


@generator("RoiAlign")
def roi_align(g: Graph) -> Tolerance:
    dtype = g.dtype()
    images = g.draw.of(1, 2, 3)
    shape = (images, g.draw.of(1, 2, 5), g.draw.of(3, 1, 7), g.draw.of(4, 1, 6))
    which, rows = regions(g, dtype, g.draw.of(1, 2, 4), images)
    attributes = {"output_height": g.draw.of(1, 2, 3), "output_width": g.draw.of(1, 2, 3)}
    if g.draw.of(False, True):
        attributes["sampling_ratio"] = g.draw.of(2, 1, 0)
    if g.draw.of(False, True):
        attributes["spatial_scale"] = g.draw.of(1.0, 0.5)
    if g.has("coordinate_transformation_mode") and g.draw.of(False, True):
        attributes["coordinate_transformation_mode"] = g.draw.of("half_pixel", "output_half_pixel")
    if attributes.get("sampling_ratio") and g.draw.of(False, True):
        attributes["mode"] = "max"
    g.emit([g.data(dtype, shape, "mild"), g.input(rows), g.input(which)], **attributes)
    return Tolerance("close", 128)


@generator("MaxRoiPool")
def roi_pool(g: Graph) -> Tolerance:
    dtype, images = g.dtype(), g.draw.of(1, 2, 3)
    shape = (images, g.draw.of(1, 2, 5), g.draw.of(3, 1, 7), g.draw.of(4, 1, 6))
    which, rows = regions(g, dtype, g.draw.of(1, 2, 4), images)
    rois = np.concatenate([which[:, None], np.floor(rows.astype("float64"))], 1).astype(dtype)
    size = [g.draw.of(1, 2, 3), g.draw.of(1, 2, 3)]
    g.emit([g.data(dtype, shape, "mild"), g.input(rois)], pooled_shape=size)
    return EXACT


@generator("DeformConv")
def deform_conv(g: Graph) -> Tolerance:
    dtype = g.dtype(among=("float32", "float64"))
    kernel = [g.draw.of(2, 1, 3), g.draw.of(2, 1, 3)]
    attributes = {"kernel_shape": kernel}
    strides, dilations = ([g.draw.of(1, 2), g.draw.of(1, 2)] for _ in range(2))
    pads = [g.draw.of(0, 1, 2) for _ in range(4)]
    attributes |= {"strides": strides, "dilations": dilations, "pads": pads}
    group, moved = g.draw.of(1, 2), g.draw.of(1, 2)
    channels, outputs = group * moved, group * g.draw.of(1, 2)
    out = [g.draw.of(1, 2, 3) for _ in range(2)]
    extents = [(out[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - pads[i] - pads[2 + i] for i in range(2)]
    if min(extents) < 1:
        raise Discard
    shape = (g.draw.of(1, 2), channels, *extents)
    offsets = (shape[0], moved * kernel[0] * kernel[1] * 2, *out)
    if group != 1:
        attributes["group"] = group
    if moved != 1:
        attributes["offset_group"] = moved
    names = [g.data(dtype, shape, "mild"), g.data(dtype, (outputs, channels // group, *kernel), "mild")]
    names.append(g.input(g.draw.integers("int64", offsets, -12, 13).astype(dtype) / 8))
    names.append(g.data(dtype, (outputs,), "mild") if g.draw.of(False, True) else "")
    if g.draw.of(False, True):
        names.append(g.data(dtype, (shape[0], moved * kernel[0] * kernel[1], *out), "mild"))
    g.emit(names, **attributes)
    return Tolerance("close", 512)
