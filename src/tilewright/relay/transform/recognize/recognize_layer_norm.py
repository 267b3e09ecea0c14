"""RecognizeLayerNorm: replace layer normalization in basic operators by ``nn.layer_norm``.

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
from tilewright.relay import op
from tilewright.relay.dataflow_pattern import is_op, is_scalar, wildcard
from tilewright.relay.expr import Call, const
from tilewright.relay.op.relations import normalize_axes
from tilewright.relay.transform.common import known_dims
from tilewright.relay.transform.rules import ALL, Match, Rule, RuleTable


def _over_last_axis(call: Call) -> bool:
    attrs: Any = call.attrs
    shape = known_dims(call.args[0])
    if shape is None or not attrs.keepdims:
        return False
    return normalize_axes(attrs.axis, len(shape), attrs.exclude) == (len(shape) - 1,)


def _is_of_rows(m: Match) -> bool:
    """Return whether the result is of floats, with rows of known length."""
    shape = known_dims(m.root)
    floats = isinstance(m.type, TensorType) and m.type.dtype in ("float32", "float64")
    return floats and bool(shape) and isinstance(shape[-1], int)  # type: ignore[index]


def _is_standardized(m: Match) -> bool:
    statistics = [m[p] for p in (MEAN, SPREAD, VARIANCE) if p in m]
    biased = VARIANCE not in m or not m[VARIANCE].attrs.unbiased
    same_shape = known_dims(m[x]) == known_dims(m.root)
    return _is_of_rows(m) and same_shape and biased and m.number(EPSILON) >= 0 and all(map(_over_last_axis, statistics))


def _normalized(m: Match) -> RelayExpr:
    ones, zeros = (const(np.full(m.type.shape[-1].value, v, m.dtype)) for v in (1, 0))  # type: ignore[attr-defined]
    return op.nn.layer_norm(m[x], ones, zeros, -1, m.number(EPSILON), center=False, scale=False)


def _takes_vector(m: Match) -> bool:
    """Return whether the operand beside a normalization that has no shift yet is a vector along the last axis."""
    attrs, shape, vector = m[NORM].attrs, known_dims(m.root), known_dims(m[v])
    if not _is_of_rows(m) or shape is None or vector is None or known_dims(m[NORM]) != shape:
        return False
    along = vector[-1:] == shape[-1:] and all(isinstance(n, int) and n == 1 for n in vector[:-1])
    return along and attrs.axis == -1 and not attrs.center


def _is_unscaled(m: Match) -> bool:
    return not m[NORM].attrs.scale and _takes_vector(m)


def _vector(m: Match) -> RelayExpr:
    shape = known_dims(m[v]) or ()
    return op.reshape(m[v], newshape=shape[-1:]) if len(shape) > 1 else m[v]


def _scaled(m: Match) -> RelayExpr:
    return Call(m[NORM].op, [m[x], _vector(m), m[BETA]], m[NORM].attrs.replace(scale=True))


def _shifted(m: Match) -> RelayExpr:
    return Call(m[NORM].op, [m[x], m[GAMMA], _vector(m)], m[NORM].attrs.replace(center=True))


x, v, GAMMA, BETA = wildcard(), wildcard(), wildcard(), wildcard()
EPSILON = is_scalar()
MEAN = is_op("mean")(x)
DEVIATION = x - MEAN
SPREAD = is_op("mean")(is_op("power")(DEVIATION, is_scalar(2)) | DEVIATION * DEVIATION)
VARIANCE = is_op("variance")(x, MEAN)
RADICAND = (VARIANCE | SPREAD) + EPSILON
ROOT = is_op("sqrt")(RADICAND)
STANDARDIZED = DEVIATION / ROOT | DEVIATION * (is_op("rsqrt")(RADICAND) | is_scalar(1) / ROOT)
NORM = is_op("nn.layer_norm")(x, GAMMA, BETA)

# The first rule computes rows once for each of its uses: it pays off though parts are computed elsewhere too.
RULES = RuleTable("RecognizeLayerNorm", [
    Rule("(x - mean x) / sqrt(var x + e) -> norm x", STANDARDIZED, _normalized, _is_standardized, ALL),
    Rule("norm x * v -> norm(x, scale v)", NORM * v, _scaled, _is_unscaled),
    Rule("norm(x, scale g) + v -> norm(x, scale g, center v)", NORM + v, _shifted, _takes_vector),
])  # fmt: skip


def RecognizeLayerNorm() -> Pass:
    """Replace layer normalization in basic operators by ``nn.layer_norm``."""
    return RULES.as_pass("RecognizeLayerNorm", 3)
