"""Boxes of single-shot detectors: anchors, and decoding of predictions.

Liu et al., SSD: Single Shot MultiBox Detector, 2016. Boxes are (left, top, right, bottom), as parts of the image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.topi import tag
from tilewright.topi.loops import thread_group
from tilewright.topi.utils import InvalidShapeError, get_const_tuple, get_float_tuple
from tilewright.topi.vision.nms import non_max_suppression


def multibox_prior(
    data: te.Tensor,
    sizes: Sequence[float] = (1,),
    ratios: Sequence[float] = (1,),
    steps: Sequence[float] = (-1, -1),
    offsets: Sequence[float] = (0.5, 0.5),
    clip: bool = False,
) -> te.Tensor:
    """Return anchor boxes around every pixel of ``data`` (n, c, height, width), of which only the shape is used.

    Parameters
    ----------
    sizes, ratios : a pixel has a box of each size, of ratio 1, and one of the first size for each further ratio
    steps : distances of the centres, down and across; negative ones divide the image evenly
    offsets : where in its step a pixel has its centre, down and across
    clip : whether boxes end at the image's border

    Returns (1, height * width * (len(sizes) + len(ratios) - 1), 4), in the type of ``data``.
    """
    height, width = get_const_tuple(data.shape)[2:]
    sizes, ratios = get_float_tuple(sizes), get_float_tuple(ratios)
    down, across = (
        s if s > 0 else 1.0 / max(n, 1) for s, n in zip(get_float_tuple(steps), (height, width), strict=True)
    )
    offset_down, offset_across = get_float_tuple(offsets)
    roots = [math.sqrt(r) for r in ratios[1:]]
    per_width = height / max(width, 1) / 2
    half_widths = [s * per_width for s in sizes] + [sizes[0] * per_width * r for r in roots]
    half_heights = [s / 2 for s in sizes] + [sizes[0] / r / 2 for r in roots]
    count, dtype = len(half_widths), data.dtype

    def choose(k: PrimExpr, values: Sequence[float]) -> PrimExpr:
        chosen = ops.const(values[-1], dtype)
        for index in reversed(range(count - 1)):
            chosen = tir.Select(k.equal(index), ops.const(values[index], dtype), chosen)
        return chosen

    def body(n: PrimExpr, box: PrimExpr, side: PrimExpr) -> PrimExpr:
        k, pixel = tir.indexmod(box, count), tir.indexdiv(box, count)
        row, column = (ops.cast(dtype, i) for i in (tir.indexdiv(pixel, width), tir.indexmod(pixel, width)))
        x = (column + ops.const(offset_across, dtype)) * ops.const(across, dtype)
        y = (row + ops.const(offset_down, dtype)) * ops.const(down, dtype)
        horizontal = tir.indexmod(side, 2).equal(0)
        centre = tir.Select(horizontal, x, y)
        half = tir.Select(horizontal, choose(k, half_widths), choose(k, half_heights))
        value = tir.Select(side < 2, centre - half, centre + half)
        return ops.minimum(ops.maximum(value, ops.const(0, dtype)), ops.const(1, dtype)) if clip else value

    return te.compute((1, height * width * count, 4), body, name="multibox_prior", tag=tag.INJECTIVE)


def _decode(anchor: Sequence[Any], moves: Sequence[Any], variances: Sequence[float], clip: bool) -> list[PrimExpr]:
    """Decode a box from an anchor and the network's four numbers."""
    dtype = moves[0].dtype
    vx, vy, vw, vh = (ops.const(v, dtype) for v in variances)
    left, top, right, bottom = anchor
    half, wide, tall = ops.const(0.5, dtype), right - left, bottom - top
    x, y = moves[0] * vx * wide + (left + right) * half, moves[1] * vy * tall + (top + bottom) * half
    w, h = tir.exp(moves[2] * vw) * wide * half, tir.exp(moves[3] * vh) * tall * half
    zero, one = ops.const(0, dtype), ops.const(1, dtype)
    corners = [x - w, y - h, x + w, y + h]
    return [ops.minimum(ops.maximum(c, zero), one) for c in corners] if clip else corners


def multibox_transform_loc(
    cls_prob: te.Tensor,
    loc_pred: te.Tensor,
    anchor: te.Tensor,
    clip: bool = True,
    threshold: float = 0.01,
    variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
) -> list[te.Tensor]:
    """Return the predicted boxes whose best class is not the background, moved to the front.

    Parameters
    ----------
    cls_prob : (batch, classes, anchors), class 0 is the background
    loc_pred : (batch, anchors * 4), how the network moves and scales each anchor
    anchor : (1, anchors, 4)
    threshold : boxes of less probability are left out
    variances : factors of the four predictions

    Returns rows (class - 1, probability, left, top, right, bottom) as (batch, anchors, 6), followed by rows of -1, and
    their number (batch,) in int32.
    """
    batch, classes, anchors = get_const_tuple(cls_prob.shape)
    if get_const_tuple(loc_pred.shape) != (batch, anchors * 4):
        raise InvalidShapeError(
            f"multibox_transform_loc: {anchors} anchors have predictions of shape ({batch}, {anchors * 4}), "
            f"found {get_const_tuple(loc_pred.shape)}"
        )
    dtype = loc_pred.dtype
    factors = get_float_tuple(variances)

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        prob, moves, anchor_box = (ib.buffer_ptr(i) for i in ins)
        boxes, counts = (ib.buffer_ptr(o) for o in outs)
        with thread_group(ib, batch, anchors, "b", "parallel" if batch > 1 else "serial") as threads:
            b = threads.row
            score = ib.allocate(cls_prob.dtype, (1,), name="score", scope="local")
            best = ib.allocate("int32", (1,), name="best", scope="local")

            def wanted(j: PrimExpr) -> PrimExpr:
                score[0], best[0] = ops.const(-1, cls_prob.dtype), ops.const(0, "int32")
                with ib.for_range(1, max(classes, 1), name="k") as k:
                    found = ib.let("found", prob[(b * classes + k) * anchors + j])
                    with ib.if_scope(found > score[0]):
                        score[0], best[0] = found, k
                return tir.all(best[0] > 0, score[0] >= ops.const(threshold, cls_prob.dtype))

            def write(j: PrimExpr, chosen: PrimExpr, place: PrimExpr) -> None:
                with ib.if_scope(chosen):
                    row = ib.let("row", (b * anchors + place) * 6)
                    boxes[row] = ops.cast(dtype, best[0] - 1)
                    boxes[row + 1] = ops.cast(dtype, score[0])
                    moved = [moves[(b * anchors + j) * 4 + i] for i in range(4)]
                    at = [ops.cast(dtype, anchor_box[j * 4 + i]) for i in range(4)]
                    for i, corner in enumerate(_decode(at, moved, factors, clip)):
                        boxes[row + 2 + i] = corner

            kept = threads.collect(anchors, wanted, write, "j")
            with threads.alone():
                counts[b] = kept
            with threads.each(anchors * 6, "rest", kept * 6) as rest:
                boxes[b * (anchors * 6) + rest] = ops.const(-1, dtype)
        return ib.get()

    result: list[te.Tensor] = te.extern(
        [(batch, anchors, 6), (batch,)], [cls_prob, loc_pred, anchor], loops, dtype=[dtype, "int32"],
        name="multibox_transform_loc", tag="multibox_transform_loc",
    )  # fmt: skip
    return result


def multibox_detection(
    cls_prob: te.Tensor,
    loc_pred: te.Tensor,
    anchor: te.Tensor,
    clip: bool = True,
    threshold: float = 0.01,
    nms_threshold: float = 0.5,
    force_suppress: bool = False,
    variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    nms_topk: int = -1,
) -> te.Tensor:
    """Decode by ``multibox_transform_loc``, and suppress boxes that overlap a better one by more than
    ``nms_threshold``.

    Returns (batch, anchors, 6), where the class and the score of a suppressed box are -1.
    """
    boxes, count = multibox_transform_loc(cls_prob, loc_pred, anchor, clip, threshold, variances)
    found: te.Tensor = non_max_suppression(
        boxes, count, count, -1, nms_threshold, force_suppress, nms_topk, return_indices=False
    )
    return found


__all__ = ["multibox_detection", "multibox_prior", "multibox_transform_loc"]
