"""Sequences and optional values, known at import: lists of expressions, which leave no trace in the program."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, TensorSequence, typed
from tilewright.relay.frontend.onnx.registry import converter


@converter("Identity")
def convert_identity(ctx: NodeContext) -> RelayExpr | TensorSequence:
    """The input."""
    return ctx.value(0)


@converter("SequenceEmpty", since=11)
def convert_sequence_empty(ctx: NodeContext) -> TensorSequence:
    """No tensors."""
    return TensorSequence()


@converter("SequenceConstruct", since=11)
def convert_sequence_construct(ctx: NodeContext) -> TensorSequence:
    """The inputs as a sequence."""
    return TensorSequence(ctx.inputs())


@converter("SequenceLength", since=11)
def convert_sequence_length(ctx: NodeContext) -> RelayExpr:
    """The number of tensors."""
    return const(np.array(len(ctx.sequence(0))), "int64")


def _position(ctx: NodeContext, index: int, length: int, last: int) -> int:
    """Return the constant position in input ``index``, which may count from the end."""
    position = int(ctx.scalar(index, "the position"))
    if not -length <= position <= last:
        ctx.fail(f"position {position} is out of range for a sequence of {length}")
    return position + length if position < 0 else position


@converter("SequenceAt", since=11)
def convert_sequence_at(ctx: NodeContext) -> RelayExpr:
    """One of the tensors."""
    values = ctx.sequence(0)
    return values[_position(ctx, 1, len(values), len(values) - 1)]


@converter("SequenceInsert", since=11)
def convert_sequence_insert(ctx: NodeContext) -> TensorSequence:
    """The sequence with one more tensor, at the end by default."""
    values = ctx.sequence(0)
    at = _position(ctx, 2, len(values), len(values)) if ctx.has_input(2) else len(values)
    return TensorSequence((*values[:at], ctx.input(1), *values[at:]))


@converter("SequenceErase", since=11)
def convert_sequence_erase(ctx: NodeContext) -> TensorSequence:
    """The sequence without one of its tensors, the last by default."""
    values = ctx.sequence(0)
    at = _position(ctx, 1, len(values), len(values) - 1) if ctx.has_input(1) else len(values) - 1
    return TensorSequence((*values[:at], *values[at + 1 :]))


@converter("ConcatFromSequence", since=11)
def convert_concat_from_sequence(ctx: NodeContext) -> RelayExpr:
    """The tensors joined along an axis, or along a new one."""
    values = list(ctx.sequence(0))
    if not values:
        ctx.fail("a sequence without tensors cannot be joined")
    new = ctx.attr("new_axis", 0)
    axis = ctx.normalize_axis(ctx.required("axis"), ctx.rank(values[0]) + new)
    return relay_op.stack(values, axis=axis) if new else relay_op.concatenate(values, axis=axis)


@converter("SplitToSequence", since=11)
def convert_split_to_sequence(ctx: NodeContext) -> TensorSequence:
    """Parts of a tensor along an axis: of one size, of several sizes, or single entries."""
    data = ctx.input(0)
    axis = ctx.normalize_axis(ctx.attr("axis", 0), ctx.rank(data))
    extent = ctx.shape(data)[axis]
    keeps = bool(ctx.attr("keepdims", 1))
    if not ctx.has_input(1):
        ctx.write_out(extent, f"a sequence of {extent} parts")
        sizes = [1] * extent
    else:
        keeps, given = True, ctx.constant(1, "the sizes of the parts")
        if given.ndim == 0:
            size = int(given)
            if size <= 0:
                ctx.fail(f"parts of {size} entries")
            ctx.write_out(extent // size, f"a sequence of {extent // size} parts")
            sizes = [min(size, extent - start) for start in range(0, extent, size)]
        else:
            sizes = [int(v) for v in given]
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        ctx.fail(f"the sizes {sizes} do not sum up to the {extent} entries of axis {axis}")
    ends = np.cumsum(sizes).tolist()
    parts: list[Any] = [
        relay_op.strided_slice(data, [end - size], [end], axes=[axis]) for end, size in zip(ends, sizes, strict=True)
    ]
    return TensorSequence(typed(part if keeps else relay_op.squeeze(part, axis=[axis])) for part in parts)


@converter("Optional", since=15)
def convert_optional(ctx: NodeContext) -> Any:
    """The input itself; nothing without one."""
    return ctx.value(0) if ctx.num_inputs else TensorSequence.nothing()


@converter("OptionalHasElement", since=15)
def convert_optional_has_element(ctx: NodeContext) -> RelayExpr:
    """Whether there is a value, which is known."""
    there = ctx.num_inputs > 0 and ctx.has_input(0) and not TensorSequence.is_nothing(ctx.value(0))
    return const(np.array(there), "bool")


@converter("OptionalGetElement", since=15)
def convert_optional_get_element(ctx: NodeContext) -> Any:
    """The value."""
    value = ctx.value(0)
    if TensorSequence.is_nothing(value):
        ctx.fail("the optional value is empty")
    return value
