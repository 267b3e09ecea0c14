"""RoundToBytes: its text before and after, the same bytes as numpy's for any limits, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.tir.transform.texts import check

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.tir import ir_builder
from tilewright.tir.transform.round_to_bytes import round_to_bytes

RNG = np.random.default_rng(45)


def _stored(value: Callable[[Any], Any], dtype: str = "uint8") -> tir.Stmt:
    ib = ir_builder.create()
    x, out = ib.pointer("int32", "X"), ib.pointer(dtype, "B")
    with ib.for_range(0, 8, "i") as i:
        out[i] = value(x[i].astype("float32"))
    return ib.get()


def _byte(x: Any, zero: float = 3.0, low: float = 0.0, high: float = 255.0) -> Any:
    shifted = tir.nearbyint(x) + tir.const(zero, "float32") if zero else tir.nearbyint(x)
    return tir.max(tir.min(shifted, tir.const(high, "float32")), tir.const(low, "float32")).astype("uint8")


def test_bytes_are_converted_as_they_are_rounded() -> None:
    check(
        _stored(_byte),
        round_to_bytes,
        """
        for (i: int32, 0, 8) {
          B[i] = cast(uint8, max(min((@tir.nearbyint(cast(float32, (int32*)X[i]), dtype=float32) + 3f32), 255f32), 0f32))
        }
        """,  # noqa: E501
        """
        for (i: int32, 0, 8) {
          B[i] = cast(uint8, (cast(int32, @tir.nearbyint(max(min(cast(float32, (int32*)X[i]), 252f32), -3f32), dtype=float32)) + 3))
        }
        """,  # noqa: E501
    )


def test_bytes_that_become_floats_at_once_stay_floats() -> None:
    check(
        _stored(lambda x: _byte(x, zero=0.0, high=9.0).astype("float32") - 3.0, "float32"),
        round_to_bytes,
        """
        for (i: int32, 0, 8) {
          B[i] = (cast(float32, cast(uint8, max(min(@tir.nearbyint(cast(float32, (int32*)X[i]), dtype=float32), 9f32), 0f32))) - 3f32)
        }
        """,  # noqa: E501
        """
        for (i: int32, 0, 8) {
          B[i] = (@tir.nearbyint(max(min(cast(float32, (int32*)X[i]), 9f32), 0f32), dtype=float32) + -3f32)
        }
        """,
    )


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(lambda x: _byte(tir.sqrt(x)), id="what may be NaN"),
        pytest.param(lambda x: _byte(x, low=-1.0), id="limits beyond the type"),
        pytest.param(lambda x: _byte(x, zero=0.5), id="a zero point that is not whole"),
        pytest.param(
            lambda x: tir.max(tir.min(tir.floor(x), tir.const(9.0, "float32")), tir.const(0.0, "float32")).astype(
                "uint8"
            ),
            id="another rounding",
        ),
    ],
)
def test_others_stay(value: Callable[[Any], Any]) -> None:
    loop = _stored(value)
    assert round_to_bytes(loop) is loop


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [-3, 0, 7, 130])
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64", "c"])
def test_values_are_those_of_numpy(dtype: str, zero: int, target: str) -> None:
    limits = np.iinfo(dtype)
    x = te.placeholder((64,), "int32", name="x")

    def steps(value: te.Tensor, factor: float) -> te.Tensor:
        rounded = topi.nearbyint(topi.multiply(value, tir.const(factor, "float32")))
        shifted = topi.add(rounded, tir.const(float(zero), "float32"))
        return topi.cast(topi.clip(shifted, float(limits.min), float(limits.max)), dtype)

    first = steps(topi.cast(x, "float32"), 0.37)
    again = topi.subtract(topi.cast(first, "float32"), tir.const(float(zero), "float32"))
    out = steps(again, 0.51)
    with tvm.target.Target(target):
        s = topi.cpu.schedule_injective([out])
        built = tvm.build(s, [x, out], target)
    data = RNG.integers(-1000, 1000, 64).astype("int32")
    data[:6] = [2**31 - 1, -(2**31), 2**24 + 1, 0, 1, -1]
    result = tvm.nd.array(np.zeros(64, dtype))
    built(tvm.nd.array(data), result)

    def expected(value: np.ndarray, factor: float) -> np.ndarray:
        return np.clip(np.rint(value * np.float32(factor)) + np.float32(zero), limits.min, limits.max)

    first_steps = expected(data.astype("float32"), 0.37)
    np.testing.assert_array_equal(result.numpy(), expected(first_steps - np.float32(zero), 0.51).astype(dtype))


def test_one_instruction_rounds_and_converts_on_x86() -> None:
    x = te.placeholder((64,), "int32", name="x")
    value = topi.nearbyint(topi.multiply(topi.cast(x, "float32"), tir.const(0.5, "float32")))
    out = topi.cast(topi.clip(value, 0.0, 255.0), "uint8")
    target = "llvm -mcpu=skylake-avx512"
    with tvm.target.Target(target):
        text = tvm.build(topi.cpu.schedule_injective([out]), [x, out], target).get_source("asm")
    assert "vcvtps2dq" in text
    assert "vrndscaleps" not in text
