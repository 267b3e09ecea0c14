"""Weights in half precision, made float32 when a library is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import topi
from tilewright.ir.type import TensorType, Type
from tilewright.relay.op import relations
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.strategy import generic as strategies

_WIDE = "float32"


class WidenWeight(OpDef[None]):
    """A weight as float32, computed once: the library holds it in half the bytes (``WidenWeights``)."""

    name = "nn.contrib_widen_weight"
    inputs = ("weight",)
    pattern = OpPattern.OPAQUE
    grows = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        """Return the same shape, of float32."""
        return TensorType(relations.tensor(types[0], "weight").shape, _WIDE)

    @staticmethod
    def compute(attrs: None, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.cast(inputs[0], _WIDE)]

    schedule = strategies.schedule_injective

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        return [inputs[0].astype(_WIDE)]


contrib_widen_weight = builder(WidenWeight)
