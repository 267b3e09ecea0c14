"""Resize, Upsample, GridSample and AffineGrid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tests.random_operators.case import EXACT, Graph, Tolerance, generator
from tests.random_operators.draw import FLOATS, Discard

_SCALES = (1.0, 2.0, 0.5, 3.0, 1.5, 0.6, 2.5)
# Where any ratio of two extents is drawn too, and ONNX Runtime says what float32 makes of it.
FRACTIONAL = ("half_pixel", "pytorch_half_pixel", "asymmetric")


@generator("Upsample")
def upsample(g: Graph) -> Tolerance:
    mode = g.draw.of("nearest", "linear")
    shape = g.draw.shape(4, 4, extents=(1, 2, 3, 5)) if mode == "linear" else g.draw.shape(1, 5, extents=(1, 2, 3, 5))
    scales = [g.draw.of(1.0, 2.0, 3.0, 1.5) for _ in shape]
    if mode == "linear":
        scales[:2] = [1.0, 1.0]
    dtype = g.dtype(0, FLOATS if mode == "linear" else None)
    names, attributes = [g.data(dtype, shape, "mild" if mode == "linear" else "any")], {"mode": mode}
    if g.has("scales"):
        g.emit(names, scales=scales, **attributes)
    else:
        g.emit([*names, g.fixed(np.array(scales, "float32"))], **attributes)
    return EXACT if mode == "nearest" else Tolerance("close", 32)


@generator("Resize")
def resize(g: Graph) -> Tolerance:
    mode = g.draw.of("nearest", "linear", "cubic") if g.opset >= 11 else g.draw.of("nearest", "linear")
    shape, dims = _resized(g, mode)
    dtype = g.dtype(0, FLOATS if mode != "nearest" else None)
    attributes = _attributes(g, mode) if g.opset >= 11 else {}
    # The reference multiplies neighbours that are not taken by 0; where ONNX Runtime errs, there is no other oracle.
    single = attributes.get("coordinate_transformation_mode") in ("align_corners", "tf_crop_and_resize")
    data = g.data(dtype, shape, "mild" if mode != "nearest" or single else "any")
    scales = [1.0 if i not in dims else g.draw.of(*_SCALES) for i in range(len(shape))]
    if g.opset >= 11 and attributes.get("coordinate_transformation_mode", "half_pixel") in FRACTIONAL:
        if g.draw.chance(3):
            scales = [g.draw.between(1, 2 * n + 1) / n if i in dims else 1.0 for i, n in enumerate(shape)]
    tolerance = EXACT if mode == "nearest" else Tolerance("close", 64)
    if dtype == "float64" and mode != "nearest":
        tolerance = Tolerance("rough", 2e-6)  # the reference's weights are float32
    if g.opset < 11:
        g.emit([data, g.fixed(np.array(scales, "float32"))], mode=mode)
        return tolerance
    axes = list(range(len(shape)))
    if g.has("axes") and g.draw.chance(3):
        axes = attributes["axes"] = [d - (len(shape) if g.draw.chance(4) else 0) for d in dims]
    crop = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    region = [g.draw.of(0.0, 0.25) for _ in axes] + [g.draw.of(1.0, 0.75, 1.25) for _ in axes]
    roi = g.fixed(np.array(region, "float32")) if crop else ""
    if roi and not attributes.get("axes"):
        region = [v if i % len(shape) in dims else float(i >= len(shape)) for i, v in enumerate(region)]
        g.constants[roi] = np.array(region, "float32")
    if g.opset < 13:  # neither region nor scales may be left out
        roi = roi or g.fixed(np.zeros(0, "float32"))
    chosen = [scales[a] for a in axes]
    if g.draw.of(True, False):
        if roi:  # the specification multiplies extents by the region's, ONNX's own inference and ONNX Runtime do not
            half = len(g.constants[roi]) // 2
            g.constants[roi][half:] = g.constants[roi][:half] + 1
        if any(np.float32(shape[a]) * np.float32(s) < 1 for a, s in zip(axes, chosen, strict=True)):
            raise Discard
        g.emit([data, roi, g.fixed(np.array(chosen, "float32"))], mode=mode, **attributes)
        return tolerance
    if g.has("keep_aspect_ratio_policy") and g.draw.chance(3):
        attributes["keep_aspect_ratio_policy"] = g.draw.of("stretch", "not_larger", "not_smaller")
    sizes = [max(math.floor(shape[a] * s), 1) for a, s in zip(axes, chosen, strict=True)]
    empty = g.fixed(np.zeros(0, "float32")) if g.opset < 13 else ""
    g.emit([data, roi, empty, g.ints(*sizes)], mode=mode, **attributes)
    return tolerance


def _resized(g: Graph, mode: str) -> tuple[tuple[int, ...], list[int]]:
    """A shape and its axes that are resized: spatial ones, or for nearest neighbours any."""
    extents = (2, 1, 3, 5, 7)
    if mode == "nearest" and g.draw.chance(3):
        shape = g.draw.shape(1, 5, extents=extents)
        return shape, list(range(len(shape)))
    rank = 4 if mode == "cubic" else g.draw.of(4, 3, 5)
    shape = g.draw.shape(rank, rank, extents=extents)
    return shape, list(range(2, rank))


def _attributes(g: Graph, mode: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    coordinates = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"]
    if g.opset >= 19:
        coordinates.append("half_pixel_symmetric")
    if g.draw.of(False, True):
        found["coordinate_transformation_mode"] = g.draw.of(*coordinates)
    if mode == "nearest" and g.draw.of(False, True):
        found["nearest_mode"] = g.draw.of("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic" and g.draw.of(False, True):
        found["cubic_coeff_a"] = g.draw.of(-0.75, -0.5)
    if mode != "nearest" and g.draw.chance(4):
        found["exclude_outside"] = 1
    if mode != "nearest" and g.has("antialias") and g.draw.chance(3):
        found["antialias"] = g.draw.of(1, 0)
    if found.get("coordinate_transformation_mode") == "tf_crop_and_resize" and g.draw.of(False, True):
        found["extrapolation_value"] = g.draw.of(0.0, 10.0)
    return found


@generator("GridSample")
def grid_sample(g: Graph) -> Tolerance:
    dtype = "float32"  # as which the reference evaluator counts coordinates
    rank = g.draw.of(2, 3) if g.opset >= 20 else 2
    old, new = ("bilinear", "nearest", "bicubic"), ("linear", "nearest", "cubic")
    mode = g.draw.of(*(new if g.opset >= 20 else old)) if rank == 2 else g.draw.of("linear", "nearest")
    image = [g.draw.of(1, 2), g.draw.of(1, 3), *(g.draw.of(1, 2, 3, 5, 8) for _ in range(rank))]
    points = np.random.default_rng(g.draw.below(1 << 16)).random(
        (image[0], *(g.draw.of(1, 3, 6) for _ in range(rank)), rank)
    )
    spread = g.draw.of(1, 2, 4)
    grid = g.input(((points * 2 - 1) * spread * 0.9991).astype(dtype))
    padding = g.draw.of("zeros", "reflection", *(["border"] if mode != "bicubic" else []))  # see known.py
    g.emit([g.data(dtype, image, "mild"), grid], mode=mode, padding_mode=padding, align_corners=g.draw.of(0, 1))
    return Tolerance("close", 2000)


@generator("AffineGrid")
def affine_grid(g: Graph) -> Tolerance:
    """A matrix for each image; extents of 1 have no outer pixels to align with, for which the oracles have no number.

    The reference evaluator has no value either for a single 2-D image, whose batch its definition drops.
    """
    rank, aligned = g.draw.of(2, 3), g.draw.of(0, 1)
    batch = g.draw.of(2, 3) if rank == 2 else g.draw.of(1, 2)
    extents = [g.draw.of(2, 3, 7) if aligned else g.draw.of(1, 2, 5) for _ in range(rank)]
    theta = g.data("float32", [batch, rank, rank + 1], "mild")
    g.emit([theta, g.fixed(np.array([batch, 3, *extents]))], align_corners=aligned)
    return Tolerance("close", 64)
