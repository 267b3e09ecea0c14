"""debug: a look at a value while the interpreter runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call
from tilewright.relay.op.definition import OpDef
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import same_gradient
from tilewright.runtime.ndarray import array
from tilewright.runtime.registry import need_global_func, register_func


class DebugAttrs(Attrs):
    """The global function that sees the value."""

    debug_func: str = ""


class Debug(OpDef[DebugAttrs]):
    """The value as it is; a function is called with it first."""

    name = "debug"
    inputs = ("program",)
    gradient = staticmethod(same_gradient)
    stateful = True
    non_computational = True

    infer_type = staticmethod(relations.identity)

    @staticmethod
    def evaluate(attrs: DebugAttrs, inputs: Sequence[Array]) -> list[Array]:
        if attrs.debug_func:
            need_global_func(attrs.debug_func)(array(inputs[0]))
        return [inputs[0]]


_numbers = itertools.count()


def debug(expr: RelayExpr, debug_func: Callable[..., Any] | None = None) -> Call:
    """``expr``, whose value ``debug_func`` (of one NDArray) is called with whenever the interpreter comes here.

    There is no kernel of it: ``relay.create_executor("debug")`` runs it.
    """
    name = ""
    if debug_func is not None:
        name = f"debugger_func{next(_numbers)}"
        register_func(name, debug_func)
    return call("debug", [expr], DebugAttrs(name))
