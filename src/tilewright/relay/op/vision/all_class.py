"""vision.all_class_non_max_suppression: non-maximum suppression in each class separately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import TupleWrapper, const
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call
from tilewright.relay.op.builder import exported
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.relations import dim_mul
from tilewright.relay.op.strategy.wrappers import known_number
from tilewright.relay.op.transform.sorting import sorted_indices
from tilewright.relay.op.vision.nms import overlap


class AllClassNonMaximumSuppressionAttrs(Attrs):
    """The format of the result: ONNX's or TensorFlow's."""

    output_format: str = "onnx"


def _kept(boxes: Array, scores: Array, limit: int, share: float, least: float) -> list[int]:
    """Return the chosen boxes of one class, in order of score."""
    kept: list[int] = []
    for place in sorted_indices(scores, 0, False):
        if scores[place] > least and (limit < 0 or len(kept) < limit):
            if all(overlap(boxes[k], boxes[place]) <= share for k in kept):
                kept.append(int(place))
    return kept


class AllClassNonMaximumSuppression(OpDef[AllClassNonMaximumSuppressionAttrs]):
    """The best of overlapping boxes, for every class."""

    name = "vision.all_class_non_max_suppression"
    sequential = True
    inputs = ("boxes", "scores", "max_output_boxes_per_class", "iou_threshold", "score_threshold")
    pattern = OpPattern.OPAQUE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: AllClassNonMaximumSuppressionAttrs, solver: TypeSolver) -> Type | None:
        """(indices, count) for ONNX, (indices, scores, counts) for TensorFlow."""
        boxes, scores = relations.tensors(types[:2], AllClassNonMaximumSuppression.inputs)
        relations.require_rank(boxes, 3, "boxes")
        relations.require_rank(scores, 3, "scores")
        batch, classes, n = scores.shape
        solver.assert_equal(batch, boxes.shape[0], "batch of the boxes")
        solver.assert_equal(n, boxes.shape[1], "number of boxes")
        solver.assert_equal(as_expr(4), boxes.shape[2], "numbers of a box")
        if attrs.output_format == "onnx":
            places = TensorType((dim_mul(batch, classes, n), 3), "int64")
            return TupleType((places, TensorType((1,), "int64")))
        relations.require(
            attrs.output_format == "tensorflow", f"output_format is onnx or tensorflow, found {attrs.output_format!r}"
        )
        listed = (batch, dim_mul(classes, n))
        fields = TensorType((*listed, 2), "int64"), TensorType(listed, scores.dtype), TensorType((batch,), "int64")
        return TupleType(fields)

    @staticmethod
    def compute(attrs: AllClassNonMaximumSuppressionAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        boxes, scores, *rest = inputs
        limit, share, least = (known_number(v) for v in rest)
        return list(topi.vision.all_class_non_max_suppression(boxes, scores, limit, share, least, attrs.output_format))

    @staticmethod
    def evaluate(attrs: AllClassNonMaximumSuppressionAttrs, inputs: Sequence[Array]) -> list[Array]:
        boxes, scores = inputs[:2]
        limit, share, least = (v.reshape(()).item() for v in inputs[2:])
        batch, classes, n = scores.shape
        rows = [
            (b, c, k)
            for b in range(batch)
            for c in range(classes)
            for k in _kept(boxes[b], scores[b, c], int(limit), share, least)
        ]
        if attrs.output_format == "onnx":
            places = np.zeros((batch * classes * n, 3), "int64")
            places[: len(rows)] = np.asarray(rows).reshape(-1, 3)
            return [places, np.asarray([len(rows)], "int64")]
        places, found = np.zeros((batch, classes * n, 2), "int64"), np.zeros((batch, classes * n), scores.dtype)
        counts = np.zeros(batch, "int64")
        for b, c, k in rows:
            places[b, counts[b]], found[b, counts[b]] = (c, k), scores[b, c, k]
            counts[b] += 1
        return [places, found, counts]


@exported
def all_class_non_max_suppression(
    boxes: RelayExpr,
    scores: RelayExpr,
    max_output_boxes_per_class: Any = -1,
    iou_threshold: Any = -1.0,
    score_threshold: Any = -1.0,
    output_format: str = "onnx",
) -> TupleWrapper:
    """Choose the best of overlapping boxes of each class; see ``topi.vision.all_class_non_max_suppression``.

    The result is (indices, count) in the format "onnx", (indices, scores, counts) in the format "tensorflow".
    """
    parameters = ((max_output_boxes_per_class, "int32"), (iou_threshold, "float32"), (score_threshold, "float32"))
    numbers = [v if isinstance(v, RelayExpr) else const(v, dtype) for v, dtype in parameters]
    attrs = AllClassNonMaximumSuppressionAttrs(str(output_format))
    out = call("vision.all_class_non_max_suppression", [boxes, scores, *numbers], attrs)
    return TupleWrapper(out, 2 if output_format == "onnx" else 3)
