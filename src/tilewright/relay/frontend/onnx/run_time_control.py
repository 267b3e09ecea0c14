"""If, Loop and Scan that are decided at run time: Relay's branches, and recursive functions.

A value that a loop carries has one type. Dimensions that change are unknown; the types are found by typing the body
until they stay the same. Outputs that a loop collects grow by a row in each iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, If, Tuple, TupleGetItem, Var, const
from tilewright.relay.frontend.dimensions import element
from tilewright.relay.frontend.dynamic import (
    filled,
    integer,
    reshape_to,
    runtime_dim,
    runtime_extent,
    runtime_shape,
)
from tilewright.relay.frontend.onnx.context import NodeContext, TensorSequence, typed
from tilewright.relay.frontend.onnx.indices import checked_range
from tilewright.relay.loops import while_loop
from tilewright.relay.op.dyn import any_dims

Body = Callable[[RelayExpr, Sequence[RelayExpr]], tuple[RelayExpr | None, list[RelayExpr], list[RelayExpr]]]
"""Of the round's number and the values it is given: whether to go on, their next values, and what is collected."""


def _tensors(ctx: NodeContext, values: Sequence[Any], what: str) -> list[RelayExpr]:
    if any(isinstance(v, TensorSequence) for v in values):
        ctx.unsupported(f"{what} is a sequence; where it is decided when the model runs, values are tensors")
    return [typed(v) for v in values]


def _scalar_bool(value: RelayExpr) -> RelayExpr:
    return typed(relay_op.reshape(value, newshape=()))


def _common(ctx: NodeContext, a: TensorType, b: TensorType, what: str) -> TensorType:
    """Return the type that both have, with unknown dimensions where they differ."""
    if a.dtype != b.dtype or len(a.shape) != len(b.shape):
        ctx.unsupported(f"{what} is a {a} and a {b}: data type and number of dimensions must stay the same")
    return TensorType([x if x is y else AnyDim() for x, y in zip(a.shape, b.shape, strict=True)], a.dtype)


def _as_type(value: RelayExpr, type_: TensorType) -> RelayExpr:
    """Return ``value`` with those dimensions unknown that are unknown in ``type_``."""
    own = typed(value).checked_type
    assert isinstance(own, TensorType)
    if all(isinstance(d, AnyDim) or not isinstance(t, AnyDim) for d, t in zip(own.shape, type_.shape, strict=True)):
        return value
    return typed(any_dims(value, type_.shape))


def _tensor_type(value: RelayExpr) -> TensorType:
    found = typed(value).checked_type
    assert isinstance(found, TensorType)
    return found


def branch_at_run_time(ctx: NodeContext) -> Sequence[RelayExpr]:
    """Return the outputs of the branch that is taken at run time."""
    yes, no = (_tensors(ctx, ctx.subgraph(ctx.required(f"{name}_branch"), []), "a result") for name in ("then", "else"))
    return branches(ctx, _scalar_bool(ctx.input(0)), yes, no)


def branches(
    ctx: NodeContext, condition: RelayExpr, yes: Sequence[RelayExpr], no: Sequence[RelayExpr]
) -> list[RelayExpr]:
    """Return the values of one of two branches; dimensions in which these differ are unknown."""
    types = [
        _common(ctx, _tensor_type(a), _tensor_type(b), f"output {i}")
        for i, (a, b) in enumerate(zip(yes, no, strict=True))
    ]
    taken, other = (Tuple([_as_type(v, t) for v, t in zip(values, types, strict=True)]) for values in (yes, no))
    chosen = typed(If(condition, taken, other))
    return [typed(TupleGetItem(chosen, i)) for i in range(len(types))]


def loop_at_run_time(ctx: NodeContext) -> Sequence[RelayExpr]:
    """Return a loop that runs while the number is not reached and the condition holds."""
    graph = ctx.required("body")
    carried = _tensors(ctx, [ctx.value(i) for i in range(2, ctx.num_inputs)], "a value that goes from round to round")
    limit = relay_op.reshape(relay_op.cast(ctx.input(0), "int64"), newshape=()) if ctx.has_input(0) else None
    first = _scalar_bool(ctx.input(1)) if ctx.has_input(1) else const(True, "bool")

    def body(step: RelayExpr, values: Sequence[RelayExpr]) -> tuple[RelayExpr | None, list[RelayExpr], list[RelayExpr]]:
        go_on, *results = ctx.subgraph(graph, [step, const(True, "bool"), *values])
        tensors = _tensors(ctx, results, "a result of the body")
        return _scalar_bool(go_on), tensors[: len(values)], tensors[len(values) :]

    final, collected = rounds(ctx, body, carried, limit, first, [False] * (len(graph.output) - 1 - len(carried)))
    return [*final, *collected]


def scan_at_run_time(
    ctx: NodeContext, states: Sequence[RelayExpr], scanned: Sequence[RelayExpr], axes: Sequence[int]
) -> Sequence[RelayExpr]:
    """Return a loop with an iteration for each slice of the scanned inputs."""
    graph = ctx.required("body")
    backwards = ctx.attr("scan_input_directions", (0,) * len(scanned))
    length = _common_length(ctx, len(states), scanned, axes)

    def body(step: RelayExpr, values: Sequence[RelayExpr]) -> tuple[RelayExpr | None, list[RelayExpr], list[RelayExpr]]:
        last = relay_op.subtract(length, relay_op.add(step, integer(1)))
        slices = [
            typed(relay_op.take(x, last if back else step, axis=axis))
            for x, axis, back in zip(scanned, axes, backwards, strict=True)
        ]
        results = _tensors(ctx, ctx.subgraph(graph, [*values, *slices]), "a result of the body")
        return None, results[: len(values)], results[len(values) :]

    count = len(graph.output) - len(states)
    reverse = [bool(v) for v in ctx.attr("scan_output_directions", (0,) * count)]
    final, collected = rounds(ctx, body, _tensors(ctx, states, "a state"), length, const(True, "bool"), reverse)
    outputs = list(final)
    for value, axis in zip(collected, ctx.attr("scan_output_axes", (0,) * count), strict=True):
        rank = len(_tensor_type(value).shape)
        order = list(range(1, rank))
        order.insert(ctx.normalize_axis(axis, rank), 0)
        outputs.append(value if order == list(range(rank)) else relay_op.transpose(value, axes=order))
    return outputs


def _common_length(ctx: NodeContext, first: int, scanned: Sequence[RelayExpr], axes: Sequence[int]) -> RelayExpr:
    """Return the length of all scanned inputs, of which ``first`` is the first one's index."""
    length = runtime_extent(scanned[0], axes[0])
    total = length
    for index, (x, axis) in enumerate(zip(scanned[1:], axes[1:], strict=True), first + 1):
        more = typed(relay_op.subtract(runtime_extent(x, axis), length))
        total = relay_op.add(
            total, checked_range(ctx, index, 1, "its length less the first scanned input's", values=more)
        )
    return total


def rounds(
    ctx: NodeContext,
    body: Body,
    first_values: Sequence[RelayExpr],
    limit: RelayExpr | None,
    first: RelayExpr,
    reverse: Sequence[bool],
) -> tuple[list[RelayExpr], list[RelayExpr]]:
    """Return the last values, and the collected rows, of a loop; ``reverse``: the last iteration's row comes first."""
    types, rows = _settled(ctx, body, [_tensor_type(v) for v in first_values])
    grown = [TensorType([AnyDim(), *row.shape], row.dtype) for row in rows]
    names = [Var("step", TensorType((), "int64")), Var("go_on", TensorType((), "bool"))]
    names += [Var(f"value{i}", t) for i, t in enumerate(types)] + [Var(f"rows{i}", t) for i, t in enumerate(grown)]

    def condition(step: RelayExpr, go_on: RelayExpr, *rest: RelayExpr) -> RelayExpr:
        return go_on if limit is None else relay_op.logical_and(go_on, relay_op.less(step, limit))

    def round_of(step: RelayExpr, go_on: RelayExpr, *rest: RelayExpr) -> list[RelayExpr]:
        values, collected = [typed(v) for v in rest[: len(types)]], rest[len(types) :]
        more, results, new = body(typed(step), values)
        held = [_as_type(v, t) for v, t in zip(results, types, strict=True)]
        joined = []
        for old, row, back in zip(collected, new, reverse, strict=True):
            parts = [_shaped_like(ctx, old, row), relay_op.expand_dims(row, axis=0)]
            joined.append(relay_op.concatenate(parts[::-1] if back else parts, axis=0))
        return [relay_op.add(step, integer(1)), const(True, "bool") if more is None else more, *held, *joined]

    loop = while_loop(condition, names, round_of)
    start = [_as_type(v, t) for v, t in zip(first_values, types, strict=True)]
    empty = [_as_type(no_rows(ctx, row), t) for row, t in zip(rows, grown, strict=True)]
    done = typed(Call(loop, [integer(0), first, *start, *empty]))
    found = [typed(TupleGetItem(done, 2 + i)) for i in range(len(types) + len(rows))]
    return found[: len(types)], found[len(types) :]


def _shaped_like(ctx: NodeContext, rows: RelayExpr, row: RelayExpr) -> RelayExpr:
    """Return the collected rows in the shape of one more row: of none, dimensions known only from a row are 0
    (``no_rows``).
    """
    dims = ctx.dims(row)
    if None not in dims:
        return rows
    shape = relay_op.concatenate([relay_op.strided_slice(runtime_shape(rows), [0], [1]), runtime_shape(row)], axis=0)
    return reshape_to(ctx, rows, [None, *dims], shape, allowzero=True)


def _settled(ctx: NodeContext, body: Body, types: list[TensorType]) -> tuple[list[TensorType], list[TensorType]]:
    """Return the types of values that hold in every iteration, and those of the collected rows."""
    while True:
        variables = [typed(Var(f"value{i}", t)) for i, t in enumerate(types)]
        _, results, rows = body(typed(Var("step", TensorType((), "int64"))), variables)
        after = [
            _common(ctx, t, _tensor_type(r), f"value {i} of the loop")
            for i, (t, r) in enumerate(zip(types, results, strict=True))
        ]
        if all(a.is_dynamic == b.is_dynamic and str(a) == str(b) for a, b in zip(types, after, strict=True)):
            return types, [_tensor_type(row) for row in rows]
        types = after


def no_rows(ctx: NodeContext, row: TensorType) -> RelayExpr:
    """Return collected rows of no iteration. A dimension that is known after an iteration only is 0, as in ONNX
    Runtime.
    """
    if not row.is_dynamic:
        return const(np.zeros((0, *row.concrete_shape), row.dtype), row.dtype)
    extents = [runtime_dim(ctx.importer.inputs.values(), d) for d in row.shape]
    shape = [integer(0), *(integer(0) if e is None else e for e in extents)]
    dims = [0, *(None if e is None else element(d) for e, d in zip(extents, row.shape, strict=True))]
    vector = relay_op.stack(shape, axis=0)
    return typed(filled(const(np.zeros((), row.dtype), row.dtype), dims, vector, row.dtype))
