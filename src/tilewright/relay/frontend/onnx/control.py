"""Control flow: branches and loops. Those that are known at import are unrolled, iteration by iteration.

Values between iterations may be anything, so shapes may change from one to the next. Branches and loops that are
known only at run time become control flow of the virtual machine (``run_time_control.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.budget import made_nodes
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.onnx.context import NodeContext, ValueNeededError, typed
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.onnx.run_time_control import (
    branch_at_run_time,
    loop_at_run_time,
    no_rows,
    scan_at_run_time,
)

MAX_ITERATIONS = 512
# Nodes of a loop that is written out; of more it stays a loop, where it can.
_MOST_WRITTEN_OUT = 1 << 15


@converter("If")
def convert_if(ctx: NodeContext) -> Sequence[Any]:
    """Convert the branch that is taken."""
    if not ctx.importer.static and ctx.constant_or_none(ctx.input(0)) is None:
        return branch_at_run_time(ctx)
    condition = ctx.known(ctx.input(0), "the condition")
    branch = ctx.required("then_branch" if bool(condition.reshape(-1)[0]) else "else_branch")
    return ctx.subgraph(branch, [])


@converter("Loop")
def convert_loop(ctx: NodeContext) -> Sequence[Any]:
    """Convert a loop: unrolled where the number of iterations and the conditions are known."""
    if ctx.importer.static:
        return _loop_written_out(ctx)
    values = dict(ctx.importer.values)
    if _may_be_written_out(ctx):
        try:
            return _loop_written_out(ctx, _MOST_WRITTEN_OUT)
        except (ValueNeededError, _TooLongError):
            ctx.importer.values = values
    return loop_at_run_time(ctx)


class _TooLongError(Exception):
    """A loop takes many nodes when written out."""


def _may_be_written_out(ctx: NodeContext) -> bool:
    """Return whether the first condition and the number of iterations are known, and these are few."""
    count = ctx.constant_or_none(ctx.input(0)) if ctx.has_input(0) else None
    if ctx.has_input(0) and (count is None or (int(count.reshape(-1)[0]) > MAX_ITERATIONS and not ctx.has_input(1))):
        return False
    return not ctx.has_input(1) or ctx.constant_or_none(ctx.input(1)) is not None


def _loop_written_out(ctx: NodeContext, most: int | None = None) -> Sequence[Any]:
    """Unroll the body once for each iteration; raise _TooLongError where that takes more than ``most`` nodes."""
    body = ctx.required("body")
    count = int(ctx.scalar(0, "the number of iterations")) if ctx.has_input(0) else None
    go_on: RelayExpr | None = ctx.optional(1)
    carried: list[Any] = [ctx.value(i) for i in range(2, ctx.num_inputs)]
    collected: list[list[RelayExpr]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    step = 0
    while (count is None or step < count) and _holds(ctx, go_on, step):
        _check_count(ctx, step)
        before = made_nodes()
        condition = go_on if go_on is not None else const(True, "bool")
        go_on, *results = ctx.subgraph(body, [const(step, "int64"), condition, *carried])
        carried, scanned = results[: len(carried)], results[len(carried) :]
        for values, value in zip(collected, scanned, strict=True):
            values.append(value)
        step += 1
        _check_rest(ctx, made_nodes() - before, step, count, most)
    declared = body.output[len(body.output) - len(collected) :]
    if not step and not all(map(_has_static_shape, declared)):
        round_zero = ctx.subgraph(body, [const(0, "int64"), const(True, "bool"), *carried])
        return [*carried, *(no_rows(ctx, ctx.tensor_type(row)) for row in round_zero[1 + len(carried) :])]
    return [*carried, *(_stacked(ctx, d, v, 0) for d, v in zip(declared, collected, strict=True))]


def _holds(ctx: NodeContext, condition: RelayExpr | None, step: int) -> bool:
    if condition is None:
        return True
    known = ctx.known(condition, f"the condition before iteration {step}")
    return bool(known.reshape(-1)[0])


def _check_rest(ctx: NodeContext, nodes: int, step: int, count: int | None, most: int | None) -> None:
    """Give up early on loops in loops: the iterations to come take as many nodes as this one did."""
    rest = nodes * ((count if count is not None else step + 1) - step)
    if most is not None and nodes * step + rest > most:
        raise _TooLongError
    what = f"its {count} iterations, written out"
    ctx.write_out(rest, what)
    ctx.write_out(-rest, what)


def _check_count(ctx: NodeContext, step: int) -> None:
    if step >= MAX_ITERATIONS:
        ctx.unsupported(f"more than {MAX_ITERATIONS} iterations, each of which would be written out")


def _has_static_shape(declared: Any) -> bool:
    kind = declared.type.tensor_type
    return kind.HasField("shape") and all(d.HasField("dim_value") for d in kind.shape.dim)


def _stacked(ctx: NodeContext, declared: Any, values: Sequence[RelayExpr], axis: int) -> RelayExpr:
    if values:
        return relay_op.stack(values, axis=axis)
    if not _has_static_shape(declared):
        ctx.unsupported(f"no iteration, and so no shape for {declared.name!r}")
    shape = [d.dim_value for d in declared.type.tensor_type.shape.dim]
    return relay_op.zeros((*shape[:axis], 0, *shape[axis:]), ctx.onnx_dtype(declared.type.tensor_type.elem_type))


@converter("Scan", since=9)
def convert_scan(ctx: NodeContext) -> Sequence[RelayExpr]:
    """The body for each slice of the scanned inputs, which have one length along their axes."""
    body, scanned_inputs = ctx.required("body"), ctx.required("num_scan_inputs")
    states = [ctx.input(i) for i in range(ctx.num_inputs - scanned_inputs)]
    scanned = [ctx.input(i) for i in range(len(states), ctx.num_inputs)]
    axes = ctx.attr("scan_input_axes", (0,) * len(scanned))
    axes = [ctx.normalize_axis(axis, ctx.rank(x)) for axis, x in zip(axes, scanned, strict=True)]
    backwards = ctx.attr("scan_input_directions", (0,) * len(scanned))
    if any(not is_number(ctx.dims(x)[axis]) for x, axis in zip(scanned, axes, strict=True)):
        return scan_at_run_time(ctx, states, scanned, axes)
    lengths = {ctx.extent(x, axis) for x, axis in zip(scanned, axes, strict=True)}
    if len(lengths) != 1:
        ctx.fail(f"the scanned inputs have different lengths: {sorted(lengths)}")
    (length,) = lengths
    collected: list[list[RelayExpr]] = [[] for _ in range(len(body.output) - len(states))]
    for step in range(length):
        _check_count(ctx, step)
        slices = [
            relay_op.take(x, const(length - 1 - step if back else step, "int64"), axis=axis)
            for x, axis, back in zip(scanned, axes, backwards, strict=True)
        ]
        results = ctx.subgraph(body, [*states, *map(typed, slices)])
        states = results[: len(states)]
        for values, value in zip(collected, results[len(states) :], strict=True):
            values.append(value)
    outputs: list[RelayExpr] = list(states)
    for i, values in enumerate(collected):
        if ctx.attr("scan_output_directions", (0,) * len(collected))[i]:
            values.reverse()
        axis = ctx.attr("scan_output_axes", (0,) * len(collected))[i]
        rank = ctx.rank(values[0]) + 1 if values else 1
        declared = body.output[len(states) + i]
        outputs.append(_stacked(ctx, declared, values, ctx.normalize_axis(axis, rank)))
    return outputs


@converter("Scan", since=8)
def convert_scan_of_batches(ctx: NodeContext) -> Sequence[RelayExpr]:
    """Scan as it was in opset 8: a batch of sequences, whose lengths the first input may tell."""
    body, scanned_inputs = ctx.required("body"), ctx.required("num_scan_inputs")
    if ctx.has_input(0):
        ctx.unsupported("Scan (opset 8) with lengths of its sequences")
    if any(ctx.attr("directions", ())):
        ctx.unsupported("Scan (opset 8) backwards")
    states = [ctx.input(i) for i in range(1, ctx.num_inputs - scanned_inputs)]
    scanned = [ctx.input(i) for i in range(ctx.num_inputs - scanned_inputs, ctx.num_inputs)]
    batch, length = ctx.shape(scanned[0])[:2]
    of_batch = lambda x, i: typed(relay_op.take(x, const(i, "int64"), axis=0))  # noqa: E731
    rows: list[list[RelayExpr]] = []
    for i in range(batch):
        own, collected = [of_batch(s, i) for s in states], []
        for step in range(length):
            _check_count(ctx, step)
            results = ctx.subgraph(body, [*own, *(of_batch(of_batch(x, i), step) for x in scanned)])
            own = results[: len(own)]
            collected.append(results[len(own) :])
        rows.append([*own, *(relay_op.stack(list(values), axis=0) for values in zip(*collected, strict=True))])
    return [relay_op.stack(list(values), axis=0) for values in zip(*rows, strict=True)]
