"""Resizing to sizes, and by factors, that the program computes: run against numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.relay.op.test_dyn import F32, I64, Array, ints, module, static

from tilewright import relay, runtime
from tilewright.runtime.vm import VirtualMachine


def image(*shape: int) -> Array:
    """Whole numbers in order."""
    return np.arange(math.prod(shape), dtype=F32).reshape(shape)


def factor(value: float) -> Array:
    """A factor that the program is given."""
    return np.array(value, F32)


def nearest(a: Array, axis: int, to: int) -> Array:
    """The elements that the result's places, scaled and rounded down, fall on."""
    return np.take(a, np.arange(to) * a.shape[axis] // max(to, 1), axis)


def linear(a: Array, axis: int, to: int, transform: str) -> Array:
    """Linear interpolation along one axis."""
    extent, at = a.shape[axis], np.arange(to)
    if not a.size or not to:
        return np.zeros((*a.shape[:axis], to, *a.shape[axis + 1 :]), F32)
    place = {
        "align_corners": at * ((extent - 1) / max(to - 1, 1)),
        "asymmetric": at * (extent / max(to, 1)),
        "half_pixel": (at + 0.5) * (extent / max(to, 1)) - 0.5,
    }[transform]
    return np.apply_along_axis(lambda row: np.interp(place, np.arange(extent), row), axis, a)


def both(how: Callable[..., Array], first: int, *rest: Any) -> Callable[[Array, Array], Array]:
    """Two axes to two sizes."""
    return lambda a, size: how(how(a, first, int(size[0]), *rest), first + 1, int(size[1]), *rest)


def by_factors(how: Callable[..., Array], first: int, *rest: Any) -> Callable[..., Array]:
    """Axes by factors."""

    def reference(a: Array, *factors: Array) -> Array:
        for axis, scale in enumerate(factors, first):
            a = how(a, axis, math.floor(a.shape[axis] * float(scale) + 0.5), *rest)
        return a

    return reference


def resized(method: str, transform: str, rounding: str = "", layout: str = "NCHW") -> Callable[..., Any]:
    """resize2d to a size that the program computes."""
    return lambda a, size: relay.image.resize2d(a, size, layout, method, transform, rounding)


PICTURE = ((None, 2, None, None), F32)
SIZES = [(image(1, 2, h, w), ints(*to)) for h, w, *to in [(3, 4, 6, 8), (5, 1, 2, 7), (4, 7, 1, 1), (2, 3, 0, 5)]]
FACTORS = [(image(2, 2, h, w), factor(a), factor(b)) for h, w, a, b in [(3, 4, 2, 3), (5, 1, 1.5, 1), (5, 0, 0.5, 2)]]
CASES: dict[str, tuple[Callable[..., Any], list[tuple[Any, str]], list[tuple[Array, ...]], Callable[..., Array]]] = {
    "upsampling": (relay.nn.upsampling, [PICTURE, ((), F32), ((), F32)], FACTORS, by_factors(nearest, 2)),
    "upsampling, corners": (
        lambda a, h, w: relay.nn.upsampling(a, h, w, "NCHW", "bilinear", True), [PICTURE, ((), F32), ((), F32)],
        [*FACTORS, (image(1, 2, 3, 4), factor(0.3), factor(0.5))], by_factors(linear, 2, "align_corners"),
    ),
    "upsampling3d": (
        lambda a, *scales: relay.nn.upsampling3d(a, *scales, "NDHWC", "trilinear", "asymmetric"),
        [((1, None, 3, None, 2), F32), *[((), F32)] * 3],
        [(image(1, 2, 3, 5, 2), *map(factor, (2, 1, 2))), (image(1, 4, 3, 1, 2), *map(factor, (1, 2, 4)))],
        by_factors(linear, 1, "asymmetric"),
    ),
    "resize2d": (
        resized("nearest_neighbor", "asymmetric", "floor"), [PICTURE, ((2,), I64)], SIZES, both(nearest, 2),
    ),
    "resize2d, corners": (
        resized("linear", "align_corners"), [PICTURE, ((2,), I64)], SIZES, both(linear, 2, "align_corners"),
    ),
    "resize2d, channels last": (
        resized("linear", "half_pixel", "", "NHWC"), [((1, None, None, 3), F32), ((2,), "int32")],
        [(image(1, 4, 5, 3), ints(8, 2).astype("int32")), (image(1, 2, 3, 3), ints(1, 6).astype("int32"))],
        both(linear, 1, "half_pixel"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_in_the_machine_and_the_interpreter(name: str) -> None:
    build, types, data, reference = CASES[name]
    mod = module(build, types)
    machine = VirtualMachine(relay.vm.compile(mod, "llvm"), runtime.cpu())
    interpreted = relay.create_executor("debug", mod).evaluate()
    for inputs in data:
        expected = reference(*inputs)
        for found in (machine.run(*inputs), interpreted(*inputs)):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("rows", "size"), [(3, (-1, 2)), (3, (-2, -3)), (0, (2, 2))])
def test_sizes_that_no_picture_has_are_refused(rows: int, size: tuple[int, int]) -> None:
    mod = module(resized("linear", "half_pixel"), [PICTURE, ((2,), I64)])
    machine = VirtualMachine(relay.vm.compile(mod, "llvm"), runtime.cpu())
    with pytest.raises(runtime.TVMError, match=r"negative|does not fit"):
        machine.run(image(1, 2, rows, 4), ints(*size))


def test_constants_are_static_factors_and_sizes() -> None:
    two, size = relay.const(2), relay.const(ints(4, 6))
    assert static(lambda a: relay.nn.upsampling(a, two, two), [((1, 2, 3, 4), F32)]) == "nn.upsampling"
    assert static(lambda a: relay.nn.upsampling3d(a, two, two, two), [((1, 2, 3, 4, 5), F32)]) == "nn.upsampling3d"
    assert static(lambda a: relay.image.resize2d(a, size), [((1, 2, 3, 4), F32)]) == "image.resize2d"
