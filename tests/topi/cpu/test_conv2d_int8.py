"""Convolutions of bytes in packed channels, to the last bit those of numpy's integers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here
from tests.topi.harness import compiled, pack_channels

import tilewright as tvm
from tilewright import autotvm
from tilewright.ir.errors import TilewrightError
from tilewright.target import Target
from tilewright.topi import nn
from tilewright.topi.cpu import conv2d_NCHWc_int8, schedule_conv2d_NCHWc_int8
from tilewright.topi.cpu.conv2d_int8 import conv2d_byte_layouts, conv2d_byte_product

TARGETS = ("llvm -mcpu=cascadelake", "llvm -mcpu=alderlake")  # vpdpbusd of 16 and of 8 lanes


def expected(data: np.ndarray, weight: np.ndarray, stride: int, pad: int, groups: int = 1) -> np.ndarray:
    """The convolution of (n, c, h, w) with (o, c / groups, kh, kw), in int64."""
    data = np.pad(data.astype(np.int64), [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    windows = np.lib.stride_tricks.sliding_window_view(data, weight.shape[2:], axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride]
    parts = [
        np.einsum("ncyxhw,ochw->noyx", x, w)
        for x, w in zip(np.split(windows, groups, axis=1), np.split(weight.astype(np.int64), groups), strict=True)
    ]
    return np.concatenate(parts, axis=1)


def pack_weights(weight: np.ndarray, in_block: int, out_block: int) -> np.ndarray:
    """(o, c, kh, kw) to (O, C, kh, kw, c / 4, o, 4)."""
    o, c, kh, kw = weight.shape
    split = weight.reshape(o // out_block, out_block, c // in_block, in_block // 4, 4, kh, kw)
    return np.ascontiguousarray(split.transpose(0, 2, 5, 6, 3, 1, 4))


def run(data: np.ndarray, weight: np.ndarray, target: str, stride: int = 1, pad: int = 0, groups: int = 1) -> Any:
    """The packed convolution, its result unpacked."""
    form = conv2d_byte_product(Target(target))
    assert form is not None
    layouts = conv2d_byte_layouts(data.shape[1], weight.shape[0], groups, form)
    assert layouts is not None

    def compute(x: Any, w: Any) -> Any:
        return conv2d_NCHWc_int8(x, w, stride, (pad, pad), 1)

    found = compiled(
        compute,
        pack_channels(data, layouts.in_block),
        pack_weights(weight, layouts.in_block, layouts.out_block),
        schedule=schedule_conv2d_NCHWc_int8,
        target=target,
    )
    n, chunks, h, w, block = found.shape
    return found.transpose(0, 1, 4, 2, 3).reshape(n, chunks * block, h, w)


def drawn(channels: int, out: int, size: int, window: int, images: int = 1, groups: int = 1) -> Any:
    rng = np.random.default_rng(channels + out + size)
    data = rng.integers(0, 256, (images, channels, size, size), dtype=np.uint8)
    return data, rng.integers(-128, 128, (out, channels // groups, window, window), dtype=np.int8)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("shape", "stride", "pad", "groups"),
    [
        ((32, 16, 9, 1), 1, 0, 1),
        ((16, 48, 7, 3), 1, 1, 1),
        ((64, 32, 11, 3), 2, 1, 1),
        ((4, 16, 13, 7), 2, 3, 1),
        ((96, 64, 5, 3), 1, 1, 2),
        ((16, 16, 1, 1), 1, 0, 1),
        ((16, 128, 6, 1), 1, 1, 1),
    ],
)
def test_sums_are_those_of_integers(shape: Any, stride: int, pad: int, groups: int, target: str) -> None:
    if not runs_here(target):
        pytest.skip(f"this machine lacks instructions of {target}")
    data, weight = drawn(*shape, groups=groups)
    np.testing.assert_array_equal(
        run(data, weight, target, stride, pad, groups), expected(data, weight, stride, pad, groups)
    )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("images", [0, 3])
def test_batches(images: int, target: str) -> None:
    if not runs_here(target):
        pytest.skip(f"this machine lacks instructions of {target}")
    data, weight = drawn(16, 16, 5, 3, images)
    np.testing.assert_array_equal(run(data, weight, target, 1, 1), expected(data, weight, 1, 1))


@pytest.mark.parametrize("weights", [-128, 127])
def test_largest_numbers_do_not_saturate(weights: int) -> None:
    if not runs_here(TARGETS[0]):
        pytest.skip("this machine lacks VNNI")
    data = np.full((1, 64, 4, 4), 255, np.uint8)
    weight = np.full((16, 64, 3, 3), weights, np.int8)
    np.testing.assert_array_equal(run(data, weight, TARGETS[0], 1, 1), expected(data, weight, 1, 1))


def test_only_processors_with_products_of_bytes_take_them() -> None:
    takes = {}
    for cpu in ("cascadelake", "alderlake", "skylake-avx512", "haswell", "x86-64"):
        with Target(f"llvm -mcpu={cpu}"):
            takes[cpu] = nn.conv2d_byte_channels(64, 64, 1)
    assert [cpu for cpu, fast in takes.items() if fast] == ["cascadelake", "alderlake"]
    with Target("c"):
        assert nn.conv2d_byte_channels(64, 64, 1) is None


def test_channels_fill_words_and_vectors() -> None:
    with Target(TARGETS[0]):
        assert nn.conv2d_byte_channels(3, 17, 1) == (4, 32)
        assert nn.conv2d_byte_channels(64, 64, 2) == (64, 64)
        assert nn.conv2d_byte_channels(12, 12, 2) is None


def test_layouts_are_whole_vectors() -> None:
    form = conv2d_byte_product(Target(TARGETS[0]))
    assert form is not None
    found = conv2d_byte_layouts(128, 96, 1, form)
    assert found is not None
    assert (found.data_layout, found.kernel_layout, found.out_layout) == ("NCHW64c", "OIHW16i48o4i", "NCHW48c")
    assert conv2d_byte_layouts(128, 17, 1, form) is None
    assert conv2d_byte_layouts(128, 64, 3, form) is None
    narrow = conv2d_byte_layouts(24, 24, 1, replace(form, lanes=8))
    assert narrow is not None and narrow.in_block == 24


def packed_kernel(data: np.ndarray, weight: np.ndarray, target: str) -> np.ndarray:
    return compiled(
        lambda x, w: conv2d_NCHWc_int8(x, w, 1, (1, 1), 1),
        pack_channels(data, 16),
        pack_weights(weight, 16, 16),
        schedule=schedule_conv2d_NCHWc_int8,
        target=target,
    )


def test_other_targets_say_what_they_take() -> None:
    with pytest.raises(TilewrightError, match="packed in groups of 4 for uint8 are of another target"):
        packed_kernel(*drawn(16, 16, 5, 3), "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")


@pytest.mark.parametrize("processor", ["x86-64", "haswell", "skylake-avx512"])
def test_words_of_any_weights_do_not_saturate_without_vnni(processor: str) -> None:
    if not runs_here(f"llvm -mcpu={processor}"):
        pytest.skip("this machine lacks instructions of the processor")
    data, weight = np.full((1, 16, 5, 5), 255, np.uint8), np.full((16, 16, 3, 3), 127, np.int8)
    found = packed_kernel(data, weight, f"llvm -mcpu={processor}")
    np.testing.assert_array_equal(found, pack_channels(expected(data, weight, 1, 1).astype(np.int32), 16))


def test_every_configuration_gives_the_same_sums() -> None:
    if not runs_here(TARGETS[0]):
        pytest.skip("this machine lacks VNNI")
    data, weight = drawn(32, 64, 6, 3)
    packed, weights = pack_channels(data, 32), pack_weights(weight, 32, 64)
    tensors = [("TENSOR", x.shape, str(x.dtype)) for x in (packed, weights)]
    arguments = (*tensors, (1, 1), (1, 1), (1, 1), "NCHW32c", "NCHW64c", "int32")
    task = autotvm.task.create("conv2d_NCHWc_int8.x86", arguments, TARGETS[0])
    wanted = pack_channels(expected(data, weight, 1, 1).astype(np.int32), 64)
    assert len(task.config_space) > 4
    for index in range(0, len(task.config_space), 3):
        with Target(TARGETS[0]):
            s, args = task.instantiate(task.config_space.get(index))
            kernel = tvm.build(s, args, TARGETS[0])
        out = tvm.nd.empty(wanted.shape, "int32")
        kernel(tvm.nd.array(packed), tvm.nd.array(weights), out)
        np.testing.assert_array_equal(out.numpy(), wanted)
