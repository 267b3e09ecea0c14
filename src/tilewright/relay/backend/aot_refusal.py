"""Refusals of what no ahead-of-time program can run, by the names of the model's nodes."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.span import source_names
from tilewright.ir.transform import PassContext
from tilewright.ir.type import is_dynamic
from tilewright.relay.adt import Match
from tilewright.relay.expr import Call, Function, If
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import post_order

_SHOWN = 5
_REMEDY = "Known shapes and data flow have C; other networks run on the virtual machine (--executor vm)"


def refuse_dynamic(mod: IRModule, ctx: PassContext) -> IRModule:
    """Return a module whose ``main`` has inputs and results of known shapes.

    Raises
    ------
    UnsupportedError : with the operators and nodes whose results have unknown shapes, or the input of unknown shape
    """
    main = infer_module(mod)["main"]
    if not isinstance(main, Function):
        return mod
    for param in main.params:
        if is_dynamic(param.checked_type):
            raise UnsupportedError(
                f"the input {param.name_hint} is a {param.checked_type}, and memory is planned ahead of time: give "
                f"numbers for its shape (--input-shape {param.name_hint}:1,3, or shape= of the importer)"
            )
    if is_dynamic(main.body.checked_type):
        refuse_unfit(infer_module(mod), ctx)
    return mod


def refuse_unfit(mod: IRModule, ctx: PassContext) -> IRModule:
    """Return a typed module whose ``main`` has known shapes and no branches.

    Raises
    ------
    UnsupportedError : with the operators and nodes that have no form in C
    """
    main = mod["main"]
    if not isinstance(main, Function):
        return mod
    found = list(_unfit(main.body))
    if found:
        more = f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise UnsupportedError(f"no ahead-of-time program has {'; '.join(found[:_SHOWN])}{more}. {_REMEDY}")
    return mod


def _unfit(body: RelayExpr) -> Iterator[str]:
    for expr in post_order(body):
        if isinstance(expr, (If, Match)):
            inner = (e for e in post_order(expr) if isinstance(e, Call))
            yield f"{_named('a branch', *inner)}: which side runs is known only when it does"
        elif isinstance(expr, Call) and is_dynamic(expr.checked_type):
            if not any(is_dynamic(arg.checked_type) for arg in expr.args):
                yield f"{_named(_operators(expr), expr)}: its result is a {expr.checked_type}"


def _operators(call: Call) -> str:
    """Return the operator that a call calls, or those in the function that it calls."""
    if isinstance(call.op, Op):
        return call.op.name
    body = call.op.body if isinstance(call.op, Function) else call.op
    names = [e.op.name for e in post_order(body) if isinstance(e, Call) and isinstance(e.op, Op)]
    return " and ".join(names) or str(call.op)


def _named(what: str, *exprs: Call | If | Match) -> str:
    names = list(dict.fromkeys(name for expr in exprs for name in source_names(expr.span)))
    return f"{what} (node {', '.join(names[:_SHOWN])})" if names else what
