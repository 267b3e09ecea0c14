"""Loops of element-wise computes: what they read and write in order is read and written in whole vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.topi.harness import compiled

import tilewright as tvm
from tilewright import te, topi
from tilewright.tir.expr import Load, Ramp
from tilewright.tir.stmt import For, ForKind, Store
from tilewright.tir.visitor import free_vars, post_order_visit, substitute


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "bool"])
@pytest.mark.parametrize("shape", [(64, 112, 112), (8, 64, 56), (3, 5, 7, 128), (2, 3, 1000)])
def test_vectors_that_cross_the_ends_of_rows(shape: tuple[int, ...], dtype: str) -> None:
    with tvm.target.Target("llvm -mcpu=skylake-avx512"):
        x = te.placeholder(shape, name="x")
        y = topi.greater(x, x * 2.0) if dtype == "bool" else topi.cast(x, dtype)
        func = tvm.lower(topi.cpu.schedule_injective([y]), [x, y])["main"]
    indices = []
    post_order_visit(func.body, lambda node: indices.append(node.index) if isinstance(node, (Load, Store)) else None)
    assert indices and all(isinstance(index, Ramp) for index in indices)


@pytest.mark.parametrize("shape", [(3, 7, 11), (5, 16, 56), (2, 3, 112, 112), (1, 1, 1), (0, 5)])
def test_narrow_results(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).uniform(-100, 100, shape).astype("float32")
    np.testing.assert_array_equal(compiled(lambda a: topi.cast(a, "int8"), x), x.astype("int8"))
    np.testing.assert_array_equal(compiled(lambda a: topi.greater(a, topi.negative(a)), x), x > -x)


_NCHWC = [
    (1, 4, 56, 56, 16),
    (2, 3, 7, 7, 16),
    (1, 2, 13, 17, 24),
    (1, 2, 64, 48, 9),
    (1, 8, 28, 28, 12),
    (3, 1, 31, 37, 8),
    (1, 1, 1, 257, 36),
    (1, 16, 5, 11, 1),
    (1, 5, 19, 1, 48),
]


def _unpacked(x: np.ndarray) -> np.ndarray:
    n, c, h, w, block = x.shape
    return x.transpose(0, 1, 4, 2, 3).reshape(n, c * block, h, w)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
@pytest.mark.parametrize("shape", _NCHWC)
def test_layouts(shape: tuple[int, ...], dtype: str) -> None:
    packed = np.random.default_rng(0).uniform(-100, 100, shape).astype(dtype)
    plain, layout = _unpacked(packed), f"NCHW{shape[-1]}c"
    np.testing.assert_array_equal(compiled(lambda a: topi.layout_transform(a, layout, "NCHW"), packed), plain)
    np.testing.assert_array_equal(compiled(lambda a: topi.layout_transform(a, "NCHW", layout), plain), packed)

    def flat(a: te.Tensor) -> te.Tensor:
        return topi.reshape(topi.nn.relu(topi.layout_transform(a, layout, "NCHW")), (1, plain.size))

    np.testing.assert_array_equal(compiled(flat, packed), np.maximum(plain, 0).reshape(1, -1))


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=nehalem"])
@pytest.mark.parametrize("blocks", [(24, 16), (16, 24), (12, 16), (16, 12), (9, 6), (10, 15), (8, 32), (32, 8), (7, 5)])
def test_layouts_with_other_blocks(blocks: tuple[int, int], target: str) -> None:
    before, after = blocks
    packed = np.random.default_rng(0).uniform(-1, 1, (2, 2 * after, 7, 11, before)).astype("float32")

    def moved(a: te.Tensor) -> te.Tensor:
        return topi.nn.relu(topi.layout_transform(a, f"NCHW{before}c", f"NCHW{after}c"))

    found = compiled(moved, packed, target=target)
    np.testing.assert_array_equal(_unpacked(found), np.maximum(_unpacked(packed), 0))


@pytest.mark.covering(1)
@pytest.mark.parametrize(("channels", "block"), [(96, 16), (192, 24), (48, 8), (120, 12), (24, 1)])
@pytest.mark.parametrize("groups", [2, 3, 4, 8])
def test_channel_shuffles(channels: int, block: int, groups: int) -> None:
    height, width = 9, 14
    packed = np.random.default_rng(0).uniform(-1, 1, (1, channels // block, height, width, block)).astype("float32")

    def shuffled(a: te.Tensor) -> te.Tensor:
        plain = topi.layout_transform(a, f"NCHW{block}c", "NCHW")
        apart = topi.reshape(plain, (1, groups, channels // groups, height, width))
        return topi.reshape(topi.transpose(apart, (0, 2, 1, 3, 4)), (1, channels, height, width))

    apart = _unpacked(packed).reshape(1, groups, channels // groups, height, width)
    np.testing.assert_array_equal(
        compiled(shuffled, packed), apart.transpose(0, 2, 1, 3, 4).reshape(1, channels, height, width)
    )


@pytest.mark.parametrize("shape", [(1, 1, 5120), (4, 7, 11, 23), (1, 320, 14, 14), (5, 1, 1021), (0, 3, 7)])
def test_what_follows_a_reshape_reads_in_order(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    flat, scale = (x.size,), np.full((1,), 1.5, "float32")
    expected = x.reshape(flat) * scale + x.reshape(flat)

    def scaled(a: te.Tensor, s: te.Tensor) -> te.Tensor:
        return topi.add(topi.multiply(topi.reshape(a, flat), s), topi.reshape(a, flat))

    def scaled_back(a: te.Tensor, s: te.Tensor) -> te.Tensor:
        return topi.add(topi.reshape(topi.multiply(a, s), shape), topi.reshape(a, shape))

    np.testing.assert_allclose(compiled(scaled, x, scale), expected, rtol=1e-6)
    np.testing.assert_allclose(compiled(scaled_back, x.reshape(flat), scale), expected.reshape(shape), rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1, 64, 56, 48), (0, 2, 3, 1)),
        ((1, 41, 43, 37), (0, 3, 1, 2)),
        ((1, 197, 768), (0, 2, 1)),
        ((3, 67, 131), (2, 0, 1)),
        ((2, 13, 7, 37), (0, 2, 1, 3)),
        ((1, 1, 8191), (2, 1, 0)),
        ((16, 3, 97), (2, 1, 0)),
        ((3, 0, 5), (2, 1, 0)),
    ],
)
def test_permutations(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    np.testing.assert_array_equal(compiled(lambda a: topi.transpose(a, axes), x), x.transpose(axes))


@pytest.mark.parametrize("shape", [(1, 64, 40, 40), (2, 17, 19, 23)])
def test_transpositions_with_a_border(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")

    def padded(a: te.Tensor) -> te.Tensor:
        return topi.nn.pad(topi.transpose(a, (0, 2, 3, 1)), (0, 1, 2, 0), (0, 2, 1, 0))

    np.testing.assert_array_equal(
        compiled(padded, x), np.pad(x.transpose(0, 2, 3, 1), ((0, 0), (1, 2), (2, 1), (0, 0)))
    )


@pytest.mark.parametrize("channels", [20, 36, 50])
def test_layouts_whose_last_block_is_not_full(channels: int) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (1, channels, 13, 17)).astype("float32")
    blocks = -(-channels // 16)
    expected = np.pad(x, ((0, 0), (0, 16 * blocks - channels), (0, 0), (0, 0)))
    found = compiled(lambda a: topi.layout_transform(a, "NCHW", "NCHW16c"), x)
    np.testing.assert_array_equal(_unpacked(found), expected)


def test_concatenations_of_transposed_parts() -> None:
    x, y = (np.random.default_rng(k).uniform(-1, 1, (1, 40, 23, c)).astype("float32") for k, c in enumerate((24, 31)))

    def joined(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return topi.concatenate([topi.transpose(t, (0, 3, 1, 2)) for t in (a, b)], axis=1)

    np.testing.assert_array_equal(compiled(joined, x, y), np.concatenate([x, y], 3).transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("block", "groups", "packed_by"), [(16, 8, 12), (24, 8, 24), (16, 3, 16), (24, 3, 24), (48, 2, 8)]
)
@pytest.mark.parametrize("shape", [(7, 7), (13, 16), (1, 61)])
def test_channel_shuffles_between_packed_layouts(
    block: int, groups: int, packed_by: int, shape: tuple[int, int]
) -> None:
    channels = 240 if 240 % block == 0 else 192
    packed = np.random.default_rng(0).uniform(-1, 1, (2, channels // block, *shape, block)).astype("float32")

    def shuffled(a: te.Tensor) -> te.Tensor:
        plain = topi.layout_transform(a, f"NCHW{block}c", "NCHW")
        apart = topi.transpose(topi.reshape(plain, (2, groups, channels // groups, *shape)), (0, 2, 1, 3, 4))
        return topi.layout_transform(topi.reshape(apart, (2, channels, *shape)), "NCHW", f"NCHW{packed_by}c")

    apart = _unpacked(packed).reshape(2, groups, channels // groups, *shape).transpose(0, 2, 1, 3, 4)
    np.testing.assert_array_equal(_unpacked(compiled(shuffled, packed)), apart.reshape(2, channels, *shape))


@pytest.mark.parametrize("shape", [(1, 1, 32, 24, 36), (2, 4, 9, 7, 16), (1, 3, 1, 37, 8)])
def test_resized_packed_images_turn(shape: tuple[int, ...]) -> None:
    packed, size = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32"), [2 * e for e in shape[2:4]]
    layout = f"NCHW{shape[-1]}c"

    def resized(a: te.Tensor) -> te.Tensor:
        return topi.layout_transform(topi.image.resize2d(a, size, layout), layout, "NCHW")

    expected = compiled(lambda a: topi.image.resize2d(a, size, "NCHW"), _unpacked(packed))
    np.testing.assert_allclose(compiled(resized, packed), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("block", "channels"), [(16, 18), (16, 33), (24, 25), (8, 12)])
def test_slices_of_packed_channels(block: int, channels: int) -> None:
    packed = np.random.default_rng(0).uniform(-1, 1, (1, -(-channels // block), 31, 17, block)).astype("float32")
    more = np.random.default_rng(1).uniform(-1, 1, (1, channels, 31, 17)).astype("float32")

    def sliced(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        plain = topi.layout_transform(a, f"NCHW{block}c", "NCHW")
        return topi.add(topi.strided_slice(plain, (0, 0, 0, 0), (1, channels, 31, 17)), b)

    np.testing.assert_allclose(compiled(sliced, packed, more), _unpacked(packed)[:, :channels] + more, rtol=1e-6)


@pytest.mark.parametrize("method", ["linear", "nearest_neighbor", "cubic"])
@pytest.mark.parametrize("shape", [(2, 4, 9, 7, 16), (1, 5, 13, 11, 16), (1, 6, 8, 8, 8), (1, 1, 11, 9, 36)])
def test_resized_packed_images(shape: tuple[int, ...], method: str) -> None:
    packed, size = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32"), [3 * shape[2], 2 * shape[3] + 1]

    def resized(a: te.Tensor, layout: str) -> te.Tensor:
        return topi.nn.relu(topi.image.resize2d(a, size, layout, method))

    expected = compiled(lambda a: resized(a, "NCHW"), _unpacked(packed))
    found = _unpacked(compiled(lambda a: resized(a, f"NCHW{shape[-1]}c"), packed))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_repeated_elements_are_whole_vectors() -> None:
    """Nearest neighbours, twice as many: not two elements at a time."""
    data = te.placeholder((1, 64, 56, 56), name="data")
    with tvm.target.Target("llvm -mcpu=skylake-avx512 -num-cores=2"):
        out = topi.image.resize2d(data, (112, 112), "NCHW", "nearest_neighbor", "asymmetric", "floor")
        text = str(tvm.lower(topi.cpu.schedule_injective(out), [data, out])["main"])
    assert ", 1, 16)] = " in text and ", 1, 2)] = " not in text


def test_threads_take_whole_blocks_of_channels() -> None:
    """Halves of every channel's row took twice as long on two cores that share no cache as on one."""
    data = te.placeholder((1, 48, 28, 28, 16), name="data")
    with tvm.target.Target("llvm -mcpu=skylake-avx512 -num-cores=2"):
        out = topi.layout_transform(data, "NCHW16c", "NCHW")
        func = tvm.lower(topi.cpu.schedule_injective(out), [data, out])["main"]
    loops: list[Any] = []
    post_order_visit(func.body, lambda s: loops.append(s) if isinstance(s, For) else None)
    parallel = next(loop for loop in loops if loop.kind == ForKind.PARALLEL)
    stored: list[Any] = []
    post_order_visit(parallel, lambda s: stored.append(s) if isinstance(s, Store) else None)
    index = stored[0].index.base
    inner = {v: 0 for v in free_vars(index) if v is not parallel.loop_var}
    halves = [substitute(index, inner | {parallel.loop_var: i}) for i in (0, parallel.extent.value // 2)]
    assert [int(tvm.arith.Analyzer().simplify(half)) for half in halves] == [0, 48 * 28 * 28 * 16 // 2]
