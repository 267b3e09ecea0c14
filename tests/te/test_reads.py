"""Computations that read outside of a tensor, of which lowering warns."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tvm
from tilewright import te

A = te.placeholder((4,), name="A")


def _lower(size: int | tuple[int, ...], body: Callable[..., Any]) -> list[str]:
    """The warnings of lowering a computation."""
    computed = te.compute(size if isinstance(size, tuple) else (size,), body, name="B")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tvm.lower(te.create_schedule(computed.op), [A, computed])
    return [str(warning.message) for warning in told]


@pytest.mark.parametrize(
    ("size", "body", "place"),
    [
        (8, lambda i: A[i], "A[i] where i is 7, and dimension 0 has 4"),
        (4, lambda i: A[i + 1], "A[(i + 1)] where i is 3 (4), and dimension 0 has 4"),
        (4, lambda i: A[i - 1], "A[(i - 1)] where i is 0 (-1), and dimension 0 has 4"),
        ((4, 2), lambda i, j: A[i * 2 + j], "A[((i*2) + j)] where i is 3 and j is 0 (6)"),
        (2, lambda i: A[9], "A[9] where the index is 9"),
    ],
)
def test_a_read_outside_is_warned_of_with_its_index(size: Any, body: Callable[..., Any], place: str) -> None:
    (text,) = _lower(size, body)
    assert text.startswith("B reads outside of A: ")
    assert place in text


@pytest.mark.parametrize(
    ("size", "body"),
    [
        (4, lambda i: A[i]),
        (8, lambda i: A[i // 2]),
        (8, lambda i: A[tvm.tir.indexmod(i, 4)]),
        (8, lambda i: te.if_then_else(i < 4, A[i], 0.0)),
        (8, lambda i: tvm.tir.Select(i < 4, A[i], tvm.tir.const(0, "float32"))),
        (0, lambda i: A[i + 9]),
    ],
    ids=["inside", "divided", "modulo", "if_then_else", "Select", "nothing"],
)
def test_reads_inside_and_guarded_ones_are_not_warned_of(size: int, body: Callable[..., Any]) -> None:
    assert _lower(size, body) == []


def test_sums_are_looked_at_over_their_axes() -> None:
    k = te.reduce_axis((0, 3), "k")
    (text,) = _lower(3, lambda i: te.sum(A[i + k], axis=k))
    assert "A[(i + k)] where i is 2 and k is 2 (4)" in text
