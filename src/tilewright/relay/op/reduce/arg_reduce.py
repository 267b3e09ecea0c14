"""argmax and argmin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import layout_rules, relations, value_ranges
from tilewright.relay.op.attributes import axes, call
from tilewright.relay.op.definition import OpPattern, TypeSolver, declare
from tilewright.relay.op.families import Array
from tilewright.relay.op.reduce.reduce import ArgReduceAttrs, reduce_axes, reduced_shape


def _arg_type(types: Sequence[Type], attrs: ArgReduceAttrs, solver: TypeSolver) -> Type | None:
    data = relations.tensor(types[0])
    return None if data is None else TensorType(reduced_shape(data, attrs), "int32")


def _flat_position(data: Array, attrs: ArgReduceAttrs, pick: Callable[..., Array]) -> Array:
    """Position of the extreme in the reduced axes, flattened."""
    found = reduce_axes(attrs, data.ndim)
    kept = [i for i in range(data.ndim) if i not in found]
    moved = np.transpose(data, [*kept, *found]).reshape([data.shape[i] for i in kept] + [-1])
    if attrs.select_last_index:
        result = moved.shape[-1] - 1 - pick(moved[..., ::-1], axis=-1)
    else:
        result = pick(moved, axis=-1)
    if attrs.keepdims:
        result = result.reshape([1 if i in found else data.shape[i] for i in range(data.ndim)])
    return np.asarray(result, np.int32)


def _declare(name: str, doc: str, compute: Callable[..., Any], pick: Callable[..., Array]) -> None:
    def run(attrs: ArgReduceAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        found = reduce_axes(attrs, len(inputs[0].shape))
        return [compute(inputs[0], found, attrs.keepdims, attrs.select_last_index)]

    declare(
        name,
        doc,
        inputs=("data",),
        attrs_type=ArgReduceAttrs,
        pattern=OpPattern.COMM_REDUCE,
        infer_type=_arg_type,
        compute=run,
        evaluate=lambda attrs, inputs: [_flat_position(inputs[0], attrs, pick)],
        value_range=value_ranges.extreme_positions,
        infer_correct_layout=layout_rules.arg_reduction,
    )


_declare("argmax", "Position of the maximum over axes.", topi.argmax, np.argmax)
_declare("argmin", "Position of the minimum over axes.", topi.argmin, np.argmin)


def argmax(
    data: RelayExpr, axis: Any = None, keepdims: bool = False, exclude: bool = False, select_last_index: bool = False
) -> Call:
    """Position (int32) of the maximum over ``axis``; over several axes, in their flattened order."""
    return call("argmax", [data], ArgReduceAttrs(axes(axis), bool(keepdims), bool(select_last_index), bool(exclude)))


def argmin(
    data: RelayExpr, axis: Any = None, keepdims: bool = False, exclude: bool = False, select_last_index: bool = False
) -> Call:
    """Position (int32) of the minimum over ``axis``."""
    return call("argmin", [data], ArgReduceAttrs(axes(axis), bool(keepdims), bool(select_last_index), bool(exclude)))
