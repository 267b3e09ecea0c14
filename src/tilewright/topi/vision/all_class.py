"""Non-maximum suppression in each class, as ONNX's NonMaxSuppression and TensorFlow's combined one."""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.topi.loops import each
from tilewright.topi.sort import argsort
from tilewright.topi.utils import InvalidShapeError, get_const_tuple
from tilewright.topi.vision.nms import overlap


def _input(value: Any, ins: list[Any], inputs: list[te.Tensor], ib: Any, dtype: str) -> PrimExpr:
    """Return an argument's number, or read it from its tensor."""
    if isinstance(value, te.Tensor):
        return ops.cast(dtype, ib.buffer_ptr(ins[inputs.index(value)])[0])
    return ops.const(value, dtype)


def _selected(
    boxes: te.Tensor, scores: te.Tensor, max_output: Any, iou_threshold: Any, score_threshold: Any
) -> list[te.Tensor]:
    """Return the chosen boxes of every batch and class in order of score, (batch * classes, boxes), and
    their number.
    """
    batch, classes, n = get_const_tuple(scores.shape)
    order = argsort(scores, None, 2, False, "int32")
    inputs = [boxes, scores, order]
    inputs += [v for v in (max_output, iou_threshold, score_threshold) if isinstance(v, te.Tensor)]

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        box, score, ranked = (ib.buffer_ptr(i) for i in ins[:3])
        kept, counts = (ib.buffer_ptr(o) for o in outs)
        limit = _input(max_output, ins, inputs, ib, "int32")
        least = _input(score_threshold, ins, inputs, ib, scores.dtype)
        share = _input(iou_threshold, ins, inputs, ib, boxes.dtype)
        with each(ib, batch * classes, "row", "parallel") as row:
            count, alive = (ib.allocate("int32", (1,), name=name, scope="local") for name in ("count", "alive"))
            base, first = row * n, tir.indexdiv(row, classes) * n
            count[0] = ops.const(0, "int32")
            with ib.for_range(0, n, name="j") as j:
                place = ib.let("place", ranked[base + j])
                below_limit = tir.any(limit < 0, count[0] < limit)
                with ib.if_scope(tir.all(below_limit, score[base + place] > least)):
                    alive[0] = ops.const(1, "int32")
                    with ib.for_range(0, count[0], name="k") as k:
                        found = overlap(box, (first + kept[base + k]) * 4, (first + place) * 4)
                        with ib.if_scope(found > share):
                            alive[0] = ops.const(0, "int32")
                    with ib.if_scope(alive[0].equal(1)):
                        kept[base + count[0]] = place
                        count[0] = count[0] + 1
            counts[row] = count[0]
        return ib.get()

    result: list[te.Tensor] = te.extern(
        [(batch * classes, n), (batch * classes,)], inputs, loops, dtype=["int32", "int32"], name="selected_boxes",
        tag="selected_boxes",
    )  # fmt: skip
    return result


def _listed(kept: te.Tensor, counts: te.Tensor, classes: int, groups: int, scores: te.Tensor | None) -> list[te.Tensor]:
    """List the chosen boxes of each of ``groups``, padded with 0; all groups in one list of triples if None."""
    rows, n = get_const_tuple(kept.shape)
    batches = rows // max(classes, 1)
    width = 3 if scores is None else 2
    shape = (rows * n, 3) if scores is None else (batches, classes * n, 2)
    shapes: list[tuple[int, ...]] = [shape, (groups,)] if scores is None else [shape, shape[:2], (groups,)]
    dtypes = ["int64", "int64"] if scores is None else ["int64", scores.dtype, "int64"]
    per_group = rows // max(groups, 1)

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source, count = (ib.buffer_ptr(i) for i in ins[:2])
        targets = [ib.buffer_ptr(o) for o in outs]
        places, totals = targets[0], targets[-1]
        with each(ib, rows * n * width, "i") as i:
            places[i] = ops.const(0, "int64")
        if scores is not None:
            with each(ib, rows * n, "i") as i:
                targets[1][i] = ops.const(0, scores.dtype)
        with each(ib, groups, "group") as group:
            at = ib.allocate("int32", (1,), name="at", scope="local")
            at[0] = ops.const(0, "int32")
            with ib.for_range(0, per_group, name="r") as r:
                row = group * per_group + r
                batch, kind = tir.indexdiv(row, classes), tir.indexmod(row, classes)
                with ib.for_range(0, count[row], name="k") as k:
                    place = ib.let("place", source[row * n + k])
                    target = ib.let("target", group * (per_group * n) + at[0])
                    values = [batch, kind, place] if scores is None else [kind, place]
                    for column, value in enumerate(values):
                        places[target * width + column] = ops.cast("int64", value)
                    if scores is not None:
                        targets[1][target] = ib.buffer_ptr(ins[2])[row * n + place]
                    at[0] = at[0] + 1
            totals[group] = ops.cast("int64", at[0])
        return ib.get()

    inputs = [kept, counts] if scores is None else [kept, counts, scores]
    result: list[te.Tensor] = te.extern(shapes, inputs, loops, dtype=dtypes, name="all_class_nms", tag="all_class_nms")
    return result


def all_class_non_max_suppression(
    boxes: te.Tensor,
    scores: te.Tensor,
    max_output_boxes_per_class: Any,
    iou_threshold: Any,
    score_threshold: Any,
    output_format: str = "onnx",
) -> list[te.Tensor]:
    """Suppress boxes that overlap a higher-scored box of their class by more than ``iou_threshold``.

    Parameters
    ----------
    boxes : (batch, n, 4), two opposite corners each
    scores : (batch, classes, n)
    max_output_boxes_per_class : int or tensor of one; negative for any number
    iou_threshold, score_threshold : number or tensor of one; boxes with a score above the threshold count

    Returns for "onnx" rows (batch, class, box) as (batch * classes * n, 3), and their number (1,); for "tensorflow"
    rows (class, box) as (batch, classes * n, 2), their scores, and their number (batch,). Indices are int64, and rows
    beyond the last one are 0; classes ascend, and in each the scores descend.
    """
    if output_format not in ("onnx", "tensorflow"):
        raise InvalidShapeError(f"the output format is onnx or tensorflow, found {output_format!r}")
    batch, classes, _ = get_const_tuple(scores.shape)
    kept, counts = _selected(boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold)
    if output_format == "onnx":
        return _listed(kept, counts, classes, 1, None)
    return _listed(kept, counts, classes, batch, scores)


__all__ = ["all_class_non_max_suppression"]
