"""Branches and loops, of either generation of TensorFlow's control flow.

A loop whose conditions are known while importing is written out, round by round; another one becomes a loop of the
virtual machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.budget import made_nodes
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Var
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dynamic import integer
from tilewright.relay.frontend.onnx.run_time_control import branches, rounds
from tilewright.relay.frontend.tensorflow.context import NodeContext
from tilewright.relay.frontend.tensorflow.lists import TensorList, as_tensors, like_values, stacked

_MOST_ROUNDS = 512
_MOST_WRITTEN_OUT = 1 << 15  # nodes of a loop that is written out; of more it stays a loop

Values = Sequence[Any]
Test = Callable[[Values], RelayExpr]
Body = Callable[[Values], list[Any]]


def scalar_bool(ctx: NodeContext, value: RelayExpr) -> RelayExpr:
    """Return a condition as a scalar: what is not 0 holds."""
    flag = value if ctx.dtype(value) == "bool" else typed(relay_op.not_equal(value, ctx.like(0, value)))
    return flag if ctx.rank(flag) == 0 else typed(relay_op.reshape(flag, ()))


def chosen(ctx: NodeContext, condition: RelayExpr, yes: Callable[[], list[Any]], no: Callable[[], list[Any]]) -> Any:
    """Return the values of one of two branches; of that alone which is taken, where that is known."""
    known = ctx.constant_or_none(condition)
    if known is not None:
        return yes() if known.reshape(-1)[0] else no()
    taken, other = yes(), no()
    host: Any = ctx
    kinds = [a if isinstance(a, TensorList) else b for a, b in zip(taken, other, strict=True)]
    made = branches(host, scalar_bool(ctx, condition), as_tensors(ctx, taken), as_tensors(ctx, other))
    return like_values(made, kinds)


def looped(ctx: NodeContext, initial: Values, test: Test, body: Body) -> list[Any]:
    """Return the values after a loop: ``body`` is applied as long as ``test`` holds."""
    written = _written_out(ctx, list(initial), test, body)
    return written if written is not None else _at_run_time(ctx, list(initial), test, body)


def _written_out(ctx: NodeContext, values: list[Any], test: Test, body: Body) -> list[Any] | None:
    """Return the values after the rounds, one after the other; None where it is not known how many there are."""
    start = made_nodes()
    for done in range(_MOST_ROUNDS + 1):
        known = ctx.constant_or_none(test(values))
        if known is None:
            break
        if not known.reshape(-1)[0]:
            return values
        if made_nodes() - start > _MOST_WRITTEN_OUT or done == _MOST_ROUNDS:
            break
        values = body(values)
    return None


def _at_run_time(ctx: NodeContext, initial: list[Any], test: Test, body: Body) -> list[Any]:
    varied, initial = _varied(ctx, initial, body)
    kinds = [initial[i] for i in varied]

    def whole(values: Sequence[RelayExpr]) -> list[Any]:
        given = dict(zip(varied, like_values(values, kinds), strict=True))
        return [given.get(i, value) for i, value in enumerate(initial)]

    def step(_: RelayExpr, values: Sequence[RelayExpr]) -> tuple[RelayExpr, list[RelayExpr], list[RelayExpr]]:
        after = body(whole(values))
        results = as_tensors(ctx, [after[i] for i in varied])
        return scalar_bool(ctx, test(whole(results))), results, []

    host: Any = ctx
    first = as_tensors(ctx, kinds)
    final, _ = rounds(host, step, first, None, scalar_bool(ctx, test(whole(first))), [])
    return whole(final)


def _varied(ctx: NodeContext, initial: list[Any], body: Body) -> tuple[list[int], list[Any]]:
    """Return the places of the values that a round changes, and the values, lists as tensors of rows."""
    given = [_variable(ctx, v, i) for i, v in enumerate(initial)]
    after = body(given)
    varied = [i for i, (a, b) in enumerate(zip(given, after, strict=True)) if a is not b]
    found = list(initial)
    for i in varied:
        if isinstance(found[i], TensorList):
            like = _an_element(after[i])
            rows = stacked(ctx, found[i], like)
            found[i] = TensorList(found[i].dtype, found[i].shape, rows=typed(rows))
    return varied, found


def _variable(ctx: NodeContext, value: Any, number: int) -> Any:
    if isinstance(value, TensorList):
        return value if value.rows is None else TensorList(value.dtype, value.shape, rows=_variable(ctx, value.rows, 0))
    return typed(Var(f"value{number}", ctx.tensor_type(value)))


def _an_element(value: Any) -> RelayExpr | None:
    """Return an expression with the type of a list's elements."""
    if not isinstance(value, TensorList):
        return None
    if value.rows is not None:
        return typed(relay_op.take(value.rows, integer(0), axis=0))
    return next((i for i in value.items or () if i is not None), None)
