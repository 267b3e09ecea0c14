"""Branches, loops, and calls of subgraphs."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import If, Tuple, TupleGetItem
from tilewright.relay.frontend.tflite.context import OperatorContext, typed
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.loops import while_loop


def _scalar(value: RelayExpr) -> RelayExpr:
    return typed(relay_op.reshape(value, ()))


@converter("CALL")
def convert_call(ctx: OperatorContext) -> Sequence[RelayExpr]:
    """The results of a subgraph."""
    return ctx.subgraph(int(ctx.option("subgraph")), [ctx.raw(i) for i in range(ctx.num_inputs)])


@converter("IF")
def convert_if(ctx: OperatorContext) -> Sequence[RelayExpr]:
    """The results of one of two subgraphs."""
    inputs = [ctx.raw(i) for i in range(1, ctx.num_inputs)]
    numbers = int(ctx.option("then_subgraph")), int(ctx.option("else_subgraph"))
    known = ctx.constant_or_none(0)
    if known is not None:
        return ctx.subgraph(numbers[0 if known.reshape(-1)[0] else 1], inputs)
    with ctx.importer.params.resources.in_branch():
        branches = [ctx.subgraph(number, inputs) for number in numbers]
    types = [[ctx.tensor_type(value) for value in branch] for branch in branches]
    if [str(t) for t in types[0]] != [str(t) for t in types[1]]:
        ctx.unsupported(f"a branch that gives {types[0]}, beside one that gives {types[1]}")
    chosen = typed(If(_scalar(ctx.raw(0)), Tuple(branches[0]), Tuple(branches[1])))
    return [TupleGetItem(chosen, i) for i in range(len(types[0]))]


@converter("WHILE")
def convert_while(ctx: OperatorContext) -> Sequence[RelayExpr]:
    """Values after a subgraph ran on them again and again, while another holds of them."""
    condition, body = int(ctx.option("condition_subgraph")), int(ctx.option("body_subgraph"))
    inputs = [ctx.raw(i) for i in range(ctx.num_inputs)]
    with ctx.importer.params.resources.in_branch():
        loop = while_loop(
            lambda *values: _scalar(ctx.subgraph(condition, [typed(v) for v in values])[0]),
            inputs,
            lambda *values: ctx.subgraph(body, [typed(v) for v in values]),
        )
    final = typed(loop(*inputs))  # type: ignore[operator]
    return [TupleGetItem(final, i) for i in range(len(inputs))]
