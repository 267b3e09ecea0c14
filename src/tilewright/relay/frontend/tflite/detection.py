"""Boxes of objects: decoding, and suppression of those that overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.tflite.context import OperatorContext, typed
from tilewright.relay.frontend.tflite.flexbuffer import read_map
from tilewright.relay.frontend.tflite.registry import converter


@converter("TFLite_Detection_PostProcess", "DETECTION_POSTPROCESS")
def convert_detection_postprocess(ctx: OperatorContext) -> Sequence[RelayExpr]:
    """Boxes, classes and scores of the objects that are left, and how many there are."""
    options = read_map(ctx.operator.custom)
    if missing := [name for name in ("max_detections", "num_classes", "nms_iou_threshold") if name not in options]:
        ctx.fail(f"its options lack {', '.join(missing)}")
    boxes, scores = _boxes(ctx, options), ctx.real(1)
    batch, count, columns = ctx.shape(scores)
    classes = int(options["num_classes"])
    if batch != 1 or not 0 <= columns - classes <= 1 or ctx.shape(boxes) != (1, count, 4):
        ctx.unsupported(f"scores of shape {(batch, count, columns)} for {classes} classes of {count} boxes")
    scores = relay_op.strided_slice(scores, [columns - classes], [columns], axes=[2])
    rows = _rows(boxes, typed(scores), bool(options.get("use_regular_nms", 0)))
    most = int(options["max_detections"]) * max(int(options.get("max_classes_per_detection", 1)), 1)
    if int(options.get("max_classes_per_detection", 1)) > 1 and not options.get("use_regular_nms", 0):
        ctx.unsupported("several classes of a box")
    kept = _suppressed(rows, options, most)
    return _results(ctx, typed(kept), most)


def _boxes(ctx: OperatorContext, options: dict[str, Any]) -> RelayExpr:
    """Return corners (y, x, y, x) of boxes that are stated as distances from anchors."""
    codes, anchors = ctx.real(0), ctx.real(2)
    scales = [float(options.get(f"{name}_scale", 1.0)) for name in "yxhw"]
    if 0.0 in scales:
        ctx.fail("a scale of its boxes is 0")
    y, x, h, w = relay_op.split(relay_op.multiply(codes, const(np.float32(1) / np.array(scales, "float32"))), 4, axis=2)
    anchor = [relay_op.reshape(part, (1, -1, 1)) for part in relay_op.split(anchors, 4, axis=1)]
    centre_y = relay_op.add(relay_op.multiply(y, anchor[2]), anchor[0])
    centre_x = relay_op.add(relay_op.multiply(x, anchor[3]), anchor[1])
    half = const(np.float32(0.5))
    half_h = relay_op.multiply(relay_op.multiply(relay_op.exp(h), anchor[2]), half)
    half_w = relay_op.multiply(relay_op.multiply(relay_op.exp(w), anchor[3]), half)
    first = [relay_op.subtract(centre_y, half_h), relay_op.subtract(centre_x, half_w)]
    last = [relay_op.add(centre_y, half_h), relay_op.add(centre_x, half_w)]
    return typed(relay_op.concatenate([*first, *last], axis=2))


def _rows(boxes: RelayExpr, scores: RelayExpr, every_class: bool) -> RelayExpr:
    """Return rows (class, score, corners): of each box with its best class, or with every class."""
    _, count, classes = scores.checked_type.concrete_shape  # type: ignore[attr-defined]
    if not every_class:
        best = relay_op.max(scores, axis=[2], keepdims=True)
        which = relay_op.cast(relay_op.argmax(scores, axis=[2], keepdims=True), "float32")
        return relay_op.concatenate([which, best, boxes], axis=2)
    numbers = const(np.tile(np.arange(classes, dtype="float32"), count).reshape(1, -1, 1))
    flat = relay_op.reshape(scores, (1, -1, 1))
    return relay_op.concatenate([numbers, flat, relay_op.repeat(boxes, classes, axis=1)], axis=2)


def _suppressed(rows: RelayExpr, options: dict[str, Any], most: int) -> RelayExpr:
    """Return rows by falling score, without those that overlap better ones; the rest are -1."""
    least = float(options.get("nms_score_threshold", 0.0))
    counts = relay_op.vision.get_valid_counts(rows, least, id_index=0, score_index=1)
    return relay_op.vision.non_max_suppression(
        counts[1],
        counts[0],
        counts[2],
        most,
        float(options["nms_iou_threshold"]),
        force_suppress=not options.get("use_regular_nms", 0),
        coord_start=2,
        score_index=1,
        id_index=0,
        return_indices=False,
        invalid_to_bottom=True,
    )


def _results(ctx: OperatorContext, kept: RelayExpr, most: int) -> Sequence[RelayExpr]:
    count = ctx.shape(kept)[1]
    if count < most:
        kept = relay_op.nn.pad(kept, [(0, 0), (0, most - count), (0, 0)], const(-1.0))
    rows = typed(relay_op.strided_slice(kept, [0], [most], axes=[1]))
    which, scores, boxes = relay_op.split(rows, (1, 2), axis=2)
    valid = relay_op.greater_equal(which, const(0.0))
    zero = const(0.0)
    found = relay_op.sum(relay_op.cast(valid, "float32"), axis=[1, 2])
    flat = lambda part: relay_op.reshape(relay_op.where(valid, part, zero), (1, most))  # noqa: E731
    return [relay_op.where(valid, boxes, zero), flat(which), flat(scores), relay_op.reshape(found, (1,))]


@converter("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def convert_non_max_suppression(ctx: OperatorContext) -> Sequence[RelayExpr]:
    """Numbers of the boxes that are left, by falling score, [their scores,] and how many they are."""
    soft = ctx.operator.name.endswith("5")
    most, overlap, least = (ctx.constant(i, "a limit").reshape(-1)[0].item() for i in (2, 3, 4))
    if soft and ctx.constant(5, "its sigma").reshape(-1)[0]:
        ctx.unsupported("soft suppression, which changes scores,")
    boxes, scores = ctx.real(0), ctx.real(1)
    count = ctx.shape(scores)[0]
    rows = relay_op.expand_dims(relay_op.concatenate([relay_op.expand_dims(scores, 1), boxes], axis=1), 0)
    valid = relay_op.vision.get_valid_counts(rows, float(least), id_index=-1, score_index=0)
    found = relay_op.vision.non_max_suppression(
        valid[1], valid[0], valid[2], int(most), float(overlap), force_suppress=True, coord_start=1, score_index=0,
        id_index=-1, return_indices=True,
    )  # fmt: skip
    indices, number = relay_op.reshape(found[0], (count,)), relay_op.reshape(found[1], ())
    if count < most:
        indices = relay_op.nn.pad(indices, [(0, int(most) - count)], const(-1, "int32"))
    indices = relay_op.strided_slice(indices, [0], [int(most)])
    inside = relay_op.less(const(np.arange(int(most), dtype="int32")), number)
    places = relay_op.where(inside, indices, const(0, "int32"))
    chosen = relay_op.where(inside, relay_op.take(scores, places), const(0.0))
    return [places, chosen, number] if soft else [places, number]
