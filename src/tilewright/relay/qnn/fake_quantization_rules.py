"""Rules of FakeQuantizationToInteger for operators, registered as a user's rules are.

Rules round by TOEVEN, as the operators in floating point do. Zero points become int32, as TVM's are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.affine_type import TensorAffineType, TupleAffineType
from tilewright.ir.expr import RelayExpr
from tilewright.ir.structural import structural_equal
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Constant, Tuple, const
from tilewright.relay.op.families import Array
from tilewright.relay.op.nn.activation import relu
from tilewright.relay.op.nn.bias_add import BiasAdd
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.op.nn.conv_transpose import conv2d_transpose
from tilewright.relay.op.nn.dense import BatchMatmul, Dense
from tilewright.relay.op.nn.pad import Pad
from tilewright.relay.op.nn.pooling import AvgPool2D, GlobalAvgPool2D, MaxPool2D
from tilewright.relay.op.op import register_fake_quantization_to_integer
from tilewright.relay.op.tensor.binary import add, maximum, minimum, multiply, subtract
from tilewright.relay.op.tensor.unary import Clip
from tilewright.relay.op.transform.axes import Transpose
from tilewright.relay.op.transform.join import Concatenate, Split
from tilewright.relay.qnn import op as qnn
from tilewright.relay.qnn.fake_quantization import KEY, Rule, TypeMap, is_scalar
from tilewright.relay.qnn.op import Dequantize, Quantize
from tilewright.relay.qnn.operators.parameters import along, number, value_of
from tilewright.relay.qnn.operators.rounding import TOEVEN

Found = Sequence[Any] | None


def _rule(operator: Any) -> Callable[[Rule], Rule]:
    """Register a rule for an operator's declaration or builder."""

    def register(rule: Rule) -> Rule:
        register_fake_quantization_to_integer(operator.op.name, rule, 0)
        return rule

    return register


def _type(types: TypeMap, expr: RelayExpr) -> TensorAffineType | None:
    found = types.get(expr)
    return found if isinstance(found, TensorAffineType) else None


def _scale(parameter: RelayExpr) -> RelayExpr:
    """A scale as a scalar, or a vector of several."""
    value = value_of(parameter)
    return parameter if value is None else const(value.reshape(()) if value.size == 1 else value)


def _zero(parameter: RelayExpr) -> RelayExpr:
    """A zero point in int32: a scalar, or a vector of several."""
    value = value_of(parameter)
    if value is None:
        return relay_op.cast(parameter, "int32")
    return const((value.reshape(()) if value.size == 1 else value).astype("int32"))


def _plain(kind: TensorAffineType) -> TensorAffineType:
    """The same affine type with parameters as the operators take them; equal zero points of a vector as one."""
    zero = value_of(kind.zero_point)
    if zero is not None and zero.size > 1 and (zero == zero.reshape(-1)[0]).all():
        kind = TensorAffineType(kind.scale, const(zero.reshape(-1)[0]), kind.dtype, kind.axis)
    return TensorAffineType(_scale(kind.scale), _zero(kind.zero_point), kind.dtype, kind.axis)


def _same(a: TensorAffineType, b: TensorAffineType) -> bool:
    """Whether integers of both stand for the same numbers."""
    same = a.dtype == b.dtype and structural_equal(a.scale, b.scale) and structural_equal(a.zero_point, b.zero_point)
    return same and (a.axis == b.axis or (is_scalar(a) and is_scalar(b)))


def _requantized(data: RelayExpr, given: TensorAffineType, wanted: TensorAffineType, rank: int) -> RelayExpr | None:
    """``data`` in another affine type; None where that has several zero points, or scales that are computed."""
    if _same(given, wanted):
        return data
    scale, out_scale = given.scale, wanted.scale
    if not is_scalar(wanted):
        a, b = value_of(given.scale), value_of(wanted.scale)
        if a is None or b is None or value_of(wanted.zero_point) is None or wanted.zero_point.data.shape:  # type: ignore[attr-defined]
            return None
        if not is_scalar(given) and given.axis % max(rank, 1) != wanted.axis % max(rank, 1):
            return None
        scale, out_scale = const((a / b).astype("float32")), const(1.0)
    axis = given.axis if not is_scalar(given) else wanted.axis
    operands = (data, scale, given.zero_point, out_scale, wanted.zero_point)
    return qnn.requantize(*operands, axis=axis, rounding=TOEVEN, out_dtype=wanted.dtype)


@_rule(Dequantize)
def _dequantize(call: Call, types: TypeMap) -> Found:
    kind = _type(types, call)
    return None if kind is None else [call.args[0], _plain(kind)]


@_rule(Quantize)
def _quantize(call: Call, types: TypeMap) -> Found:
    given, attrs = _type(types, call.args[0]), _attrs(call)
    if given is None:
        return None
    wanted = _plain(TensorAffineType(call.args[1], call.args[2], attrs.out_dtype, attrs.axis))
    made = _requantized(call.args[0], given, wanted, types.ranks.get(call.args[0], 0))
    return None if made is None else [made, wanted]


def _attrs(call: Call) -> Any:
    return call.attrs


# ------------------------------------------------------------------------------------------- one operand


@_rule(Transpose)
def _transpose(call: Call, types: TypeMap) -> Found:
    kind, rank = _type(types, call.args[0]), types.ranks[call.args[0]]
    if kind is None:
        return None
    axes = [int(a) % rank for a in _attrs(call).axes or range(rank - 1, -1, -1)]
    return [
        call,
        TensorAffineType(kind.scale, kind.zero_point, kind.dtype, axes.index(kind.axis % rank) if rank else 0),
    ]


@_rule(MaxPool2D)
def _max_pool(call: Call, types: TypeMap) -> Found:
    kind = _type(types, call.args[0])
    return None if kind is None else [call, kind]


def _average(call: Call, types: TypeMap) -> Found:
    """In int32, rounded as integers are divided."""
    kind = _type(types, call.args[0])
    if kind is None:
        return None
    sums = Call(call.op, [relay_op.cast(call.args[0], "int32")], call.attrs)
    return [relay_op.cast(sums, kind.dtype), kind]


_rule(AvgPool2D)(_average)
_rule(GlobalAvgPool2D)(_average)


@_rule(Split)
def _split(call: Call, types: TypeMap) -> Found:
    kind, sections = _type(types, call.args[0]), _attrs(call).indices_or_sections
    if kind is None or not is_scalar(kind):
        return None
    return [call, TupleAffineType([kind] * (sections if isinstance(sections, int) else len(sections) + 1))]


def _integers(value: float, kind: TensorAffineType, rank: int) -> Array | None:
    """The integers nearest to a number: one, or one for each channel."""
    scale, zero = value_of(kind.scale), value_of(kind.zero_point)
    if scale is None or zero is None:
        return None
    exact = np.rint(value / along(scale, rank, kind.axis).astype("float64")) + along(zero, rank, kind.axis)
    return np.clip(exact, *dt.int_range(kind.dtype))


@_rule(Clip)
def _clip(call: Call, types: TypeMap) -> Found:
    kind, rank, attrs = _type(types, call.args[0]), types.ranks[call.args[0]], _attrs(call)
    bounds = [] if kind is None else [_integers(float(bound), kind, rank) for bound in (attrs.a_min, attrs.a_max)]
    if kind is None or any(bound is None for bound in bounds):
        return None
    low, high = (np.asarray(bound) for bound in bounds)
    if low.size == 1:
        return [relay_op.clip(call.args[0], float(low), float(high)), kind]
    least = relay_op.maximum(call.args[0], const(low.astype(kind.dtype)))
    return [relay_op.minimum(least, const(high.astype(kind.dtype))), kind]


@_rule(relu)
def _relu(call: Call, types: TypeMap) -> Found:
    kind = _type(types, call.args[0])
    if kind is None:
        return None
    zero = value_of(kind.zero_point)
    if zero is not None:
        least: RelayExpr = const(along(zero, types.ranks[call.args[0]], kind.axis).astype(kind.dtype))
    elif is_scalar(kind):
        least = number(kind.zero_point, kind.dtype)
    else:
        return None
    return [relay_op.maximum(call.args[0], least), kind]


@_rule(Pad)
def _pad(call: Call, types: TypeMap) -> Found:
    data, value = call.args
    kind, of_value = _type(types, data), _type(types, value)
    if kind is None or not is_scalar(kind):
        return None
    made: RelayExpr | None
    if of_value is not None:
        made = _requantized(value, of_value, kind, 0)
    else:
        array = value_of(value)
        whole = None if array is None else _integers(float(array.reshape(())), kind, 0)
        made = None if whole is None else const(whole.astype(kind.dtype))
    return None if made is None else [Call(call.op, [data, made], call.attrs), kind]


# ------------------------------------------------------------------------------------------- products


def _product_type(x: TensorAffineType, w: TensorAffineType, axis: int, rank: int) -> TensorAffineType:
    """int32 in units of both scales."""
    a, b = value_of(x.scale), value_of(w.scale)
    scale: RelayExpr = relay_op.multiply(x.scale, w.scale) if a is None or b is None else const(a * b)
    return TensorAffineType(scale, const(np.int32(0)), "int32", axis % rank)


def _operands(call: Call, types: TypeMap, weight_axis: int | None) -> tuple[TensorAffineType, TensorAffineType] | None:
    """Types of data and weight; None unless they are bytes, the data with one scale, the weight by output channel."""
    x, w = _type(types, call.args[0]), _type(types, call.args[1])
    if x is None or w is None or not is_scalar(x) or {x.dtype, w.dtype} - {"int8", "uint8"}:
        return None
    rank = types.ranks[call.args[1]]
    if not is_scalar(w) and (weight_axis is None or w.axis % rank != weight_axis % rank):
        return None
    return x, w


def _quantized(build: Callable[..., Call], call: Call, x: TensorAffineType, w: TensorAffineType) -> Call:
    """The quantized operator with the same attributes."""
    attrs = {**dict(_attrs(call)), "out_dtype": "int32"}
    return build(call.args[0], call.args[1], x.zero_point, w.zero_point, x.scale, w.scale, **attrs)


def _convolution(build: Callable[..., Call]) -> Rule:
    def rule(call: Call, types: TypeMap) -> Found:
        attrs = _attrs(call)
        found = _operands(call, types, attrs.kernel_layout.index("O"))
        if found is None:
            return None
        layout = attrs.out_layout or attrs.data_layout
        if len(layout) != 4:
            return None
        made = _quantized(build, call, *found)
        return [made, _product_type(*found, layout.index("C"), 4)]

    return rule


_rule(Conv2D)(_convolution(qnn.conv2d))
_rule(conv2d_transpose)(_convolution(qnn.conv2d_transpose))


@_rule(Dense)
def _dense(call: Call, types: TypeMap) -> Found:
    found = _operands(call, types, 0)
    if found is None:
        return None
    rank = types.ranks[call.args[0]]
    return [_quantized(qnn.dense, call, *found), _product_type(*found, rank - 1, rank)]


@_rule(BatchMatmul)
def _batch_matmul(call: Call, types: TypeMap) -> Found:
    found = _operands(call, types, None)
    return None if found is None else [_quantized(qnn.batch_matmul, call, *found), _product_type(*found, 2, 3)]


# ------------------------------------------------------------------------------------------- two operands


@_rule(BiasAdd)
def _bias_add(call: Call, types: TypeMap) -> Found:
    data, bias = call.args
    kind = _type(types, data)
    if kind is None:
        return None
    whole = _bias(bias, kind, types)
    return None if whole is None else [Call(call.op, [data, whole], call.attrs), kind]


def _bias(bias: RelayExpr, kind: TensorAffineType, types: TypeMap) -> RelayExpr | None:
    """A vector in the affine type of what it is added to, whose zero point is 0."""
    given, zero = _type(types, bias), value_of(kind.zero_point)
    if zero is None or zero.any():
        return None
    if given is not None and _same_numbers(given, kind):
        return bias
    scale, values = value_of(kind.scale), _numbers(bias, given)
    if scale is not None and values is not None:
        rounded = np.rint(values / scale.astype("float64"))
        return const(np.clip(rounded, *dt.int_range(kind.dtype)).astype(kind.dtype))
    if given is None:
        return None
    along_bias = TensorAffineType(kind.scale, kind.zero_point, kind.dtype, 0)
    return _requantized(bias, given, along_bias, 1)


def _same_numbers(bias: TensorAffineType, kind: TensorAffineType) -> bool:
    """As ``_same``, of a vector and what it is added to: their axes differ."""
    return _same(TensorAffineType(bias.scale, bias.zero_point, bias.dtype, kind.axis), kind)


def _numbers(expr: RelayExpr, kind: TensorAffineType | None) -> Array | None:
    """The numbers that a constant stands for."""
    array = value_of(expr)
    if array is None or kind is None:
        return None if array is None else array.astype("float64")
    scale, zero = value_of(kind.scale), value_of(kind.zero_point)
    if scale is None or zero is None:
        return None
    rank = array.ndim
    return (array.astype("int64") - along(zero, rank, kind.axis)) * along(scale, rank, kind.axis).astype("float64")


def _sides(call: Call, types: TypeMap) -> list[tuple[RelayExpr, TensorAffineType]] | None:
    """Both operands, quantized alike, with one scale each; a number that is a constant becomes an integer."""
    kinds = [_type(types, arg) for arg in call.args]
    dtypes = {kind.dtype for kind in kinds if kind is not None}
    if len(dtypes) != 1 or not all(kind is None or is_scalar(kind) for kind in kinds):
        return None
    found = []
    for arg, kind in zip(call.args, kinds, strict=True):
        side = (arg, kind) if kind is not None else _of_number(arg, min(dtypes))
        if side is None:
            return None
        found.append(side)
    return found


def _of_number(expr: RelayExpr, dtype: str) -> tuple[RelayExpr, TensorAffineType] | None:
    """A constant of one element as an integer, exactly: 1 or 0, less 0 or 1, times its size."""
    if not isinstance(expr, Constant) or (array := value_of(expr)) is None or array.size != 1:
        return None
    value = np.float32(array.reshape(()))
    size = np.abs(value) if value else np.float32(1)
    whole, zero = (int(value != 0), 0) if value >= 0 else (0, 1)
    kind = TensorAffineType(const(size), const(np.int32(zero)), dtype)
    return const(np.full(array.shape, whole, dtype)), kind


def _result(call: Call, types: TypeMap, dtype: str) -> TensorAffineType | None:
    """The affine type of the region's result, in the data type of the operands.

    Bytes of the other type have the same numbers, 128 less or more. Of int32, a step is a 256th of the result's.
    """
    kind = _type(types, call)
    if kind is None or not is_scalar(kind):
        return None
    kind = _plain(kind)
    scale, zero = value_of(kind.scale), value_of(kind.zero_point)
    if kind.dtype == dtype:
        return kind
    if scale is None or zero is None:
        return None
    if {kind.dtype, dtype} == {"int8", "uint8"}:
        return TensorAffineType(kind.scale, const(zero + np.int32(-128 if dtype == "int8" else 128)), dtype, kind.axis)
    return TensorAffineType(const(scale / np.float32(256)), const(np.int32(0)), dtype) if dtype == "int32" else None


def _arithmetic(build: Callable[..., Call]) -> Rule:
    def rule(call: Call, types: TypeMap) -> Found:
        sides = _sides(call, types)
        wanted = None if sides is None else _result(call, types, sides[0][1].dtype)
        if sides is None or wanted is None:
            return None
        parameters = [p for _, kind in sides for p in (kind.scale, kind.zero_point)]
        made = build(sides[0][0], sides[1][0], *parameters, wanted.scale, wanted.zero_point, rounding=TOEVEN)
        return [made, wanted]

    return rule


_rule(multiply)(_arithmetic(qnn.mul))
_rule(subtract)(_arithmetic(qnn.subtract))
_SUM = _arithmetic(qnn.add)


@_rule(add)
def _add(call: Call, types: TypeMap) -> Found:
    """A sum of two quantized tensors, or that of a product and its bias."""
    data, bias = call.args
    kind = _type(types, data)
    if kind is not None and kind.dtype == "int32" and types.ranks.get(bias) == 1:
        rank = types.ranks[data]
        whole = _bias(bias, kind, types) if is_scalar(kind) or kind.axis % rank == rank - 1 else None
        return None if whole is None else [relay_op.add(data, whole), kind]
    return _SUM(call, types)


def _choice(build: Callable[..., Call]) -> Rule:
    """The less or the greater of two, in the affine type of the result."""

    def rule(call: Call, types: TypeMap) -> Found:
        sides = _sides(call, types)
        wanted = None if sides is None else _result(call, types, sides[0][1].dtype)
        if sides is None or wanted is None:
            return None
        found = [_requantized(data, kind, wanted, types.ranks.get(data, 0)) for data, kind in sides]
        return None if None in found else [build(*found), wanted]

    return rule


_rule(minimum)(_choice(relay_op.minimum))
_rule(maximum)(_choice(relay_op.maximum))


@_rule(Concatenate)
def _concatenate(call: Call, types: TypeMap) -> Found:
    (data,) = call.args
    kinds = types.get(data)
    if not isinstance(kinds, TupleAffineType) or not all(is_scalar(kind) for kind in kinds.types):
        return None
    dtypes = {kind.dtype for kind in kinds.types}
    wanted = _result(call, types, min(dtypes)) if len(dtypes) == 1 else None
    if wanted is None:
        return None
    scales, zeros = (Tuple([getattr(k, part) for k in kinds.types]) for part in ("scale", "zero_point"))
    made = qnn.concatenate(data, scales, zeros, wanted.scale, wanted.zero_point, _attrs(call).axis, TOEVEN)
    return [made, wanted]


__all__ = ["KEY"]
