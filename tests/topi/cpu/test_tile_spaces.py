"""Spaces of the templates whose products AMX's tiles compute: blocks, rows and loop orders, all with the same sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here
from tests.topi.cpu.test_byte_windows import convolved

import tilewright as tvm
from tilewright import autotvm
from tilewright.autotvm.task.space import ConfigEntity
from tilewright.runtime.module import Module
from tilewright.target import Target

AMX = "llvm -mcpu=sapphirerapids"
RNG = np.random.default_rng(45)


def in_tiles(task: Any, *names: str) -> Iterator[ConfigEntity]:
    """Yield a configuration for each of the values of these choices that tiles have."""
    seen = set()
    for index in range(len(task.config_space)):
        config = task.config_space.get(index)
        values = tuple(str(config[name].val) for name in names)
        if config["matrix_tiles"].val and values not in seen:
            seen.add(values)
            yield config


def filled(shape: tuple[int, ...], dtype: str) -> tuple[Any, np.ndarray]:
    """Return small whole numbers of a type, whose sums are exact."""
    values = RNG.integers(0, 9, shape)
    array = tvm.nd.empty(shape, dtype)
    array.copyfrom(values.astype("float32" if dtype == "bfloat16" else dtype))
    return array, values


def run(task: Any, config: ConfigEntity, arrays: list[Any], out: Any) -> np.ndarray:
    with Target(AMX):
        s, args = task.instantiate(config)
        kernel: Module = tvm.build(s, args, AMX)
    assert "tdp" in kernel.get_source("asm")
    kernel(*arrays, out)
    result: np.ndarray = out.numpy()
    return result


def convolution(dtype: str, other: str, group: int, sums: str) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    data, kernel = (1, 1, 10, 14, 64), (2, 1, 3, 3, 64 // group, 32, group)
    tensors = [("TENSOR", data, dtype), ("TENSOR", kernel, other)]
    arguments = (*tensors, (1, 1), (0, 0), (1, 1), "NCHW64c", "NCHW32c", sums)
    return autotvm.task.create("conv2d_NCHWc_int8.x86", arguments, AMX), data, kernel


@pytest.mark.parametrize(
    ("dtype", "other", "group", "sums"), [("uint8", "int8", 4, "int32"), ("bfloat16", "bfloat16", 2, "float32")]
)
def test_every_block_of_a_convolution_has_the_same_sums(dtype: str, other: str, group: int, sums: str) -> None:
    task, data, kernel = convolution(dtype, other, group, sums)
    configs = list(in_tiles(task, "tile_block", "tile_channels_outer"))
    assert {config["tile_block"].val for config in configs} >= {"8x12", "4x12", "1x6"}
    assert len({config["tile_channels_outer"].val for config in configs}) == 2
    if not runs_here(AMX):
        pytest.skip("no AMX on this processor")
    (x, numbers), (w, weights) = filled(data, dtype), filled(kernel, other)
    expected = np.stack([convolved(numbers[0], part, (1, 1), (1, 1)) for part in weights])[None]
    for config in configs[::5]:
        np.testing.assert_array_equal(run(task, config, [x, w], tvm.nd.empty((1, 2, 8, 12, 32), sums)), expected)


@pytest.mark.parametrize(
    ("dtype", "other", "group", "sums"), [("uint8", "int8", 4, "int32"), ("bfloat16", "bfloat16", 2, "float32")]
)
def test_every_number_of_rows_of_a_dense_layer_has_the_same_sums(dtype: str, other: str, group: int, sums: str) -> None:
    data, kernel = (96, 128), (2, 128 // group, 32, group)
    task = autotvm.task.create("dense_pack.x86", (("TENSOR", data, dtype), ("TENSOR", kernel, other), None, sums), AMX)
    configs = list(in_tiles(task, "matrix_rows"))
    assert {config["matrix_rows"].val for config in configs} == {16, 24, 32, 48, 96}
    if not runs_here(AMX):
        pytest.skip("no AMX on this processor")
    (x, numbers), (w, weights) = filled(data, dtype), filled(kernel, other)
    expected = numbers @ weights.transpose(0, 2, 1, 3).reshape(64, 128).T
    for config in configs[::2]:
        np.testing.assert_array_equal(run(task, config, [x, w], tvm.nd.empty((96, 64), sums)), expected)
