"""Recurrent networks, unrolled over time. States that the file declares as variables are 0 when a run begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.tflite.context import ACTIVATION, OperatorContext, typed
from tilewright.relay.frontend.tflite.integer_recurrent import IntegerCell, integer_memory
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.frontend.tflite.schema import ACTIVATIONS

_NODES_OF_A_STEP = 16
Step = Callable[[RelayExpr, list[RelayExpr]], list[RelayExpr]]


def _check(ctx: OperatorContext) -> None:
    if ctx.tensor(0).is_quantized:
        ctx.unsupported("a recurrent network of integers")


def _activation(ctx: OperatorContext) -> Callable[[RelayExpr], RelayExpr]:
    number = ctx.option("activation")
    if not 0 <= number < len(ACTIVATIONS):
        ctx.fail(f"activation {number} is unknown")
    return ACTIVATION.get(ACTIVATIONS[number], lambda value: value)


def _over_time(ctx: OperatorContext, step: Step, states: Sequence[RelayExpr], backwards: bool = False) -> RelayExpr:
    """Return the first state after each step, in the layout of the data."""
    data, axis = ctx.raw(0), 0 if ctx.option("time_major", False) else 1
    count = ctx.shape(data)[axis]
    ctx.write_out(_NODES_OF_A_STEP * count, f"its {count} steps, written out")
    found: list[Any] = [None] * count
    values = list(states)
    for t in reversed(range(count)) if backwards else range(count):
        values = step(relay_op.take(data, const(t, "int32"), axis=axis, mode="fast"), values)
        found[t] = values[0]
    return typed(relay_op.stack(found, axis=axis))


def _dense(ctx: OperatorContext, data: RelayExpr, index: int) -> RelayExpr:
    weight = ctx.real(index)
    return relay_op.nn.dense(data, weight, units=ctx.shape(weight)[0])


def _state(ctx: OperatorContext, index: int) -> RelayExpr:
    """Return the state that a run begins with."""
    return ctx.real(index)


# ------------------------------------------------------------------------------------------- LSTM


@dataclass(frozen=True)
class _Cell:
    """The inputs of one direction of an LSTM, by the number of the first: gates input, forget, cell, output."""

    ctx: OperatorContext
    start: int
    norms: int = 20

    def gate(self, which: int, data: RelayExpr, output: RelayExpr, cell: RelayExpr | None) -> RelayExpr:
        """Return a gate before its activation."""
        ctx, start = self.ctx, self.start
        total = relay_op.add(_dense(ctx, data, start + which), _dense(ctx, output, start + 4 + which))
        peephole = start + 8 + (0, 1, 0, 2)[which]
        if cell is not None and ctx.has(peephole):
            total = relay_op.add(total, relay_op.multiply(ctx.real(peephole), cell))
        if ctx.has(self.norms + which):
            mean = relay_op.mean(total, axis=[-1], keepdims=True)
            spread = relay_op.subtract(total, mean)
            power = relay_op.mean(relay_op.multiply(spread, spread), axis=[-1], keepdims=True)
            total = relay_op.multiply(spread, relay_op.rsqrt(relay_op.add(power, const(1e-8))))
            total = relay_op.multiply(total, ctx.real(self.norms + which))
        return relay_op.add(total, ctx.real(start + 11 + which)) if ctx.has(start + 11 + which) else total

    def step(self, data: RelayExpr, states: list[RelayExpr]) -> list[RelayExpr]:
        """Return the output and the cell after a step."""
        ctx, apply = self.ctx, _activation(self.ctx)
        output, cell = states
        forget = relay_op.sigmoid(self.gate(1, data, output, cell))
        candidate = apply(self.gate(2, data, output, None))
        if ctx.has(self.start):
            take = relay_op.sigmoid(self.gate(0, data, output, cell))
        else:  # coupled with the forget gate
            take = relay_op.subtract(const(1.0), forget)
        cell = relay_op.add(relay_op.multiply(forget, cell), relay_op.multiply(take, candidate))
        cell = _clipped(cell, float(ctx.option("cell_clip")))
        output = relay_op.multiply(relay_op.sigmoid(self.gate(3, data, output, cell)), apply(cell))
        if ctx.has(self.start + 15):
            output = _dense(ctx, output, self.start + 15)
            output = relay_op.add(output, ctx.real(self.start + 16)) if ctx.has(self.start + 16) else output
            output = _clipped(output, float(ctx.option("projection_clip")))
        return [output, cell]


def _clipped(value: RelayExpr, limit: float) -> RelayExpr:
    return relay_op.clip(value, -limit, limit) if limit > 0 else value


@converter("UNIDIRECTIONAL_SEQUENCE_LSTM")
def convert_unidirectional_sequence_lstm(ctx: OperatorContext) -> RelayExpr:
    """Long short-term memory over a sequence."""
    return _over_time(ctx, _lstm_step(ctx), [ctx.raw(18), ctx.raw(19)])


def _lstm_step(ctx: OperatorContext) -> Step:
    return IntegerCell(ctx).step if ctx.tensor(0).is_quantized else _Cell(ctx, 1).step


@converter("LSTM")
def convert_lstm(ctx: OperatorContext) -> Sequence[RelayExpr | None]:
    """One step of long short-term memory; the output is the last result."""
    if ctx.option("kernel_type", 0):
        ctx.unsupported("the basic form")
    output = _lstm_step(ctx)(ctx.raw(0), [ctx.raw(18), ctx.raw(19)])[0]
    return [*[None] * (len(ctx.operator.outputs) - 1), output]


@converter("BIDIRECTIONAL_SEQUENCE_LSTM")
def convert_bidirectional_sequence_lstm(ctx: OperatorContext) -> Sequence[RelayExpr]:
    """Long short-term memory over a sequence, forwards and backwards."""
    _check(ctx)
    if ctx.has(39):
        ctx.unsupported("an auxiliary input")
    none = ctx.num_inputs  # no layer normalization
    forwards = _over_time(ctx, _Cell(ctx, 1, none).step, [_state(ctx, 35), _state(ctx, 36)])
    backwards = _over_time(ctx, _Cell(ctx, 18, none).step, [_state(ctx, 37), _state(ctx, 38)], backwards=True)
    return _both(ctx, forwards, backwards)


def _both(ctx: OperatorContext, forwards: RelayExpr, backwards: RelayExpr) -> Sequence[RelayExpr]:
    merge = bool(ctx.option("merge_outputs"))
    return [relay_op.concatenate([forwards, backwards], axis=2)] if merge else [forwards, backwards]


# ------------------------------------------------------------------------------------------- RNN


def _rnn(ctx: OperatorContext, start: int) -> Step:
    apply = _activation(ctx)

    def step(data: RelayExpr, states: list[RelayExpr]) -> list[RelayExpr]:
        total = relay_op.add(_dense(ctx, data, start), _dense(ctx, states[0], start + 1))
        return [apply(relay_op.add(total, ctx.real(start + 2)))]

    return step


@converter("RNN")
def convert_rnn(ctx: OperatorContext) -> RelayExpr:
    """One step of an Elman network."""
    _check(ctx)
    return _rnn(ctx, 1)(ctx.real(0), [_state(ctx, 4)])[0]


@converter("UNIDIRECTIONAL_SEQUENCE_RNN")
def convert_unidirectional_sequence_rnn(ctx: OperatorContext) -> RelayExpr:
    """Elman network over a sequence."""
    _check(ctx)
    return _over_time(ctx, _rnn(ctx, 1), [_state(ctx, 4)])


@converter("BIDIRECTIONAL_SEQUENCE_RNN")
def convert_bidirectional_sequence_rnn(ctx: OperatorContext) -> Sequence[RelayExpr]:
    """Elman network over a sequence, forwards and backwards."""
    _check(ctx)
    if ctx.has(9):
        ctx.unsupported("an auxiliary input")
    forwards = _over_time(ctx, _rnn(ctx, 1), [_state(ctx, 4)])
    backwards = _over_time(ctx, _rnn(ctx, 5), [_state(ctx, 8)], backwards=True)
    return _both(ctx, forwards, backwards)


# ------------------------------------------------------------------------------------------- SVDF


@converter("SVDF")
def convert_svdf(ctx: OperatorContext) -> RelayExpr:
    """Filters of features and of time: sums over what was remembered, the newest last."""
    weights = ctx.plain(2)
    (filters, length), rank = ctx.shape(weights), int(ctx.option("rank"))
    batch = ctx.shape(ctx.raw(0))[0]
    if rank < 1 or filters % rank:
        ctx.fail(f"its {filters} filters are no multiple of its rank, {rank}")
    integers = ctx.tensor(0).is_quantized
    remembered, finished = integer_memory(ctx) if integers else (lambda data: _dense(ctx, data, 1), ctx.activation)
    newest = relay_op.expand_dims(remembered(ctx.raw(0)), axis=2)
    before = relay_op.reshape(ctx.raw(4), (batch, filters, length))
    memory = relay_op.concatenate([relay_op.strided_slice(before, [1], [length], axes=[2]), newest], axis=2)
    memory, weights = (relay_op.cast(memory, "int32"), relay_op.cast(weights, "int32")) if integers else (
        memory, ctx.real(2)
    )  # fmt: skip
    terms = relay_op.multiply(memory, relay_op.expand_dims(weights, axis=0))
    sums = relay_op.sum(relay_op.reshape(terms, (batch, filters // rank, rank * length)), axis=[2])
    if ctx.has(3):
        sums = relay_op.add(sums, ctx.plain(3) if integers else ctx.real(3))
    return finished(typed(sums))
