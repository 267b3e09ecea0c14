"""Products of two computed matrices as sums of products of bytes, where the target has instructions for them::

sum((a - za) * (b - zb))  ==  sum(a * b) - za * sum(b) - zb * sum(a) + n * za * zb
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, const
from tilewright.relay.op.nn.dense import BatchMatmul
from tilewright.relay.qnn.byte_dense import multiplies_matrices
from tilewright.relay.qnn.groups import Pair, Quantized

_FLIP = 128  # between uint8 and the int8 of the same bits but the first
_LARGEST = 255 * 255 * 4  # of a product of bytes, and of what zero points add to it


def pair_of_bytes(group: Pair, form: Any) -> RelayExpr | None:
    """Return the sums of a group in int32; None where they are no products of bytes.

    ``form``: how ``CanonicalizeOps`` writes integers (``exact.Form``).
    """
    attrs: Any = group.operator.attrs
    fits = group.operator.op is BatchMatmul.op and group.inner * _LARGEST < 2**31
    if not fits or attrs.transpose_a or not multiplies_matrices():
        return None
    (a, a_zero), (b, b_zero) = form.integers(group.data[0]), _signed(group.data[1], form)
    sums: RelayExpr = Call(BatchMatmul.op, [a, b], attrs.replace(out_dtype="int32"))
    if a_zero:
        columns = relay_op.sum(relay_op.cast(b, "int32"), axis=[2 if attrs.transpose_b else 1])
        shift = relay_op.multiply(relay_op.expand_dims(columns, axis=1), const(a_zero, "int32"))
        sums = relay_op.subtract(sums, shift)
    if b_zero:
        rows = relay_op.sum(relay_op.cast(a, "int32"), axis=[2], keepdims=True)
        shift = relay_op.multiply(rows, const(b_zero, "int32"))
        both = const(group.inner * a_zero * b_zero, "int32")
        sums = relay_op.subtract(sums, relay_op.subtract(shift, both))
    return sums


def _signed(data: Quantized, form: Any) -> tuple[RelayExpr, int]:
    """``data`` as int8, and its zero point."""
    tensor = form.visit(data.tensor)
    if data.dtype == "int8":
        return tensor, data.zero
    flipped = relay_op.bitwise_xor(tensor, const(_FLIP, "uint8"))
    return relay_op.reinterpret(flipped, "int8"), data.zero - _FLIP
