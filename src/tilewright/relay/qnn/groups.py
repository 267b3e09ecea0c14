"""Quantized groups: dequantize -> operator (-> bias) (-> activation) -> quantize, as arithmetic on the integers.

A network quantized in ONNX's form (QDQ) computes each operator between ``qnn.dequantize`` and ``qnn.quantize``.
``describe`` says of such a group what integers to compute, in a form that every target follows to the bit:

======== ==========================================================================================================
Product  ``sum = sum((x - zx) * w) + b``, exact; ``clip(rint(f32(sum) * m[c]) + zy, low, high)``.
         A convolution or dense layer with constant weights (zero points 0). ``u[c] = f32(sx * sw[c])``,
         ``m[c] = f32(u[c] / sy)``, ``b = rint(bias / u[c])``.
Sum      ``clip(rint((a - za) * ma + (b - zb) * mb) + zy, low, high)``, ``ma = sa / sy`` rounded to 15 bits, so that
         both products are exact in float32: a fused multiply-add gives what two operations give.
Mean     ``sum = sum(x - zx)`` over the picture, exact; ``clip(rint(f32(sum) * m) + zy, low, high)``,
         ``m = f32(sx / (n * sy))``.
Move     ``op(x)`` on the integers, where the operator only chooses and moves; then, where scales differ,
         ``clip(rint(f32(x - zx) * m) + zy, low, high)``, ``m = f32(sx / sy)``.
======== ==========================================================================================================

``f32`` rounds to the nearest float32, ``rint`` to the nearest integer, halves to even; each ``*`` and ``+`` of floats
is one float32 operation. relu and clip between operator and quantize are in ``low`` and ``high``: rounding keeps order.
The result differs from that of the operators in floating point by rounding alone, at most one step of the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Constant
from tilewright.relay.op.nn.activation import relu
from tilewright.relay.op.nn.bias_add import BiasAdd
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.op.nn.dense import Dense
from tilewright.relay.op.nn.pooling import GlobalAvgPool2D, MaxPool2D
from tilewright.relay.op.reduce.reduce import Mean as MeanOp
from tilewright.relay.op.tensor.binary import add
from tilewright.relay.op.tensor.unary import Clip
from tilewright.relay.op.transform.axes import Transpose
from tilewright.relay.qnn.op import Dequantize, Quantize
from tilewright.relay.qnn.operators.binary import few_bits
from tilewright.relay.transform.common import call_of, op_of, trait_of

Array = np.ndarray[Any, Any]

_LARGEST_BIAS = 2**30


@dataclass(frozen=True)
class Quantized:
    """Integers ``tensor`` that stand for ``(tensor - zero) * scale``."""

    tensor: RelayExpr
    scale: float
    zero: int

    @property
    def dtype(self) -> str:
        """Type of the integers."""
        return str(self.tensor.checked_type.dtype)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Output:
    """How what was computed becomes integers again: ``clip(rint(...) + zero, low, high)``."""

    dtype: str
    zero: int
    low: int
    high: int


@dataclass(frozen=True)
class Product:
    """A convolution or dense layer; ``weight`` are integers in its layout, ``bias`` one for each channel or None."""

    operator: Call
    data: Quantized
    weight: Array
    bias: Array | None
    multiplier: Array  # float32, one for each output channel
    output: Output

    @property
    def largest_sum(self) -> int:
        """No partial sum, in any order, is larger than this."""
        low, high = dt.int_range(self.data.dtype)
        low, high = low - self.data.zero, high - self.data.zero
        rows = self.weight.reshape(self.weight.shape[0], -1).astype(np.int64)
        positive = np.where(rows > 0, rows, 0).sum(axis=1)
        negative = positive - rows.sum(axis=1)
        bias = 0 if self.bias is None else np.abs(self.bias)
        sums = np.maximum(positive * high - negative * low, negative * high - positive * low) + bias
        return int(sums.max(initial=0))


@dataclass(frozen=True)
class Sum:
    """An addition of two tensors of one shape."""

    operator: Call
    data: tuple[Quantized, Quantized]
    multipliers: tuple[np.float32, np.float32]
    output: Output


@dataclass(frozen=True)
class Mean:
    """A mean over height and width of ``count`` elements each."""

    operator: Call
    data: Quantized
    count: int
    multiplier: np.float32
    output: Output


@dataclass(frozen=True)
class Move:
    """An operator that chooses or moves elements; ``multiplier`` is 1 where input and output have one scale."""

    operator: Call | None
    data: Quantized
    multiplier: np.float32
    output: Output


Group = Product | Sum | Mean | Move


def _array(expr: RelayExpr) -> Array | None:
    return expr.data.numpy() if isinstance(expr, Constant) else None


def _parameters(expr: RelayExpr, op: Op) -> tuple[RelayExpr, Array, Array] | None:
    """Data, constant scales and constant zero points of a call of ``op``."""
    call = call_of(expr, op)
    if call is None:
        return None
    scale, zero = _array(call.args[1]), _array(call.args[2])
    return None if scale is None or zero is None else (call.args[0], scale.reshape(-1), zero.reshape(-1))


def dequantized(expr: RelayExpr) -> Quantized | None:
    """What a dequantize of a whole tensor of 8-bit integers gives."""
    found = _parameters(expr, Dequantize.op)
    if found is None or found[1].size != 1 or found[2].size != 1 or not found[1][0] > 0:
        return None
    type_ = found[0].checked_type
    if not isinstance(type_, TensorType) or type_.dtype not in ("int8", "uint8") or type_.is_dynamic:
        return None
    return Quantized(found[0], float(found[1][0]), int(found[2][0]))


def _weight(expr: RelayExpr) -> tuple[Array, Array] | None:
    """Integers and scales, one for each row or one, of a constant dequantized weight; zero points are 0."""
    turned = call_of(expr, Transpose.op)
    inner = expr if turned is None else turned.args[0]
    found = _parameters(inner, Dequantize.op)
    weight = None if found is None else _array(found[0])
    if found is None or weight is None or weight.dtype != np.int8 or found[2].any():
        return None
    axis = inner.attrs.axis % weight.ndim  # type: ignore[attr-defined]
    if turned is not None:
        order: Any = turned.attrs.axes  # type: ignore[union-attr]
        order = [int(a) % weight.ndim for a in order] if order else list(range(weight.ndim))[::-1]
        weight, axis = np.ascontiguousarray(weight.transpose(order)), order.index(axis)
    return (weight, found[1]) if found[1].size == 1 or axis == 0 else None


def _bias(expr: RelayExpr, scale: Array) -> Array | None:
    """The integers nearest to a constant bias in units of ``scale``; None where they would be too large."""
    array = _array(expr)
    if array is None:
        found = _parameters(expr, Dequantize.op)
        whole = None if found is None else _array(found[0])
        if found is None or whole is None:
            return None
        array = (whole.astype(np.int64) - found[2]) * found[1].astype(np.float64)
    rounded = np.rint(array.astype(np.float64).reshape(-1) / scale)
    return None if np.abs(rounded).max(initial=0) > _LARGEST_BIAS else rounded.astype(np.int64)


def _output(call: Call) -> tuple[RelayExpr, float, Output] | None:
    """What a quantize of a whole tensor to 8 bits is given before its activation, the scale, and the limits."""
    found = _parameters(call, Quantize.op)
    dtype = str(getattr(call.attrs, "out_dtype", ""))
    if found is None or found[1].size != 1 or found[2].size != 1 or dtype not in ("int8", "uint8"):
        return None
    value, scale, zero = found[0], np.float32(found[1][0]), int(found[2][0])
    if not scale > 0:
        return None
    least, most = dt.int_range(dtype)

    def quantized(number: float) -> int:
        return int(np.clip(np.rint(np.float32(number) / scale) + zero, least, most))

    low, high = least, most
    while (op := op_of(value)) in (relu.op, Clip.op):
        assert isinstance(value, Call)
        attrs: Any = value.attrs
        bounds = (quantized(0.0), most) if op is relu.op else (quantized(attrs.a_min), quantized(attrs.a_max))
        low, high = min(max(low, bounds[0]), bounds[1]), max(min(high, bounds[1]), bounds[0])
        value = value.args[0]
    return value, float(scale), Output(dtype, zero, low, high)


def describe(call: RelayExpr) -> Group | None:
    """The group that ends in ``call``, a typed ``qnn.quantize``; None where it is no group."""
    found = _output(call) if isinstance(call, Call) else None
    if found is None:
        return None
    value, scale, output = found
    op = op_of(value)
    if op in (Conv2D.op, Dense.op, BiasAdd.op):
        return _product(value, scale, output)
    if op is add.op:
        return _sum(value, scale, output) or _product(value, scale, output)
    if op in (GlobalAvgPool2D.op, MeanOp.op):
        return _mean(value, scale, output)
    return _move(value, scale, output)


def _product(value: RelayExpr, scale: float, output: Output) -> Product | None:
    operator, bias_expr = value, None
    if isinstance(value, Call) and value.op in (BiasAdd.op, add.op):
        if value.op is add.op and not _is_row(value):
            return None
        operator, bias_expr = value.args
    if not isinstance(operator, Call) or operator.op not in (Conv2D.op, Dense.op):
        return None
    attrs: Any = operator.attrs
    if operator.op is Conv2D.op and (attrs.data_layout, attrs.kernel_layout) != ("NCHW", "OIHW"):
        return None
    data, weights = dequantized(operator.args[0]), _weight(operator.args[1])
    if data is None or weights is None:
        return None
    weight, weight_scale = weights
    unit = np.broadcast_to(weight_scale * np.float32(data.scale), (weight.shape[0],)).astype(np.float64)
    bias = None if bias_expr is None else _bias(bias_expr, unit)
    if bias_expr is not None and bias is None:
        return None
    return Product(operator, data, weight, bias, (unit / scale).astype(np.float32), output)


def _is_row(addition: Call) -> bool:
    """Whether an addition is that of a bias to a dense layer."""
    product, row = addition.args
    shape = row.checked_type.shape  # type: ignore[attr-defined]
    return op_of(product) is Dense.op and len(shape) == 1


def _sum(value: RelayExpr, scale: float, output: Output) -> Sum | None:
    assert isinstance(value, Call)
    left, right = (dequantized(a) for a in value.args)
    if left is None or right is None or left.tensor.checked_type.shape != right.tensor.checked_type.shape:  # type: ignore
        return None
    factors = tuple(few_bits(side.scale / scale) for side in (left, right))
    return Sum(value, (left, right), (factors[0], factors[1]), output)


def _mean(value: RelayExpr, scale: float, output: Output) -> Mean | None:
    assert isinstance(value, Call)
    data = dequantized(value.args[0])
    attrs: Any = value.attrs
    if data is None or len(data.tensor.checked_type.shape) != 4:  # type: ignore[attr-defined]
        return None
    if value.op is MeanOp.op:
        axes = sorted(int(a) % 4 for a in (attrs.axis if isinstance(attrs.axis, Sequence) else [attrs.axis or 0]))
        if axes != [2, 3] or attrs.exclude:
            return None
    elif attrs.layout != "NCHW":
        return None
    *_, height, width = data.tensor.checked_type.concrete_shape  # type: ignore[attr-defined]
    return Mean(value, data, height * width, np.float32(data.scale / (height * width * scale)), output)


def _move(value: RelayExpr, scale: float, output: Output) -> Move | None:
    pool = call_of(value, MaxPool2D.op)
    moved = value if isinstance(value, Call) and trait_of(value, "TMovesData") and len(value.args) == 1 else None
    operator = pool or moved
    data = dequantized(value if operator is None else operator.args[0])
    if data is None or data.dtype != output.dtype:
        return None
    if pool is not None and pool.attrs.layout != "NCHW":  # type: ignore[union-attr]
        return None
    return Move(operator, data, np.float32(data.scale / scale), output)
