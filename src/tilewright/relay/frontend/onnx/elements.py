"""Integers that are known over a model's named dimensions, as computed by ``Shape``, ``Gather``, ``Concat``, ...

An integer tensor has *elements*: an array of Python's numbers, of expressions over dimensions, and of None where
nothing is known. Nodes that compute shapes map elements to elements, beside the expression that computes them at run
time. From them ``Reshape`` and ``Expand`` know their results' dimensions. Where exporters compute sizes in floating
point, as in ``int(ceil(height / 32) * 32)``, an element is a :class:`Quotient`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import frexp
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from tilewright.ir.prim_expr import DimVar, PrimExpr, Var
from tilewright.relay.frontend.dimensions import Elements, element, is_number, numbers
from tilewright.relay.op.relations import dim_add, dim_floordiv, dim_mul

MOST_ELEMENTS = 64

_WHOLE = {TensorProto.INT32, TensorProto.INT64}
_FLOATING = {TensorProto.FLOAT, TensorProto.DOUBLE}


@dataclass(frozen=True)
class Quotient:
    """A floating-point number that is an element divided by a positive number."""

    over: Any
    under: int = 1

    def floor(self) -> Any:
        """Return the largest integer that is not larger, as an element."""
        return element(dim_floordiv(self.over, self.under))

    def ceil(self) -> Any:
        """Return the least integer that is not less, as an element."""
        return element(dim_floordiv(dim_add(self.over, self.under - 1), self.under))


def _mapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Apply ``function`` to elements, where all of them are known."""

    def apply(*values: Any) -> Any:
        if any(v is None for v in values):
            return None
        found = function(*values)
        return (
            found
            if found is None or isinstance(found, bool)
            else element(found)
            if isinstance(found, PrimExpr)
            else int(found)
        )

    return lambda *arrays: np.frompyfunc(apply, len(arrays), 1)(*arrays)


def _subtract(a: Any, b: Any) -> Any:
    return a - b if is_number(a) and is_number(b) else dim_add(a, dim_mul(b, -1))


def difference(a: Any, b: Any) -> Any:
    """Return ``a - b`` of two elements; None where one is unknown."""
    found: Any = _mapped(_subtract)(a, b)
    return found


def _divide(a: Any, b: Any) -> Any:
    if is_number(a) and is_number(b):
        return (
            None if b == 0 else int(a / b) if abs(a) < 2**50 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
        )
    return dim_floordiv(a, b) if not (is_number(b) and b <= 0) else None


def _equal(a: Any, b: Any) -> Any:
    """Return whether two elements are equal, where that is known: a dimension is not negative."""
    if a is b or (is_number(a) and is_number(b)):
        return bool(a is b or a == b)
    number, other = (a, b) if is_number(a) else (b, a)
    if is_number(number) and isinstance(other, Var):
        low = other.low if isinstance(other, DimVar) else 0
        high = other.high if isinstance(other, DimVar) else None
        if number < low or (high is not None and number > high):
            return False
    return None


def _extreme(choose: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: choose(a, b) if is_number(a) and is_number(b) else a if a is b else None


def _where(condition: Any, a: Any, b: Any) -> Any:
    return np.frompyfunc(lambda c, x, y: None if c is None else x if c else y, 3, 1)(condition, a, b)


def _product(attrs: Mapping[str, Any], data: Elements) -> Any:
    total: Any = 1
    for value in data.reshape(-1):
        if value is None:
            return None
        total = element(dim_mul(total, value))
    return _filled([1] * data.ndim if attrs.get("keepdims", 1) else [], total)


def _filled(shape: Sequence[int], value: Any) -> Elements:
    made = np.empty(tuple(shape), object)
    made.fill(value)
    return made


def _slice(attrs: Mapping[str, Any], data: Elements, *bounds: Elements) -> Any:
    known: list[Any] = [numbers(b) for b in bounds]
    if not known and "starts" in attrs:
        known = [np.array(attrs[k]) for k in ("starts", "ends")] + (
            [np.array(attrs["axes"])] if "axes" in attrs else []
        )
    if any(b is None for b in known) or data.ndim != 1 or len(known[0].reshape(-1)) != 1:
        return None
    start, end = (int(b.reshape(-1)[0]) for b in known[:2])
    step = int(known[3].reshape(-1)[0]) if len(known) > 3 else 1
    if step < 0 and end < -len(data):
        return data[start::step]
    return data[start:end:step]


def _gather(attrs: Mapping[str, Any], data: Elements, index: Elements) -> Any:
    places = numbers(index)
    if (
        places is None
        or data.ndim != 1
        or (places.size and not (-len(data) <= places.min() and places.max() < len(data)))
    ):
        return None
    return np.take(data, places, axis=0) if places.ndim else _filled([], data[int(places)])


def _reshape(attrs: Mapping[str, Any], data: Elements, shape: Elements) -> Any:
    wanted = numbers(shape)
    return None if wanted is None else data.reshape([data.shape[i] if d == 0 else d for i, d in enumerate(wanted)])


def _axes(attrs: Mapping[str, Any], rest: Sequence[Elements]) -> Any:
    if rest:
        found = numbers(rest[0])
        return None if found is None else tuple(int(a) for a in found.reshape(-1))
    return tuple(attrs.get("axes", ()))


def _unsqueeze(attrs: Mapping[str, Any], data: Elements, *rest: Elements) -> Any:
    axes = _axes(attrs, rest)
    return None if axes is None else np.expand_dims(data, axes)


def _squeeze(attrs: Mapping[str, Any], data: Elements, *rest: Elements) -> Any:
    axes = _axes(attrs, rest)
    return (
        None
        if axes is None
        else data.reshape(
            [d for i, d in enumerate(data.shape) if not (i in axes or i - data.ndim in axes or (not axes and d == 1))]
        )
    )


def _cast(attrs: Mapping[str, Any], x: Elements) -> Any:
    if attrs["to"] in _WHOLE:
        return x
    if attrs["to"] not in _FLOATING:
        return None
    return np.frompyfunc(
        lambda v: None if v is None or isinstance(v, bool) else float(v) if is_number(v) else Quotient(v), 1, 1
    )(x)


_RULES: dict[str, Callable[..., Any]] = {
    "Identity": lambda attrs, x: x,
    "Cast": _cast,
    "Add": lambda attrs, a, b: _mapped(dim_add)(a, b),
    "Sub": lambda attrs, a, b: _mapped(_subtract)(a, b),
    "Mul": lambda attrs, a, b: _mapped(dim_mul)(a, b),
    "Div": lambda attrs, a, b: _mapped(_divide)(a, b),
    "Max": lambda attrs, a, b: _mapped(_extreme(max))(a, b),
    "Min": lambda attrs, a, b: _mapped(_extreme(min))(a, b),
    "Equal": lambda attrs, a, b: _mapped(_equal)(a, b),
    "Not": lambda attrs, a: _mapped(lambda v: not v)(a),
    "Where": lambda attrs, c, a, b: _where(c, a, b),
    "ReduceProd": _product,
    "Slice": _slice,
    "Gather": _gather,
    "Reshape": _reshape,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Concat": lambda attrs, *parts: np.concatenate(parts, attrs.get("axis", 0)),
}  # fmt: skip


def _scaled(value: Any, by: Any) -> Any:
    """Return the product, where ``by`` is a positive integer or the inverse of a power of two."""
    if not isinstance(value, Quotient):
        value, by = by, value
    if not isinstance(value, Quotient) or not isinstance(by, float) or not by > 0:
        return None
    if by.is_integer():
        return Quotient(element(dim_mul(value.over, int(by))), value.under)
    return Quotient(value.over, value.under * int(1 / by)) if frexp(by)[0] == 0.5 and by < 1 else None


def _parted(value: Any, by: Any) -> Any:
    if not isinstance(value, Quotient) or not isinstance(by, float) or not by > 0:
        return None
    if by.is_integer():
        return Quotient(value.over, value.under * int(by))
    return _scaled(value, 1 / by) if frexp(by)[0] == 0.5 else None


def _moved(value: Any, by: Any) -> Any:
    """Return the sum, where ``by`` is an integer."""
    if not isinstance(value, Quotient):
        value, by = by, value
    if not isinstance(value, Quotient) or not isinstance(by, float) or not by.is_integer():
        return None
    return Quotient(element(dim_add(value.over, int(by) * value.under)), value.under)


def _quotients(function: Callable[..., Any]) -> Callable[..., Any]:
    """Apply ``function`` to elements of floating-point tensors: quotients, numbers, and None."""
    return lambda attrs, *arrays: np.frompyfunc(function, len(arrays), 1)(*arrays)


def _cast_quotients(attrs: Mapping[str, Any], x: Elements) -> Any:
    if attrs["to"] in _FLOATING:
        return x
    if attrs["to"] not in _WHOLE:
        return None
    return np.frompyfunc(lambda v: v.floor() if isinstance(v, Quotient) else None if v is None else int(v), 1, 1)(x)


_RULES_OF_QUOTIENTS: dict[str, Callable[..., Any]] = {
    "Cast": _cast_quotients,
    "Mul": _quotients(_scaled),
    "Div": _quotients(_parted),
    "Add": _quotients(_moved),
    "Sub": _quotients(lambda a, b: _moved(a, -b) if isinstance(b, float) else None),
    "Floor": _quotients(lambda v: Quotient(v.floor()) if isinstance(v, Quotient) else None),
    "Ceil": _quotients(lambda v: Quotient(v.ceil()) if isinstance(v, Quotient) else None),
} | {op: _RULES[op] for op in ("Identity", "Slice", "Gather", "Reshape", "Unsqueeze", "Squeeze", "Concat")}


def elements_of(node: onnx.NodeProto, attrs: Mapping[str, Any], inputs: Sequence[Elements | None]) -> Elements | None:
    """Return the elements of a node's result, from those of its inputs; None where they are unknown."""
    floating = any(isinstance(e, (Quotient, float)) for x in inputs if x is not None for e in x.reshape(-1))
    rule = (_RULES_OF_QUOTIENTS if floating else _RULES).get(node.op_type)
    known = [x for x in inputs if x is not None]
    if rule is None or len(known) != len(inputs) or not known:
        return None
    try:
        found = rule(attrs, *known)
    except (ValueError, TypeError, KeyError, IndexError):  # the converter says what is wrong
        return None
    if found is None or np.size(found) > MOST_ELEMENTS:
        return None
    return found if isinstance(found, np.ndarray) else _filled([], found)
