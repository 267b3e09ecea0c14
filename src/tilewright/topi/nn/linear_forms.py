"""Products of small constant matrices with terms, for the transforms of fast convolutions and products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import tir
from tilewright.ir import prim_ops as ops

Matrix = tuple[tuple[float, ...], ...]


def weighted_sum(row: Sequence[float], terms: Sequence[Any]) -> Any:
    """Return the sum of ``terms`` weighted with ``row``, without products with 0 and 1; None when all weights are 0."""
    result: Any = None
    for factor, term in sorted(zip(row, terms, strict=True), key=lambda pair: pair[0] < 0):
        if not factor:
            continue
        product = term if abs(factor) == 1 else term * ops.const(abs(factor), term.dtype)
        if result is None:
            result = product if factor > 0 else ops.const(0, term.dtype) - product
        else:
            result = result + product if factor > 0 else result - product
    return result


def row_of(
    matrix: Matrix,
    index: Any,
    terms: Sequence[Any],
    add: Callable[[Sequence[float], Sequence[Any]], Any] = weighted_sum,
) -> Any:
    """Return row ``index`` of the matrix times ``terms``, summed by ``add``; ``index`` becomes constant by
    unrolling.
    """
    return choose([add(row, terms) for row in matrix], index)


def choose(values: Sequence[Any], index: Any) -> Any:
    """Return ``values[index]``, resolved once the loop over ``index`` is unrolled."""
    result = values[-1]
    for k in range(len(values) - 2, -1, -1):
        result = tir.Select(ops.as_expr(index) == k, values[k], result)
    return result
