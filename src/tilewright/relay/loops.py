"""Loops as Relay has them: functions that call themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import Type
from tilewright.relay.expr import Function, If, Let, Tuple, Var
from tilewright.relay.type_infer import infer_expr


def _type_of(expr: RelayExpr) -> Type:
    annotation = expr.type_annotation if isinstance(expr, Var) else None
    return annotation if annotation is not None else infer_expr(expr).checked_type


def while_loop(
    cond: Callable[..., RelayExpr],
    loop_vars: Sequence[RelayExpr],
    loop_bodies: Callable[..., Sequence[RelayExpr]],
) -> RelayExpr:
    """Return a function that loops while a condition holds; it maps initial values to a tuple of the last ones.

    Parameters
    ----------
    cond : maps the loop's variables to the condition, a scalar bool
    loop_vars : variables, or typed expressions, with the types (and names) of the loop's variables
    loop_bodies : maps the loop's variables to their next values
    """
    variables: list[Var] = []
    for index, initial in enumerate(loop_vars):
        name = initial.name_hint if isinstance(initial, Var) else f"arg{index}"
        variables.append(Var(name, _type_of(initial)))
    loop: Any = Var("while_loop")
    step = loop(*loop_bodies(*variables))
    return Let(loop, Function(variables, If(cond(*variables), step, Tuple(variables))), loop)
