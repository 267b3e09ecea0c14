"""A schedule in words: its stages, their loops, and where each is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tilewright.ir.prim_expr import IntImm
from tilewright.te.schedule.stage import AttachType, Fuse, Split, Stage
from tilewright.tir.expr import IterVar, IterVarType

if TYPE_CHECKING:
    from tilewright.te.schedule.schedule import Schedule

_KINDS = {
    IterVarType.CommReduce: "reduction", IterVarType.Unrolled: "unrolled", IterVarType.Vectorized: "vectorized",
    IterVarType.Parallelized: "parallel", IterVarType.Tensorized: "tensorized", IterVarType.ThreadIndex: "thread",
}  # fmt: skip


class ScheduleLine(NamedTuple):
    """A line of the text, and the name of the loop that it is about, or ""."""

    text: str
    loop: str = ""


def schedule_lines(schedule: Schedule) -> list[ScheduleLine]:
    """Return the text of a schedule; stages without loops of their own, inputs and inlined ones, take a line each."""
    lines = []
    for stage in schedule.stages:
        where = attachment(stage)
        if not stage.leaf_iter_vars or stage.attach_type is AttachType.INLINE:
            lines.append(ScheduleLine(f"{stage.name}: {where or 'input'}"))
            continue
        lines.append(ScheduleLine(f"{stage.name}:{' ' + where if where else ''}"))
        lines += [ScheduleLine(f"  {text}") for relation in stage.relations if (text := _relation(relation))]
        for depth, axis in enumerate(stage.leaf_iter_vars, 1):
            lines.append(ScheduleLine(f"{'  ' * depth}for {axis_text(stage, axis)}", axis.var.name))
    return lines


def attachment(stage: Stage) -> str:
    """Return where a stage is computed; "" for the outermost level."""
    spec = stage.attach_spec
    if spec.attach_type is AttachType.INLINE:
        return "inlined"
    if spec.attach_type is AttachType.SCOPE and spec.attach_stage is not None and spec.attach_ivar is not None:
        return f"computed at {spec.attach_stage.name}, {spec.attach_ivar.var.name}"
    return f"in {stage.scope} memory" if stage.scope else ""


def axis_text(stage: Stage, axis: IterVar) -> str:
    """Return a loop in words: its name, extent where known, and what becomes of it."""
    attr = stage.iter_var_attrs.get(axis)
    kind = _KINDS.get(attr.iter_type if attr is not None else axis.iter_type) or _KINDS.get(axis.iter_type, "")
    extent = axis.dom.extent if axis.dom is not None else None
    size = f" < {extent.value}" if isinstance(extent, IntImm) else ""
    marks = [kind] if kind else []
    if attr is not None and attr.bind_thread is not None:
        marks.append(f"bound to {attr.bind_thread.thread_tag or attr.bind_thread.var.name}")
    if attr is not None:
        marks += [key for key, _ in attr.pragmas]
    return f"{axis.var.name}{size}{' (' + ', '.join(marks) + ')' if marks else ''}"


def _relation(relation: object) -> str:
    if isinstance(relation, Split):
        parts = f"factor {relation.factor}" if relation.factor is not None else f"{relation.nparts} parts"
        return f"split {relation.parent.var.name} to {relation.outer.var.name}, {relation.inner.var.name} ({parts})"
    if isinstance(relation, Fuse):
        return f"fuse {relation.outer.var.name}, {relation.inner.var.name} to {relation.fused.var.name}"
    return ""
