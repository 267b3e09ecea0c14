"""vision.get_valid_counts and vision.non_max_suppression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call, TupleWrapper, const
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call
from tilewright.relay.op.builder import exported
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.strategy import generic as strategies
from tilewright.relay.op.transform.sorting import sorted_indices


class GetValidCountsAttrs(Attrs):
    """Positions of class and score in a row."""

    id_index: int = 0
    score_index: int = 1


class NonMaximumSuppressionAttrs(Attrs):
    """Options of non_max_suppression; the ``*_index`` fields are positions of coordinates, score and class in a
    row.
    """

    force_suppress: bool = False
    top_k: int = -1
    coord_start: int = 2
    score_index: int = 1
    id_index: int = 0
    return_indices: bool = True
    invalid_to_bottom: bool = False


class GetValidCounts(OpDef[GetValidCountsAttrs]):
    """The boxes whose score is above the threshold, moved to the front."""

    name = "vision.get_valid_counts"
    inputs = ("data", "score_threshold")
    pattern = OpPattern.OPAQUE

    strategy = strategies.get_valid_counts_strategy

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: GetValidCountsAttrs, solver: TypeSolver) -> Type | None:
        """(count, boxes, indices)"""
        data = relations.tensor(types[0], "data")
        relations.require_rank(data, 3, "data")
        batch, n, _ = data.shape
        return TupleType((TensorType((batch,), "int32"), data, TensorType((batch, n), "int32")))

    @staticmethod
    def evaluate(attrs: GetValidCountsAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, threshold = inputs[0], inputs[1].reshape(()).astype(inputs[0].dtype)
        count = np.zeros(data.shape[0], "int32")
        boxes, places = np.full_like(data, -1), np.full(data.shape[:2], -1, "int32")
        for b, rows in enumerate(data):
            wanted = rows[:, attrs.score_index] > threshold
            if attrs.id_index >= 0:
                wanted &= rows[:, attrs.id_index] >= 0
            count[b] = wanted.sum()
            boxes[b, : count[b]] = rows[wanted]
            places[b, : count[b]] = np.nonzero(wanted)[0]
        return [count, boxes, places]


def overlap(a: Array, b: Array) -> float:
    """Return the intersection over union of two boxes."""
    al, ar, at, ab = *np.sort(a[[0, 2]]), *np.sort(a[[1, 3]])
    bl, br, bt, bb = *np.sort(b[[0, 2]]), *np.sort(b[[1, 3]])
    shared = max(min(ar, br) - max(al, bl), 0) * max(min(ab, bb) - max(at, bt), 0)
    covered = (ar - al) * (ab - at) + (br - bl) * (bb - bt) - shared
    return float(shared / covered) if covered > 0 else 0.0


def _suppress(rows: Array, attrs: NonMaximumSuppressionAttrs, limit: int, threshold: float) -> list[int]:
    """Return which of the boxes, in order of score, are kept."""
    kept: list[int] = []
    alive = rows[:, attrs.score_index] > 0
    corners = rows[:, attrs.coord_start : attrs.coord_start + 4]
    for j in range(len(rows)):
        if not alive[j] or 0 <= limit <= len(kept):
            continue
        kept.append(j)
        for other in range(j + 1, len(rows)):
            same = attrs.force_suppress or attrs.id_index < 0
            if same or rows[j, attrs.id_index] == rows[other, attrs.id_index]:
                alive[other] &= overlap(corners[j], corners[other]) < threshold
    return kept


class NonMaximumSuppression(OpDef[NonMaximumSuppressionAttrs]):
    """The best of overlapping boxes."""

    name = "vision.non_max_suppression"
    support_level = 5
    sequential = True
    inputs = ("data", "valid_count", "indices", "max_output_size", "iou_threshold")
    pattern = OpPattern.OPAQUE

    strategy = strategies.nms_strategy

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: NonMaximumSuppressionAttrs, solver: TypeSolver) -> Type | None:
        """(indices, count), or the boxes."""
        data = relations.tensor(types[0], "data")
        relations.require_rank(data, 3, "data")
        batch, n, _ = data.shape
        if not attrs.return_indices:
            return data
        return TupleType((TensorType((batch, n), "int32"), TensorType((batch, 1), "int32")))

    @staticmethod
    def evaluate(attrs: NonMaximumSuppressionAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, counts, places = inputs[:3]
        limit, threshold = int(inputs[3].reshape(())), float(inputs[4].reshape(()))
        indices, number = np.full(data.shape[:2], -1, "int32"), np.zeros((data.shape[0], 1), "int32")
        boxes = np.full_like(data, -1)
        for b, count in enumerate(counts):
            order = sorted_indices(data[b, :count, attrs.score_index], 0, False)
            order = order[: attrs.top_k] if attrs.top_k > 0 else order
            rows = data[b][order]
            kept = _suppress(rows, attrs, limit, threshold)
            number[b] = len(kept)
            if attrs.return_indices:
                indices[b, : len(kept)] = places[b][order[kept]]
            if attrs.invalid_to_bottom:
                boxes[b, : len(kept)] = rows[kept]
                continue
            boxes[b, : len(rows)] = rows
            for gone in set(range(len(rows))) - set(kept):
                boxes[b, gone, attrs.score_index] = -1
                if attrs.id_index >= 0:
                    boxes[b, gone, attrs.id_index] = -1
        return [indices, number] if attrs.return_indices else [boxes]


@exported
def get_valid_counts(data: RelayExpr, score_threshold: Any, id_index: int = 0, score_index: int = 1) -> TupleWrapper:
    """Return (count, boxes, indices) of the boxes of ``data`` whose score is above the threshold, moved to the
    front.
    """
    threshold = score_threshold if isinstance(score_threshold, RelayExpr) else const(score_threshold, "float32")
    attrs = GetValidCountsAttrs(int(id_index), int(score_index))
    return TupleWrapper(call("vision.get_valid_counts", [data, threshold], attrs), 3)


@exported
def non_max_suppression(
    data: RelayExpr,
    valid_count: RelayExpr,
    indices: RelayExpr,
    max_output_size: Any = -1,
    iou_threshold: Any = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
) -> Any:
    """Choose the best of overlapping boxes of one class; see ``topi.vision.non_max_suppression``."""
    limit = max_output_size if isinstance(max_output_size, RelayExpr) else const(max_output_size, "int32")
    threshold = iou_threshold if isinstance(iou_threshold, RelayExpr) else const(iou_threshold, "float32")
    attrs = NonMaximumSuppressionAttrs(
        bool(force_suppress), int(top_k), int(coord_start), int(score_index), int(id_index), bool(return_indices),
        bool(invalid_to_bottom),
    )  # fmt: skip
    out: Call = call("vision.non_max_suppression", [data, valid_count, indices, limit, threshold], attrs)
    return TupleWrapper(out, 2) if return_indices else out
