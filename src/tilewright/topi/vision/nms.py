"""Choosing among detected boxes: those of enough score, and of overlapping ones the best.

A box is a row (id, score, left, top, right, bottom) or any other order that the index arguments say.
"""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.topi import tag
from tilewright.topi.sort import argsort
from tilewright.topi.utils import get_const_tuple


def _number(value: Any, ins: list[Any], at: int, ib: Any) -> Any:
    return ib.buffer_ptr(ins[at])[0] if isinstance(value, te.Tensor) else value


def _tensors(*values: Any) -> list[te.Tensor]:
    return [v for v in values if isinstance(v, te.Tensor)]


def get_valid_counts(
    data: te.Tensor, score_threshold: Any = 0, id_index: int = 0, score_index: int = 1
) -> list[te.Tensor]:
    """The boxes of ``data`` (batch, n, k) whose score is above the threshold and whose class is not negative, in front.

    Gives the number of them (batch,), the boxes with rows of -1 behind, and where each was (batch, n), -1 behind.
    """
    batch, n, k = get_const_tuple(data.shape)

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source = ib.buffer_ptr(ins[0])
        threshold = _number(score_threshold, ins, 1, ib)
        count, boxes, places = (ib.buffer_ptr(o) for o in outs)
        with ib.for_range(0, batch, name="b") as b:
            count[b] = ops.const(0, "int32")
            with ib.for_range(0, n, name="row") as row:
                at = b * n + row
                score = source[at * k + score_index]
                wanted: PrimExpr = score > ops.cast(score.dtype, ops.as_expr(threshold))
                if id_index >= 0:
                    wanted = tir.all(wanted, source[at * k + id_index] >= ops.const(0, data.dtype))
                with ib.if_scope(wanted):
                    free = b * n + count[b]
                    with ib.for_range(0, k, name="c") as c:
                        boxes[free * k + c] = source[at * k + c]
                    places[free] = row
                    count[b] = count[b] + 1
            with ib.for_range(0, n, name="rest") as rest, ib.if_scope(rest >= count[b]):
                with ib.for_range(0, k, name="c") as c:
                    boxes[(b * n + rest) * k + c] = ops.const(-1, data.dtype)
                places[b * n + rest] = ops.const(-1, "int32")
        return ib.get()

    shapes = [(batch,), (batch, n, k), (batch, n)]
    inputs = [data, *_tensors(score_threshold)]
    dtypes = ["int32", data.dtype, "int32"]
    result: list[te.Tensor] = te.extern(
        shapes, inputs, loops, dtype=dtypes, name="get_valid_counts", tag="get_valid_counts"
    )
    return result


def overlap(boxes: Any, a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Area that the boxes with corners at ``a`` and ``b`` share over the area that they cover."""
    corners = []
    for at in (a, b):
        x, y, u, v = (boxes[at + i] for i in range(4))
        corners.append((ops.minimum(x, u), ops.minimum(y, v), ops.maximum(x, u), ops.maximum(y, v)))
    (al, at_, ar, ab), (bl, bt, br, bb) = corners
    zero = ops.const(0, boxes.dtype)
    width = ops.maximum(ops.minimum(ar, br) - ops.maximum(al, bl), zero)
    height = ops.maximum(ops.minimum(ab, bb) - ops.maximum(at_, bt), zero)
    shared = width * height
    covered = (ar - al) * (ab - at_) + (br - bl) * (bb - bt) - shared
    return tir.Select(covered <= zero, zero, shared / covered)


def non_max_suppression(
    data: te.Tensor,
    valid_count: te.Tensor,
    indices: te.Tensor,
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
    """Of overlapping boxes of one class (of any, with ``force_suppress``), the one of highest score.

    ``data`` (batch, n, k) has its ``valid_count`` (batch,) boxes in front, ``indices`` (batch, n) their original
    places. With ``return_indices``, gives the places of the chosen boxes in order (batch, n), -1 behind, and their
    number (batch, 1); else the boxes in order of score, the others with score -1 (moved behind with
    ``invalid_to_bottom``).
    """
    batch, n, k = get_const_tuple(data.shape)
    scores = te.compute((batch, n), lambda b, i: data(b, i, score_index), name="scores", tag=tag.INJECTIVE)
    order = argsort(scores, valid_count, 1, False, "int32")
    inputs = [data, order, valid_count, indices, *_tensors(max_output_size, iou_threshold)]

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source, ranked, counts, places = (ib.buffer_ptr(i) for i in ins[:4])
        limit = _number(max_output_size, ins, 4, ib)
        threshold = _number(iou_threshold, ins, len(ins) - 1, ib)
        boxes = ib.allocate(data.dtype, (max(n, 1) * k,), name="boxes", scope="global")
        chosen = ib.allocate("int32", (max(n, 1),), name="chosen", scope="global")
        kept = ib.allocate("int32", (1,), name="kept", scope="global")
        with ib.for_range(0, batch, name="b") as b:
            count = ops.cast("int32", counts[b])
            count = ops.minimum(count, top_k) if top_k > 0 else count
            _rank(ib, source, ranked, boxes, chosen, b, n, k, count)
            kept[0] = ops.const(0, "int32")
            with ib.for_range(0, count, name="j") as j:
                alive = boxes[j * k + score_index] > ops.const(0, data.dtype)
                room = tir.any(ops.as_expr(limit) < 0, kept[0] < ops.as_expr(limit))
                with ib.if_scope(tir.all(alive, room)):
                    kept[0] = kept[0] + 1
                    with ib.for_range(j + 1, count, name="other") as other:
                        same = boxes[other * k + score_index] > ops.const(0, data.dtype)
                        if not force_suppress and id_index >= 0:
                            same = tir.all(same, boxes[j * k + id_index].equal(boxes[other * k + id_index]))
                        share = overlap(boxes, j * k + coord_start, other * k + coord_start)
                        limit_share = ops.cast(data.dtype, ops.as_expr(threshold))
                        with ib.if_scope(tir.all(same, share >= limit_share)):
                            _drop(boxes, chosen, other, k, score_index, id_index)
                with ib.else_scope():
                    _drop(boxes, chosen, j, k, score_index, id_index)
            targets = [ib.buffer_ptr(o) for o in outs]
            if return_indices:
                _write_indices(ib, places, chosen, kept, targets, b, n)
            else:
                _write_boxes(ib, boxes, chosen, kept, targets[0], b, n, k, invalid_to_bottom)
        return ib.get()

    if return_indices:
        return te.extern([(batch, n), (batch, 1)], inputs, loops, dtype=["int32", "int32"], name="nms", tag="nms")
    return te.extern([(batch, n, k)], inputs, loops, dtype=[data.dtype], name="nms", tag="nms")


def _rank(ib: Any, source: Any, ranked: Any, boxes: Any, chosen: Any, b: Any, n: int, k: int, count: Any) -> None:
    """Copy the first ``count`` boxes in order of score; the other rows are -1."""
    with ib.for_range(0, n, name="j") as j:
        with ib.if_scope(j < count):
            place = ranked[b * n + j]
            with ib.for_range(0, k, name="c") as c:
                boxes[j * k + c] = source[(b * n + place) * k + c]
            chosen[j] = place
        with ib.else_scope():
            with ib.for_range(0, k, name="c") as c:
                boxes[j * k + c] = ops.const(-1, boxes.dtype)
            chosen[j] = ops.const(-1, "int32")


def _drop(boxes: Any, chosen: Any, row: Any, k: int, score_index: int, id_index: int) -> None:
    boxes[row * k + score_index] = ops.const(-1, boxes.dtype)
    if id_index >= 0:
        boxes[row * k + id_index] = ops.const(-1, boxes.dtype)
    chosen[row] = ops.const(-1, "int32")


def _write_indices(ib: Any, places: Any, chosen: Any, kept: Any, targets: list[Any], b: Any, n: int) -> None:
    indices, count = targets
    kept[0] = ops.const(0, "int32")
    with ib.for_range(0, n, name="j") as j:
        indices[b * n + j] = ops.const(-1, "int32")
    with ib.for_range(0, n, name="j") as j, ib.if_scope(chosen[j] >= 0):
        indices[b * n + kept[0]] = ops.cast("int32", places[b * n + chosen[j]])
        kept[0] = kept[0] + 1
    count[b] = kept[0]


def _write_boxes(
    ib: Any, boxes: Any, chosen: Any, kept: Any, target: Any, b: Any, n: int, k: int, invalid_to_bottom: bool
) -> None:
    if not invalid_to_bottom:
        with ib.for_range(0, n * k, name="j") as j:
            target[b * (n * k) + j] = boxes[j]
        return
    kept[0] = ops.const(0, "int32")
    with ib.for_range(0, n * k, name="j") as j:
        target[b * (n * k) + j] = ops.const(-1, boxes.dtype)
    with ib.for_range(0, n, name="j") as j, ib.if_scope(chosen[j] >= 0):
        with ib.for_range(0, k, name="c") as c:
            target[(b * n + kept[0]) * k + c] = boxes[j * k + c]
        kept[0] = kept[0] + 1
