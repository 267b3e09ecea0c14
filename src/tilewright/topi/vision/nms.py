"""Selection of detected boxes: score threshold and non-maximum suppression.

A box is a row (id, score, left, top, right, bottom) or any other order that the index arguments say.
"""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.topi import tag
from tilewright.topi.loops import ThreadGroup, thread_group, workspace
from tilewright.topi.sort import argsort
from tilewright.topi.utils import at_least_one, get_const_tuple


def _number(value: Any, ins: list[Any], at: int, ib: Any) -> Any:
    return ib.buffer_ptr(ins[at])[0] if isinstance(value, te.Tensor) else value


def _tensors(*values: Any) -> list[te.Tensor]:
    return [v for v in values if isinstance(v, te.Tensor)]


def get_valid_counts(
    data: te.Tensor, score_threshold: Any = 0, id_index: int = 0, score_index: int = 1
) -> list[te.Tensor]:
    """Move the boxes of ``data`` (batch, n, k) with a score above the threshold and a class >= 0 to the front.

    Returns the number of them (batch,), the boxes followed by rows of -1, and their original indices (batch, n),
    followed by -1.
    """
    batch, n, k = get_const_tuple(data.shape)

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source = ib.buffer_ptr(ins[0])
        threshold = _number(score_threshold, ins, 1, ib)
        count, boxes, places = (ib.buffer_ptr(o) for o in outs)
        with thread_group(ib, batch, n, "b") as threads:
            b = threads.row

            def wanted(row: PrimExpr) -> PrimExpr:
                score = source[(b * n + row) * k + score_index]
                enough: PrimExpr = score > ops.cast(score.dtype, ops.as_expr(threshold))
                if id_index >= 0:
                    enough = tir.all(enough, source[(b * n + row) * k + id_index] >= ops.const(0, data.dtype))
                return enough

            def keep(row: PrimExpr, chosen: PrimExpr, place: PrimExpr) -> None:
                with ib.if_scope(chosen):
                    free = ib.let("free", b * n + place)
                    with ib.for_range(0, k, name="c") as c:
                        boxes[free * k + c] = source[(b * n + row) * k + c]
                    places[free] = row

            found = threads.collect(n, wanted, keep, "box")
            with threads.alone():
                count[b] = found
            with threads.each(n, "rest", found) as rest:
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
    """Return the intersection over union of the boxes with corners at ``a`` and ``b``."""
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
    """Suppress boxes that overlap a higher-scored one of their class (of any class with ``force_suppress``).

    ``data`` (batch, n, k) has its ``valid_count`` (batch,) boxes in front, ``indices`` (batch, n) their original
    indices. With ``return_indices``, returns the indices of the chosen boxes in order (batch, n), followed by -1, and
    their number (batch, 1); else the boxes in order of score, suppressed ones with score -1 (moved to the end with
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
        boxes_of = workspace(ib, batch, at_least_one(n) * k, data.dtype, "boxes")
        chosen_of = workspace(ib, batch, n, "int32", "chosen")
        with thread_group(ib, batch, n, "b") as threads:
            b = threads.row
            rows = _Ranked(threads, *boxes_of(b), *chosen_of(b), k, score_index, id_index)
            most = ops.minimum(n, top_k) if top_k > 0 else n
            count = ib.let("count", ops.minimum(ops.maximum(ops.cast("int32", counts[b]), 0), most))
            rows.rank(source, ranked, b * n, n, count)
            share = ops.cast(data.dtype, ops.as_expr(threshold))
            rows.suppress(count, ops.as_expr(limit), share, coord_start, force_suppress)
            targets = [ib.buffer_ptr(o) for o in outs]
            if return_indices:
                rows.write_indices(places, targets, b, n)
            else:
                rows.write_boxes(targets[0], b, n, invalid_to_bottom)
        return ib.get()

    if return_indices:
        return te.extern([(batch, n), (batch, 1)], inputs, loops, dtype=["int32", "int32"], name="nms", tag="nms")
    return te.extern([(batch, n, k)], inputs, loops, dtype=[data.dtype], name="nms", tag="nms")


class _Ranked:
    """The boxes of one batch in order of score, with their original indices; -1 marks dropped boxes."""

    def __init__(
        self,
        threads: ThreadGroup,
        boxes: Any,
        begin: Any,
        chosen: Any,
        first: Any,
        width: int,
        score_index: int,
        id_index: int,
    ) -> None:
        self.threads, self.ib = threads, threads.ib
        self.boxes, self.begin, self.chosen, self.first = boxes, begin, chosen, first
        self.width, self.score_index, self.id_index = width, score_index, id_index

    def at(self, row: Any, column: Any) -> Any:
        """Return the flat index of a box's number."""
        return self.begin + row * self.width + column

    def alive(self, row: Any) -> PrimExpr:
        """Return whether a box is not dropped."""
        return self.boxes[self.at(row, self.score_index)] > ops.const(0, self.boxes.dtype)

    def rank(self, source: Any, ranked: Any, base: Any, n: int, count: Any) -> None:
        """Copy the first ``count`` boxes in order of score; the other rows are -1."""
        ib, width = self.ib, self.width
        with self.threads.each(n, "j") as j:
            with ib.if_scope(j < count):
                place = ranked[base + j]
                with ib.for_range(0, width, name="c") as c:
                    self.boxes[self.at(j, c)] = source[(base + place) * width + c]
                self.chosen[self.first + j] = place
            with ib.else_scope():
                with ib.for_range(0, width, name="c") as c:
                    self.boxes[self.at(j, c)] = ops.const(-1, self.boxes.dtype)
                self.chosen[self.first + j] = ops.const(-1, "int32")
        self.threads.sync()

    def suppress(self, count: Any, limit: Any, share: Any, coord_start: int, force: bool) -> None:
        """Drop boxes that overlap a better one by at least ``share``, and those beyond the first ``limit``."""
        ib, threads = self.ib, self.threads
        kept, stays = (ib.allocate("int32", (1,), name=name, scope="local") for name in ("kept", "stays"))
        kept[0] = ops.const(0, "int32")
        with ib.for_range(0, count, name="j") as j:
            below_limit = tir.any(limit < 0, kept[0] < limit)
            stays[0] = ops.cast("int32", tir.all(self.alive(j), below_limit))
            kept[0] = kept[0] + stays[0]
            threads.sync()
            with ib.if_scope(stays[0].equal(1)), threads.each(count, "other", j + 1) as other:
                same = self.alive(other)
                if not force and self.id_index >= 0:
                    kinds = [self.boxes[self.at(row, self.id_index)] for row in (j, other)]
                    same = tir.all(same, kinds[0].equal(kinds[1]))
                found = overlap(self.boxes, self.at(j, coord_start), self.at(other, coord_start))
                with ib.if_scope(tir.all(same, found >= share)):
                    self.drop(other)
            with ib.else_scope(), threads.alone():
                self.drop(j)
            threads.sync()

    def drop(self, row: Any) -> None:
        """Drop a box."""
        self.boxes[self.at(row, self.score_index)] = ops.const(-1, self.boxes.dtype)
        if self.id_index >= 0:
            self.boxes[self.at(row, self.id_index)] = ops.const(-1, self.boxes.dtype)
        self.chosen[self.first + row] = ops.const(-1, "int32")

    def is_chosen(self, row: Any) -> PrimExpr:
        """Return whether a box is chosen."""
        return self.chosen[self.first + row] >= 0

    def write_indices(self, places: Any, targets: list[Any], b: Any, n: int) -> None:
        """Write the indices of the chosen boxes, followed by -1, and their number."""
        ib = self.ib
        indices, count = targets

        def write(j: PrimExpr, chosen: PrimExpr, place: PrimExpr) -> None:
            with ib.if_scope(chosen):
                indices[b * n + place] = ops.cast("int32", places[b * n + self.chosen[self.first + j]])

        found = self.threads.collect(n, self.is_chosen, write, "j")
        with self.threads.alone():
            count[b] = found
        with self.threads.each(n, "rest", found) as rest:
            indices[b * n + rest] = ops.const(-1, "int32")

    def write_boxes(self, target: Any, b: Any, n: int, invalid_to_bottom: bool) -> None:
        """Write the boxes; dropped ones are -1, in place or at the end."""
        ib, width = self.ib, self.width

        def write(j: PrimExpr, chosen: PrimExpr, place: PrimExpr) -> None:
            with ib.if_scope(chosen), ib.for_range(0, width, name="c") as c:
                target[(b * n + place) * width + c] = self.boxes[self.at(j, c)]

        if not invalid_to_bottom:
            with self.threads.each(n * width, "j") as j:
                target[b * (n * width) + j] = self.boxes[self.begin + j]
            return
        found = self.threads.collect(n, self.is_chosen, write, "j")
        with self.threads.each(n * width, "rest", found * width) as rest:
            target[b * (n * width) + rest] = ops.const(-1, self.boxes.dtype)
