"""What shapes, repeats, widths, sizes and steps may be: the rules beside numpy, and the kernels beside the rules."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.runtime.error import TVMError
from tilewright.topi.shape_checks import MOST_ELEMENTS, RULES

FAR = (-(2**63), -(2**62), -(2**32), 2**31, 2**32, 2**62, 2**63 - 1)
DIMS = [(0, 3), (2, 3), (1, 5), (2, 0), (4, 1)]


def _made(make: Callable[[], Any]) -> bool:
    """Whether numpy makes it."""
    try:
        make()
    except (ValueError, MemoryError, OverflowError):
        return False
    return True


def _holds(rule: str, numbers: Sequence[int], dims: Sequence[int] = ()) -> bool:
    return bool(RULES[rule]([float(v) for v in numbers], [float(d) for d in dims]))


def _pairs(low: int, high: int) -> list[tuple[int, ...]]:
    near = [*range(low, high)]
    return [*itertools.product(near, repeat=2), *itertools.product(FAR, near), *itertools.product(FAR, FAR)]


@pytest.mark.parametrize("dims", DIMS)
def test_reshapes_are_those_of_numpy(dims: tuple[int, int]) -> None:
    data = np.zeros(dims)
    for shape in _pairs(-2, 8):
        copied = [dims[i] if v == 0 else v for i, v in enumerate(shape)]
        of_nothing = -1 in copied and 0 in copied and data.size == 0  # what is left of nothing is 0 here
        assert _holds("reshape", shape, dims) == (
            min(shape) >= -1
            and max(shape) <= MOST_ELEMENTS
            and copied.count(-1) < 2
            and (of_nothing or _made(lambda s=copied: data.reshape(s)))
        ), shape
        assert not _holds("reshape_allowzero", shape, dims) or data.size == 0 or 0 not in shape
    assert not _holds("reshape", (1, 1, 0), dims)


@pytest.mark.parametrize("dims", DIMS)
def test_broadcasts_are_those_of_numpy(dims: tuple[int, int]) -> None:
    for shape in _pairs(-2, 6):
        small = max(map(abs, shape)) <= MOST_ELEMENTS
        made = small and _made(lambda s=shape: np.broadcast_shapes(s, dims))
        assert _holds("broadcast", shape, dims) == (min(shape) >= 0 and made), shape
    assert _holds("broadcast", (7, *dims), dims) and _holds("broadcast", dims[1:], dims)


def test_a_tensor_has_no_negative_dimension_and_a_number_of_elements_that_is_counted() -> None:
    for shape in _pairs(-2, 4):
        for rule, dims in (("shape", (1, 1)), ("tile", (2, 3))):
            made = [v * d for v, d in zip(shape, dims, strict=True)]
            fits = min(shape) >= 0 and max(*made, math.prod(made)) <= MOST_ELEMENTS
            assert _holds(rule, shape, dims) == fits, shape
        assert _holds("resize", shape, (2, 3)) == _holds("shape", shape)
        assert _holds("resize", shape, (0, 3)) == (_holds("shape", shape) and shape[0] == 0)
    assert _holds("shape", ())


def test_pads_cut_no_more_than_there_is() -> None:
    for before, behind in _pairs(-4, 3):
        left = 2 + min(before, 0) + min(behind, 0)
        sizes = (2 + before + behind, abs(before), abs(behind))
        fits = left >= 0 and max(sizes) <= MOST_ELEMENTS // 5
        assert _holds("pad", (before, 1, behind, 1), (2, 3)) == fits, (before, behind)
        repeats = fits and (left > 0 or sizes[0] == 0)
        assert _holds("pad_repeating", (before, 1, behind, 1), (2, 3)) == repeats, (before, behind)


def test_ranges_have_a_step_and_an_end() -> None:
    for start, limit, step in itertools.product((-3, 0, 5, *FAR), repeat=3):
        near = abs(limit - start) < 2**63 - 2**10
        count = math.ceil((limit - start) / step) if step else math.inf
        if abs(count - MOST_ELEMENTS) > 1 and abs(abs(limit - start) - 2**63) > 2**10:
            assert _holds("range", (start, limit, step)) == (near and count <= MOST_ELEMENTS), (start, limit, step)


def test_steps_are_not_zero() -> None:
    assert _holds("steps", (1, -1, 2**63 - 1, -(2**63))) and not _holds("steps", (1, 0))


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_kernels_let_through_what_the_rule_does(target: str) -> None:
    numbers, dims = te.placeholder((2,), "int64", name="v"), te.placeholder((2,), "int64", name="d")
    made = topi.check_shape(numbers, dims, "reshape", "node: the shape", "does not fit")
    kernel = tvm.build(te.create_schedule(made.op), [numbers, dims, made], target)
    out = tvm.nd.array(np.zeros(2, "int64"))
    for shape in _pairs(-2, 7):
        given, own = (tvm.nd.array(np.array(v, "int64")) for v in (shape, (2, 3)))
        if _holds("reshape", shape, (2, 3)):
            kernel(given, own, out)
            np.testing.assert_array_equal(out.numpy(), shape)
        else:
            with pytest.raises(TVMError) as caught:
                kernel(given, own, out)
            assert f"node: the shape {shape} does not fit (2, 3)" in str(caught.value)


def test_a_message_may_have_no_dimensions() -> None:
    numbers = te.placeholder((1,), "int64", name="v")
    made = topi.check_shape(numbers, None, "steps", "node: the steps", "have a 0")
    kernel = tvm.build(te.create_schedule(made.op), [numbers, made], "llvm")
    with pytest.raises(TVMError, match=r"node: the steps \(0,\) have a 0"):
        kernel(tvm.nd.array(np.array([0])), tvm.nd.array(np.array([0])))
