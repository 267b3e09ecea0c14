"""Recurrent networks: LSTM, GRU, RNN, unrolled over time, or as a loop where the number of steps is known at run
time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.dynamic import filled, integer, known_dims, runtime_extent
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.indices import checked_lengths
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.onnx.run_time_control import rounds

Activation = Callable[[RelayExpr], RelayExpr]
_ACTIVATIONS: dict[str, Activation] = {
    "sigmoid": relay_op.sigmoid,
    "tanh": relay_op.tanh,
    "relu": relay_op.nn.relu,
}
_NODES_OF_A_STEP = 4
# One step: (gates of the input, states) -> states; the first state is the output.
Step = Callable[[RelayExpr, list[RelayExpr]], list[RelayExpr]]


def _activations(ctx: NodeContext, default: Sequence[str], direction: int) -> list[Activation]:
    names = [str(a).lower() for a in ctx.attr("activations") or ()]
    each = len(default)
    chosen = names[direction * each : (direction + 1) * each] or [d.lower() for d in default]
    unknown = [n for n in chosen if n not in _ACTIVATIONS]
    if unknown:
        ctx.unsupported(f"activations {unknown}; supported are {sorted(_ACTIVATIONS)}")
    return [_ACTIVATIONS[n] for n in chosen]


def _check(ctx: NodeContext) -> None:
    if ctx.attr("clip") is not None:
        ctx.unsupported("attribute clip")


def _batch_first(ctx: NodeContext, outputs: Sequence[RelayExpr]) -> list[RelayExpr]:
    """Transpose the outputs where attribute ``layout`` asks for batch first."""
    if not ctx.attr("layout", 0):
        return list(outputs)
    sequence, *states = outputs
    return [relay_op.transpose(sequence, axes=(2, 0, 1, 3)), *(relay_op.transpose(s, axes=(1, 0, 2)) for s in states)]


def _ends(ctx: NodeContext, steps: Any) -> RelayExpr | None:
    """Return the lengths of the sequences as a column; None where all are as long as the data."""
    if not ctx.has_input(4):
        return None
    lengths = checked_lengths(ctx, 4, ctx.input(0), 1 if ctx.attr("layout", 0) else 0, "length")
    known = ctx.constant_or_none(lengths)
    if known is not None and is_number(steps) and all(int(v) >= steps for v in known.reshape(-1)):
        return None
    return typed(relay_op.expand_dims(relay_op.cast(lengths, "int32"), axis=1))


def _until(
    ends: RelayExpr | None, t: RelayExpr, states: Sequence[RelayExpr], before: Sequence[RelayExpr], dtype: str
) -> tuple[RelayExpr, list[RelayExpr]]:
    """Return the output of step ``t`` and the states after it: beyond a sequence's end 0, and the previous states."""
    if ends is None:
        return states[0], list(states)
    lives = relay_op.less(t, ends)
    kept: list[RelayExpr] = [relay_op.where(lives, new, old) for new, old in zip(states, before, strict=True)]
    return relay_op.where(lives, states[0], const(0.0, dtype)), kept


def direction_slice(ctx: NodeContext, expr: RelayExpr, direction: int) -> RelayExpr:
    """Return entry ``direction`` of the leading axis."""
    return typed(relay_op.squeeze(relay_op.strided_slice(expr, [direction], [direction + 1], axes=[0]), axis=[0]))


def _split_bias(ctx: NodeContext, direction: int, size: int, dtype: str) -> list[RelayExpr]:
    """Return biases of the input and of the recurrence; zeros when there are none."""
    if not ctx.has_input(3):
        zero = relay_op.zeros((size,), dtype)
        return [zero, zero]
    bias = direction_slice(ctx, ctx.input(3), direction)
    parts = relay_op.split(bias, 2, axis=0)
    return [parts[0], parts[1]]


def _initial(ctx: NodeContext, index: int, direction: int, data: RelayExpr, hidden: int) -> RelayExpr:
    """Return the initial states (batch, hidden) of a direction, by default zeros."""
    if not ctx.has_input(index):
        batch, dtype = ctx.dims(data)[1], ctx.dtype(data)
        if is_number(batch):
            return relay_op.zeros((batch, hidden), dtype)
        shape = relay_op.stack([runtime_extent(data, 1), integer(hidden)], axis=0)
        return typed(filled(const(0.0, dtype), (batch, hidden), shape, dtype))
    states = ctx.input(index)
    if ctx.attr("layout", 0):
        states = relay_op.transpose(states, axes=(1, 0, 2))
    return direction_slice(ctx, typed(states), direction)


MakeStep = Callable[[NodeContext, int, RelayExpr, RelayExpr | None, int], Step]


def unroll(
    ctx: NodeContext,
    gates: int,
    num_states: int,
    make_step: MakeStep,
    add_biases: bool = True,
    project: Callable[[NodeContext, int, RelayExpr], RelayExpr] | None = None,
) -> list[RelayExpr]:
    """Return the outputs (Y, Y_h[, Y_c]) of all directions over all steps.

    Where the cell only adds both biases (``add_biases``), their sum is added to the input of all steps at once.
    """
    data = ctx.input(0)
    if ctx.attr("layout", 0):
        data = typed(relay_op.transpose(data, axes=(1, 0, 2)))
    steps = ctx.dims(data)[0]
    hidden = ctx.required("hidden_size")
    dtype = ctx.dtype(data)
    directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[
        ctx.attr("direction", "forward")
    ]
    ends = _ends(ctx, steps)
    outputs: list[RelayExpr] = []
    finals: list[list[RelayExpr]] = []
    rows = typed(relay_op.reshape(data, newshape=(-3, 0)))
    for index, backwards in enumerate(directions):
        recurrence = direction_slice(ctx, ctx.input(2), index)
        bias, bias_recurrence = _split_bias(ctx, index, gates * hidden, dtype)
        if add_biases:
            bias = relay_op.add(bias, bias_recurrence)
        product = (project or _projected)(ctx, index, rows)
        added = relay_op.nn.bias_add(product, bias)
        projected = typed(ctx.reshaped(added, data, 1, 0, 2))
        states = [_initial(ctx, 5 + s, index, data, hidden) for s in range(num_states)]
        step = make_step(ctx, index, recurrence, None if add_biases else bias_recurrence, hidden)
        direction = _Direction(ctx, step, projected, ends, backwards)
        output, states = direction.unrolled(states) if is_number(steps) else direction.loop(states)
        outputs.append(output)
        finals.append(states)
    states = [relay_op.stack([f[s] for f in finals], axis=0) for s in range(num_states)]
    return _batch_first(ctx, [relay_op.stack(outputs, axis=1), *states])


def _projected(ctx: NodeContext, direction: int, rows: RelayExpr) -> RelayExpr:
    """The product of a direction's weight with the data of all steps."""
    weight = direction_slice(ctx, ctx.input(1), direction)
    return relay_op.nn.dense(rows, weight, units=ctx.shape(weight)[0])


@dataclass(frozen=True)
class _Direction:
    """A direction of a network: its step, the input's part of the gates in all steps, and the sequences' ends."""

    ctx: NodeContext
    step: Step
    projected: RelayExpr
    ends: RelayExpr | None
    backwards: bool

    def unrolled(self, states: list[RelayExpr]) -> tuple[RelayExpr, list[RelayExpr]]:
        """Unroll all steps: return the outputs (steps, batch, hidden), and the last states."""
        steps, dtype = self.ctx.extent(self.projected, 0), self.ctx.dtype(self.projected)
        self.ctx.write_out(_NODES_OF_A_STEP * steps, f"its {steps} steps, written out")
        sequence = relay_op.split(self.projected, steps, axis=0) if steps > 1 else [self.projected]
        collected: list[RelayExpr] = [self.projected] * steps
        for t in reversed(range(steps)) if self.backwards else range(steps):
            found = self.step(relay_op.squeeze(sequence[t], axis=[0]), states)
            collected[t], states = _until(self.ends, const(t, "int32"), found, states, dtype)
        return relay_op.stack(collected, axis=0), states

    def loop(self, states: list[RelayExpr]) -> tuple[RelayExpr, list[RelayExpr]]:
        """As ``unrolled``, with as many steps as the data has at run time."""
        ctx, projected = self.ctx, self.projected
        dtype, length = ctx.dtype(projected), runtime_extent(projected, 0)

        def body(number: RelayExpr, values: Sequence[RelayExpr]) -> tuple[None, list[RelayExpr], list[RelayExpr]]:
            t = relay_op.subtract(length, relay_op.add(number, integer(1))) if self.backwards else number
            found = self.step(typed(relay_op.take(projected, t, axis=0)), list(values))
            output, kept = _until(self.ends, relay_op.cast(t, "int32"), found, values, dtype)
            return None, [typed(k) for k in kept], [typed(output)]

        first = [typed(s) for s in states]
        final, (rows,) = rounds(ctx, body, first, length, const(True, "bool"), [self.backwards])
        batch, hidden = ctx.dims(final[0])
        return known_dims(rows, (ctx.dims(projected)[0], batch, hidden)), final


@converter("LSTM", in_float32=True, weights=(1, 2))
def convert_lstm(ctx: NodeContext) -> Any:
    """Long short-term memory; gates in ONNX's order input, output, forget, cell."""
    check_lstm(ctx)
    return unroll(ctx, 4, 2, _lstm_step)[: ctx.num_outputs]


def check_lstm(ctx: NodeContext) -> None:
    """Refuse attributes that are not supported."""
    _check(ctx)
    if ctx.attr("input_forget", 0):
        ctx.unsupported("attribute input_forget=1")


def _lstm_step(ctx: NodeContext, direction: int, recurrence: RelayExpr, _: RelayExpr | None, hidden: int) -> Step:
    return lstm_cell(ctx, direction, lambda output: relay_op.nn.dense(output, recurrence, units=4 * hidden))


def lstm_cell(ctx: NodeContext, direction: int, recur: Callable[[RelayExpr], RelayExpr]) -> Step:
    """A step of an LSTM whose recurrent product is ``recur``."""
    f, g, h = _activations(ctx, ("Sigmoid", "Tanh", "Tanh"), direction)
    peepholes = None
    if ctx.has_input(7):
        peepholes = relay_op.split(direction_slice(ctx, ctx.input(7), direction), 3, axis=0)

    def seeing(gate: RelayExpr, which: int, cell: RelayExpr) -> RelayExpr:
        return gate if peepholes is None else relay_op.add(gate, relay_op.multiply(peepholes[which], cell))

    def step(projected: RelayExpr, states: list[RelayExpr]) -> list[RelayExpr]:
        output, cell = states
        gates = relay_op.add(projected, recur(output))
        i, o, fg, c = relay_op.split(gates, 4, axis=1)
        kept = relay_op.multiply(f(seeing(fg, 2, cell)), cell)
        cell = relay_op.add(kept, relay_op.multiply(f(seeing(i, 0, cell)), g(c)))
        return [relay_op.multiply(f(seeing(o, 1, cell)), h(cell)), cell]

    return step


@converter("GRU", in_float32=True, weights=(1, 2))
def convert_gru(ctx: NodeContext) -> Any:
    """Gated recurrent unit; gates in ONNX's order update, reset, hidden."""
    _check(ctx)
    return unroll(ctx, 3, 1, _gru_step, add_biases=not ctx.attr("linear_before_reset", 0))[: ctx.num_outputs]


def _gru_step(ctx: NodeContext, direction: int, recurrence: RelayExpr, bias: RelayExpr | None, hidden: int) -> Step:
    """Apply the reset gate before the recurrent product, or, where there is a bias, to product and bias."""
    f, g = _activations(ctx, ("Sigmoid", "Tanh"), direction)
    one = const(1.0, ctx.dtype(ctx.input(0)))
    gate_rows, hidden_rows = relay_op.split(recurrence, (2 * hidden,), axis=0)
    gate_bias, hidden_bias = relay_op.split(bias, (2 * hidden,), axis=0) if bias is not None else (None, None)

    def step(projected: RelayExpr, states: list[RelayExpr]) -> list[RelayExpr]:
        (output,) = states
        gate_input, hidden_input = relay_op.split(projected, (2 * hidden,), axis=1)
        dense = relay_op.nn.dense(output, gate_rows, units=2 * hidden)
        dense = relay_op.nn.bias_add(dense, gate_bias) if gate_bias is not None else dense
        z, r = relay_op.split(f(relay_op.add(gate_input, dense)), 2, axis=1)
        if hidden_bias is not None:
            recurrent = relay_op.nn.bias_add(relay_op.nn.dense(output, hidden_rows, units=hidden), hidden_bias)
            recurrent = relay_op.multiply(r, recurrent)
        else:
            recurrent = relay_op.nn.dense(relay_op.multiply(r, output), hidden_rows, units=hidden)
        candidate = g(relay_op.add(hidden_input, recurrent))
        keep = relay_op.multiply(z, output)
        return [relay_op.add(relay_op.multiply(relay_op.subtract(one, z), candidate), keep)]

    return step


@converter("RNN", in_float32=True, weights=(1, 2))
def convert_rnn(ctx: NodeContext) -> Any:
    """Elman network."""
    _check(ctx)
    return unroll(ctx, 1, 1, _rnn_step)[: ctx.num_outputs]


def _rnn_step(ctx: NodeContext, direction: int, recurrence: RelayExpr, _: RelayExpr | None, hidden: int) -> Step:
    (f,) = _activations(ctx, ("Tanh",), direction)

    def step(projected: RelayExpr, states: list[RelayExpr]) -> list[RelayExpr]:
        return [f(relay_op.add(projected, relay_op.nn.dense(states[0], recurrence, units=hidden)))]

    return step
