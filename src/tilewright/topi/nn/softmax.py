"""Softmax and its logarithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi.kinds import FAST_SOFTMAX, LOG_SOFTMAX, SOFTMAX
from tilewright.topi.math import _fast_exp
from tilewright.topi.reduction import greatest_number
from tilewright.topi.transform import normalize_axis


def _insert(indices: Sequence[PrimExpr], axis: int, value: Any) -> list[Any]:
    return [*indices[:axis], value, *indices[axis:]]


def _remove(indices: Sequence[PrimExpr], axis: int) -> list[PrimExpr]:
    return [v for k, v in enumerate(indices) if k != axis]


def _reduce(
    x: te.Tensor, axis: int, reducer: Callable[..., PrimExpr], name: str, body: Callable[[Any], Any]
) -> te.Tensor:
    k = te.reduce_axis((0, x.shape[axis]), name="k")
    shape = _remove(x.shape, axis)
    return te.compute(shape, lambda *i: reducer(body(_insert(i, axis, k.var)), axis=k), name=name)


def _softmax(x: te.Tensor, axis: int, exponential: Callable[[PrimExpr], Any], name: str, tag: str) -> te.Tensor:
    axis = normalize_axis(axis, x.ndim)
    maximum = _reduce(x, axis, greatest_number, "T_softmax_maxelem", lambda i: x(*i))
    powers = te.compute(x.shape, lambda *i: exponential(x(*i) - maximum(*_remove(i, axis))), name="T_softmax_exp")
    total = _reduce(x, axis, te.sum, "T_softmax_expsum", lambda i: powers(*i))
    return te.compute(
        x.shape, lambda *i: powers(*i) / total(*_remove(i, axis)), name=name, tag=tag, attrs={"axis": axis}
    )


def softmax(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """Compute exp(x - max x) / sum exp(x - max x) along ``axis``."""
    return _softmax(x, axis, tir.exp, "T_softmax_norm", SOFTMAX)


def fast_softmax(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """Compute ``softmax`` with the polynomial exponential of ``topi.fast_exp`` (float32; exact on other types)."""
    exponential = _fast_exp if x.dtype == "float32" else tir.exp
    return _softmax(x, axis, exponential, "T_fast_softmax_norm", FAST_SOFTMAX)


def log_softmax(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """Compute x - max x - log sum exp(x - max x) along ``axis``."""
    axis = normalize_axis(axis, x.ndim)
    maximum = _reduce(x, axis, greatest_number, "T_softmax_maxelem", lambda i: x(*i))
    total = _reduce(x, axis, te.sum, "T_softmax_expsum", lambda i: tir.exp(x(*i) - maximum(*_remove(i, axis))))
    return te.compute(
        x.shape,
        lambda *i: x(*i) - maximum(*_remove(i, axis)) - tir.log(total(*_remove(i, axis))),
        name="T_log_softmax",
        tag=LOG_SOFTMAX,
        attrs={"axis": axis},
    )
