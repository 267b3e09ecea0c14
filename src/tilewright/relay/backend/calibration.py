"""Inputs and outputs of a module's functions for given data: ``relay.analysis.get_calibration_data``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.type import TupleType
from tilewright.relay.backend.executor import create_executor
from tilewright.relay.expr import Call, Function, Tuple, TupleGetItem
from tilewright.relay.function_attributes import COMPILER
from tilewright.relay.transform.functional.inline_calls import inline_calls
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import direct_children, post_order
from tilewright.runtime.ndarray import NDArray, array


def _external_function(mod: IRModule, op: RelayExpr) -> Function | None:
    """Return the function with the attribute ``Compiler`` that the global variable ``op`` names, else None."""
    callee = mod[op] if isinstance(op, GlobalVar) else None
    return callee if isinstance(callee, Function) and COMPILER.on(callee) else None


def _fields(value: RelayExpr) -> list[RelayExpr]:
    type_ = value.checked_type
    if isinstance(type_, TupleType):
        return [TupleGetItem(value, i).with_checked_type(t) for i, t in enumerate(type_.fields)]
    return [value]


def get_calibration_data(mod: IRModule, data: Mapping[str, Any]) -> dict[GlobalVar, dict[str, list[NDArray]]]:
    """Return inputs and outputs of each external function when ``main`` runs on ``data``, arrays by parameter name.

    Returns:
        For the variable of each function with the attribute ``Compiler``: ``"inputs"`` and ``"outputs"``, lists of
        arrays in the order of parameters and of the fields of its result.

    Raises:
        UnsupportedError: a function is called more than once, or takes a tuple.
    """
    mod = InferType()(mod)
    main = mod["main"]
    slots: dict[GlobalVar, tuple[int, int]] = {}
    values: list[RelayExpr] = []
    for expr in post_order(main.body, direct_children):
        if not isinstance(expr, Call) or _external_function(mod, expr.op) is None:
            continue
        assert isinstance(expr.op, GlobalVar)
        if expr.op in slots or any(isinstance(arg.checked_type, TupleType) for arg in expr.args):
            raise UnsupportedError(
                f"@{expr.op.name_hint} is called more than once, or takes a tuple; call it on tensors once"
            )
        outputs = _fields(expr)
        slots[expr.op] = (len(expr.args), len(outputs))
        values += [*expr.args, *outputs]
    watched = inline_calls(Tuple(values), lambda op: _external_function(mod, op))
    found = iter(_run(Function(main.params, watched), data))
    return {
        var: {"inputs": [next(found) for _ in range(inputs)], "outputs": [next(found) for _ in range(outputs)]}
        for var, (inputs, outputs) in slots.items()
    }


def _run(func: Function, data: Mapping[str, Any]) -> list[NDArray]:
    inputs = {name: value if isinstance(value, NDArray) else array(value) for name, value in data.items()}
    result: list[NDArray] = create_executor("graph", IRModule.from_expr(func)).evaluate()(**inputs)
    return result
