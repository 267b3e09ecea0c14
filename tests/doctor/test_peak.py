"""The loops that measure the machine do the work they are credited with."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tilewright.doctor import peak

WIDTHS = sorted(peak.vector_widths().values())


def aligned(count: int) -> np.ndarray:
    """`count` floats, 64-byte aligned."""
    raw = np.zeros(count + 16, np.float32)
    return raw[-(raw.ctypes.data // 4) % 16 :][:count]


@pytest.mark.parametrize("width", WIDTHS)
def test_fma_loop_multiplies_and_adds_as_often_as_counted(width: int) -> None:
    # with a and b = count-derived numbers times 1e-30 every chain ends at b, so its sum is twelve of them
    address = peak.compile_function(f"fma_{width}", peak.fma_loop(width))
    loop = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(address)
    count = 1000
    assert loop(count) == pytest.approx(peak.CHAINS * (count + 2) * 1e-30, rel=1e-5)


@pytest.mark.parametrize("width", sorted(peak.byte_widths().values()))
def test_byte_loop_multiplies_and_adds_as_often_as_counted(width: int) -> None:
    address = peak.compile_function(f"bytes_{width}", peak.byte_loop(width))
    loop = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)(address)
    assert loop(5) == peak.CHAINS * 5 * (5 * 10 + 3 * 5 * 5)  # the first byte of one operand is twice the others


@pytest.mark.parametrize("width", WIDTHS)
def test_copy_loop_copies_every_element(width: int) -> None:
    name = f"copy_{width}"
    address = peak.compile_function(name, peak.memory_loop(name, width, writes=True))
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    copy = ctypes.CFUNCTYPE(ctypes.c_float, pointer, pointer, count, count)(address)
    size = 3 * peak.UNROLLED_VECTORS * width
    source, target = aligned(size), aligned(size)
    source[:] = np.arange(size)
    copy(source.ctypes.data, target.ctypes.data, 3, 1)
    np.testing.assert_array_equal(target, source)


@pytest.mark.parametrize("width", WIDTHS)
def test_read_loop_reads_every_block_of_every_pass(width: int) -> None:
    name = f"read_{width}"
    address = peak.compile_function(name, peak.memory_loop(name, width, writes=False))
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    read = ctypes.CFUNCTYPE(ctypes.c_float, pointer, pointer, count, count)(address)
    source = aligned(5 * peak.UNROLLED_VECTORS * width)
    source[:] = 1
    # the first lane of the sum is returned: one from each vector
    assert read(source.ctypes.data, 0, 5, 2) == 2 * 5 * peak.UNROLLED_VECTORS


def test_best_rate_is_size_over_time() -> None:
    def wait(_: int, repeats: int) -> float:
        # releases Python's lock, as the measured loops do
        ctypes.CDLL(None).usleep(1000 * repeats)
        return float(repeats)

    # sleeping in parallel: two threads do twice as much; a sleep lasts at least what it was told to
    one, two = (peak.best_rate(wait, threads, seconds=0.02, tries=2) * 1e9 for threads in (1, 2))
    assert 300 < one <= 1000
    assert 600 < two <= 2000
