"""Which bytes a target multiplies best: conv2d and dense with their operands moved by 128, and their zero points too.

x86-64    uint8 data, int8 weights: the operands of ``vpdpbusd`` and ``vpmaddubsw``
AArch64   both of the weights' type: ``sdot`` or ``udot``
CUDA      both int8: ``dp4a``

A CPU that names no processor with such instructions gets Relay's core operators at once, as in TVM 0.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.type import TensorType, Type
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, const
from tilewright.relay.op.nn.conv2d import Conv2D as FloatConv2D
from tilewright.relay.op.strategy.wrappers import is_depthwise
from tilewright.relay.qnn.byte_products import EXACT, multiplies_bytes
from tilewright.relay.qnn.operators.by_target import qnn_conv2d_legalize, qnn_dense_legalize
from tilewright.relay.qnn.operators.convolution import Conv2D
from tilewright.relay.qnn.operators.parameters import along, dtype_of, shape_of, value_of
from tilewright.relay.qnn.operators.product import Dense
from tilewright.target.features import features
from tilewright.target.target import Target

Args = Sequence[RelayExpr]
Types = Sequence[Type]


def _moved(data: RelayExpr, zero: RelayExpr, dtype: str) -> tuple[RelayExpr, RelayExpr]:
    """Bytes of the other type as ``dtype``, and their zero point: both 128 more, or less."""
    step = 128 if dtype == "uint8" else -128
    wide = relay_op.add(relay_op.cast(data, "int32"), const(step, "int32"))
    value = value_of(zero)
    if value is not None:
        return relay_op.cast(wide, dtype), const(value.astype("int32") + step)
    return relay_op.cast(wide, dtype), relay_op.add(relay_op.cast(zero, "int32"), const(step, "int32"))


def with_bytes(op: Op, attrs: Attrs, args: Args, types: Types, data: str, weight: str) -> RelayExpr | None:
    """The call of ``op`` with operands of these types; None where they are that."""
    found = dtype_of(types[0]), dtype_of(types[1])
    if found == (data, weight):
        return None
    x, w, x_zero, w_zero, *scales = args
    if found[0] != data:
        x, x_zero = _moved(x, x_zero, data)
    if found[1] != weight:
        w, w_zero = _moved(w, w_zero, weight)
    return Call(op, [x, w, x_zero, w_zero, *scales], attrs)


def _cpu(op: Op, attrs: Any, args: Args, types: Types) -> RelayExpr | None:
    """uint8 times int8 on x86-64 with SSE 4.2."""
    target = Target.current()
    processor = features(target)
    in_float32 = _in_float32(op, attrs, args, types)
    if in_float32 is not None:
        return in_float32
    found = with_bytes(op, attrs, args, types, "uint8", "int8") if processor.has("sse4.2") else None
    if processor.has("sse4.2") and target is not None and target.mcpu:
        return found
    return _core(op, attrs, args, types, found)


def _arm(op: Op, attrs: Any, args: Args, types: Types) -> RelayExpr | None:
    """Both of one type where the processor has dot products; they follow from the compiler for NHWC in AArch64."""
    processor = features(Target.current())
    if not processor.has("dotprod") and not (processor.arch == "aarch64" and _is_wide_nhwc(op, attrs, types)):
        return _in_float32(op, attrs, args, types) or _core(op, attrs, args, types, None)
    return with_bytes(op, attrs, args, types, dtype_of(types[1]), dtype_of(types[1]))


def _is_wide_nhwc(op: Op, attrs: Any, types: Types) -> bool:
    data = types[0]
    if op is not Conv2D.op or not isinstance(data, TensorType):
        return False
    return attrs.data_layout == "NHWC" and not is_depthwise(attrs, data.shape)


def _in_float32(op: Op, attrs: Any, args: Args, types: Types) -> RelayExpr | None:
    """The same sums by the kernels of floats, which are faster than those of integers where the target has no products
    of bytes for such channels; None where it has, or where float32 could not hold a sum.
    """
    weight, zero = value_of(args[1]), value_of(args[3])
    if op is not Conv2D.op or weight is None or zero is None or min(weight.shape, default=0) == 0:
        return None
    axis = attrs.kernel_layout.index("O")
    rows = np.moveaxis(weight.astype("int64") - along(zero.astype("int64"), 4, axis), axis, 0)
    largest = 255 * max(int(np.maximum(s * rows, 0).sum(axis=(1, 2, 3)).max()) for s in (1, -1))
    channels = rows.shape[1] * attrs.groups if attrs.kernel_layout == "OIHW" else 0
    if largest >= EXACT or (channels and _takes_bytes(channels, len(rows), attrs.groups)):
        return None
    whole = np.moveaxis(rows, 0, axis).astype("float32")
    data = relay_op.subtract(relay_op.cast(args[0], "float32"), relay_op.cast(args[2], "float32"))
    return relay_op.cast(
        Call(FloatConv2D.op, [data, const(whole)], attrs.replace(out_dtype="float32")), attrs.out_dtype
    )


def _takes_bytes(channels: int, units: int, groups: int) -> bool:
    return multiplies_bytes() and topi.nn.conv2d_byte_channels(channels, units, groups) == (channels, units)


def _core(op: Op, attrs: Any, args: Args, types: Types, changed: RelayExpr | None) -> RelayExpr | None:
    """The call, or what it was changed to, in Relay's core operators."""
    canonicalize = op.get_attr("FTVMQnnCanonicalize")
    if isinstance(changed, Call):
        bytes_: Any = [TensorType(shape_of(t), d) for t, d in zip(types[:2], ("uint8", "int8"), strict=True)]
        args, types = changed.args, (*bytes_, *types[2:])
    found: RelayExpr | None = canonicalize(attrs, list(args), list(types))
    return found


for _op, _function in ((Conv2D.op, qnn_conv2d_legalize), (Dense.op, qnn_dense_legalize)):
    _function.provide("cpu", lambda attrs, args, types, op=_op: _cpu(op, attrs, args, types))
    _function.provide("arm_cpu", lambda attrs, args, types, op=_op: _arm(op, attrs, args, types))
    _function.provide("cuda", lambda attrs, args, types, op=_op: with_bytes(op, attrs, args, types, "int8", "int8"))
