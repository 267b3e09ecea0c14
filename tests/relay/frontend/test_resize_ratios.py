"""Resize by fractions, whose float32 decides sizes and neighbours, beside ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from tests.relay.frontend.dynamic_models import machine_of, model_of, outputs_of
from tests.relay.frontend.node_cases import Cases

from tilewright.relay.frontend.onnx.resampling import Axis, nearest_indices, scaled_size

RATIOS = [(n, t) for n in range(1, 40) for t in range(1, 40)]
NEAREST = [
    ("half_pixel", "round_prefer_floor"), ("half_pixel", "ceil"), ("pytorch_half_pixel", "round_prefer_ceil"),
    ("asymmetric", "floor"), ("asymmetric", "round_prefer_ceil"),
]  # fmt: skip


def nearest(coordinates: str, rounding: str) -> str:
    attributes = f'mode="nearest", coordinate_transformation_mode="{coordinates}", nearest_mode="{rounding}"'
    return f"(float[n] x, float[1] s) => (float[p] y) {{ y = Resize<{attributes}>(x, , s) }}"


@pytest.mark.parametrize(("coordinates", "rounding"), NEAREST)
def test_every_ratio_copies_the_elements_that_onnx_runtime_copies(coordinates: str, rounding: str) -> None:
    session = onnxruntime.InferenceSession(model_of(nearest(coordinates, rounding)).SerializeToString())
    for extent, target in RATIOS:
        scale = np.float32(target / extent)
        x = np.arange(extent, dtype="float32")
        (expected,) = session.run(None, {"x": x, "s": np.array([scale])})
        size = scaled_size(extent, float(scale))
        assert expected.shape == (size,), (extent, target)
        found = nearest_indices(Axis(extent, size, float(scale)), coordinates, rounding)
        assert size == extent or expected.tolist() == found, (extent, target)


@pytest.mark.parametrize(("coordinates", "rounding"), NEAREST[::2])
def test_ratios_over_named_dimensions(coordinates: str, rounding: str) -> None:
    model = model_of(nearest(coordinates, rounding))
    session, machine = onnxruntime.InferenceSession(model.SerializeToString()), machine_of(model)
    for extent, target in RATIOS[::11]:
        feeds = {"x": np.arange(extent, dtype="float32"), "s": np.array([target / extent], "float32")}
        (expected,), (found,) = session.run(None, feeds), outputs_of(machine, feeds)
        assert len(expected) == extent or np.array_equal(found, expected), (extent, target)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_ratios_of_pictures_of_known_size(mode: str) -> None:
    cases = Cases()
    for extent, target in ((6, 5), (24, 7), (30, 17), (9, 3), (14, 19), (3, 9), (29, 30)):
        x = np.random.default_rng(extent).random((1, 1, 2, extent), "float32")
        scales = np.array([1, 1, 1, target / extent], "float32")
        for coordinates in ("half_pixel", "asymmetric"):
            place = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
            cases.add("Resize", [x, None, scales], weights=(2,), **place)
    cases.check(cases.compiled(), cases.in_onnxruntime(), rtol=1e-4)


def test_a_picture_upsampled_by_a_whole_factor_is_relays() -> None:
    cases = Cases()
    scales = np.array([1, 1, 2, 3], "float32")
    place = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    cases.add("Resize", [np.ones((1, 2, 3, 5), "float32"), None, scales], weights=(2,), mode="nearest", **place)
    assert "image.resize2d" in str(cases.imported()[0])


@pytest.mark.parametrize(("coordinates", "rounding"), [*NEAREST, ("align_corners", "floor")])
@pytest.mark.parametrize("factors", [(2, 2), (1, 3), (4, 1)])
def test_a_picture_of_named_extents_upsampled_by_whole_factors(
    coordinates: str, rounding: str, factors: tuple[int, int]
) -> None:
    attributes = f'mode="nearest", coordinate_transformation_mode="{coordinates}", nearest_mode="{rounding}"'
    scales = f"s = Constant<value = float[4] {{1.0, 1.0, {factors[0]}.0, {factors[1]}.0}}>()"
    model = model_of(f"(float[1,2,h,w] x) => (float[1,2,p,q] y) {{ {scales} y = Resize<{attributes}>(x, , s) }}")
    session, machine = onnxruntime.InferenceSession(model.SerializeToString()), machine_of(model)
    for shape in [(1, 1), (3, 5), (8, 2)]:
        x = np.random.default_rng(3).random((1, 2, *shape), "float32")
        np.testing.assert_array_equal(outputs_of(machine, {"x": x})[0], session.run(None, {"x": x})[0])
