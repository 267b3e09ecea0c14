"""Activation functions, and scale and shift per channel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import tag
from tilewright.topi.math import fast_exp, negative, unary

_LOG2_E = math.log2(math.e)


def relu(x: te.Tensor) -> te.Tensor:
    """Compute max(x, 0)."""
    return unary(x, lambda v: ops.maximum(v, ops.const(0, v.dtype)), "T_relu")


def gelu(x: te.Tensor, approximate: str = "none") -> te.Tensor:
    """Compute x times the probability that a standard normal variable is less than x (arXiv:1606.08415).

    ``approximate="tanh"`` is x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x**3))). In float32 the result is within
    5e-7 of the exact value; the tail for large |x| keeps the digits that 1 + erf loses.
    """

    def number(v: PrimExpr, value: float) -> PrimExpr:
        return ops.const(value, v.dtype)

    def normal(v: PrimExpr) -> PrimExpr:
        size = ops.minimum(tir.abs(v), number(v, 40.0))  # where the tail is 0, for infinities too
        return ops.maximum(v, number(v, 0.0)) - size * tir.normal_tail(size)

    def with_tanh(v: PrimExpr) -> PrimExpr:
        cubic = v * (v * v * number(v, 0.044715) + number(v, 1.0))
        return v / (number(v, 1.0) + tir.exp2(cubic * number(v, -2 * math.sqrt(2 / math.pi) * _LOG2_E)))

    return unary(x, normal if approximate == "none" else with_tanh, "T_gelu")


def swish(x: te.Tensor, beta: float = 1.0) -> te.Tensor:
    """Compute x * sigmoid(beta * x) (arXiv:1710.05941).

    It is computed as x / (1 + 2**(-beta log2(e) x)), with an absolute error within 1e-7 of the largest value.
    """

    def body(v: PrimExpr) -> PrimExpr:
        one: Any = ops.const(1, v.dtype)
        return v / (one + tir.exp2(v * ops.const(-beta * _LOG2_E, v.dtype)))

    return unary(x, body, "T_swish")


# (2 artanh(s) - 2 s) / s**3 as a polynomial of s**2 for s up to 1 / 3, by weighted least squares; what is left is at
# most 5e-9 of 2 artanh(s).
_ARTANH_TAIL = (0.666664183139801, 0.4002152979373932, 0.2800178825855255, 0.2801205813884735)


def softplus(x: te.Tensor) -> te.Tensor:
    """Compute log(1 + exp(x)) without overflow, in float32 within 4 units in the last place.

    That is max(x, 0) + log(1 + e) with e = exp(-|x|) up to 1, where log(1 + e) = 2 artanh(e / (e + 2)): a third of the
    time of ``log1p``.
    """

    def body(v: PrimExpr) -> PrimExpr:
        def number(value: float) -> PrimExpr:
            return ops.const(value, v.dtype)

        e = tir.exp(number(0.0) - tir.abs(v))
        if v.dtype == "float64":
            return ops.maximum(v, number(0.0)) + tir.log1p(e)
        s = e / (e + number(2.0))
        square, tail = s * s, number(_ARTANH_TAIL[-1])
        for coefficient in _ARTANH_TAIL[-2::-1]:
            tail = tail * square + number(coefficient)
        return ops.maximum(v, number(0.0)) + (s * (square * tail) + (s + s))

    return unary(x, body, "T_softplus")


def leaky_relu(x: te.Tensor, alpha: float) -> te.Tensor:
    """Return x if positive, else alpha * x."""

    def body(v: PrimExpr) -> PrimExpr:
        return tir.Select(v > ops.const(0, v.dtype), v, v * ops.const(alpha, v.dtype))

    return unary(x, body, "T_leaky_relu")


def _channelwise(x: te.Tensor, axis: int, body: Callable[[PrimExpr, PrimExpr], PrimExpr], name: str) -> te.Tensor:
    axis = axis + x.ndim if axis < 0 else axis
    return te.compute(x.shape, lambda *i: body(x(*i), i[axis]), name=name, tag=tag.BROADCAST)


def prelu(x: te.Tensor, slope: te.Tensor, axis: int = 1) -> te.Tensor:
    """Return x if positive, else x times the slope of its channel; ``slope`` has rank 1."""

    def body(v: PrimExpr, c: PrimExpr) -> PrimExpr:
        return tir.Select(v > ops.const(0, v.dtype), v, v * slope(c))

    return _channelwise(x, axis, body, "T_prelu")


def scale_shift_nchw(Input: te.Tensor, Scale: te.Tensor, Shift: te.Tensor) -> te.Tensor:
    """Compute Input * Scale[c] + Shift[c] on data of layout NCHW."""
    return _channelwise(Input, 1, lambda v, c: v * Scale(c) + Shift(c), "T_scale_shift")


def scale_shift_nhwc(Input: te.Tensor, Scale: te.Tensor, Shift: te.Tensor) -> te.Tensor:
    """Compute Input * Scale[c] + Shift[c] on data of layout NHWC."""
    return _channelwise(Input, -1, lambda v, c: v * Scale(c) + Shift(c), "T_scale_shift")


def scale_shift_nchwc(Input: te.Tensor, Scale: te.Tensor, Shift: te.Tensor) -> te.Tensor:
    """Compute Input (n, C, h, w, c) * Scale (C, c) + Shift (C, c)."""

    def body(n: PrimExpr, chunk: PrimExpr, h: PrimExpr, w: PrimExpr, c: PrimExpr) -> PrimExpr:
        return Input(n, chunk, h, w, c) * Scale(chunk, c) + Shift(chunk, c)

    return te.compute(Input.shape, body, name="T_scale_shift", tag=tag.BROADCAST)


def bias_add(x: te.Tensor, bias: te.Tensor, axis: int = 1) -> te.Tensor:
    """Compute x + bias[c], c being the index along ``axis``."""
    return _channelwise(x, axis, lambda v, c: v + bias(c), "T_bias_add")


def fast_sigmoid(x: te.Tensor) -> te.Tensor:
    """Compute 1 / (1 + exp(-x)) with the polynomial exponential of ``topi.fast_exp``."""
    e = fast_exp(negative(x))
    one: Any = ops.const(1, x.dtype)
    return unary(e, lambda v: one / (one + v), "T_fast_sigmoid")
