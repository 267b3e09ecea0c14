"""LSTM, GRU and RNN, layer by layer; the cells are those of ONNX's operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.elementwise import refuse_training
from tilewright.relay.frontend.torch.registry import converter, refuse

# Torch's gates in the order of ONNX's: input, output, forget, cell; and update, reset, hidden.
_LSTM_GATES, _GRU_GATES, _RNN_GATES = (0, 3, 1, 2), (1, 0, 2), (0,)

refuse("sequences of different lengths; pad them, and mask the result", "lstm.data", "gru.data", "rnn_tanh.data",
       "rnn_relu.data")  # fmt: skip


def _in_order(x: RelayExpr, gates: Sequence[int]) -> RelayExpr:
    """Return the rows of a weight or bias with the gates in ONNX's order."""
    if len(gates) == 1:
        return x
    parts = relay_op.split(x, len(gates), axis=0)
    return typed(relay_op.concatenate([parts[g] for g in gates], axis=0))


def _layer(
    ctx: TorchContext, op_type: str, gates: Sequence[int], x: RelayExpr, states: Sequence[RelayExpr],
    params: Sequence[Sequence[RelayExpr]], **attributes: Any,
) -> list[RelayExpr]:  # fmt: skip
    """Return the outputs (steps, batch, directions * hidden) of a layer, and its last states."""
    stacked = [
        typed(relay_op.stack([_in_order(p[i], gates) for p in params], axis=0)) for i in range(2)
    ]  # fmt: skip
    bias = None
    if len(params[0]) > 2:
        both = [relay_op.concatenate([_in_order(p[2], gates), _in_order(p[3], gates)], axis=0) for p in params]
        bias = typed(relay_op.stack(both, axis=0))
    hidden = ctx.extent(stacked[1], 2)
    direction = "bidirectional" if len(params) == 2 else "forward"
    outputs = ctx.part(
        op_type, [x, *stacked, bias, None, *states], outputs=1 + len(states), hidden_size=hidden, direction=direction,
        **attributes,
    )  # fmt: skip
    whole = outputs[0]  # (steps, directions, batch, hidden)
    if len(params) == 1:
        rows = typed(relay_op.squeeze(whole, axis=[1]))
    else:
        parts = relay_op.split(whole, 2, axis=1)
        rows = typed(relay_op.concatenate([relay_op.squeeze(parts[i], axis=[1]) for i in range(2)], axis=2))
    return [rows, *outputs[1:]]


def _network(
    ctx: TorchContext, op_type: str, gates: Sequence[int], x: RelayExpr, states: Sequence[RelayExpr],
    params: Sequence[RelayExpr], biases: bool, layers: int, dropout: float, train: bool, both_ways: bool,
    batch_first: bool, **attributes: Any,
) -> list[RelayExpr]:  # fmt: skip
    """Return the outputs of the last layer, and the last states of all."""
    if dropout and train and layers > 1:
        refuse_training(ctx, "drops elements at random")
    directions, each = 2 if both_ways else 1, 4 if biases else 2
    if len(params) != layers * directions * each:
        ctx.unsupported("projections (proj_size)")
    x = ctx.permute(x, [1, 0, 2]) if batch_first else x
    finals: list[list[RelayExpr]] = []
    for layer in range(layers):
        first = layer * directions
        own = [params[(first + d) * each : (first + d + 1) * each] for d in range(directions)]
        begun = [relay_op.strided_slice(s, [first], [first + directions], axes=[0]) for s in states]
        x, *last = _layer(ctx, op_type, gates, x, begun, own, **attributes)
        finals.append(last)
    ends = [typed(relay_op.concatenate([f[i] for f in finals], axis=0)) for i in range(len(states))]
    return [ctx.permute(x, [1, 0, 2]) if batch_first else x, *ends]


@converter("lstm.input")
def convert_lstm(ctx: TorchContext, x: RelayExpr, states: Sequence[RelayExpr], *rest: Any) -> list[RelayExpr]:
    """Long short-term memory."""
    return _network(ctx, "LSTM", _LSTM_GATES, x, states, *rest)


@converter("gru.input")
def convert_gru(ctx: TorchContext, x: RelayExpr, state: RelayExpr, *rest: Any) -> list[RelayExpr]:
    """Gated recurrent unit."""
    return _network(ctx, "GRU", _GRU_GATES, x, [state], *rest, linear_before_reset=1)


@converter("rnn_tanh.input")
def convert_rnn_tanh(ctx: TorchContext, x: RelayExpr, state: RelayExpr, *rest: Any) -> list[RelayExpr]:
    """Elman network with tanh."""
    return _network(ctx, "RNN", _RNN_GATES, x, [state], *rest, activations=["Tanh"] * _directions(rest))


@converter("rnn_relu.input")
def convert_rnn_relu(ctx: TorchContext, x: RelayExpr, state: RelayExpr, *rest: Any) -> list[RelayExpr]:
    """Elman network with rectifiers."""
    return _network(ctx, "RNN", _RNN_GATES, x, [state], *rest, activations=["Relu"] * _directions(rest))


def _directions(rest: Sequence[Any]) -> int:
    return 2 if rest[5] else 1
