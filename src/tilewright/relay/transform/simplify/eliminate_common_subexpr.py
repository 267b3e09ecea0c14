"""EliminateCommonSubexpr: compute equal calls once.

Before::

    %0 = exp(%x);
    %1 = exp(%x);
    add(%0, %1)

after::

    %0 = exp(%x);
    add(%0, %0)

Checks of the same indices are equal whatever their errors call them: the first one would fail. In data flow
``shape_of`` tensors whose dimensions have the same names are equal: where the caches of all layers are as long,
positions and masks are made of the first one, once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.structural import structural_equal
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.adt import Match
from tilewright.relay.expr import Call, Constant, Function, If, Let, TupleGetItem
from tilewright.relay.op.transform.checks import CheckIndicesAttrs
from tilewright.relay.op.transform.matrix import ShapeOf
from tilewright.relay.transform.common import known_dims, open_children, typed_function_pass
from tilewright.relay.visitor import ExprMutator, post_order

_SMALL = 64  # elements of a constant that is compared by value


class _Eliminator(ExprMutator):
    def __init__(self, fskip: Callable[[RelayExpr], bool] | None, data_flow: bool) -> None:
        super().__init__()
        self.fskip = fskip
        self.data_flow = data_flow
        self.calls: dict[tuple[RelayExpr, tuple[Any, ...]], list[Call]] = {}
        self.fields: dict[tuple[RelayExpr, int], TupleGetItem] = {}

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        if not isinstance(post, Call) or not isinstance(post.op, Op):
            return post
        if post.op.get_attr("TOpIsStateful") or (self.fskip and self.fskip(post)):
            return post
        # in a branch the tensor of another branch is out of reach
        dims = known_dims(expr.args[0]) if self.data_flow and post.op is ShapeOf.op else None
        known = self.calls.setdefault((post.op, tuple(map(_by_value, post.args)) if dims is None else dims), [])
        for other in known:
            if structural_equal(_without_text(other.attrs), _without_text(post.attrs), exact=True):
                return other
        known.append(post)
        return post

    def visit_tuple_getitem(self, expr: TupleGetItem) -> RelayExpr:
        post = super().visit_tuple_getitem(expr)
        if not isinstance(post, TupleGetItem):
            return post
        return self.fields.setdefault((post.tuple_value, post.index), post)


def _by_value(arg: RelayExpr) -> Any:
    """Return what equal arguments have in common: small constants are equal by their numbers."""
    if not isinstance(arg, Constant) or math.prod(arg.data.shape) > _SMALL:
        return arg
    return arg.data.dtype, arg.data.shape, arg.data.numpy().tobytes()


def _without_text(attrs: Any) -> Any:
    return attrs.replace(what="") if isinstance(attrs, CheckIndicesAttrs) else attrs


def _is_data_flow(func: Function) -> bool:
    return not any(isinstance(node, (If, Let, Match, Function)) for node in post_order(func.body, open_children))


def EliminateCommonSubexpr(fskip: Callable[[RelayExpr], bool] | None = None) -> Pass:
    """Compute equal calls once; calls for which ``fskip(call)`` is true are kept."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        result = _Eliminator(fskip, _is_data_flow(func)).visit(func)
        return result

    return typed_function_pass(run, "EliminateCommonSubexpr", 3)
