"""Declares families of operators that differ in a name and a formula only: element-wise unary and binary ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.relay.op import layout_rules, relations
from tilewright.relay.op.definition import OpDef, OpPattern

Array = np.ndarray[Any, Any]


def declare_unary(
    name: str,
    doc: str,
    compute: Callable[[Any], Any],
    evaluate: Callable[[Array], Any],
    relation: Callable[..., Any] = relations.identity,
    pattern: OpPattern = OpPattern.ELEMWISE,
) -> type[OpDef]:
    """Declare an element-wise operator of one input, which keeps the dtype unless ``relation`` says otherwise."""

    def run(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        with np.errstate(all="ignore"):
            result = np.asarray(evaluate(inputs[0]))
        keeps = relation is relations.identity
        return [result.astype(inputs[0].dtype, copy=False) if keeps else result]

    return type(
        name.title().replace(".", "").replace("_", ""),
        (OpDef,),
        {
            "__doc__": doc,
            "__module__": __name__,
            "name": name,
            "inputs": ("data",),
            "pattern": pattern,
            "infer_type": staticmethod(relation),
            "compute": staticmethod(lambda attrs, inputs, out_type: [compute(inputs[0])]),
            "evaluate": staticmethod(run),
            "infer_correct_layout": staticmethod(layout_rules.elementwise),
        },
    )


def declare_binary(
    name: str,
    doc: str,
    compute: Callable[[Any, Any], Any],
    evaluate: Callable[[Array, Array], Any],
    relation: Callable[..., Any] = relations.broadcast,
) -> type[OpDef]:
    """Declare a broadcasting operator of two inputs of one dtype."""

    def run(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        with np.errstate(all="ignore"):
            result = np.asarray(evaluate(inputs[0], inputs[1]))
        keeps = relation is relations.broadcast
        return [result.astype(inputs[0].dtype, copy=False) if keeps else result]

    return type(
        name.title().replace(".", "").replace("_", ""),
        (OpDef,),
        {
            "__doc__": doc,
            "__module__": __name__,
            "name": name,
            "inputs": ("lhs", "rhs"),
            "pattern": OpPattern.BROADCAST,
            "infer_type": staticmethod(relation),
            "compute": staticmethod(lambda attrs, inputs, out_type: [compute(inputs[0], inputs[1])]),
            "evaluate": staticmethod(run),
            "infer_correct_layout": staticmethod(layout_rules.broadcast),
        },
    )
