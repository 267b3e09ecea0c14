"""``Schedule``: the stages of a computation, and ``create_schedule``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import walk
from tilewright.ir.errors import TilewrightError
from tilewright.ir.notebook import text_html
from tilewright.te.operation import Operation, PlaceholderOp, ScanOp
from tilewright.te.schedule import primitives
from tilewright.te.schedule.stage import AttachType, Stage
from tilewright.te.schedule.text import schedule_lines
from tilewright.te.tensor import Tensor
from tilewright.tir.expr import IterVar


class Schedule:
    """The schedule of a computation: one ``Stage`` for each operation, producers before consumers.

    ``s[T]`` and ``s[T.op]`` are the stage of a tensor; tensors whose operations cache_read, cache_write or rfactor
    replaced still find their stages.
    """

    def __init__(self, outputs: Sequence[Operation]) -> None:
        self.outputs: list[Operation] = list(dict.fromkeys(outputs))
        self.stages: list[Stage] = []
        self.stage_map: dict[Operation, Stage] = {}
        for op in post_order(self.outputs):
            stage = Stage(op, self)
            stage.is_output = op in self.outputs
            self.stages.append(stage)
            self.stage_map[op] = stage
        self.groups: list[Stage] = []
        for stage in self.stages:
            if isinstance(stage.op, ScanOp):
                self._group_scan_body(stage, stage.op)

    def _repr_html_(self) -> str:
        return text_html("Schedule", "\n".join(line.text for line in schedule_lines(self)))

    def _group_scan_body(self, stage: Stage, scan: ScanOp) -> None:
        """Group the operations of a scan's step, and attach the group to the scan's loop."""
        outside = {t.op for t in (*scan.state_placeholder, *scan.inputs)}
        body = post_order([t.op for t in scan.update], outside)
        others = [s.op for s in self.stages if s.op not in body and s.op is not scan]
        read_elsewhere = {t.op for op in others for t in op.input_tensors}  # so these are not of one step
        fixed = set(post_order([op for op in body if op in read_elsewhere], outside))
        body = [op for op in body if op not in fixed or any(op is t.op for t in scan.update)]
        inner = [self.stage_map[op] for op in body if not isinstance(op, PlaceholderOp)]
        group = self._add_group([s for s in inner if s.group is None], None)
        group.attach_type, group.attach_stage = AttachType.SCAN_UPDATE, stage

    def _add_group(self, members: Sequence[Stage], outer: Stage | None) -> Stage:
        group = Stage(None, self)
        group.group = outer
        self.groups.append(group)
        for member in members:
            member.group = group
        return group

    def __getitem__(self, key: Tensor | Operation) -> Stage:
        op = key.op if isinstance(key, Tensor) else key
        stage = self.stage_map.get(op) if isinstance(op, Operation) else None
        if stage is None:
            name = getattr(op, "name", repr(op))
            known = ", ".join(s.op.name for s in self.stages)
            raise TilewrightError(f"{name} is not part of this schedule, whose stages are {known}")
        return stage

    def consumes(self, reader: Operation, read: Operation) -> bool:
        """Return whether ``reader`` reads ``read``, directly or through other operations."""
        return any(op is read for op in post_order([reader]))

    def create_group(self, outputs: Any, inputs: Any, include_inputs: bool = False) -> Stage:
        """Put the operations between ``inputs`` and ``outputs`` into a group, which can be computed at a loop as one.

        args:
            outputs: tensors or operations; what they are computed from is in the group, too, up to the inputs
            inputs: tensors or operations where the group begins
            include_inputs: whether the inputs are in the group themselves
        rewrite (g = create_group(outputs=C, inputs=A); g.compute_at(s[D], i)):
            for i: B[i] = f(A[i])
            for i: C[i] = g(B[i])
            for i: D[i] = h(C[i])
            ->
            for i:
              B[i] = f(A[i])
              C[i] = g(B[i])
              D[i] = h(C[i])
        returns: the group, a stage without loops
        """
        ends, begins = _operations(outputs), set(_operations(inputs))
        inner = post_order(ends, begins)
        if include_inputs:
            inner += [op for op in post_order(ends) if op in begins]
        stages = [self[op] for op in inner]
        if not stages:
            raise TilewrightError("create_group: there are no operations between the inputs and the outputs")
        outer = _common_group(stages)
        members = dict.fromkeys(_directly_in(outer, s) for s in stages)
        for member in members:
            if member.op is None and any(member in s.groups_around() for s in self.stages if s not in stages):
                raise TilewrightError(
                    "create_group: another group has operations inside and outside of the new one; groups are "
                    "disjoint, or one contains the other"
                )
        group = self._add_group(list(members), outer)
        for stage in stages:
            if stage.attach_type is AttachType.SCOPE and group not in stage.attach_stage.groups_around():  # type: ignore[union-attr]
                stage.compute_root()
        return group

    def normalize(self) -> Schedule:
        """Return the schedule with inlined stages written into their consumers and all loops starting at 0; a new
        object.
        """
        return primitives.normalize(self)

    def copy(self) -> Schedule:
        """Return a schedule of the same state, whose stages can be changed independently."""
        return primitives.copy_schedule(self)

    def cache_read(self, tensor: Tensor, scope: str, readers: Any) -> Tensor:
        """Copy ``tensor`` to memory of ``scope``, and let ``readers`` read the copy.

        args:
            tensor: what to copy
            scope: "global", "local", "shared"
            readers: the tensors or operations that are to read the copy
        rewrite:
            for i: B[i] = A[i] + 1
            ->
            for ax0: A.local[ax0] = A[ax0]
            for i: B[i] = A.local[i] + 1
        returns: the copy
        """
        return primitives.cache_read(self, tensor, scope, readers)

    def cache_write(self, tensor: Tensor | Sequence[Tensor], scope: str) -> Any:
        """Compute ``tensor`` in memory of ``scope``, and copy the result.

        args:
            tensor: what to compute there, or the list of all outputs of one operation
            scope: "global", "local", "shared"
        rewrite:
            for i: B[i] = A[i] + 1
            ->
            for i.c: B.local[i.c] = A[i.c] + 1
            for i: B[i] = B.local[i]
        returns: the tensor that holds the computation (a list of them for a list)
        """
        return primitives.cache_write(self, tensor, scope)

    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Any:
        """Make one reduction axis an output axis of a partial result, and reduce that afterwards.

        args:
            tensor: a reduction
            axis: the reduction axis (a leaf of its stage) that becomes data-parallel
            factor_axis: its position among the axes of the partial result
        rewrite (axis = k.inner of k split by 4):
            for i: for k.outer: for k.inner: B[i] += A[i, k.outer*4 + k.inner]
            ->
            for k.inner: for i: for k.outer: B.rf[k.inner, i] += A[i, k.outer*4 + k.inner]
            for i: for k.inner.v: B[i] += B.rf[k.inner.v, i]
        returns: the partial result (a list of tensors for a tuple reduction)
        """
        return primitives.rfactor(self, tensor, axis, factor_axis)


def post_order(roots: Sequence[Operation], stop: Any = ()) -> list[Operation]:
    """Return the operations that ``roots`` read, producers first, excluding those below ``stop``."""
    return walk.post_order(
        [op for op in roots if op not in stop], lambda op: [t.op for t in op.input_tensors if t.op not in stop]
    )


def _operations(items: Any) -> list[Operation]:
    given = list(items) if isinstance(items, (list, tuple)) else [items]
    return [item.op if isinstance(item, Tensor) else item for item in given]


def _common_group(stages: Sequence[Stage]) -> Stage | None:
    """Return the innermost group that contains all the stages, or None."""
    first, *rest = [s.groups_around() for s in stages]
    return next((g for g in first if all(g in groups for groups in rest)), None)


def _directly_in(outer: Stage | None, stage: Stage) -> Stage:
    """Return the stage, or the group around it, that is directly in ``outer``."""
    return next(s for s in (stage, *stage.groups_around()) if s.group is outer)


def create_schedule(ops: Operation | Tensor | Sequence[Operation | Tensor]) -> Schedule:
    """Create the default schedule of the outputs: every operation computed whole, before its consumers."""
    given: list[Any] = list(ops) if isinstance(ops, (list, tuple)) else [ops]
    for item in given:
        if not isinstance(item, (Operation, Tensor)):
            raise TilewrightError(f"create_schedule takes operations (T.op), got {type(item).__name__}")
    return Schedule([item.op if isinstance(item, Tensor) else item for item in given])
