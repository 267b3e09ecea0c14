"""Integers at the edges of their types: divisors of 0 and -1, shifts by the width and more, casts of any number.

docs/operators.md has the policy; the oracle is Python's arithmetic of unbounded integers, wrapped to the type.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from tests.relay.frontend.node_cases import Array, Cases

TARGETS = ["llvm", "llvm -mcpu=x86-64", "c"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = [f"u{dtype}" for dtype in SIGNED]


def edges(dtype: str) -> Array:
    info = np.iinfo(dtype)
    values = {info.min, info.min + 1, info.max - 1, info.max, 0, 1, 2, 3, 7, 100}
    return np.array(sorted(values | ({-1, -2, -3, -100} if info.min else set())), dtype)


def by_python(function: Callable[[int, int], int], a: Array, b: Array) -> Array:
    """``function`` of each pair, wrapped."""
    bits = np.iinfo(a.dtype).bits
    wrapped = [function(int(x), int(y)) % 2**bits for x, y in zip(a, b, strict=True)]
    return np.array(wrapped, np.dtype(f"uint{bits}")).view(a.dtype)


def truncated(x: int, y: int) -> int:
    return 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def floored_rest(x: int, y: int) -> int:
    return 0 if y == 0 else x % y


def truncated_rest(x: int, y: int) -> int:
    return 0 if y == 0 else x - y * truncated(x, y)


@pytest.mark.parametrize("target", TARGETS)
def test_divisions_by_zero_are_zero_and_quotients_wrap(target: str) -> None:
    cases, expected = Cases(opset=14), []
    for dtype in SIGNED + UNSIGNED:
        a, b = (v.ravel() for v in np.meshgrid(edges(dtype), edges(dtype)))
        cases.add("Div", [a, b])
        cases.add("Mod", [a, b])
        cases.add("Mod", [a, b], fmod=1)
        expected += [by_python(f, a, b) for f in (truncated, floored_rest, truncated_rest)]
    cases.check(cases.compiled(target=target), expected, 0)
    cases.check(cases.by_numpy_meaning(), expected, 0)


@pytest.mark.parametrize("target", TARGETS)
def test_divisions_by_one_number(target: str) -> None:
    cases, expected = Cases(opset=14), []
    for dtype in ("int8", "int32", "int64", "uint16"):
        a = edges(dtype)
        for divisor in (0, 1, -1, 3):
            if divisor >= 0 or dtype in SIGNED:
                b = np.array(divisor, dtype)
                cases.add("Div", [a, b], (1,))
                expected.append(by_python(truncated, a, np.full_like(a, b)))
    cases.check(cases.compiled(target=target), expected, 0)


@pytest.mark.parametrize("target", TARGETS)
def test_shifts_by_any_amount(target: str) -> None:
    with_signs = onnx.defs.onnx_opset_version() >= 28
    cases, expected = Cases(opset=28 if with_signs else 18), []
    for dtype in UNSIGNED + (SIGNED if with_signs else []):
        bits = np.iinfo(dtype).bits
        amounts = {0, 1, bits - 1, bits, bits + 1, 2 * bits - 1, np.iinfo(dtype).max} | ({-1} & {-int(dtype in SIGNED)})
        a, b = (v.ravel() for v in np.meshgrid(edges(dtype), np.array(sorted(amounts), dtype)))
        for direction in ("LEFT", "RIGHT"):
            cases.add("BitShift", [a, b], direction=direction)
            expected.append(by_python(shifted_left if direction == "LEFT" else shifted_right, a, b))
    cases.check(cases.compiled(target=target), expected, 0)


def shifted_left(x: int, y: int) -> int:
    return x << y if 0 <= y < 64 else 0


def shifted_right(x: int, y: int) -> int:
    return x >> y if 0 <= y < 64 else (-1 if x < 0 else 0)


@pytest.mark.parametrize(
    ("dtype", "target"), [*(("float32", target) for target in TARGETS), ("float64", "llvm"), ("float16", "llvm")]
)
def test_casts_of_any_number_end_and_those_in_range_are_right(dtype: str, target: str) -> None:
    """Out of range they give some number of the type; they never trap."""
    largest = float(np.finfo(dtype).max)
    values = [np.nan, np.inf, -np.inf, largest, -largest, 0.0, -0.0, 0.9, 1.5, 100.7, 3e4]
    x = np.resize(np.array(values, dtype), 37)
    cases = Cases()
    for to in SIGNED + UNSIGNED:
        cases.add("Cast", [x], outs=[to], to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(to)))
    for found, to in zip(cases.compiled(target=target), SIGNED + UNSIGNED, strict=True):
        with np.errstate(invalid="ignore"):
            defined = np.isfinite(x) & (np.abs(x.astype("float64")) <= np.iinfo(to).max)
            defined &= (x >= 0) | (to in SIGNED)
            np.testing.assert_array_equal(found[defined], x[defined].astype(to))
