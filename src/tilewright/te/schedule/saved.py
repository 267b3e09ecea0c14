"""Schedules as nodes that do not change, with the fields of TVM's: the form in which ``ir.save_json`` writes them.

A schedule and its stages change while primitives are applied, and stages know their schedule. The records here hold
the same, without the way back: ``save`` makes them, ``restore`` makes a schedule of them again.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.json import register_record
from tilewright.ir.node import Node
from tilewright.te.schedule.schedule import Schedule
from tilewright.te.schedule.stage import (
    Ahead,
    AttachType,
    Fuse,
    IterVarAttr,
    Rebase,
    Relation,
    Singleton,
    Split,
    Stage,
)
from tilewright.tir.expr import IterVar, IterVarType


class SplitRecord(Node):
    """``stage.Split``."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: Any = None
    nparts: Any = None


class FuseRecord(Node):
    """``stage.Fuse``."""

    outer: IterVar
    inner: IterVar
    fused: IterVar


class RebaseRecord(Node):
    """``stage.Rebase``."""

    parent: IterVar
    rebased: IterVar


class SingletonRecord(Node):
    """``stage.Singleton``."""

    iter: IterVar


class IterVarAttrRecord(Node):
    """``stage.IterVarAttr``."""

    iter_type: int
    bind_thread: IterVar | None
    prefetch_data: tuple[Any, ...]
    prefetch_offset: tuple[Any, ...]
    tensor_intrin: Any
    dim_align_factor: int
    dim_align_offset: int
    pragma_keys: tuple[Any, ...]
    pragma_values: tuple[Any, ...]


class StageRecord(Node):
    """``stage.Stage``; ``group`` and ``attach_stage`` are records too."""

    op: Any
    origin_op: Any
    all_iter_vars: tuple[IterVar, ...]
    leaf_iter_vars: tuple[IterVar, ...]
    env_threads: tuple[IterVar, ...]
    relations: tuple[Node, ...]
    iter_var_attrs: dict[IterVar, IterVarAttrRecord]
    attach_type: int
    attach_ivar: IterVar | None
    attach_stage: StageRecord | None
    scope: str
    is_output: bool
    double_buffer: bool
    group: StageRecord | None
    num_child_stages: int
    store_predicate: Any = None


class ScheduleRecord(Node):
    """``schedule.Schedule``."""

    outputs: tuple[Any, ...]
    stages: tuple[StageRecord, ...]
    groups: tuple[StageRecord, ...]
    stage_map: dict[Any, StageRecord]


_RELATIONS: tuple[tuple[type[Relation], type[Node]], ...] = (
    (Split, SplitRecord), (Fuse, FuseRecord), (Rebase, RebaseRecord), (Singleton, SingletonRecord),
)  # fmt: skip


def restore(record: ScheduleRecord) -> Schedule:
    """Return the schedule of a record, with stages and groups of its own."""
    result = Schedule(record.outputs)
    made = {one: Stage(one.op, result) for one in (*record.stages, *record.groups)}
    for one, stage in made.items():
        _fill(stage, one, made)
    result.stages = [made[one] for one in record.stages]
    result.groups = [made[one] for one in record.groups]
    result.stage_map = {op: made[one] for op, one in record.stage_map.items()}
    return result


def _fill(stage: Stage, record: StageRecord, made: dict[StageRecord, Stage]) -> None:
    stage.origin_op = record.origin_op
    stage.all_iter_vars, stage.leaf_iter_vars = list(record.all_iter_vars), list(record.leaf_iter_vars)
    stage.env_thread_axes = list(record.env_threads)
    stage.relations = [_relation(r) for r in record.relations]
    stage.iter_var_attrs = {axis: _annotations(a) for axis, a in record.iter_var_attrs.items()}
    stage.attach_type, stage.attach_ivar = AttachType(record.attach_type), record.attach_ivar
    stage.attach_stage = None if record.attach_stage is None else made[record.attach_stage]
    stage.group = None if record.group is None else made[record.group]
    stage.scope, stage.store_predicate = record.scope, record.store_predicate
    stage.is_output, stage.is_double_buffered = record.is_output, record.double_buffer


def _relation(record: Node) -> Relation:
    kind = next(kind for kind, cls in _RELATIONS if isinstance(record, cls))
    made: Relation = kind(*(getattr(record, name) for name in record._fields))
    return made


def _annotations(record: IterVarAttrRecord) -> IterVarAttr:
    prefetch = zip(record.prefetch_data, record.prefetch_offset, strict=True)
    return IterVarAttr(
        iter_type=IterVarType(record.iter_type),
        bind_thread=record.bind_thread,
        prefetch=[Ahead(tensor, offset, None, stream=False) for tensor, offset in prefetch],
        tensor_intrin=record.tensor_intrin,
        dim_align_factor=record.dim_align_factor,
        dim_align_offset=record.dim_align_offset,
        pragmas=[(key.value, value) for key, value in zip(record.pragma_keys, record.pragma_values, strict=True)],
    )


def save(schedule: Schedule) -> ScheduleRecord:
    """Return a schedule as a node that does not change with it.

    Raises:
        TilewrightError: a prefetch is spread over another loop or streams, for which TVM's form has no field.
    """
    made: dict[Stage, StageRecord] = {}
    waiting = [*reversed(schedule.groups), *schedule.stages]
    while waiting:
        stage = waiting[-1]
        before = [s for s in (stage.attach_stage, stage.group) if s is not None and s not in made]
        waiting += before
        if not before:
            waiting.pop()
            made[stage] = made.get(stage) or _stage_record(stage, made)
    stages, groups = (tuple(made[s] for s in found) for found in (schedule.stages, schedule.groups))
    stage_map = {op: made[stage] for op, stage in schedule.stage_map.items()}
    return ScheduleRecord(tuple(schedule.outputs), stages, groups, stage_map)


def _stage_record(stage: Stage, made: dict[Stage, StageRecord]) -> StageRecord:
    relations = [
        cls(*(getattr(relation, name) for name in cls._fields))
        for relation in stage.relations for kind, cls in _RELATIONS if isinstance(relation, kind)
    ]  # fmt: skip
    return StageRecord(
        op=stage.op,
        origin_op=stage.origin_op,
        all_iter_vars=tuple(stage.all_iter_vars),
        leaf_iter_vars=tuple(stage.leaf_iter_vars),
        env_threads=tuple(stage.env_thread_axes),
        relations=tuple(relations),
        iter_var_attrs={axis: _attr_record(stage, attr) for axis, attr in stage.iter_var_attrs.items()},
        attach_type=int(stage.attach_type),
        attach_ivar=stage.attach_ivar,
        attach_stage=None if stage.attach_stage is None else made[stage.attach_stage],
        scope=stage.scope,
        is_output=stage.is_output,
        double_buffer=stage.is_double_buffered,
        group=None if stage.group is None else made[stage.group],
        num_child_stages=stage.num_child_stages,
        store_predicate=stage.store_predicate,
    )


def _attr_record(stage: Stage, attr: IterVarAttr) -> IterVarAttrRecord:
    if any(ahead.loop is not None or ahead.stream for ahead in attr.prefetch):
        raise TilewrightError(
            f"stage {stage.name}: a prefetch over another loop, or of a stream, cannot be written as JSON; "
            "apply it after the schedule is loaded"
        )
    return IterVarAttrRecord(
        iter_type=int(attr.iter_type),
        bind_thread=attr.bind_thread,
        prefetch_data=tuple(ahead.tensor for ahead in attr.prefetch),
        prefetch_offset=tuple(ahead.offset for ahead in attr.prefetch),
        tensor_intrin=attr.tensor_intrin,
        dim_align_factor=attr.dim_align_factor,
        dim_align_offset=attr.dim_align_offset,
        pragma_keys=attr.pragma_keys,
        pragma_values=attr.pragma_values,
    )


register_record(Schedule, ScheduleRecord, save, restore)
