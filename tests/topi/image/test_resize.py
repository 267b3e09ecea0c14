"""Resizing against PyTorch and ONNX's reference."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from onnx.reference.ops.op_resize import _cubic_coeffs, _interpolate_nd, _linear_coeffs, _nearest_coeffs
from tests.topi.harness import close, evaluate, random

import tilewright as tvm
from tilewright import te, topi
from tilewright.topi import InvalidShapeError

T = torch.tensor
SIZES = [(9, 13), (3, 4), (5, 6), (1, 1)]


@pytest.mark.parametrize("size", SIZES)
def test_nearest(size: tuple) -> None:
    x = random(1, 2, 5, 6)
    found = evaluate(lambda a: topi.image.resize2d(a, size, "NCHW", "nearest_neighbor", "asymmetric"), x)
    close(found, F.interpolate(T(x), size, mode="nearest").numpy())


@pytest.mark.parametrize(
    ("extent", "target"), [(1, 1), (1, 7), (7, 1), (5, 5), (7, 14), (17, 51), (20, 80), (13, 29), (31, 17), (64, 96)]
)
def test_nearest_of_ratios_that_whole_numbers_give_and_others(extent: int, target: int) -> None:
    x = random(1, 3, 5, extent)
    for mode, transform, rounding in (
        ("nearest", "asymmetric", "floor"), ("nearest-exact", "half_pixel", "round_prefer_ceil")
    ):  # fmt: skip
        found = evaluate(lambda a, t=transform, r=rounding: topi.image.resize2d(
            a, (7, target), "NCHW", "nearest_neighbor", t, r), x)  # fmt: skip
        close(found, F.interpolate(T(x), (7, target), mode=mode).numpy(), rtol=0)


def test_an_index_by_whole_numbers_divides_once() -> None:
    def lowered(size: int) -> str:
        data = te.placeholder((1, 1, 56, 56), name="data")
        out = topi.image.resize2d(data, (size, size), "NCHW", "nearest_neighbor", "half_pixel", "round_prefer_floor")
        return str(tvm.lower(te.create_schedule(out.op), [data, out]))

    assert "floordiv" in lowered(112)
    assert "cast(" not in lowered(112)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize(("method", "mode"), [("linear", "bilinear"), ("cubic", "bicubic")])
def test_interpolation(method: str, mode: str, corners: bool, size: tuple) -> None:
    x = random(1, 2, 5, 6)
    transform = "align_corners" if corners else "half_pixel"
    found = evaluate(lambda a: topi.image.resize2d(a, size, "NCHW", method, transform, bicubic_alpha=-0.75), x)
    close(found, F.interpolate(T(x), size, mode=mode, align_corners=corners).numpy(), rtol=1e-4)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("transform", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
def test_rounding_of_the_nearest_neighbour_as_in_onnx(transform: str, rounding: str) -> None:
    x = random(5, 6)
    scales = (8 / 5, 3 / 6)
    expected = _interpolate_nd(
        x, lambda r, s: _nearest_coeffs(r, mode=rounding), scale_factors=scales,
        coordinate_transformation_mode=transform, roi=None,
    )  # fmt: skip
    found = evaluate(
        lambda a: topi.image.resize2d(a, (8, 3), "NCHW", "nearest_neighbor", transform, rounding), x[None, None]
    )
    close(found[0, 0], expected)


@pytest.mark.parametrize("exclude", [0, 1])
def test_cubic_without_what_lies_outside(exclude: int) -> None:
    x = random(5, 6)
    expected = _interpolate_nd(
        x, lambda r, s: _cubic_coeffs(r, s, A=-0.5), scale_factors=(8 / 5, 9 / 6),
        coordinate_transformation_mode="half_pixel", exclude_outside=bool(exclude), roi=None,
    )  # fmt: skip
    found = evaluate(lambda a: topi.image.resize2d(a, (8, 9), "NCHW", "cubic", bicubic_exclude=exclude), x[None, None])
    close(found[0, 0], expected, rtol=1e-4)


def test_crop_and_resize() -> None:
    x, roi = random(7, 8), (0.25, 0.5, 0.75, 1.25)
    expected = _interpolate_nd(
        x, lambda r, s: _linear_coeffs(r, s), output_size=(4, 5), roi=np.array(roi),
        coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=9.0,
    )  # fmt: skip
    found = evaluate(
        lambda a: topi.image.resize2d(
            a, (4, 5), "NCHW", "linear", "tf_crop_and_resize", roi=roi, extrapolation_value=9.0
        ),
        x[None, None],
    )
    close(found[0, 0], expected, rtol=1e-4)


def test_other_ranks_and_layouts() -> None:
    x = random(1, 2, 7)
    close(evaluate(lambda a: topi.image.resize1d(a, 11, "NCW"), x), F.interpolate(T(x), 11, mode="linear").numpy())
    x = random(1, 2, 3, 4, 5)
    found = evaluate(lambda a: topi.image.resize3d(a, (5, 4, 7), "NCDHW"), x)
    close(found, F.interpolate(T(x), (5, 4, 7), mode="trilinear").numpy(), rtol=1e-4)
    x = random(1, 2, 5, 6)
    found = evaluate(lambda a: topi.image.resize2d(a, (7, 9), "NHWC"), x.transpose(0, 2, 3, 1))
    expected = F.interpolate(T(x), (7, 9), mode="bilinear").numpy()
    close(found, expected.transpose(0, 2, 3, 1), rtol=1e-4)


def test_upsampling() -> None:
    x = random(1, 2, 5, 6)
    close(evaluate(lambda a: topi.nn.upsampling(a, 2, 3), x), x.repeat(2, 2).repeat(3, 3))
    found = evaluate(lambda a: topi.nn.upsampling(a, 2, 2, method="bilinear", align_corners=True), x)
    close(found, F.interpolate(T(x), scale_factor=2, mode="bilinear", align_corners=True).numpy(), rtol=1e-4)
    x = random(1, 1, 2, 3, 4)
    found = evaluate(lambda a: topi.nn.upsampling3d(a, 2, 2, 2, coordinate_transformation_mode="asymmetric"), x)
    close(found, F.interpolate(T(x), scale_factor=2).numpy())


def test_unknown_modes_are_named() -> None:
    with pytest.raises(InvalidShapeError, match="found 'mitchell'"):
        topi.image.resize2d(te.placeholder((1, 1, 4, 4)), (8, 8), "NCHW", "mitchell")
