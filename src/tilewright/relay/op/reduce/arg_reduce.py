"""argmax and argmin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.type import TensorType, Type
from tilewright.relay.op import layout_rules, relations, value_ranges
from tilewright.relay.op.builder import Builder, builder
from tilewright.relay.op.definition import OpPattern, TypeSolver, declare
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import no_gradient
from tilewright.relay.op.reduce.reduce import ArgReduceAttrs, reduce_axes, reduced_shape


def _arg_type(types: Sequence[Type], attrs: ArgReduceAttrs, solver: TypeSolver) -> Type | None:
    data = relations.tensor(types[0])
    return TensorType(reduced_shape(data, attrs), "int32")


def _flat_position(data: Array, attrs: ArgReduceAttrs, pick: Callable[..., Array]) -> Array:
    """Return the position of the extreme in the flattened reduced axes."""
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


def _position(name: str, doc: str, compute: Callable[..., Any], pick: Callable[..., Array]) -> Builder:
    def run(attrs: ArgReduceAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        found = reduce_axes(attrs, len(inputs[0].shape))
        return [compute(inputs[0], found, attrs.keepdims, attrs.select_last_index)]

    made = declare(
        name,
        doc,
        inputs=("data",),
        attrs_type=ArgReduceAttrs,
        support_level=4,
        pattern=OpPattern.COMM_REDUCE,
        infer_type=_arg_type,
        compute=run,
        gradient=no_gradient,
        evaluate=lambda attrs, inputs: [_flat_position(inputs[0], attrs, pick)],
        value_range=value_ranges.extreme_positions,
        infer_correct_layout=layout_rules.arg_reduction,
    )
    return builder(made, order="data axis keepdims exclude select_last_index", module=__name__)


argmax = _position(
    "argmax",
    "Position (int32) of the maximum over ``axis``; over several axes, in their flattened order.",
    topi.argmax,
    np.argmax,
)
argmin = _position("argmin", "Position (int32) of the minimum over ``axis``.", topi.argmin, np.argmin)
