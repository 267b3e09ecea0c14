"""Families of operators: element-wise ones, and those that differ only in a name and a formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tilewright.ir.op import Op
from tilewright.ir.type import Type
from tilewright.relay.expr import Call
from tilewright.relay.op import gradients, layout_rules, relations
from tilewright.relay.op.attributes import Operand
from tilewright.relay.op.builder import builder, caller
from tilewright.relay.op.definition import A, OpDef, OpPattern, TypeSolver, declare
from tilewright.relay.op.gradients import Derivative

Array = np.ndarray[Any, Any]


class Elementwise(OpDef[A]):
    """Base of element-wise operators of one input; by default the result has the input's type."""

    inputs = ("data",)
    pattern = OpPattern.ELEMWISE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: A, solver: TypeSolver) -> Type | None:
        return relations.tensor(types[0])

    infer_correct_layout = staticmethod(layout_rules.elementwise)


def _evaluation(function: Callable[..., Any], keeps_dtype: bool) -> Callable[[object, Sequence[Array]], list[Array]]:
    def evaluate(attrs: object, inputs: Sequence[Array]) -> list[Array]:
        with np.errstate(all="ignore"):
            result = np.asarray(function(*inputs))
        return [result.astype(inputs[0].dtype, copy=False) if keeps_dtype else result]

    return evaluate


class Unary(Protocol):
    """Builder of an operator of one input."""

    op: Op

    def __call__(self, data: Operand) -> Call:
        """Return a call of the operator."""


class Binary(Protocol):
    """Builder of an operator of two inputs."""

    op: Op

    def __call__(self, lhs: Operand, rhs: Operand) -> Call:
        """Return a call of the operator; numbers become constants."""


def unary(
    name: str,
    doc: str,
    compute: Callable[[Any], Any],
    evaluate: Callable[[Array], Any],
    relation: Callable[..., Any] = relations.identity,
    in_float32: bool = False,
    derivative: Derivative | None = None,
    **traits: Any,
) -> Unary:
    """Declare an element-wise operator of one input and return its builder.

    The result has the input's dtype unless ``relation`` says otherwise. ``derivative`` is its gradient as a formula.
    """
    if derivative is not None:
        traits["gradient"] = gradients.derivative(derivative)
    made = declare(
        name,
        doc,
        base=Elementwise,
        in_float32=in_float32,
        **traits,
        infer_type=relation,
        compute=lambda attrs, inputs, out_type: [compute(inputs[0])],
        evaluate=_evaluation(evaluate, relation is relations.identity),
    )
    return builder(made, module=caller())


def binary(
    name: str,
    doc: str,
    compute: Callable[[Any, Any], Any],
    evaluate: Callable[[Array, Array], Any],
    relation: Callable[..., Any] = relations.broadcast,
    in_float32: bool = False,
    **traits: Any,
) -> Binary:
    """Declare a broadcasting operator of two inputs of one dtype and return its builder."""
    made = declare(
        name,
        doc,
        inputs=("lhs", "rhs"),
        pattern=OpPattern.BROADCAST,
        in_float32=in_float32,
        **traits,
        infer_type=relation,
        compute=lambda attrs, inputs, out_type: [compute(inputs[0], inputs[1])],
        evaluate=_evaluation(evaluate, relation is relations.broadcast),
        infer_correct_layout=layout_rules.broadcast,
    )
    return builder(made, module=caller())
