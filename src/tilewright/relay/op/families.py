"""Families of operators: element-wise ones, and those of them that differ in a name and a formula only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.relay.op import layout_rules, relations
from tilewright.relay.op.definition import OpDef, OpPattern, declare

Array = np.ndarray[Any, Any]


class Elementwise(OpDef):
    """An operator of one input, element by element; the result has the input's type where nothing else is said."""

    inputs = ("data",)
    pattern = OpPattern.ELEMWISE

    infer_type = staticmethod(relations.identity)
    infer_correct_layout = staticmethod(layout_rules.elementwise)


def _evaluation(function: Callable[..., Any], keeps_dtype: bool) -> Callable[[Any, Sequence[Array]], list[Array]]:
    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        with np.errstate(all="ignore"):
            result = np.asarray(function(*inputs))
        return [result.astype(inputs[0].dtype, copy=False) if keeps_dtype else result]

    return evaluate


def declare_unary(
    name: str,
    doc: str,
    compute: Callable[[Any], Any],
    evaluate: Callable[[Array], Any],
    relation: Callable[..., Any] = relations.identity,
    in_float32: bool = False,
) -> type[OpDef]:
    """Declare an element-wise operator of one input, which keeps the dtype unless ``relation`` says otherwise."""
    return declare(
        name,
        doc,
        base=Elementwise,
        in_float32=in_float32,
        infer_type=relation,
        compute=lambda attrs, inputs, out_type: [compute(inputs[0])],
        evaluate=_evaluation(evaluate, relation is relations.identity),
    )


def declare_binary(
    name: str,
    doc: str,
    compute: Callable[[Any, Any], Any],
    evaluate: Callable[[Array, Array], Any],
    relation: Callable[..., Any] = relations.broadcast,
    in_float32: bool = False,
) -> type[OpDef]:
    """Declare a broadcasting operator of two inputs of one dtype."""
    return declare(
        name,
        doc,
        inputs=("lhs", "rhs"),
        pattern=OpPattern.BROADCAST,
        in_float32=in_float32,
        infer_type=relation,
        compute=lambda attrs, inputs, out_type: [compute(inputs[0], inputs[1])],
        evaluate=_evaluation(evaluate, relation is relations.broadcast),
        infer_correct_layout=layout_rules.broadcast,
    )
