"""Uniform numbers, and the check of what Threefry rests on. Its bits: tests/relay/op/test_random_numbers.py."""

from __future__ import annotations

import numpy as np
import pytest
from tests.topi.harness import compiled

import tilewright as tvm
from tilewright import te, tir, topi

STATE = np.array([1, 2, 3, 4, 0, 0, 0, 0, 1 << 63, 0], "uint64")


@pytest.mark.parametrize(("dtype", "digits"), [("float32", 24), ("float64", 53)])
def test_uniform_numbers_are_the_first_bits_between_the_ends(dtype: str, digits: int) -> None:
    def drawn(gen: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
        low, high = (te.compute((), lambda v=v: tir.const(v, dtype)) for v in (-2.0, 6.0))
        return topi.random.uniform(gen, low, high, (3, 7), dtype)

    after, found = compiled(drawn, STATE, schedule=topi.generic.schedule_extern)
    state, bits = compiled(
        lambda gen: topi.random.threefry_generate(gen, (3, 7)), STATE, schedule=topi.generic.schedule_extern
    )
    np.testing.assert_array_equal(after, state)
    parts = [int(b) >> (64 - digits) for b in bits.ravel()]
    np.testing.assert_array_equal(found.ravel(), np.array([p / 2**digits * 8 - 2 for p in parts], dtype))


def test_uniform_numbers_of_other_dtypes_are_refused() -> None:
    end = te.placeholder((), "float16")
    with pytest.raises(ValueError, match="float32 or float64, found 'float16'"):
        topi.random.uniform(te.placeholder((10,), "uint64"), end, end, (2,), "float16")


def test_sums_of_words_wrap_around() -> None:
    assert topi.random.threefry_test_wrapping("llvm", tvm.cpu())
