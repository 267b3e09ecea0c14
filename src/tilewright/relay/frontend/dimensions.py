"""Dimensions as *elements*: numbers, expressions over named dimensions, and None where nothing is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import IntImm
from tilewright.relay.op.relations import dim_floordiv, dim_mul

Elements = np.ndarray[Any, Any]


def element(dim: Any) -> Any:
    """Return a dimension as an element."""
    if isinstance(dim, IntImm):
        return int(dim.value)
    return None if isinstance(dim, AnyDim) else dim


def as_elements(values: Sequence[Any]) -> Elements:
    """Return a vector of elements."""
    made = np.empty(len(values), object)
    for i, value in enumerate(values):
        made[i] = element(value)
    return made


def as_dim(value: Any) -> Any:
    """Return an element as a dimension."""
    return AnyDim() if value is None else value


def is_number(value: Any) -> bool:
    """Return whether an element is a number."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def same_element(a: Any, b: Any) -> bool:
    """Return whether two elements are known to be one number, or one expression; None equals nothing."""
    return a is not None and (a is b or (is_number(a) and is_number(b) and bool(a == b)))


def numbers(elements: Elements) -> np.ndarray[Any, Any] | None:
    """Elements that are all numbers."""
    return elements.astype(np.int64) if all(map(is_number, elements.reshape(-1))) else None


def resolved(shape: Sequence[Any], wanted: Sequence[Any], allowzero: bool) -> list[Any]:
    """Return the dimensions after Reshape, with 0 and -1 resolved, as elements; -1 only of known ones."""
    dims = [
        shape[i] if is_number(d) and d == 0 and not allowzero and i < len(shape) else d for i, d in enumerate(wanted)
    ]
    if -1 not in [d for d in dims if is_number(d)]:
        return dims
    place = next(i for i, d in enumerate(dims) if is_number(d) and d == -1)
    rest = [d for i, d in enumerate(dims) if i != place]
    if any(d is None for d in (*shape, *rest)) or any(is_number(d) and d <= 0 for d in rest):
        dims[place] = None
        return dims
    dims[place] = element(dim_floordiv(dim_mul(*shape), dim_mul(*rest)))
    return dims


def relay_shape(shape: Sequence[Any], wanted: Sequence[Any]) -> list[int] | None:
    """Return ``wanted`` as the ``newshape`` of Relay's ``reshape`` of a tensor of ``shape``; None where it has no
    codes.

    0 copies a dimension, -3 joins two, -4 splits one, and one unknown may be inferred.
    """
    codes: list[int] = []
    source, inferred = 0, False
    for place, dim in enumerate(wanted):
        here = shape[source] if source < len(shape) else None
        if is_number(dim):
            if dim <= 0:
                return None
            pair = shape[source : source + 2]
            joins = len(pair) == 2 and all(map(is_number, pair)) and pair[0] != dim == pair[0] * pair[1]
            codes.append(-3 if joins else int(dim))
            source += 2 if joins else 1
        elif dim is not None and dim is here:
            codes.append(0)
            source += 1
        elif (
            dim is not None
            and source + 1 < len(shape)
            and not _later(shape, source, wanted, place)
            and dim is element(dim_mul(*shape[source : source + 2]))
        ):
            codes.append(-3)
            source += 2
        elif not inferred:
            inferred = True
            codes.append(-1)
            source += 1
        else:
            return None
    return codes


def _later(shape: Sequence[Any], source: int, wanted: Sequence[Any], place: int) -> bool:
    return shape[source] is None or shape[source + 1] is None
