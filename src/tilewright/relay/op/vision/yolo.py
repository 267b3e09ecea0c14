"""vision.yolo_reorg"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.type import TensorType, Type
from tilewright.relay.op import relations
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.relations import dim_floordiv, dim_mul, known


class YoloReorgAttrs(Attrs):
    """Side of the blocks."""

    stride: int = 1


class YoloReorg(OpDef[YoloReorgAttrs]):
    """Rearrange ``data`` (batch, channels, height, width) to (batch, channels * stride**2, height / stride, ...)."""

    name = "vision.yolo_reorg"
    support_level = 5
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: YoloReorgAttrs, solver: TypeSolver) -> Type | None:
        data = relations.tensor(types[0], "data")
        relations.require_rank(data, 4, "data")
        n, c, h, w = data.shape
        stride = attrs.stride
        for dim, factor, what in ((c, stride * stride, "channels"), (h, stride, "height"), (w, stride, "width")):
            relations.require(not (known(dim) or 0) % factor, f"the {what} {dim} should be a multiple of {factor}")
        extents = (dim_mul(dim_mul(c, stride), stride), dim_floordiv(h, stride), dim_floordiv(w, stride))
        return TensorType((n, *extents), data.dtype)

    @staticmethod
    def compute(attrs: YoloReorgAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.vision.reorg(inputs[0], attrs.stride)]

    @staticmethod
    def evaluate(attrs: YoloReorgAttrs, inputs: Sequence[Array]) -> list[Array]:
        n, c, h, w = inputs[0].shape
        s = attrs.stride
        large = inputs[0].reshape(n, c // (s * s), h, s, w, s)
        return [np.transpose(large, (0, 3, 5, 1, 2, 4)).reshape(n, c * s * s, h // s, w // s)]


yolo_reorg = builder(YoloReorg, stride=...)
