"""Reshaping: reshape with TVM's special values, reverse_reshape and reshape_like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.op import relations, slice_rules
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import reshaped_gradient
from tilewright.relay.op.relations import Dim, known
from tilewright.relay.type_infer.describe import describe_shape
from tilewright.relay.type_infer.dimensions import note_equal


class ReshapeAttrs(Attrs):
    """The new shape with special values; ``allowzero``: 0 means the extent 0, not the input's extent."""

    newshape: tuple[Any, ...]
    allowzero: bool = False


class ReshapeLikeAttrs(Attrs):
    """The ranges of dimensions that are replaced and copied."""

    lhs_begin: int = 0
    lhs_end: int | None = None
    rhs_begin: int = 0
    rhs_end: int | None = None


def resolve_shape(shape: Sequence[Dim], newshape: Sequence[Any], allowzero: bool = False) -> list[Dim]:
    """Return the shape after a reshape of a tensor of ``shape``.

    Special values: 0 copies the dimension at this place; -1 is inferred; -2 copies all remaining dimensions; -3 joins
    the next two; -4, followed by two values, of which one may be -1, splits the next one.

    Raises:
        TypeInferenceError: the new shape has another number of elements.
    """
    result: list[Dim] = []
    source, infer_at, position = 0, -1, 0
    values = [v.value if hasattr(v, "value") else v for v in newshape]

    def take(count: int, what: str) -> list[Dim]:
        nonlocal source
        if source + count > len(shape):
            raise TypeInferenceError(f"newshape {tuple(values)}: {what} has no input dimension {source + count - 1}")
        source += count
        return list(shape[source - count : source])

    while position < len(values):
        value = values[position]
        if not isinstance(value, int) or value > 0 or (value == 0 and allowzero):
            result.append(value)
            source += 1
        elif value == 0:
            result += take(1, "0")
        elif value == -1:
            if infer_at >= 0:
                raise TypeInferenceError(f"newshape {tuple(values)} has -1 twice")
            infer_at = len(result)
            result.append(1)
            source += 1
        elif value == -2:
            result += take(len(shape) - source, "-2")
        elif value == -3:
            result.append(relations.dim_mul(*take(2, "-3")))
        elif value == -4:
            if position + 2 >= len(values):
                raise TypeInferenceError(f"newshape {tuple(values)}: -4 takes two more values")
            (whole,) = take(1, "-4")
            first, second = values[position + 1 : position + 3]
            if first == -1 and second == -1:
                raise TypeInferenceError(f"newshape {tuple(values)}: after -4 only one value may be -1")
            result.append(_quotient(whole, second, values) if first == -1 else first)
            result.append(_quotient(whole, first, values) if second == -1 else second)
            position += 2
        else:
            raise TypeInferenceError(f"newshape {tuple(values)}: {value} has no meaning")
        position += 1
    return _infer_rest(shape, result, infer_at, values)


def _quotient(whole: Any, part: Any, values: Sequence[Any]) -> Any:
    if part == 0:
        raise TypeInferenceError(f"newshape {tuple(values)}: -1 beside 0 may be any number")
    return relations.dim_floordiv(whole, part)


def _infer_rest(shape: Sequence[Dim], result: list[Dim], infer_at: int, newshape: Sequence[Any]) -> list[Dim]:
    old, new = [known(d) for d in shape], [known(d) for d in result]
    old_known = [d for d in old if d is not None]
    new_known = [d for d in new if d is not None]
    complete = len(old_known) == len(old) and len(new_known) == len(new)
    total, used = math.prod(old_known), math.prod(new_known)
    if infer_at >= 0:
        if complete and used:
            result[infer_at] = total // used
            used *= total // used
        elif not complete:
            result[infer_at] = _rest(shape, [*result[:infer_at], *result[infer_at + 1 :]])
    if not complete:
        note_equal(relations.dim_mul(*shape), relations.dim_mul(*result))
    if complete and total != used:
        raise TypeInferenceError(
            f"cannot reshape {describe_shape(tuple(as_expr(d) for d in shape))} of {total} elements "
            f"to newshape {tuple(newshape)}"
        )
    return result


def _rest(shape: Sequence[Dim], others: Sequence[Dim]) -> Dim:
    """Return the extent inferred for -1: the elements of ``shape`` over those of ``others``; equal dimensions
    cancel.
    """
    left, over = list(shape), []
    for dim in others:
        symbolic = known(dim) is None and not isinstance(dim, AnyDim)
        same = next((i for i, d in enumerate(left) if d is dim), None) if symbolic else None
        if same is None:
            over.append(dim)
        else:
            left.pop(same)
    return relations.dim_floordiv(relations.dim_mul(*left), relations.dim_mul(*over) if over else 1)


def _numbers(shape: Sequence[Dim]) -> list[int]:
    return [known(d) or 0 for d in shape]


class Reshape(OpDef[ReshapeAttrs]):
    """``data`` in the shape ``newshape``, whose values 0, -1, -2, -3, -4 are special (see ``resolve_shape``)."""

    name = "reshape"
    support_level = 3
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE
    gradient = staticmethod(reshaped_gradient)

    slice_operands = staticmethod(slice_rules.reshape)
    reshapes = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: ReshapeAttrs, solver: TypeSolver) -> Type | None:
        """The new shape with its special values resolved."""
        data = relations.tensor(types[0])
        return TensorType(resolve_shape(data.shape, attrs.newshape, attrs.allowzero), data.dtype)

    @staticmethod
    def compute(attrs: ReshapeAttrs, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        return [topi.reshape(inputs[0], out_type.shape)]

    @staticmethod
    def evaluate(attrs: ReshapeAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [inputs[0].reshape(_numbers(resolve_shape(inputs[0].shape, attrs.newshape, attrs.allowzero)))]


reshape = builder(Reshape, computed="newshape")


def _resolve_reversed(shape: Sequence[Dim], newshape: Sequence[Any]) -> list[Dim]:
    values = list(newshape)
    mirrored: list[Any] = []
    while values:  # the two values after -4 stay behind it, in mirrored order
        value = values.pop()
        if len(values) >= 2 and values[-2] == -4:
            mirrored += [-4, value, values.pop()]
            values.pop()
        else:
            mirrored.append(value)
    return resolve_shape(list(shape)[::-1], mirrored)[::-1]


class ReverseReshape(OpDef[ReshapeAttrs]):
    """Reshape whose special values count from the last dimension."""

    name = "contrib_reverse_reshape"
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE
    gradient = staticmethod(reshaped_gradient)
    reshapes = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: ReshapeAttrs, solver: TypeSolver) -> Type | None:
        """The new shape with its special values resolved from the back."""
        data = relations.tensor(types[0])
        return TensorType(_resolve_reversed(data.shape, attrs.newshape), data.dtype)

    compute = staticmethod(Reshape.compute)

    @staticmethod
    def evaluate(attrs: ReshapeAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [inputs[0].reshape(_numbers(_resolve_reversed(inputs[0].shape, attrs.newshape)))]


reverse_reshape = builder(ReverseReshape, "reverse_reshape", order="data newshape")
contrib_reverse_reshape = builder(ReverseReshape, order="data newshape")


def _shape_like(shape: Sequence[Dim], like: Sequence[Dim], attrs: ReshapeLikeAttrs) -> list[Dim]:
    lhs_end = len(shape) if attrs.lhs_end is None else attrs.lhs_end
    rhs_end = len(like) if attrs.rhs_end is None else attrs.rhs_end
    lhs_end = lhs_end + len(shape) if lhs_end < 0 else lhs_end
    rhs_end = rhs_end + len(like) if rhs_end < 0 else rhs_end
    return [*shape[: attrs.lhs_begin], *like[attrs.rhs_begin : rhs_end], *shape[lhs_end:]]


class ReshapeLike(OpDef[ReshapeLikeAttrs]):
    """Reshape to the shape of another tensor, or a range of its dimensions to a range of the other's."""

    name = "reshape_like"
    inputs = ("data", "shape_like")
    pattern = OpPattern.INJECTIVE
    gradient = staticmethod(reshaped_gradient)
    reshapes = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: ReshapeLikeAttrs, solver: TypeSolver) -> Type | None:
        data, like = relations.tensors(types, ReshapeLike.inputs)
        result = _shape_like(data.shape, like.shape, attrs)
        sizes = [[known(d) for d in s] for s in (data.shape, result)]
        if all(d is not None for s in sizes for d in s):
            old, new = (math.prod(d for d in s if d is not None) for s in sizes)
            relations.require(old == new, f"{describe_shape(data.shape)} does not have {new} elements")
        return TensorType(result, data.dtype)

    compute = staticmethod(Reshape.compute)

    @staticmethod
    def evaluate(attrs: ReshapeLikeAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [inputs[0].reshape(_numbers(_shape_like(inputs[0].shape, inputs[1].shape, attrs)))]


reshape_like = builder(ReshapeLike)
