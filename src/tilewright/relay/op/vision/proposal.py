"""vision.proposal: the best boxes of a region proposal network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.op import relations
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.relations import dim_mul
from tilewright.relay.op.transform.sorting import sorted_indices


class ProposalAttrs(Attrs):
    """Scales and ratios of the anchors, stride in pixels, and how boxes are chosen."""

    scales: tuple[float, ...] = (4.0, 8.0, 16.0, 32.0)
    ratios: tuple[float, ...] = (0.5, 1.0, 2.0)
    feature_stride: int = 16
    threshold: float = 0.7
    rpn_pre_nms_top_n: int = 6000
    rpn_post_nms_top_n: int = 300
    rpn_min_size: int = 16
    iou_loss: bool = False


def _boxes(moves: Array, info: Array, attrs: ProposalAttrs) -> tuple[Array, Array]:
    """Return corners (anchors, 4, height, width) of one batch item, and which of them are large enough."""
    height, width = moves.shape[2:]
    made = [
        topi.vision.rcnn.generate_anchor(ratio, scale, attrs.feature_stride)
        for ratio in attrs.ratios
        for scale in attrs.scales
    ]
    y, x = np.mgrid[:height, :width] * attrs.feature_stride
    boxes = np.asarray(made)[:, :, None, None] + np.stack([x, y, x, y])
    if attrs.iou_loss:
        boxes = boxes + moves
    else:
        size = boxes[:, 2:] - boxes[:, :2] + 1
        centre = boxes[:, :2] + (size - 1) / 2 + moves[:, :2] * size
        half = (np.exp(moves[:, 2:]) * size - 1) / 2
        boxes = np.concatenate([centre - half, centre + half], 1)
    limits = np.asarray([info[1], info[0]] * 2)[None, :, None, None] - 1
    boxes = np.maximum(np.minimum(boxes, limits), 0)
    least = info[2] * attrs.rpn_min_size
    large = ((boxes[:, 2:] - boxes[:, :2] + 1) >= least).all(1)
    grown = np.where(large, 0, least / 2)[:, None] * np.asarray([-1, -1, 1, 1])[None, :, None, None]
    return boxes + grown, large


def _kept(boxes: Array, threshold: float) -> list[int]:
    """Return which boxes, in order of score, overlap no better one by more than the threshold."""
    kept: list[int] = []
    areas = np.prod(boxes[:, 2:] - boxes[:, :2] + 1, 1)
    for j, box in enumerate(boxes):
        others = boxes[kept]
        sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2]) + 1
        shared = np.prod(np.maximum(sides, 0), 1)
        if not np.any(shared / (areas[j] + areas[kept] - shared) > threshold):
            kept.append(j)
    return kept


class Proposal(OpDef[ProposalAttrs]):
    """Rows (batch, left, top, right, bottom) of the best boxes; see ``topi.vision.proposal`` for the arguments."""

    name = "vision.proposal"
    sequential = True
    inputs = ("cls_prob", "bbox_pred", "im_info")
    pattern = OpPattern.OPAQUE
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: ProposalAttrs, solver: TypeSolver) -> Type | None:
        """Rows (batch, left, top, right, bottom)."""
        prob, moves, info = relations.tensors(types, Proposal.inputs)
        anchors = len(attrs.scales) * len(attrs.ratios)
        for tensor, channels, what in ((prob, 2 * anchors, "cls_prob"), (moves, 4 * anchors, "bbox_pred")):
            relations.require_rank(tensor, 4, what)
            solver.assert_equal(as_expr(channels), tensor.shape[1], f"channels of {what}")
        relations.require_rank(info, 2, "im_info")
        solver.assert_equal(as_expr(3), info.shape[1], "numbers of an image (height, width, scale)")
        return TensorType((dim_mul(prob.shape[0], attrs.rpn_post_nms_top_n), 5), prob.dtype)

    @staticmethod
    def compute(attrs: ProposalAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        values = (
            attrs.scales, attrs.ratios, attrs.feature_stride, attrs.threshold, attrs.rpn_pre_nms_top_n,
            attrs.rpn_post_nms_top_n, attrs.rpn_min_size, attrs.iou_loss,
        )  # fmt: skip
        prob, moves, info = inputs
        return [topi.vision.proposal(prob, moves, info, *values)]

    @staticmethod
    def evaluate(attrs: ProposalAttrs, inputs: Sequence[Array]) -> list[Array]:
        prob, moves, info = (a.astype("float64") for a in inputs)
        batch, _, height, width = prob.shape
        wanted = attrs.rpn_post_nms_top_n
        result = np.zeros((batch, wanted, 5), inputs[0].dtype)
        for b in range(batch):
            boxes, large = _boxes(moves[b].reshape(-1, 4, height, width), info[b], attrs)
            rows, columns = (int(size / attrs.feature_stride) for size in info[b, :2])
            inside = (np.arange(height)[:, None] < rows) & (np.arange(width) < columns)
            score = np.where(large & inside, prob[b, len(boxes) :], -1)
            # pixel by pixel, and the anchors of each
            score, boxes = score.transpose(1, 2, 0).reshape(-1), boxes.transpose(2, 3, 0, 1).reshape(-1, 4)
            order = sorted_indices(score, 0, False)
            order = order[: attrs.rpn_pre_nms_top_n] if attrs.rpn_pre_nms_top_n > 0 else order
            kept = _kept(boxes[order], attrs.threshold)
            chosen = order[kept][np.arange(wanted) % min(len(kept), max(wanted, 1))]
            result[b, :, 0], result[b, :, 1:] = b, boxes[chosen]
        return [result.reshape(-1, 5)]


proposal = builder(Proposal, required=True)
