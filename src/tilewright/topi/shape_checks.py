"""Run-time checks of vectors that say how large a result is: shapes, repeats, widths, sizes and steps.

A rule says what must hold of the numbers ``v`` of a vector and the dimensions ``d`` of a tensor, all as floating-point
numbers, so that products do not overflow. The same rules are computed by kernels, over expressions, and in Python.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.tir.expr import Call, StringImm
from tilewright.topi import loops
from tilewright.topi.utils import get_const_int

MOST_ELEMENTS = (1 << 31) - (1 << 18)
"""Elements of a tensor whose shape is known when a program runs."""

Numbers = Sequence[Any]


def _all(*conditions: Any) -> Any:
    known = all(isinstance(c, bool) for c in conditions)
    return all(conditions) if known else functools.reduce(ops.logical_and, map(ops.as_expr, conditions))


def _any(*conditions: Any) -> Any:
    known = all(isinstance(c, bool) for c in conditions)
    return any(conditions) if known else functools.reduce(ops.logical_or, map(ops.as_expr, conditions))


def _equal(a: Any, b: Any) -> Any:
    return ops.equal(a, b) if isinstance(a, PrimExpr) or isinstance(b, PrimExpr) else bool(a == b)


def _select(condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, bool):
        return a if condition else b
    return tir.Select(condition, *(x if isinstance(x, PrimExpr) else ops.const(x, "float64") for x in (a, b)))


def _floor(value: Any) -> Any:
    return tir.floor(value) if isinstance(value, PrimExpr) else float(math.floor(value))


def _product(values: Numbers) -> Any:
    return math.prod(values[1:], start=values[0]) if values else 1.0


def _fits(shape: Numbers) -> Any:
    """Whether a tensor can have this shape; its dimensions are counted in 32 bits even where it has no elements."""
    most = float(MOST_ELEMENTS)
    return _all(*(_all(v >= 0.0, v <= most) for v in shape), _product(shape) <= most, True)


def _reshape(v: Numbers, d: Numbers, allowzero: bool = False) -> Any:
    """0 copies a dimension, one -1 is what is left, and the elements stay."""
    copied = [_select(_equal(x, 0.0), d[i] if i < len(d) else -2.0, x) for i, x in enumerate(v)]
    kept = list(v) if allowzero else copied
    inferred = [_equal(x, -1.0) for x in kept]
    count = sum((_select(c, 1.0, 0.0) for c in inferred), start=0.0)
    known = _product([_select(c, 1.0, x) for c, x in zip(inferred, kept, strict=True)])
    total = _product(d)
    divides = _equal(_floor(total / _select(known > 0.0, known, 1.0)) * known, total)
    fits = _select_condition(_equal(count, 1.0), divides, _equal(known, total))
    return _all(*(_all(x >= -1.0, x <= float(MOST_ELEMENTS)) for x in kept), count <= 1.0, fits)


def _select_condition(condition: Any, a: Any, b: Any) -> Any:
    return _any(_all(condition, a), _all(_not(condition), b))


def _not(condition: Any) -> Any:
    return not condition if isinstance(condition, bool) else ops.logical_not(condition)


def _broadcast(v: Numbers, d: Numbers) -> Any:
    """Aligned at the end, two dimensions are equal, or one of them is 1."""
    rank = max(len(v), len(d))
    pairs = list(zip([1.0] * (rank - len(v)) + list(v), [1.0] * (rank - len(d)) + list(d), strict=True))
    agree = [_any(_equal(a, b), _equal(a, 1.0), _equal(b, 1.0)) for a, b in pairs]
    return _all(*(x >= 0.0 for x in v), *agree, _fits([_select(_equal(a, 1.0), b, a) for a, b in pairs]))


def _tile(v: Numbers, d: Numbers) -> Any:
    return _all(*(x >= 0.0 for x in v), _fits([x * y for x, y in zip(v, d, strict=True)]))


def _pad(v: Numbers, d: Numbers) -> Any:
    """Widths before all axes, then behind; negative ones cut, no more than there is."""
    rank = len(d)
    limits = [_all(x >= -float(MOST_ELEMENTS), x <= float(MOST_ELEMENTS)) for x in v]
    cut = [_select(x < 0.0, x, 0.0) for x in v]
    left = [d[k] + cut[k] + cut[k + rank] >= 0.0 for k in range(rank)]
    return _all(*limits, *left, _fits([d[k] + v[k] + v[k + rank] for k in range(rank)]))


def _pad_repeating(v: Numbers, d: Numbers) -> Any:
    """As ``_pad``, and nothing is repeated of an axis of which nothing is left."""
    rank = len(d)
    cut = [_select(x < 0.0, x, 0.0) for x in v]
    pairs = [(d[k] + cut[k] + cut[k + rank], d[k] + v[k] + v[k + rank]) for k in range(rank)]
    return _all(_pad(v, d), *(_any(left > 0.0, _equal(whole, 0.0)) for left, whole in pairs))


def _resize(v: Numbers, d: Numbers) -> Any:
    """Nothing is made out of nothing."""
    return _all(_fits(v), *(_any(b > 0.0, _equal(a, 0.0)) for a, b in zip(v, d, strict=True)))


def _steps(v: Numbers, d: Numbers) -> Any:
    return _all(*(_not(_equal(x, 0.0)) for x in v), True)


def _range(v: Numbers, d: Numbers) -> Any:
    """Start, limit and step."""
    start, limit, step = v
    span = limit - start
    count = span / _select(_equal(step, 0.0), 1.0, step)
    return _all(_not(_equal(step, 0.0)), span < 2.0**63, span > -(2.0**63), count <= float(MOST_ELEMENTS))


RULES: dict[str, Callable[[Numbers, Numbers], Any]] = {
    "shape": lambda v, d: _fits(v),
    "reshape": _reshape,
    "reshape_allowzero": lambda v, d: _reshape(v, d, True),
    "broadcast": _broadcast,
    "tile": _tile,
    "pad": _pad,
    "pad_repeating": _pad_repeating,
    "resize": _resize,
    "steps": _steps,
    "range": _range,
}


def _on_host(ib: Any, number: int, vector: Any) -> Any:
    """Return a copy on the host of ``vector``, argument ``number``, which is a device's.

    What allocates the result waits for it anyway.
    """
    size = ops.const(max(get_const_int(vector.shape[0]), 1), "int32")
    copy = ib.pointer("int64", "on_host")
    parts = (StringImm("shape"), size, ops.const(number, "int32"))  # equal calls would be one expression
    ib.let(copy.asobject(), Call("handle", "tir.tvm_stack_alloca", parts))
    ib.emit(tir.call_packed("tilewright.copy_to_host", vector, copy.asobject()))
    return copy


def check_shape(numbers: te.Tensor, dims: te.Tensor | None, rule: str, what: str, why: str) -> te.Tensor:
    """Return ``numbers``, a vector of int64, after ``RULES[rule]`` was found to hold of it and ``dims``.

    Parameters
    ----------
    dims : int64 vector, the shape of the tensor that the numbers are for
    what, why : the error of the kernel is ``what``, the numbers, ``why`` and the dimensions
    """
    count = get_const_int(numbers.shape[0])
    rank = 0 if dims is None else get_const_int(dims.shape[0])

    def body(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        given, *like = (_on_host(ib, k, v) if loops.on_gpu() else ib.buffer_ptr(v) for k, v in enumerate(ins))
        source, target = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        v = [ib.let("v", ops.cast("float64", given[k])) for k in range(count)]
        d = [ib.let("d", ops.cast("float64", like[0][k])) for k in range(rank)]
        with ib.if_scope(ops.logical_not(ops.as_expr(RULES[rule](v, d)))):
            ib.refuse_shape(what, (given, count), why, (like[0], rank) if like else None)
        with loops.each(ib, count) as k:
            target[k] = source[k]
        return ib.get()

    inputs = [numbers] if dims is None else [numbers, dims]
    return te.extern([(count,)], inputs, body, dtype=["int64"], name="check_shape", tag="check_shape")


__all__ = ["check_shape"]
