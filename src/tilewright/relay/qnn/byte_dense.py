"""Quantized dense layers as sums of products of bytes, where the target has instructions for them.

Zero points and bias become one number for each column, as those of convolutions (``byte_products``)::

    sum((x - zx) * w) + b  ==  sum(x * w) + (b - zx * sum(w))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.expr import RelayExpr
from tilewright.ir.transform import PassContext
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, const
from tilewright.relay.op.nn.dense import Dense
from tilewright.relay.qnn.byte_products import Zero, plus_offset
from tilewright.relay.qnn.groups import Product
from tilewright.relay.transform.layout.alter_op_layout import AlterOpLayout

_LARGEST = 255 * 128  # of a product of bytes less their zero points


def multiplies_matrices() -> bool:
    """Return whether the target sums products of matrices of bytes fast, in layouts that this build chooses."""
    ctx = PassContext.current()
    packs = ctx.pass_enabled(AlterOpLayout().info) and not ctx.option("relay.backend.use_auto_scheduler")
    return packs and bool(ctx.option("relay.qnn.bytes")) and bool(topi.nn.dense_takes_bytes())


def takes_bytes(group: Product) -> bool:
    """Return whether a group is a dense layer whose weights are bytes, and whose sums int32 holds."""
    weight, bias = group.weight, 0 if group.bias is None else int(np.abs(group.bias).max(initial=0))
    is_dense = group.operator.op is Dense.op and weight.dtype == np.int8 and weight.size > 0
    return is_dense and weight.shape[1] * _LARGEST + bias < 2**31


def scaled_sums(group: Product, data: RelayExpr, zero: Zero) -> RelayExpr:
    """Return the result before rounding, in float32, of bytes ``data`` with this zero point."""
    attrs: Any = group.operator.attrs
    total: RelayExpr = Call(Dense.op, [data, const(group.weight)], attrs.replace(out_dtype="int32"))
    total = plus_offset(total, group.bias, zero, group.weight.sum(axis=1, dtype=np.int64), "int32")
    return relay_op.multiply(relay_op.cast(total, "float32"), const(group.multiplier))
