"""Numbers that only one operator reads need not become bytes: they are whole, and within a byte's limits, before.

Before, of a convolution of floats or of 16 bits after another one::

    %1 = add(nearbyint(%0), 3f);
    %2 = cast(clip(%1, 0f, 255f), dtype="uint8");
    subtract(cast(%2, dtype="float32"), 3f)

after::

    clip(nearbyint(%0), -3f, 252f)

Both in float32, which has all these numbers. A byte that others read, too, stays: it is what they share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Constant
from tilewright.relay.op.tensor.binary import add, subtract
from tilewright.relay.op.tensor.unary import Cast, Clip, nearbyint
from tilewright.relay.transform.common import Recognizer, call_of

_BYTES = ("int8", "uint8")
_HOLDS_ALL = ("float32", "int16", "int32")  # the bytes, and their differences from a zero point


class SkipBytes(Recognizer):
    """Rewrite conversions of bytes that were rounded for them alone."""

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if pre.op is Cast.op:
            return self._converted(pre, post) or post
        return _less(post) or post if pre.op is subtract.op else post

    def _converted(self, wide: Call, post: Call) -> RelayExpr | None:
        """Return what is cast to bytes and then to a wider type as that type at once."""
        attrs: Any = post.attrs
        byte, rounded = wide.args[0], call_of(post.args[0], Cast.op)
        if rounded is None or self.uses[byte] != 1 or attrs.dtype not in _HOLDS_ALL:
            return None
        whole = _limited(rounded)
        if whole is None:
            return None
        return whole if attrs.dtype == "float32" else relay_op.cast(whole, attrs.dtype)


def _limited(cast: Call) -> RelayExpr | None:
    """Return the whole numbers within a byte's limits that ``cast`` makes bytes."""
    attrs: Any = cast.attrs
    clip = call_of(cast.args[0], Clip.op)
    if clip is None or attrs.dtype not in _BYTES:
        return None
    limits: Any = clip.attrs
    low, high = dt.int_range(attrs.dtype)
    inside = low <= limits.a_min <= limits.a_max <= high
    added = call_of(clip.args[0], add.op)
    value = clip.args[0] if added is None or _number(added.args[1]) is None else added.args[0]
    return clip if inside and call_of(value, nearbyint.op) is not None else None


def _less(difference: Call) -> RelayExpr | None:
    """Return ``clip(whole + zero) - zero`` as limits less the zero point."""
    value, zero = difference.args[0], _number(difference.args[1])
    outer = call_of(value, Cast.op)
    clip = call_of(value if outer is None else outer.args[0], Clip.op)
    added = None if clip is None else call_of(clip.args[0], add.op)
    if clip is None or zero is None or added is None or _number(added.args[1]) != zero:
        return None
    if call_of(added.args[0], nearbyint.op) is None:
        return None
    limits: Any = clip.attrs
    whole = relay_op.clip(added.args[0], limits.a_min - zero, limits.a_max - zero)
    wide: Any = None if outer is None else outer.attrs
    return whole if wide is None else relay_op.cast(whole, wide.dtype) if wide.dtype in ("int16", "int32") else None


def _number(expr: RelayExpr) -> float | None:
    """Return the whole number of a constant scalar."""
    array = expr.data.numpy() if isinstance(expr, Constant) else np.empty(0)
    return float(array.reshape(())) if array.size == 1 and float(array.reshape(())).is_integer() else None
