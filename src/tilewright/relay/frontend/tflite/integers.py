"""Sums, products and changes of scale of quantized tensors, as TensorFlow Lite's XNNPACK kernels compute them.

XNNPACK is what TensorFlow Lite's interpreter runs by default. Its factors are integers; halves are rounded up:

======== =============================================================================================
total    ``(a - za) * ma + (b - zb) * mb``, then a shift; the larger factor has 21 bits
product  ``f32((a - za) * (b - zb)) * f32(sa * sb / sy)``, rounded to the nearest, halves to even
change   ``(x - zx) * m``, then a shift by 8; ``m`` is the quotient of the scales times 256, rounded
======== =============================================================================================
"""

from __future__ import annotations

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.tflite.context import OperatorContext
from tilewright.relay.frontend.tflite.model import Tensor

_BITS = 20


def total(ctx: OperatorContext, sign: int) -> RelayExpr:
    """Return the sum or, with ``sign`` -1, the difference of the first two inputs, with its fused activation."""
    out = ctx.out()
    factors = [_factor(ctx.tensor(i), out) * (1, sign)[i] for i in (0, 1)]
    largest = max(abs(float(f)) for f in factors)
    shift = _BITS - (int(np.frexp(largest)[1]) - 1)
    if not 0 < shift < 31:
        join = relay_op.add if sign > 0 else relay_op.subtract
        return ctx.finished(join(ctx.real(0), ctx.real(1)))
    whole = [int(np.rint(np.ldexp(float(f), shift))) for f in factors]
    terms = [relay_op.multiply(_above_zero(ctx, i), const(m, "int32")) for i, m in enumerate(whole)]
    rounding = const(1 << (shift - 1), "int32")
    steps = relay_op.right_shift(relay_op.add(relay_op.add(*terms), rounding), const(shift, "int32"))
    return limited(ctx, steps)


def product(ctx: OperatorContext) -> RelayExpr:
    """Return the product of the first two inputs, with its fused activation."""
    a, b, out = ctx.tensor(0), ctx.tensor(1), ctx.out()
    assert a.scale is not None and b.scale is not None and out.scale is not None
    factor = a.scale[0] * b.scale[0] / out.scale[0]
    whole = relay_op.cast(relay_op.multiply(_above_zero(ctx, 0), _above_zero(ctx, 1)), "float32")
    steps = relay_op.nearbyint(relay_op.multiply(whole, const(factor)))
    return limited(ctx, relay_op.cast(relay_op.clip(steps, -65536.0, 65536.0), "int32"))


def requantized(ctx: OperatorContext, value: RelayExpr, source: Tensor, out: Tensor) -> RelayExpr:
    """Return integers of one scale as those of another."""
    factor = float(_factor(source, out))
    narrow = dt.bits(source.dtype) == dt.bits(out.dtype) == 8 and 2.0**-8 <= factor <= 2.0**7
    if not narrow:
        return ctx.result(ctx.dequantized(value, source))
    m = int(np.rint(256 * np.float32(factor)))
    steps = relay_op.multiply(_less(value, int(source.zero[0])), const(m, "int32"))
    return _saturated(relay_op.right_shift(relay_op.add(steps, const(128, "int32")), const(8, "int32")), out)


def limited(ctx: OperatorContext, steps: RelayExpr) -> RelayExpr:
    """Return steps of the result's scale, int32, as its integers, within the limits of the fused activation."""
    out = ctx.out()
    low, high = limits(ctx)
    zero = int(out.zero[0])
    value = relay_op.clip(relay_op.add(steps, const(zero, "int32")), float(low), float(high))
    return relay_op.cast(value, out.dtype)


def limits(ctx: OperatorContext) -> tuple[int, int]:
    """Return the least and the greatest integer of the result that the fused activation allows."""
    out = ctx.out()
    assert out.scale is not None
    low, high = dt.int_range(out.dtype)
    bounds = {1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}.get(ctx.option("activation", 0))
    if bounds is None:
        return low, high
    steps = [None if b is None else int(out.zero[0]) + int(np.rint(np.float32(b) / out.scale[0])) for b in bounds]
    least = low if steps[0] is None else max(low, steps[0])
    most = high if steps[1] is None else min(high, steps[1])
    return min(least, high), max(most, low)


def _saturated(steps: RelayExpr, out: Tensor) -> RelayExpr:
    low, high = dt.int_range(out.dtype)
    value = relay_op.clip(relay_op.add(steps, const(int(out.zero[0]), "int32")), float(low), float(high))
    return relay_op.cast(value, out.dtype)


def _factor(source: Tensor, out: Tensor) -> np.float32:
    assert source.scale is not None and out.scale is not None
    return np.float32(source.scale[0] / out.scale[0])


def _above_zero(ctx: OperatorContext, index: int) -> RelayExpr:
    return _less(ctx.raw(index), int(ctx.tensor(index).zero[0]))


def _less(value: RelayExpr, zero: int) -> RelayExpr:
    wide = relay_op.cast(value, "int32")
    return relay_op.subtract(wide, const(zero, "int32")) if zero else wide
