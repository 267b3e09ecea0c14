"""Scales and zero points: their types, the values that constants may have, and how they broadcast.

A scale is float32 and positive, a zero point an integer that the type of its tensor has; each is a scalar, one element,
or a vector along one axis. An operand is a scale or a zero point by its name: ``input_scale``, ``kernel_zero_point``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError, TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.span import source_names
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Constant, Tuple, const
from tilewright.relay.op import relations
from tilewright.relay.op.definition import OpDef
from tilewright.relay.op.evaluation import evaluate_call
from tilewright.relay.op.families import Array
from tilewright.relay.op.relations import known
from tilewright.relay.type_infer.describe import describe_dim
from tilewright.relay.visitor import post_order
from tilewright.runtime.ndarray import numpy_view

A = TypeVar("A")

RESULT = ""
_SCALE, _ZERO = "scale", "zero_point"
_FEW = 16  # operators that a scale or zero point is made of
Extents = Mapping[str, PrimExpr]


class QnnDef(OpDef[A]):
    """A quantized operator; ``owners`` says whose the parameters of a name are: ``("input", "data")``."""

    non_computational = True
    owners: ClassVar[tuple[tuple[str, str], ...]] = ()
    any_zero: ClassVar[bool] = False  # zero points are but added: any int32 does, as in TVM 0.8


def check_types(names: Sequence[str], types: Sequence[Type], along: Extents | None = None) -> bool:
    """Whether the types of all scales and zero points are known; ``names`` and ``types`` are the operands'.

    Args:
        along: by name, how many elements a vector has; a parameter that is not in it is one number.

    Raises:
        TypeInferenceError: one has another type.
    """
    complete = True
    for name, type_ in zip(names, types, strict=True):
        if name.endswith((_SCALE, _ZERO)):
            found = relations.tensor_or_none(type_, name)
            complete = complete and found is not None
            if found is not None:
                _check_type(name, found, (along or {}).get(name))
    return complete


def _check_type(name: str, type_: TensorType, extent: PrimExpr | None) -> None:
    if name.endswith(_SCALE):
        relations.require(type_.dtype == "float32", f"scales are float32, {name} is {type_.dtype}")
    else:
        relations.require(dt.is_int(type_.dtype), f"zero points are integers, {name} is {type_.dtype}")
    if len(type_.shape) > 1:
        raise TypeInferenceError(f"{name} is a number or a vector, found rank {len(type_.shape)}")
    count = known(type_.shape[0]) if type_.shape else 1
    if count in (None, 1):
        return
    relations.require(extent is not None, f"{name} is one number, found {count}")
    assert extent is not None
    if known(extent) not in (None, count):
        raise TypeInferenceError(f"{name} has {count} elements, what they are for {describe_dim(extent)}")


def extent_along(shape: Sequence[PrimExpr], axis: int, names: Sequence[str]) -> Extents:
    """Return the argument ``along`` of ``check_types`` for vectors along an axis of a shape; raise where there is
    no such axis.
    """
    if not shape:
        return {}
    return dict.fromkeys(names, shape[relations.normalize_axis(axis, len(shape))])


def check_values(call: Call) -> None:
    """Raise TilewrightError where a constant scale is not positive, or a zero point no number of its tensor's type."""
    declaration: Any = call.op.get_attr("OpDef")  # type: ignore[attr-defined]
    if declaration is None or not issubclass(declaration, QnnDef):
        return
    names = declaration.inputs or ()
    types = {name: arg.checked_type for name, arg in zip(names, call.args, strict=True)}
    types[RESULT] = call.checked_type
    for name, arg in zip(names, call.args, strict=True):
        fields = arg.fields if isinstance(arg, Tuple) else (arg,)
        if name.removesuffix("s").endswith(_SCALE):
            for field in fields:
                _check_scale(call, name, value_of(field))
        elif name.removesuffix("s").endswith(_ZERO) and not declaration.any_zero:
            owner = types[dict(declaration.owners)[name.partition("_")[0]]]
            owners = owner.fields if isinstance(owner, TupleType) else [owner] * len(fields)
            for field, type_ in zip(fields, owners, strict=True):
                _check_zero(call, name, value_of(field), type_)


def _check_scale(call: Call, name: str, value: Array | None) -> None:
    if value is None:
        return
    wrong = value[~((value > 0) & np.isfinite(value))]
    if wrong.size:
        raise TilewrightError(f"{_where(call)}: {name} has to be a positive number, found {wrong.reshape(-1)[0]}")


def _check_zero(call: Call, name: str, value: Array | None, owner: Type) -> None:
    if value is None or not isinstance(owner, TensorType) or not dt.is_int(owner.dtype):
        return
    low, high = dt.int_range(owner.dtype)
    wrong = value[(value < low) | (value > high)]
    if wrong.size:
        raise TilewrightError(
            f"{_where(call)}: {name} has to be a number of {owner.dtype}, from {low} to {high}, "
            f"found {wrong.reshape(-1)[0]}"
        )


def _where(call: Call) -> str:
    """The operator, and where the program has it."""
    name: str = call.op.name  # type: ignore[attr-defined]
    sources = source_names(call.span)
    return f"{name} ({', '.join(sources)})" if sources else name


def value_of(expr: RelayExpr) -> Array | None:
    """The array that a constant, or a small expression of constants, stands for; None where the program computes it."""
    if isinstance(expr, Constant):
        return numpy_view(expr.data)
    if not _of_constants(expr):
        return None
    values: dict[RelayExpr, Array] = {}
    for node in post_order(expr):
        if isinstance(node, Constant):
            values[node] = numpy_view(node.data)
        elif isinstance(node, Call):
            (values[node],) = evaluate_call(node, [values[arg] for arg in node.args], None)
    return values[expr]


def _of_constants(expr: RelayExpr) -> bool:
    """Whether an expression is a few operators on constants."""
    pending, seen = [expr], 0
    while pending:
        node, seen = pending.pop(), seen + 1
        if seen > _FEW or not isinstance(node, (Call, Constant)):
            return False
        if isinstance(node, Call):
            if not isinstance(node.op, Op) or not node.op.has_attr("FEvaluate"):
                return False
            pending += node.args
    return True


def is_zero(expr: RelayExpr) -> bool:
    """Whether a zero point is known to be 0."""
    value = value_of(expr)
    return value is not None and not value.any()


def same_value(a: RelayExpr, b: RelayExpr) -> bool:
    """Whether two parameters are known to be equal."""
    x, y = value_of(a), value_of(b)
    return x is not None and y is not None and x.size == y.size == 1 and bool(x.reshape(()) == y.reshape(()))


def along(array: Array, rank: int, axis: int) -> Array:
    """A scale or zero point, shaped to broadcast."""
    if array.size == 1 and array.ndim < 2:
        return array.reshape(())
    return array.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


def spread(parameter: RelayExpr, type_: Type, rank: int, axis: int, dtype: str = "") -> RelayExpr:
    """A scale or zero point of a type, shaped to broadcast; cast to ``dtype`` where one is given."""
    value = value_of(parameter)
    if value is not None:
        return const(along(value if not dtype else value.astype(dtype), rank, axis))
    assert isinstance(type_, TensorType)
    wide = relay_op.cast(parameter, dtype) if dtype and dtype != type_.dtype else parameter
    if not type_.shape:
        return wide
    single = not type_.is_dynamic and type_.concrete_shape == (1,)
    shape = () if single else tuple(-1 if i == axis % rank else 1 for i in range(rank))
    return relay_op.reshape(wide, newshape=shape)


def number(parameter: RelayExpr, dtype: str) -> RelayExpr:
    """A scale or zero point of one element, as a scalar of a type."""
    value = value_of(parameter)
    if value is not None:
        return const(value.reshape(()).astype(dtype))
    return relay_op.reshape(relay_op.cast(parameter, dtype), newshape=())


def dtype_of(type_: Type) -> str:
    """The data type of a tensor, or of the first of a tuple of them."""
    if isinstance(type_, TupleType):
        type_ = type_.fields[0]
    assert isinstance(type_, TensorType)
    return type_.dtype


def shape_of(type_: Type) -> tuple[PrimExpr, ...]:
    """The shape of a tensor."""
    assert isinstance(type_, TensorType)
    return type_.shape


def rank_of(type_: Type) -> int:
    """The number of dimensions of a tensor."""
    return len(shape_of(type_))
