"""Region proposals of two-stage detectors; Ren et al., Faster R-CNN, 2015. Boxes are in pixels, both ends inside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.topi import tag
from tilewright.topi.loops import each, workspace
from tilewright.topi.sort import argsort
from tilewright.topi.utils import InvalidShapeError, get_const_tuple, get_float_tuple


def generate_anchor(ratio: float, scale: float, base_size: int) -> tuple[float, float, float, float]:
    """Return (left, top, right, bottom) of the anchor of an aspect ratio and a scale around a square of
    ``base_size``.
    """
    centre = 0.5 * (base_size - 1.0)
    root = math.floor(math.sqrt(math.floor(base_size * base_size / ratio)) + 0.5)
    width, height = root * scale, math.floor(root * ratio + 0.5) * scale
    x, y = 0.5 * (width - 1.0), 0.5 * (height - 1.0)
    return centre - x, centre - y, centre + x, centre + y


def _moved(box: Sequence[PrimExpr], delta: Sequence[PrimExpr], iou_loss: bool) -> list[PrimExpr]:
    """Apply the network's four numbers to an anchor: added to its corners, or to centre and size."""
    if iou_loss:
        return [b + d for b, d in zip(box, delta, strict=True)]
    one, half = ops.const(1, delta[0].dtype), ops.const(0.5, delta[0].dtype)
    width, height = box[2] - box[0] + one, box[3] - box[1] + one
    x = delta[0] * width + box[0] + half * (width - one)
    y = delta[1] * height + box[1] + half * (height - one)
    w, h = half * (tir.exp(delta[2]) * width - one), half * (tir.exp(delta[3]) * height - one)
    return [x - w, y - h, x + w, y + h]


def _predicted(
    cls_prob: te.Tensor,
    bbox_pred: te.Tensor,
    im_info: te.Tensor,
    anchors: Sequence[tuple[float, ...]],
    feature_stride: int,
    min_size: float,
    iou_loss: bool,
) -> te.Tensor:
    """Return rows (left, top, right, bottom, score) of all anchors of all pixels, (batch, boxes, 5).

    Boxes of pixels beyond the image and boxes that are too small have score -1; the latter are enlarged by the least
    size.
    """
    batch, _, height, width = get_const_tuple(cls_prob.shape)
    count, dtype = len(anchors), bbox_pred.dtype

    def number(value: float) -> PrimExpr:
        return ops.const(value, dtype)

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        scores, deltas, info = (ib.buffer_ptr(i) for i in ins)
        boxes = ib.buffer_ptr(outs[0])
        with each(ib, batch * height * width, "pixel", "parallel") as pixel:
            x, y = tir.indexmod(pixel, width), tir.indexmod(tir.indexdiv(pixel, width), height)
            b = tir.indexdiv(pixel, height * width)
            tall, wide = ops.cast(dtype, info[b * 3]), ops.cast(dtype, info[b * 3 + 1])
            least = ib.let("least", ops.cast(dtype, info[b * 3 + 2]) * number(min_size))
            rows, columns = (ops.cast("int32", size / number(feature_stride)) for size in (tall, wide))
            outside = tir.any(y >= rows, x >= columns)
            for k, anchor in enumerate(anchors):
                place = [x, y, x, y]
                box = [number(a) + ops.cast(dtype, p * feature_stride) for a, p in zip(anchor, place, strict=True)]
                delta = [deltas[(((b * count + k) * 4 + i) * height + y) * width + x] for i in range(4)]
                ends = (wide, tall, wide, tall)
                corners = [
                    ib.let("corner", ops.maximum(ops.minimum(corner, end - number(1)), number(0)))
                    for corner, end in zip(_moved(box, delta, iou_loss), ends, strict=True)
                ]
                sides = corners[2] - corners[0] + number(1), corners[3] - corners[1] + number(1)
                small = ib.let("small", tir.any(sides[0] < least, sides[1] < least))
                grown = tir.Select(small, least * number(0.5), number(0))
                for i, corner in enumerate(corners):
                    boxes[(pixel * count + k) * 5 + i] = corner + grown if i > 1 else corner - grown
                score = ops.cast(dtype, scores[((b * 2 + 1) * count + k) * (height * width) + y * width + x])
                boxes[(pixel * count + k) * 5 + 4] = tir.Select(tir.any(small, outside), number(-1), score)
        return ib.get()

    return te.extern(
        [(batch, height * width * count, 5)], [cls_prob, bbox_pred, im_info], loops, dtype=[dtype],
        name="proposal_boxes", tag="proposal_boxes",
    )  # fmt: skip


def _overlap(boxes: Any, a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Return the intersection over union of the boxes at ``a`` and ``b``."""
    one, zero = ops.const(1, boxes.dtype), ops.const(0, boxes.dtype)

    def side(low: PrimExpr, high: PrimExpr) -> PrimExpr:
        return ops.maximum(high - low + one, zero)

    def area(at: PrimExpr) -> PrimExpr:
        return (boxes[at + 2] - boxes[at] + one) * (boxes[at + 3] - boxes[at + 1] + one)

    width, height = (
        side(ops.maximum(boxes[a + i], boxes[b + i]), ops.minimum(boxes[a + i + 2], boxes[b + i + 2])) for i in (0, 1)
    )
    shared = width * height
    return shared / (area(a) + area(b) - shared)


def _suppressed(ranked: te.Tensor, threshold: float, wanted: int) -> te.Tensor:
    """Return rows (batch, left, top, right, bottom) of ``wanted`` boxes a batch after suppression,
    repeated if fewer.
    """
    batch, n, _ = get_const_tuple(ranked.shape)
    dtype = ranked.dtype

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        boxes, target = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        kept_of = workspace(ib, batch, n, "int32", "kept")
        with each(ib, batch, "b") as b:
            memory, first = kept_of(b)
            count, alive = (ib.allocate("int32", (1,), name=name, scope="local") for name in ("count", "alive"))
            count[0] = ops.const(0, "int32")
            with ib.for_range(0, n, name="j") as j, ib.if_scope(count[0] < wanted):
                alive[0] = ops.const(1, "int32")
                with ib.for_range(0, count[0], name="k") as k:
                    share = _overlap(boxes, (b * n + memory[first + k]) * 5, (b * n + j) * 5)
                    with ib.if_scope(share > ops.const(threshold, dtype)):
                        alive[0] = ops.const(0, "int32")
                with ib.if_scope(alive[0].equal(1)):
                    memory[first + count[0]] = j
                    count[0] = count[0] + 1
            with ib.for_range(0, wanted, name="j") as j:
                row, source = (b * wanted + j) * 5, (b * n + memory[first + ops.floormod(j, count[0])]) * 5
                target[row] = ops.cast(dtype, b)
                for i in range(4):
                    target[row + 1 + i] = boxes[source + i]
        return ib.get()

    return te.extern([(batch * wanted, 5)], [ranked], loops, dtype=[dtype], name="proposal", tag="proposal")


def proposal(
    cls_prob: te.Tensor,
    bbox_pred: te.Tensor,
    im_info: te.Tensor,
    scales: Sequence[float],
    ratios: Sequence[float],
    feature_stride: int,
    threshold: float,
    rpn_pre_nms_top_n: int,
    rpn_post_nms_top_n: int,
    rpn_min_size: float,
    iou_loss: bool,
) -> te.Tensor:
    """Return the best boxes of a region proposal network.

    Parameters
    ----------
    cls_prob : (batch, 2 * anchors, height, width), of the background and of objects
    bbox_pred : (batch, 4 * anchors, height, width), offsets of the anchors
    im_info : (batch, 3), rows (height, width, scale) of the images
    scales, ratios : a pixel has an anchor of each ratio and scale
    feature_stride : pixels of the image for one of the data
    threshold : boxes that overlap a higher-scored one by more are suppressed
    rpn_pre_nms_top_n : number of boxes considered, all if not positive
    rpn_post_nms_top_n : boxes a batch has in the result; repeated if fewer are left
    rpn_min_size : smaller boxes count as background
    iou_loss : whether predictions are added to the corners, not applied to centre and size

    Returns rows (batch, left, top, right, bottom) as (batch * rpn_post_nms_top_n, 5).
    """
    batch, channels, height, width = get_const_tuple(cls_prob.shape)
    scales, ratios = get_float_tuple(scales), get_float_tuple(ratios)
    anchors = [generate_anchor(ratio, scale, int(feature_stride)) for ratio in ratios for scale in scales]
    if channels != 2 * len(anchors):
        raise InvalidShapeError(
            f"proposal: {len(ratios)} ratios and {len(scales)} scales need {2 * len(anchors)} channels of cls_prob, "
            f"found {channels}"
        )
    boxes = _predicted(cls_prob, bbox_pred, im_info, anchors, int(feature_stride), float(rpn_min_size), bool(iou_loss))
    total = height * width * len(anchors)
    if total == 0:
        raise InvalidShapeError("proposal: the data has no pixels, so there are no boxes to propose")
    n = min(rpn_pre_nms_top_n, total) if rpn_pre_nms_top_n > 0 else total
    scores = te.compute((batch, total), lambda b, i: boxes(b, i, 4), name="scores", tag=tag.INJECTIVE)
    order = argsort(scores, None, 1, False, "int32")
    ranked = te.compute((batch, n, 5), lambda b, i, j: boxes(b, order(b, i), j), name="ranked", tag="ranked_boxes")
    return _suppressed(ranked, float(threshold), int(rpn_post_nms_top_n))


__all__ = ["generate_anchor", "proposal"]
