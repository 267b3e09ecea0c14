"""relay.op.annotation.simulated_quantize: the error of a quantization, computed in float."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import Type
from tilewright.relay.expr import Call
from tilewright.relay.op.attributes import call
from tilewright.relay.op.definition import OpDef, OpPattern
from tilewright.relay.op.families import Array
from tilewright.relay.quantize.config import QAnnotateKind


class SimulatedQuantizeAttrs(Attrs):
    """The role of the data (``QAnnotateKind``), whether its integers have a sign, and how it is rounded."""

    kind: int = QAnnotateKind.INPUT
    sign: bool = True
    rounding: str = "round"


class SimulatedQuantize(OpDef[SimulatedQuantizeAttrs]):
    """``clip(round(data / dom_scale), clip_min, clip_max) * dom_scale``; ``data`` where the kind is IDENTITY."""

    name = "relay.op.annotation.simulated_quantize"
    inputs = ("data", "dom_scale", "clip_min", "clip_max")
    attrs_type = SimulatedQuantizeAttrs
    pattern = OpPattern.ELEMWISE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: Any, solver: Any) -> Type | None:
        """The type of the data."""
        return types[0]

    @staticmethod
    def compute(attrs: SimulatedQuantizeAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        """Halves are rounded away from zero."""
        data, scale, low, high = inputs
        if attrs.kind == QAnnotateKind.IDENTITY:
            return [topi.identity(data)]
        clipped = topi.maximum(topi.minimum(topi.divide(data, scale), high), low)
        return [topi.multiply(topi.round(clipped), scale)]

    @staticmethod
    def evaluate(attrs: SimulatedQuantizeAttrs, inputs: Sequence[Array]) -> list[Array]:
        """In float32."""
        data, scale, low, high = inputs
        if attrs.kind == QAnnotateKind.IDENTITY:
            return [data.copy()]
        clipped = np.maximum(np.minimum(data / scale, high), low)
        return [np.copysign(np.floor(np.abs(clipped) + np.float32(0.5)), clipped) * scale]


def simulated_quantize(
    data: RelayExpr,
    dom_scale: RelayExpr,
    clip_min: RelayExpr,
    clip_max: RelayExpr,
    kind: int,
    sign: bool = True,
    rounding: str = "round",
) -> Call:
    """Return ``data`` with the error of a quantization in steps of ``dom_scale``, from ``clip_min`` to ``clip_max``."""
    attrs = SimulatedQuantizeAttrs(kind, sign, rounding)
    return call(SimulatedQuantize.name, [data, dom_scale, clip_min, clip_max], attrs)
