"""Control flow of TensorFlow 2: branches, loops and calls, whose bodies are functions."""

from __future__ import annotations

from typing import Any

from tilewright.relay.frontend.tensorflow.context import NodeContext
from tilewright.relay.frontend.tensorflow.loops import chosen, looped
from tilewright.relay.frontend.tensorflow.registry import converter


@converter("PartitionedCall", "StatefulPartitionedCall")
def convert_partitioned_call(ctx: NodeContext) -> list[Any]:
    """The results of a function, in place."""
    return ctx.scope.call(ctx.required("f"), ctx.values())


@converter("If", "StatelessIf")
def convert_if(ctx: NodeContext) -> Any:
    """The results of one of two functions."""
    values = ctx.values()[1:]
    yes, no = (ctx.required(name) for name in ("then_branch", "else_branch"))
    return chosen(ctx, ctx.input(0), lambda: ctx.scope.call(yes, values), lambda: ctx.scope.call(no, values))


@converter("Case", "StatelessCase")
def convert_case(ctx: NodeContext) -> Any:
    """The results of the function that an index names; the last one's where it is out of range."""
    return _case(ctx, 0)


def _case(ctx: NodeContext, first: int) -> Any:
    functions, values = ctx.required("branches"), ctx.values()[1:]
    if first == len(functions) - 1:
        return ctx.scope.call(functions[first], values)
    index = ctx.input(0)
    is_first = ctx.part("Equal", [index, ctx.like(first, index)])
    return chosen(ctx, is_first, lambda: ctx.scope.call(functions[first], values), lambda: _case(ctx, first + 1))


@converter("While", "StatelessWhile")
def convert_while(ctx: NodeContext) -> list[Any]:
    """Values after a function ran on them again and again, as long as another one holds."""
    test, body = ctx.required("cond"), ctx.required("body")
    return looped(
        ctx, ctx.values(), lambda values: ctx.scope.call(test, values)[0], lambda values: ctx.scope.call(body, values)
    )
