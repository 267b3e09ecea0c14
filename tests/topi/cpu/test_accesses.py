"""What is stored before it is read: views whose elements a compute would fetch from far apart, or many times."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.topi.harness import compiled, random

import tilewright as tvm
from tilewright import te, topi
from tilewright.topi.cpu.accesses import Reads, worth_storing

Compute = Callable[[te.Tensor], te.Tensor]

PROCESSOR = "llvm -mcpu=skylake-avx512"  # whose record has no sizes of caches: 512 KiB of the second level
LARGE, SMALL = (1, 56, 56, 256), (1, 14, 14, 64)


def turned(rows: te.Tensor, shape: tuple[int, ...]) -> te.Tensor:
    """Rows of channels (n, h * w, c) as an image (n, c, h, w), by way of a reshape on both sides."""
    n, h, w, c = shape
    image = topi.transpose(topi.reshape(rows, shape), (0, 3, 1, 2))
    return topi.reshape(image, (n, c, h, w))


def stored(compute: Compute, shape: tuple[int, ...], target: str = PROCESSOR) -> list[str]:
    """The names of what is stored before ``compute`` of a turned view."""
    n, h, w, c = shape
    with tvm.target.Target(target):
        rows = te.placeholder((n, h * w, c), name="rows")
        return [op.name for op in worth_storing(compute(turned(rows, shape)).op)]


def views(compute: Compute, shape: tuple[int, ...], target: str = PROCESSOR) -> list[str]:
    """Of what is stored, the views."""
    return [name for name in stored(compute, shape, target) if name.startswith("T_")]


def resized(method: str, factor: float) -> Compute:
    def compute(image: te.Tensor) -> te.Tensor:
        size = [int(int(extent) * factor) for extent in image.shape[2:]]
        return topi.image.resize2d(image, size, "NCHW", method)

    return compute


def picked(axis: int, share: float) -> Compute:
    def compute(image: te.Tensor) -> te.Tensor:
        extent = int(image.shape[axis])
        order = topi.cast(topi.multiply(topi.arange(0, int(extent * share), dtype="int32"), 7), "int32")
        return topi.take(image, topi.floor_mod(order, extent), axis=axis, mode="fast")

    return compute


FAR_OR_OFTEN: dict[str, Compute] = {
    "bilinear, the same size": resized("linear", 1),
    "bilinear, twice": resized("linear", 2),
    "nearest, three halves": resized("nearest_neighbor", 1.5),
    "cubic, half": resized("cubic", 0.5),
    "repeated along rows": lambda image: topi.repeat(image, 2, axis=3),
    "channels picked": picked(1, 2),
    "columns picked": picked(3, 2),
    "tiled": lambda image: topi.tile(image, (1, 1, 2, 2)),
    "depth to space": lambda image: topi.nn.depth_to_space(image, 2),
}

ONCE_AND_IN_SQUARES: dict[str, Compute] = {
    "the view alone": topi.identity,
    "function": topi.exp,
    "several functions": lambda image: topi.multiply(image, topi.tanh(topi.log(topi.add(topi.exp(image), 1.0)))),
    "sum of two views": lambda image: topi.add(image, topi.transpose(image, (0, 1, 3, 2))),
    "every other row": lambda image: topi.strided_slice(image, [0, 0, 0, 0], [1, 256, 56, 56], [1, 1, 2, 1]),
    "an eighth of the channels": picked(1, 0.125),
    "nearest, half": resized("nearest_neighbor", 0.5),
    "backwards": lambda image: topi.flip(image, 3),
    "twice over": lambda image: topi.broadcast_to(image, (2, *image.shape[1:])),
}


def test_a_scalar_that_is_read_too_changes_nothing() -> None:
    def compute(image: te.Tensor) -> te.Tensor:
        one = te.placeholder((1,), name="one")
        return topi.multiply(resized("linear", 1)(image), topi.reshape(one, ()))

    assert stored(compute, LARGE) == stored(resized("linear", 1), LARGE)


@pytest.mark.parametrize("name", FAR_OR_OFTEN)
def test_a_view_is_stored_where_its_elements_are_read_from_far_apart(name: str) -> None:
    assert views(FAR_OR_OFTEN[name], LARGE) in (["T_transpose"], ["T_reshape"])


def test_images_are_interpolated_along_their_rows_first_where_that_takes_less() -> None:
    def rows_first(before: tuple[int, ...], after: tuple[int, ...], method: str) -> bool:
        with tvm.target.Target(PROCESSOR):
            image = te.placeholder(before, name="image")
            return bool(worth_storing(topi.image.resize2d(image, after, "NCHW", method).op))

    assert rows_first((1, 32, 64, 64), (128, 128), "linear")
    assert rows_first((1, 32, 64, 64), (64, 64), "cubic")
    assert not rows_first((1, 3, 480, 640), (112, 112), "linear")  # most rows are in no window
    assert not rows_first((1, 32, 64, 64), (128, 128), "nearest_neighbor")


def test_what_was_transposed_is_interpolated_while_its_channels_are_neighbours() -> None:
    with tvm.target.Target(PROCESSOR):
        image = te.placeholder((1, 64, 64, 32), name="image")
        out = topi.image.resize2d(topi.transpose(image, (0, 3, 1, 2)), (128, 128))
        turned, along_rows = worth_storing(out.op)
    assert [int(extent) for extent in turned.output(0).shape] == [1, 32, 64, 128]
    assert [int(extent) for extent in along_rows.output(0).shape] == [1, 64, 128, 32]


@pytest.mark.parametrize("name", ONCE_AND_IN_SQUARES)
def test_a_view_is_no_tensor_where_squares_are_turned_or_little_is_read(name: str) -> None:
    assert stored(ONCE_AND_IN_SQUARES[name], LARGE) == []


@pytest.mark.parametrize("name", ["bilinear, twice", "columns picked", "depth to space", "tiled"])
def test_what_a_cache_holds_is_read_in_any_order(name: str) -> None:
    assert views(FAR_OR_OFTEN[name], SMALL) == []


def test_the_size_of_the_cache_decides() -> None:
    shape = (1, 40, 40, 96)  # 600 KiB
    assert views(resized("linear", 2), shape, "llvm -mcpu=skylake-avx512") != []
    assert views(resized("linear", 2), shape, "llvm -mcpu=sapphirerapids") == []


def test_both_views_are_stored() -> None:
    def compute(image: te.Tensor) -> te.Tensor:
        other = turned(te.placeholder((1, 56 * 56, 256), name="other"), LARGE)
        return topi.add(resized("linear", 2)(image), resized("linear", 2)(other))

    assert len(views(compute, LARGE)) == 2


def test_the_kernel_has_a_loop_over_the_view_of_its_own() -> None:
    with tvm.target.Target(PROCESSOR):
        rows = te.placeholder((1, 56 * 56, 256), name="rows")
        out = resized("linear", 2)(turned(rows, LARGE))
        text = str(tvm.lower(topi.cpu.schedule_injective(out), [rows, out])["main"])
    assert text.count("parallel") == 2
    assert f"allocate(T_reshape: Pointer(global float32), float32, [{56 * 56 * 256}])" in text


def test_reads_are_told_in_the_axes_of_what_reads() -> None:
    rows = te.placeholder((1, 12, 8), name="rows")
    out = topi.repeat(turned(rows, (1, 3, 4, 8)), 2, axis=3)
    reads = Reads.of(out.op)
    assert [tensor.op.name for tensor, _ in reads.reads] == ["rows"]
    assert [op.name for op in reads.inlined] == ["T_reshape", "T_transpose", "T_reshape"]
    kept = Reads.of(out.op, [reads.inlined[1]])
    assert [tensor.op.name for tensor, _ in kept.reads] == ["T_transpose"]


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 5, 7), (1, 37, 141, 33), (0, 4, 4, 8), (1, 72, 72, 67)])
def test_of_odd_shapes(shape: tuple[int, ...]) -> None:
    n, h, w, c = shape
    rows = random(n, h * w, c)
    image = rows.reshape(shape).transpose(0, 3, 1, 2)
    expected = {
        "repeated along rows": image.repeat(2, axis=3),
        "columns picked": image[..., np.arange(2 * w) * 7 % w],
        "channels picked": image[:, np.arange(2 * c) * 7 % c],
        "tiled": np.tile(image, (1, 1, 2, 2)),
        "every pixel four times": image.repeat(2, axis=2).repeat(2, axis=3),
    }
    computes = {**FAR_OR_OFTEN, "every pixel four times": lambda x: topi.nn.upsampling(x, 2, 2)}

    for name, wanted in expected.items():
        compute = computes[name]
        found = compiled(lambda x, f=compute: f(turned(x, shape)), rows, target="llvm -mcpu=x86-64-v3")
        np.testing.assert_array_equal(found, wanted, err_msg=name)


@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.parametrize("shape", [(1, 37, 141, 33), (2, 3, 5, 7)])
def test_resized_views(shape: tuple[int, ...], method: str) -> None:
    n, h, w, c = shape
    rows = random(n, h * w, c)
    found = compiled(lambda x: resized(method, 1.5)(turned(x, shape)), rows, target="llvm -mcpu=x86-64-v3")
    image = rows.reshape(shape).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found, interpolated(image, method), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.parametrize("shape", [(1, 64, 67, 32), (2, 41, 37, 33), (9, 40, 40, 3), (1, 1, 1, 1), (0, 4, 4, 8)])
def test_resized_images(shape: tuple[int, ...], method: str) -> None:
    pixels = random(*shape)
    compute = resized(method, 1.5)
    expected = interpolated(pixels.transpose(0, 3, 1, 2), method)

    found = compiled(lambda x: compute(topi.transpose(x, (0, 3, 1, 2))), pixels, target="llvm -mcpu=x86-64-v3")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)
    found = compiled(compute, pixels.transpose(0, 3, 1, 2).copy(), target="llvm -mcpu=x86-64-v3")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


def interpolated(image: np.ndarray, method: str) -> np.ndarray:
    """``image`` resized by 1.5 in both directions, by matrices of weights."""
    for axis in (2, 3):
        extent = image.shape[axis]
        positions = (np.arange(int(extent * 1.5)) + 0.5) * (extent / int(extent * 1.5)) - 0.5
        weights = np.zeros((len(positions), extent))
        for row, position in enumerate(positions):
            for tap, weight in taps(position, method):
                weights[row, min(max(tap, 0), extent - 1)] += weight
        image = np.moveaxis(np.tensordot(weights, image, (1, axis)), 0, axis)
    return image


def taps(position: float, method: str) -> list[tuple[int, float]]:
    """The elements that a position is made of, and their shares."""
    first = int(np.floor(position))
    t = position - first
    if method == "linear":
        return [(first, 1 - t), (first + 1, t)]
    a = -0.5
    shares = [
        ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a,
        ((a + 2) * t - (a + 3)) * t * t + 1,
        ((a + 2) * (1 - t) - (a + 3)) * (1 - t) ** 2 + 1,
        ((a * (2 - t) - 5 * a) * (2 - t) + 8 * a) * (2 - t) - 4 * a,
    ]
    return list(zip(range(first - 1, first + 3), shares, strict=True))


@pytest.mark.parametrize(("more", "expected"), [(1, ["T_cast"]), (0, [])], ids=["a channel added", "borders alone"])
def test_a_quantized_picture_is_stored_before_channels_are_added(more: int, expected: list[str]) -> None:
    with tvm.target.Target("llvm -mcpu=sapphirerapids"):
        picture = te.placeholder((1, 4 - more, 224, 224), name="picture")
        steps = topi.nearbyint(topi.divide(picture, 0.5))
        whole = topi.cast(topi.clip(topi.add(steps, 128.0), 0.0, 255.0), "uint8")
        padded = topi.nn.pad(whole, (0, 0, 3, 3), (0, more, 3, 3), 128)
        packed = topi.layout_transform(padded, "NCHW", "NCHW4c")
        assert [op.name for op in worth_storing(packed.op)] == expected
