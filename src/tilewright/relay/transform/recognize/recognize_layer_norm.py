"""RecognizeLayerNorm: layer normalisation that is spelled out in basic operators becomes ``nn.layer_norm`` again.

Before::

    %0 = mean(%x, axis=[-1], keepdims=True);
    %1 = subtract(%x, %0);
    %2 = power(%1, 2f);
    %3 = mean(%2, axis=[-1], keepdims=True);          // or variance(%x, %0, axis=[-1], keepdims=True)
    %4 = add(%3, 1e-05f);
    %5 = sqrt(%4);
    %6 = divide(%1, %5);                              // or multiply(%1, rsqrt(%4))
    %7 = multiply(%6, %gamma);
    add(%7, %beta)

after::

    nn.layer_norm(%x, %gamma, %beta, axis=-1, epsilon=1e-05f)

One kernel then reads each row from memory once, where the parts would be three. Scale and shift may be absent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.transform import Pass
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, const
from tilewright.relay.op.relations import normalize_axes
from tilewright.relay.transform.common import (
    Recognizer,
    call_of,
    known_dims,
    recognition_pass,
    scalar_constant,
)


def _over_last_axis(call: Call) -> bool:
    attrs: Any = call.attrs
    shape = known_dims(call.args[0])
    if shape is None or not attrs.keepdims:
        return False
    return normalize_axes(attrs.axis, len(shape), attrs.exclude) == (len(shape) - 1,)


def _mean_of(expr: RelayExpr) -> RelayExpr | None:
    """x, where ``expr`` is the mean of x over the last axis."""
    call = call_of(expr, "mean")
    return call.args[0] if call is not None and _over_last_axis(call) else None


def _is_square_of(expr: RelayExpr, base: RelayExpr) -> bool:
    if (power := call_of(expr, "power")) is not None:
        return power.args[0] is base and scalar_constant(power.args[1]) == 2
    product = call_of(expr, "multiply")
    return product is not None and product.args[0] is base and product.args[1] is base


def _spread(expr: RelayExpr, deviation: Call) -> bool:
    """Whether ``expr`` is the variance of what ``deviation`` is the deviation from the mean of."""
    data, mean = deviation.args
    if (variance := call_of(expr, "variance")) is not None:
        attrs: Any = variance.attrs
        return (
            variance.args[0] is data and variance.args[1] is mean and _over_last_axis(variance) and not attrs.unbiased
        )
    square = _mean_of(expr)
    return square is not None and _is_square_of(square, deviation)


def _plus_epsilon(expr: RelayExpr) -> tuple[RelayExpr, float] | None:
    """(v, epsilon), where ``expr`` is v + epsilon."""
    total = call_of(expr, "add")
    for value, constant in ((0, 1), (1, 0)) if total is not None else ():
        assert total is not None
        epsilon = scalar_constant(total.args[constant])
        if epsilon is not None and epsilon >= 0:
            return total.args[value], epsilon
    return None


def _reciprocal_root(expr: RelayExpr) -> RelayExpr | None:
    """v, where ``expr`` is 1 / sqrt(v)."""
    if (root := call_of(expr, "rsqrt")) is not None:
        return root.args[0]
    quotient = call_of(expr, "divide")
    if quotient is not None and scalar_constant(quotient.args[0]) == 1:
        root = call_of(quotient.args[1], "sqrt")
        return None if root is None else root.args[0]
    return None


def _standardized(call: Call) -> tuple[RelayExpr, float] | None:
    """(x, epsilon), where ``call`` is (x - mean x) / sqrt(variance x + epsilon)."""
    candidates: list[tuple[RelayExpr, RelayExpr | None]] = []
    if call_of(call, "divide") is not None:
        root = call_of(call.args[1], "sqrt")
        candidates.append((call.args[0], None if root is None else root.args[0]))
    elif call_of(call, "multiply") is not None:
        candidates += [(call.args[k], _reciprocal_root(call.args[1 - k])) for k in (0, 1)]
    for numerator, radicand in candidates:
        deviation = call_of(numerator, "subtract")
        found = None if radicand is None else _plus_epsilon(radicand)
        if deviation is None or found is None or _mean_of(deviation.args[1]) is not deviation.args[0]:
            continue
        if _spread(found[0], deviation):
            return deviation.args[0], found[1]
    return None


class _Recognizer(Recognizer):
    """Finds the standardised value first; scale and shift join it as the walk comes to them."""

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        type_ = pre.checked_type
        shape = known_dims(pre)
        if (
            not isinstance(type_, TensorType)
            or type_.dtype not in ("float32", "float64")
            or not shape
            or not isinstance(shape[-1], int)
        ):
            return post
        found = _standardized(pre)
        if found is not None and known_dims(found[0]) == shape:
            data, epsilon = found
            ones, zeros = (const(np.full(int(shape[-1]), v, type_.dtype)) for v in (1, 0))
            return relay_op.nn.layer_norm(self.visit(data), ones, zeros, -1, epsilon, center=False, scale=False)
        for field, name in (("scale", "multiply"), ("center", "add")):
            if call_of(pre, name) is not None and (joined := self._join(pre, post, field, shape)) is not None:
                return joined
        return post

    def _join(self, pre: Call, post: Call, field: str, shape: tuple[Any, ...]) -> RelayExpr | None:
        """``post`` as part of the normalisation that it scales or shifts by a vector along the last axis."""
        for k in (0, 1):
            norm, vector = call_of(post.args[k], "nn.layer_norm"), known_dims(pre.args[1 - k])
            if norm is None or vector is None or self.uses[pre.args[k]] != 1 or known_dims(pre.args[k]) != shape:
                continue
            attrs: Any = norm.attrs
            taken = attrs.center or (field == "scale" and attrs.scale)
            if (
                taken
                or attrs.axis != -1
                or vector[-1:] != shape[-1:]
                or any(not isinstance(n, int) or n != 1 for n in vector[:-1])
            ):
                continue
            operand = post.args[1 - k]
            if len(vector) > 1:
                operand = relay_op.reshape(operand, newshape=vector[-1:])
            args = [norm.args[0], operand, norm.args[2]] if field == "scale" else [*norm.args[:2], operand]
            return Call(norm.op, args, attrs.replace(**{field: True}))
        return None


def RecognizeLayerNorm() -> Pass:
    """Turn spelled-out layer normalisations into ``nn.layer_norm``."""
    return recognition_pass(_Recognizer, "RecognizeLayerNorm")
