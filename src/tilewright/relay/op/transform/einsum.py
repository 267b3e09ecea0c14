"""einsum: products of tensors summed over any of their dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import InvalidShapeError, TypeInferenceError
from tilewright.ir.type import TensorType, Type
from tilewright.relay.op import relations
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy import generic as strategies
from tilewright.topi.einsum import einsum_extents, parse_einsum


class EinsumAttrs(Attrs):
    """The subscripts, as numpy.einsum's."""

    equation: str = ""


class Einsum(OpDef[EinsumAttrs]):
    """The product of the tensors ``data``, summed over the subscripts that are not in the result, as
    ``numpy.einsum``.
    """

    name = "einsum"
    inputs = ("data",)
    takes_tuple = True
    pattern = OpPattern.OPAQUE
    in_float32 = True
    schedule = strategies.schedule_reduce

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: EinsumAttrs, solver: TypeSolver) -> Type | None:
        """The dimensions of the result's subscripts."""
        operands = relations.tuple_of_tensors(types[0])
        relations.require(len(operands) > 0, "there is an operand at least")
        relations.require_same_dtype(operands, "the operands")
        try:
            terms, out = parse_einsum(attrs.equation, [len(t.shape) for t in operands])
            shapes = [[d if known(d) is None else known(d) for d in t.shape] for t in operands]
            extents = einsum_extents(attrs.equation, terms, shapes)
        except InvalidShapeError as error:
            raise TypeInferenceError(str(error)) from None
        return TensorType([extents[label] for label in out], operands[0].dtype)

    @staticmethod
    def compute(attrs: EinsumAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.einsum(attrs.equation, *inputs)]

    @staticmethod
    def evaluate(attrs: EinsumAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [np.asarray(np.einsum(attrs.equation, *inputs)).astype(inputs[0].dtype)]


einsum = builder(Einsum, equation=...)
