"""vision.multibox_prior and vision.multibox_transform_loc: anchors of single-shot detectors, and boxes from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.op import relations
from tilewright.relay.op.builder import builder, tuple_builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.relations import dim_mul


class MultiBoxPriorAttrs(Attrs):
    """Sizes and ratios of the boxes of a pixel, steps and offsets (vertical, horizontal) of their centres."""

    sizes: tuple[float, ...] = (1.0,)
    ratios: tuple[float, ...] = (1.0,)
    steps: tuple[float, ...] = (-1.0, -1.0)
    offsets: tuple[float, ...] = (0.5, 0.5)
    clip: bool = False


class MultiBoxTransformLocAttrs(Attrs):
    """Whether boxes are clipped at the border, the least probability, and factors of the predictions."""

    clip: bool = True
    threshold: float = 0.01
    variances: tuple[float, ...] = (0.1, 0.1, 0.2, 0.2)


class MultiBoxPrior(OpDef[MultiBoxPriorAttrs]):
    """Anchors (1, height * width * (sizes + ratios - 1), 4); see ``topi.vision.ssd.multibox_prior``."""

    name = "vision.multibox_prior"
    support_level = 5
    inputs = ("data",)
    pattern = OpPattern.OPAQUE
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: MultiBoxPriorAttrs, solver: TypeSolver) -> Type | None:
        """(1, anchors, 4)"""
        data = relations.tensor(types[0], "data")
        relations.require_rank(data, 4, "data")
        relations.require(len(attrs.sizes) > 0 and len(attrs.ratios) > 0, "there is a size and a ratio at least")
        boxes = dim_mul(data.shape[2], data.shape[3], len(attrs.sizes) + len(attrs.ratios) - 1)
        return TensorType((1, boxes, 4), data.dtype)

    @staticmethod
    def compute(attrs: MultiBoxPriorAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        values = attrs.sizes, attrs.ratios, attrs.steps, attrs.offsets, attrs.clip
        return [topi.vision.ssd.multibox_prior(inputs[0], *values)]

    @staticmethod
    def evaluate(attrs: MultiBoxPriorAttrs, inputs: Sequence[Array]) -> list[Array]:
        height, width = inputs[0].shape[2:]
        down, across = (s if s > 0 else 1 / n for s, n in zip(attrs.steps, (height, width), strict=True))
        roots = np.sqrt(attrs.ratios[1:])
        tall = np.concatenate([attrs.sizes, attrs.sizes[0] / roots]) / 2
        wide = np.concatenate([attrs.sizes, attrs.sizes[0] * roots]) / 2 * height / width
        y = (np.arange(height)[:, None, None] + attrs.offsets[0]) * down
        x = (np.arange(width)[None, :, None] + attrs.offsets[1]) * across
        boxes = np.stack(np.broadcast_arrays(x - wide, y - tall, x + wide, y + tall), -1).reshape(1, -1, 4)
        return [(np.clip(boxes, 0, 1) if attrs.clip else boxes).astype(inputs[0].dtype)]


multibox_prior = builder(MultiBoxPrior)


class MultiBoxTransformLoc(OpDef[MultiBoxTransformLocAttrs]):
    """(boxes, count): rows (class, probability, left, top, right, bottom); see ``topi.vision.ssd``."""

    name = "vision.multibox_transform_loc"
    support_level = 5
    inputs = ("cls_prob", "loc_pred", "anchor")
    pattern = OpPattern.OPAQUE
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: MultiBoxTransformLocAttrs, solver: TypeSolver) -> Type | None:
        """(boxes, number of boxes in each batch item)"""
        found = relations.tensors(types, MultiBoxTransformLoc.inputs)
        prob, moves, anchor = found
        for tensor, rank, what in zip(found, (3, 2, 3), MultiBoxTransformLoc.inputs, strict=True):
            relations.require_rank(tensor, rank, what)
        batch, _, anchors = prob.shape
        solver.assert_equal(anchors, anchor.shape[1], "number of anchors")
        solver.assert_equal(as_expr(4), anchor.shape[2], "numbers of an anchor")
        solver.assert_equal(batch, moves.shape[0], "batch of the predictions")
        solver.assert_equal(dim_mul(anchors, 4), moves.shape[1], "predictions, four an anchor")
        return TupleType((TensorType((batch, anchors, 6), moves.dtype), TensorType((batch,), "int32")))

    @staticmethod
    def compute(attrs: MultiBoxTransformLocAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        prob, moves, anchor = inputs
        values = attrs.clip, attrs.threshold, attrs.variances
        return list(topi.vision.ssd.multibox_transform_loc(prob, moves, anchor, *values))

    @staticmethod
    def evaluate(attrs: MultiBoxTransformLocAttrs, inputs: Sequence[Array]) -> list[Array]:
        prob, moves, anchor = inputs
        batch, _, anchors = prob.shape
        dx, dy, dw, dh = np.moveaxis(moves.reshape(batch, anchors, 4) * np.asarray(attrs.variances), -1, 0)
        left, top, right, bottom = np.moveaxis(anchor[0].astype("float64"), -1, 0)
        wide, tall = right - left, bottom - top
        x, y = dx * wide + (left + right) / 2, dy * tall + (top + bottom) / 2
        w, h = np.exp(dw) * wide / 2, np.exp(dh) * tall / 2
        corners = np.stack([x - w, y - h, x + w, y + h], -1)
        corners = np.clip(corners, 0, 1) if attrs.clip else corners
        boxes, counts = np.full((batch, anchors, 6), -1, moves.dtype), np.zeros(batch, "int32")
        for b in range(batch if prob.shape[1] > 1 else 0):
            best, score = prob[b, 1:].argmax(0), prob[b, 1:].max(0)
            kept = (score > -1) & (score >= np.asarray(attrs.threshold, prob.dtype))
            counts[b] = kept.sum()
            boxes[b, : counts[b]] = np.concatenate([best[:, None], score[:, None], corners[b]], 1)[kept]
        return [boxes, counts]


multibox_transform_loc = tuple_builder(MultiBoxTransformLoc, results=2)
