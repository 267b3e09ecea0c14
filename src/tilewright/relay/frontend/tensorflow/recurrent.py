"""Cells of recurrent networks."""

from __future__ import annotations

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.tensorflow.context import NodeContext
from tilewright.relay.frontend.tensorflow.registry import converter


def _dense(ctx: NodeContext, data: RelayExpr, weight: RelayExpr, bias: RelayExpr) -> RelayExpr:
    """Return the product of rows with a weight (inputs, outputs), and a bias added."""
    value = ctx.constant_or_none(weight)
    if value is not None:
        turned = ctx.importer.constant_tensor(f"{ctx.node.name}/weight", np.ascontiguousarray(value.T))
    else:
        turned = typed(relay_op.transpose(weight, axes=(1, 0)))
    return typed(relay_op.add(relay_op.nn.dense(data, turned), bias))


@converter("LSTMBlockCell")
def convert_lstm_block_cell(ctx: NodeContext) -> list[RelayExpr]:
    """One step of a long short-term memory: gates i, f, o, the candidate ci, the cell cs, co and the state h."""
    x, cell, state, weight, peep_i, peep_f, peep_o, bias = ctx.inputs(0, 8)
    gates = _dense(ctx, typed(relay_op.concatenate([x, state], axis=1)), weight, bias)
    i, candidate, f, o = (typed(g) for g in relay_op.split(gates, 4, axis=1))
    peeps = bool(ctx.attr("use_peephole", False))
    f = typed(relay_op.add(f, ctx.like(float(ctx.attr("forget_bias", 1.0)), f)))
    if peeps:
        i = relay_op.add(i, relay_op.multiply(cell, peep_i))
        f = relay_op.add(f, relay_op.multiply(cell, peep_f))
    i, f, candidate = relay_op.sigmoid(i), relay_op.sigmoid(f), relay_op.tanh(candidate)
    following = typed(relay_op.add(relay_op.multiply(f, cell), relay_op.multiply(i, candidate)))
    clip = float(ctx.attr("cell_clip", -1.0))
    if clip > 0:
        following = typed(relay_op.clip(following, -clip, clip))
    o = relay_op.sigmoid(relay_op.add(o, relay_op.multiply(following, peep_o)) if peeps else o)
    bounded = relay_op.tanh(following)
    return [i, following, f, o, candidate, bounded, relay_op.multiply(o, bounded)]


@converter("GRUBlockCell")
def convert_gru_block_cell(ctx: NodeContext) -> list[RelayExpr]:
    """One step of a gated recurrent unit: gates r and u, the candidate c, and the state h."""
    x, state, gate_weight, weight, gate_bias, bias = ctx.inputs(0, 6)
    gates = relay_op.sigmoid(_dense(ctx, typed(relay_op.concatenate([x, state], axis=1)), gate_weight, gate_bias))
    r, u = (typed(g) for g in relay_op.split(gates, 2, axis=1))
    kept = relay_op.multiply(r, state)
    candidate = typed(relay_op.tanh(_dense(ctx, typed(relay_op.concatenate([x, kept], axis=1)), weight, bias)))
    rest = relay_op.multiply(relay_op.subtract(ctx.like(1, u), u), candidate)
    return [r, u, candidate, relay_op.add(relay_op.multiply(u, state), rest)]
