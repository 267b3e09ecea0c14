"""Positions, lengths and counts that are known at run time: checked where they enter, by ``check_indices``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import as_dim, is_number
from tilewright.relay.frontend.dynamic import low_of, runtime_shape, vector
from tilewright.relay.frontend.onnx.context import NodeContext, describe, typed
from tilewright.relay.op.attributes import call
from tilewright.relay.op.transform.checks import CheckIndices, CheckIndicesAttrs, check_indices
from tilewright.relay.op.transform.reshape import ReshapeAttrs
from tilewright.relay.op.transform.shape_checks import CheckShape, CheckShapeAttrs, check_shape


def checked_indices(
    ctx: NodeContext, index: int, like: RelayExpr, axes: Sequence[int], axis: int = 0, indices: RelayExpr | None = None
) -> RelayExpr:
    """Return input ``index`` (or ``indices``, made of it) as positions along ``axes`` of ``like``, counted from the
    front.

    With several axes, dimension ``axis`` of the indices lists a coordinate for each. Negative positions count from the
    end. A position out of range is an error, at import where it is known.
    """
    attrs = CheckIndicesAttrs(_what(ctx, index, "index"), axes=tuple(axes), axis=axis, from_end=True)
    return _checked(ctx, ctx.input(index) if indices is None else indices, attrs, like)


def checked_numbers(
    ctx: NodeContext, index: int, like: RelayExpr, axis: int, word: str, values: RelayExpr | None = None
) -> RelayExpr:
    """Return input ``index`` (or ``values``, made of it): positions that are not negative; ``word`` names them."""
    attrs = CheckIndicesAttrs(_what(ctx, index, word), axes=(axis,))
    return _checked(ctx, ctx.input(index) if values is None else values, attrs, like)


def checked_lengths(
    ctx: NodeContext, index: int, like: RelayExpr, axis: int, word: str, values: RelayExpr | None = None
) -> RelayExpr:
    """Return input ``index`` (or ``values``, made of it): numbers from 0 to the extent of ``axis`` of ``like``."""
    attrs = CheckIndicesAttrs(_what(ctx, index, word), axes=(axis,), more=1)
    return _checked(ctx, ctx.input(index) if values is None else values, attrs, like)


def checked_range(
    ctx: NodeContext, index: int, extent: int, word: str, least: int = 0, values: RelayExpr | None = None
) -> RelayExpr:
    """Return input ``index`` (or ``values``, made of it): numbers from ``least`` to ``extent`` less 1; ``word``
    names them.
    """
    attrs = CheckIndicesAttrs(_what(ctx, index, word), extents=(extent,), least=least)
    return _checked(ctx, ctx.input(index) if values is None else values, attrs, None)


def checked_shape(
    ctx: NodeContext, index: int, rule: str, word: str, why: str, dims: RelayExpr | None = None,
    numbers: RelayExpr | None = None,
) -> RelayExpr:  # fmt: skip
    """Return input ``index`` (or ``numbers``, made of it) as int64: numbers that satisfy a rule of
    ``topi.shape_checks``.

    ``word`` names them. ``why`` says what they would do to a tensor of the dimensions ``dims`` (an int64 vector) where
    the rule does not hold, which is an error, at import where all is known.
    """
    given = relay_op.cast(ctx.input(index), "int64") if numbers is None else numbers
    attrs = CheckShapeAttrs(rule, _what(ctx, index, word), why)
    found = [ctx.constant_or_none(e) for e in (given, *([] if dims is None else [dims]))]
    if any(value is None for value in found):
        return typed(check_shape(given, attrs, dims))
    try:
        return const(CheckShape.evaluate(attrs, [value for value in found if value is not None])[0])
    except TilewrightError as error:
        ctx.fail(str(error).removeprefix(f"{describe(ctx.node)}: "))


def with_extent(ctx: NodeContext, data: RelayExpr, axis: int, extent: int) -> RelayExpr:
    """Return ``data`` (input 0) with the number ``extent`` for an axis that has none; runs check it.

    Another operand says it, as weights say how many channels there are.
    """
    dims = list(ctx.dims(data))
    if is_number(dims[axis]):
        return data
    shape, dims[axis] = runtime_shape(data), extent
    others = [range(axis), range(axis + 1, len(dims))]
    before, behind = ([relay_op.take(shape, vector(places), axis=0)] if places else [] for places in others)
    parts = relay_op.concatenate([*before, vector([extent]), *behind], axis=0)
    wanted = checked_shape(
        ctx, 0, "reshape_allowzero", "the shape that the weights tell", "is not that of data of shape", shape, parts
    )
    return typed(call("dyn.reshape", [data, wanted], ReshapeAttrs(tuple(as_dim(d) for d in dims), True)))


def _what(ctx: NodeContext, index: int, word: str) -> str:
    return f"{describe(ctx.node)}: input {index}, {ctx.node.input[index]!r}: {word}"


def _checked(ctx: NodeContext, indices: RelayExpr, attrs: CheckIndicesAttrs, like: RelayExpr | None) -> RelayExpr:
    extents = list(attrs.extents) if like is None else attrs.extents_of(ctx.dims(like))
    if all(map(is_number, extents)):
        attrs, like = attrs.replace(extents=tuple(map(int, extents)), axes=(), more=0), None
    value = ctx.constant_or_none(indices)
    if value is not None and like is None:
        return _known(ctx, value, attrs)
    if value is not None and _surely_inside(value, attrs, [low_of(e) for e in extents]):
        return indices
    # Several nodes that use the same indices alike share the check, which names the first.
    key = (indices, like, *(value for name, value in attrs.field_values() if name != "what"))
    made = ctx.importer.checked.get(key)
    if made is None:
        made = ctx.importer.checked[key] = typed(check_indices(indices, attrs, like))
    return made


def _known(ctx: NodeContext, value: np.ndarray[Any, Any], attrs: CheckIndicesAttrs) -> RelayExpr:
    try:
        return const(CheckIndices.evaluate(attrs, [value])[0])
    except TilewrightError as error:
        ctx.fail(str(error).removeprefix(f"{describe(ctx.node)}: "))


def _surely_inside(value: np.ndarray[Any, Any], attrs: CheckIndicesAttrs, least_extents: Sequence[int]) -> bool:
    """Return whether known indices are in range and not negative, whatever the extents are."""
    rows = [value] if len(least_extents) == 1 else np.moveaxis(value, attrs.axis, 0)
    return all(
        bool(((row >= max(attrs.least, 0)) & (row < extent)).all())
        for row, extent in zip(rows, least_extents, strict=True)
    )
