"""Quantized groups: dequantize -> operator (-> bias) (-> activation) -> quantize, as arithmetic on the integers.

A network quantized in ONNX's form (QDQ) computes each operator between ``qnn.dequantize`` and ``qnn.quantize``.
``describe`` says of such a group what integers to compute, in a form that every target follows to the bit:

========== ========================================================================================================
Product    ``sum = sum((x - zx) * w) + b``, exact; ``clip(rint(f32(sum) * m[c]) + zy, low, high)``.
           A convolution or dense layer with constant weights. ``u[c] = f32(sx * sw[c])``, ``m[c] = f32(u[c] / sy)``,
           ``b = rint(bias / u[c])``; ``w`` are the weights less their zero points.
Pair       ``sum = sum((a - za) * (b - zb))``, exact; ``clip(rint(f32(sum) * m) + zy, low, high)``.
           A product of two matrices that are computed. ``m = f32(f32(sa * sb) / sy)``.
Sum        ``clip(rint((a - za) * ma + (b - zb) * mb) + zy, low, high)``, ``ma = sa / sy`` rounded to 15 bits, so
           that both products are exact in float32: a fused multiply-add gives what two operations give.
Multiplied ``clip(rint(f32((a - za) * (b - zb)) * m) + zy, low, high)``, ``m = f32(f32(sa * sb) / sy)``.
Mean       ``sum = sum(x - zx)`` over some axes, exact; ``clip(rint(f32(sum) * m) + zy, low, high)``,
           ``m = f32(sx / (n * sy))``.
Windows    ``clip(rint(sum(x - zx) * f32(1 / n) * m) + zy, low, high)``, ``m = f32(sx / sy)``: a pool of means.
Table      ``table[x]``: a function of each element, computed in float64, rounded to float32, and quantized.
Shares     softmax: ``e = rint(exp(sx * (x - max)) * 2 ** k)`` by a table, summed in int32;
           ``clip(rint(f32(e) * (f32(1 / sy) / f32(sum))) + zy, low, high)``; k is the largest that sums allow.
Move       ``op(x)`` on the integers, where the operator only chooses and moves; then, where scales differ,
           ``clip(rint(f32(x - zx) * m) + zy, low, high)``, ``m = f32(sx / sy)``.
Joined     As Move of each of several tensors, and then the operator on the integers: concatenate, where.
========== ========================================================================================================

``f32`` rounds to the nearest float32, ``rint`` to the nearest integer, halves to even; each ``*`` and ``+`` of floats
is one float32 operation. relu and clip between operator and quantize are in ``low`` and ``high``: rounding keeps order.
A zero point that is ``early`` is added before ``rint``.
The result differs from that of the operators in floating point by rounding alone, at most one step of the output.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Constant
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.evaluation import evaluate_call
from tilewright.relay.op.nn.activation import Softmax, relu
from tilewright.relay.op.nn.bias_add import BiasAdd
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.op.nn.dense import BatchMatmul, Dense
from tilewright.relay.op.nn.pooling import GlobalAvgPool2D, MaxPool2D, avg_pool1d, avg_pool2d, avg_pool3d
from tilewright.relay.op.reduce.reduce import Mean as MeanOp
from tilewright.relay.op.tensor.binary import add, multiply
from tilewright.relay.op.tensor.creation import Where
from tilewright.relay.op.tensor.unary import Clip
from tilewright.relay.op.transform.axes import Transpose
from tilewright.relay.op.transform.join import Concatenate
from tilewright.relay.qnn.op import Dequantize, Quantize
from tilewright.relay.qnn.operators.binary import few_bits
from tilewright.relay.transform.common import call_of, op_of, pattern_of, trait_of
from tilewright.relay.visitor import direct_children, post_order

Array = np.ndarray[Any, Any]

_LARGEST_BIAS = 2**30
_MOST_SHARES = 2**20  # of a softmax: less would be left of the exponentials
_MOST_NODES = 32  # between dequantize and quantize


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

    @property
    def largest(self) -> int:
        """The largest distance of an integer from the zero point."""
        low, high = dt.int_range(self.dtype)
        return max(high - self.zero, self.zero - low)


@dataclass(frozen=True)
class Output:
    """How what was computed becomes integers again: ``clip(rint(...) + zero, low, high)``.

    ``early``: the zero point is added before rounding, which differs where halves round and it is odd.
    """

    dtype: str
    zero: int
    low: int
    high: int
    early: bool = False

    @property
    def is_free(self) -> bool:
        """Whether the limits are those of the type."""
        return (self.low, self.high) == dt.int_range(self.dtype)

    def flipped(self) -> Output:
        """The same of int8 as uint8: 128 more of everything."""
        return replace(self, dtype="uint8", zero=self.zero + 128, low=self.low + 128, high=self.high + 128)


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
    """An addition of two tensors."""

    operator: Call
    data: tuple[Quantized, Quantized]
    multipliers: tuple[np.float32, np.float32]
    output: Output


@dataclass(frozen=True)
class Pair:
    """A product of two matrices, or of batches of them, summed over ``inner`` elements."""

    operator: Call
    data: tuple[Quantized, Quantized]
    inner: int
    multiplier: np.float32
    output: Output

    @property
    def largest_sum(self) -> int:
        """No partial sum, in any order, is larger than this."""
        return self.inner * self.data[0].largest * self.data[1].largest


@dataclass(frozen=True)
class Multiplied:
    """A product of two tensors, element by element."""

    operator: Call
    data: tuple[Quantized, Quantized]
    multiplier: np.float32
    output: Output


@dataclass(frozen=True)
class Mean:
    """A mean over ``axes`` of ``count`` elements."""

    operator: Call
    data: Quantized
    axes: tuple[int, ...]
    count: int
    multiplier: np.float32
    output: Output


@dataclass(frozen=True)
class Windows:
    """Means of windows."""

    operator: Call
    data: Quantized
    multiplier: np.float32
    output: Output


@dataclass(frozen=True)
class Table:
    """A function of each element; ``values`` has the result for each number of the data's type, the least first."""

    operator: Call
    data: Quantized
    values: Array
    output: Output


@dataclass(frozen=True)
class Shares:
    """Softmax along ``axis``; ``exponentials`` by how far an element is below the largest, int32."""

    operator: Call
    data: Quantized
    axis: int
    exponentials: Array
    multiplier: np.float32
    output: Output


@dataclass(frozen=True)
class Move:
    """An operator that chooses or moves elements; ``multiplier`` is 1 where input and output have one scale."""

    operator: Call | None
    data: Quantized
    multiplier: np.float32
    output: Output


@dataclass(frozen=True)
class Joined:
    """An operator that makes one tensor of elements of several, each with its multiplier."""

    operator: Call
    data: tuple[Quantized, ...]
    multipliers: tuple[np.float32, ...]
    output: Output


Group = Product | Pair | Sum | Multiplied | Mean | Windows | Table | Shares | Move | Joined


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
    """Return the parts of a dequantize of a whole tensor of 8-bit integers, or None."""
    found = _parameters(expr, Dequantize.op)
    if found is None or found[1].size != 1 or found[2].size != 1 or not found[1][0] > 0:
        return None
    type_ = found[0].checked_type
    if not isinstance(type_, TensorType) or type_.dtype not in ("int8", "uint8"):
        return None
    return Quantized(found[0], float(found[1][0]), int(found[2][0]))


def weight_of(expr: RelayExpr) -> tuple[Array, Array] | None:
    """Return the integers less zero points, and scales, one for each row or one, of a constant dequantized weight."""
    inner, moves = expr, []
    while (turned := call_of(inner, Transpose.op)) is not None:
        inner = turned.args[0]
        moves.append(turned)
    found = _parameters(inner, Dequantize.op)
    weight = None if found is None else _array(found[0])
    if found is None or weight is None or weight.dtype not in (np.int8, np.uint8) or not (found[1] > 0).all():
        return None
    axis = inner.attrs.axis % weight.ndim  # type: ignore[attr-defined]
    zero = found[2] if found[2].size == 1 else found[2].reshape([-1 if i == axis else 1 for i in range(weight.ndim)])
    weight = _shifted(weight, zero)
    for move in reversed(moves):
        order: Any = move.attrs.axes  # type: ignore[union-attr]
        order = [int(a) % weight.ndim for a in order] if order else list(range(weight.ndim))[::-1]
        weight, axis = np.ascontiguousarray(weight.transpose(order)), order.index(axis)
    return (weight, found[1]) if found[1].size == 1 or axis == 0 else None


def _shifted(weight: Array, zero: Array) -> Array:
    """A weight less its zero points: int8 where that has them all, else int16."""
    if weight.dtype == np.int8 and not zero.any():
        return weight
    wide = weight.astype(np.int16) - zero.astype(np.int16)
    return wide.astype(np.int8) if wide.min(initial=0) >= -128 and wide.max(initial=0) <= 127 else wide


def _bias(expr: RelayExpr, scale: Array) -> Array | None:
    """The integers nearest to a constant bias in units of ``scale``; None where they would be too large."""
    array = _array(expr)
    if array is None:
        found = _parameters(expr, Dequantize.op)
        whole = None if found is None else _array(found[0])
        if found is None or whole is None:
            return None
        counts = whole.astype(np.int64) - found[2]
        if np.array_equal(np.broadcast_to(found[1], scale.shape), scale.astype(np.float32)):
            array = np.broadcast_to(counts.reshape(-1), scale.shape) * scale  # whole units, however large
        else:
            array = counts * found[1].astype(np.float64)
    rounded = np.rint(array.astype(np.float64).reshape(-1) / scale)
    return None if np.abs(rounded).max(initial=0) > _LARGEST_BIAS else rounded.astype(np.int64)


def _output(call: Call) -> tuple[RelayExpr, float, Output] | None:
    """Return the input of a quantize of a whole tensor to 8 bits before its activation, the scale, and the limits."""
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


def _with_early_zero(value: RelayExpr, scale: float, output: Output) -> tuple[RelayExpr, float, Output]:
    """The quantized value, where so many steps of the scale are added to a sum or product: an early zero point."""
    total = call_of(value, add.op)
    if total is None or output.zero or not output.is_free or op_of(total.args[0]) not in (add.op, multiply.op):
        return value, scale, output
    added = _array(total.args[1])
    steps = int(np.rint(added.reshape(-1)[0] / scale)) if added is not None and added.size == 1 else 0
    low, high = dt.int_range(output.dtype)
    if added is None or not low <= steps <= high or np.float32(steps) * np.float32(scale) != added.reshape(-1)[0]:
        return value, scale, output
    return total.args[0], scale, replace(output, zero=steps, early=True)


def describe(call: RelayExpr) -> Group | None:
    """The group that ends in ``call``, a typed ``qnn.quantize``; None where it is no group."""
    found = _output(call) if isinstance(call, Call) else None
    if found is None:
        return None
    value, scale, output = _with_early_zero(*found)
    for describer in _DESCRIBERS.get(op_of(value), (_move, _table)):
        group = describer(value, scale, output)
        if group is not None:
            return group
    return None


def product_of(value: RelayExpr, scale: float, output: Output) -> Product | None:
    """The product, with its bias, that ``value`` is, in units of ``scale``; None of others."""
    operator, bias_expr = value, None
    if isinstance(value, Call) and value.op in (BiasAdd.op, add.op):
        if value.op is add.op and not _is_row(value):
            return None
        operator, bias_expr = value.args if op_of(value.args[0]) is not None else value.args[::-1]
    if not isinstance(operator, Call) or not has_product_form(operator):
        return None
    data, weights = dequantized(operator.args[0]), weight_of(operator.args[1])
    if data is None or weights is None:
        return None
    weight, weight_scale = weights
    unit = np.broadcast_to(weight_scale * np.float32(data.scale), (weight.shape[0],)).astype(np.float64)
    multiplier = unit.astype(np.float32) / np.float32(scale)
    bias = None if bias_expr is None else _bias(bias_expr, unit)
    if bias_expr is not None and bias is None:
        return None
    return Product(operator, data, weight, bias, multiplier, output)


def has_product_form(operator: Call) -> bool:
    """Return whether a call is a convolution or dense layer of the layouts that products are described in."""
    attrs: Any = operator.attrs
    if operator.op is Conv2D.op:
        return bool((attrs.data_layout, attrs.kernel_layout) == ("NCHW", "OIHW"))
    return operator.op is Dense.op


def _is_row(addition: Call) -> bool:
    """Whether an addition is that of a bias to a dense layer."""
    product, row = addition.args if op_of(addition.args[0]) is Dense.op else addition.args[::-1]
    shape = row.checked_type.shape  # type: ignore[attr-defined]
    return op_of(product) is Dense.op and len(shape) == 1


def _both(value: RelayExpr) -> tuple[Quantized, Quantized] | None:
    assert isinstance(value, Call)
    left, right = (dequantized(a) for a in value.args)
    return None if left is None or right is None else (left, right)


def _joint(data: tuple[Quantized, Quantized], scale: float) -> np.float32:
    """The factor of a product of two tensors."""
    return np.float32(np.float32(data[0].scale * data[1].scale) / np.float32(scale))


def _pair(value: RelayExpr, scale: float, output: Output) -> Pair | None:
    data = _both(value)
    if data is None:
        return None
    assert isinstance(value, Call)
    attrs: Any = value.attrs
    inner = data[0].tensor.checked_type.shape[-2 if getattr(attrs, "transpose_a", False) else -1]  # type: ignore
    return Pair(value, data, int(inner), _joint(data, scale), output) if isinstance(inner, IntImm) else None


def _sum(value: RelayExpr, scale: float, output: Output) -> Sum | None:
    data = _both(value)
    if data is None:
        return None
    assert isinstance(value, Call)
    factors = tuple(few_bits(side.scale / scale) for side in data)
    return Sum(value, data, (factors[0], factors[1]), output)


def _multiplied(value: RelayExpr, scale: float, output: Output) -> Multiplied | None:
    data = _both(value)
    assert isinstance(value, Call)
    return None if data is None else Multiplied(value, data, _joint(data, scale), output)


def _mean(value: RelayExpr, scale: float, output: Output) -> Mean | None:
    assert isinstance(value, Call)
    data = dequantized(value.args[0])
    if data is None:
        return None
    shape, attrs = data.tensor.checked_type.shape, cast(Any, value.attrs)  # type: ignore[attr-defined]
    axes: tuple[int, ...] = (2, 3)
    if value.op is MeanOp.op:
        given = attrs.axis if isinstance(attrs.axis, Sequence) else [attrs.axis]
        given = range(len(shape)) if given in ([None], []) else given
        axes = tuple(sorted(int(a) % len(shape) for a in given))
    extents = [shape[a] for a in axes]
    if getattr(attrs, "exclude", False) or getattr(attrs, "layout", "NCHW") != "NCHW":
        return None
    if not all(isinstance(e, IntImm) for e in extents) or 0 in (count := [int(e) for e in extents]):
        return None
    total = math.prod(count)
    return Mean(value, data, axes, total, np.float32(data.scale / (total * scale)), output)


def _windows(value: RelayExpr, scale: float, output: Output) -> Windows | None:
    assert isinstance(value, Call)
    data = dequantized(value.args[0])
    return None if data is None else Windows(value, data, np.float32(data.scale / scale), output)


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


def _joined(value: RelayExpr, scale: float, output: Output) -> Joined | None:
    assert isinstance(value, Call)
    first: Any = value.args[0]
    parts = [dequantized(a) for a in (value.args[1:] if value.op is Where.op else getattr(first, "fields", ()))]
    found = tuple(part for part in parts if part is not None and part.dtype == output.dtype)
    if not found or len(found) != len(parts):
        return None
    return Joined(value, found, tuple(np.float32(part.scale / scale) for part in found), output)


def _shares(value: RelayExpr, scale: float, output: Output) -> Shares | None:
    assert isinstance(value, Call)
    data, attrs = dequantized(value.args[0]), value.attrs
    if data is None:
        return None
    axis = int(attrs.axis)  # type: ignore[union-attr]
    extent = data.tensor.checked_type.shape[axis]  # type: ignore[attr-defined]
    if not isinstance(extent, IntImm) or not 0 < int(extent) <= _MOST_SHARES:
        return None
    bits = 30 - (int(extent) - 1).bit_length()
    below = -np.arange(256, dtype=np.float64) * data.scale
    exponentials = np.rint(np.exp(below) * 2.0**bits).astype(np.int32)
    return Shares(value, data, axis, exponentials, np.float32(1 / np.float32(scale)), output)


def _table(value: RelayExpr, scale: float, output: Output) -> Table | None:
    """A function of one quantized tensor, made of element-wise operators and numbers."""
    nodes = inner_nodes(value)
    if not nodes or not all(_is_elementwise(node) for node in nodes):
        return None
    leaves = [leaf for node in nodes for leaf in node.args if leaf not in nodes and not _is_number(leaf)]
    found = [dequantized(leaf) for leaf in leaves]
    data = found[0] if found else None
    if data is None or any(other != data for other in found) or _rank(value) != _rank(data.tensor):
        return None
    low, high = dt.int_range(data.dtype)
    numbers = (np.arange(low, high + 1, dtype=np.float32) - np.float32(data.zero)) * np.float32(data.scale)
    known: dict[RelayExpr, Array] = dict.fromkeys(leaves, numbers.astype(np.float64))
    for node in nodes:
        given = [known[a] if a in known else np.asarray(_array(a), np.float64).reshape(()) for a in node.args]
        known[node] = evaluate_call(node, given, None)[0]
    with np.errstate(all="ignore"):
        steps = np.rint(known[value].astype(np.float32) / np.float32(scale)) + np.float32(output.zero)
    if np.isnan(steps).any():
        return None
    assert isinstance(value, Call)
    return Table(value, data, np.clip(steps, output.low, output.high).astype(output.dtype), output)


def inner_nodes(value: RelayExpr, most: int = _MOST_NODES) -> list[Call] | None:
    """The calls between ``value`` and what is dequantized or constant, arguments first; None where they are many."""

    def arguments(expr: RelayExpr) -> Sequence[RelayExpr]:
        return direct_children(expr) if op_of(expr) is not Dequantize.op else ()

    found = list(itertools.islice(post_order(value, arguments), 4 * most))
    calls = [node for node in found if isinstance(node, Call) and node.op is not Dequantize.op]
    return calls if found[-1] is value and len(calls) <= most else None


def _rank(expr: RelayExpr) -> int:
    return len(expr.checked_type.shape)  # type: ignore[attr-defined]


def _is_elementwise(call: Call) -> bool:
    """Whether each element of the result is a function of the elements there, of numbers in float32."""
    type_ = call.checked_type
    return pattern_of(call) <= OpPattern.BROADCAST and isinstance(type_, TensorType) and type_.dtype == "float32"


def _is_number(expr: RelayExpr) -> bool:
    array = _array(expr)
    return array is not None and array.size == 1 and array.dtype == np.float32


_DESCRIBERS: dict[Op | None, Sequence[Callable[[RelayExpr, float, Output], Group | None]]] = {
    Conv2D.op: (product_of,),
    Dense.op: (product_of, _pair),
    BatchMatmul.op: (_pair,),
    BiasAdd.op: (product_of,),
    add.op: (_sum, product_of, _table),
    multiply.op: (_multiplied, _table),
    GlobalAvgPool2D.op: (_mean,),
    MeanOp.op: (_mean,),
    **{op: (_windows,) for op in (avg_pool1d.op, avg_pool2d.op, avg_pool3d.op)},
    Softmax.op: (_shares,),
    Concatenate.op: (_joined,),
    Where.op: (_joined,),
}


def has_form(call: Call) -> bool:
    """Whether groups of the call's operator are described."""
    return call.op in _DESCRIBERS or call.op is MaxPool2D.op or _is_elementwise(call)
