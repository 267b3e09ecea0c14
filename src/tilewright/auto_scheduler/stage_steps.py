"""Steps that work on several stages: attaching a stage, inlining, and adding stages.

::

    step ::= CA stage target loop | CI stage | CR stage
           | CHR stage scope [reader*] | CHW stage scope | RF stage loop position

``cache_read``, ``cache_write`` and ``rfactor`` add a stage, so that stages behind it count one more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tilewright.auto_scheduler.loop_nest import INLINED, ITER, ROOT, Stage, StateObject, clean_name
from tilewright.auto_scheduler.transform_step import (
    AnnotationStep,
    FollowFusedSplitStep,
    FollowSplitStep,
    FuseStep,
    PragmaStep,
    ReorderStep,
    Replay,
    SplitStep,
    Step,
    StorageAlignStep,
)
from tilewright.ir.errors import TilewrightError
from tilewright.te.operation import Operation


@dataclass(frozen=True, slots=True)
class ComputeAtStep(Step):
    """Compute a stage inside a loop of another."""

    prefix: ClassVar[str] = "CA"
    target_stage_id: int
    target_iter_id: int

    def record(self) -> list[Any]:
        return [self.prefix, self.stage_id, self.target_stage_id, self.target_iter_id]

    def apply(self, state: StateObject, dag: Any) -> tuple[StateObject, None]:
        stage = state.stages[self.stage_id]
        iters = tuple(it.with_range(None) for it in stage.iters)
        state = state.with_stage(self.stage_id, replace(stage, iters=iters, compute_at=ITER))
        attached = state.attach_map.attach(self.stage_id, (self.target_stage_id, self.target_iter_id))
        return replace(state, attach_map=attached), None

    def schedule(self, replay: Replay) -> None:
        target = replay.stages[self.target_stage_id]
        replay.stages[self.stage_id].compute_at(target, replay.axes[target][self.target_iter_id])

    def python(self, replay: Replay) -> str:
        name, target = replay.stage_name(self.stage_id), replay.stage_name(self.target_stage_id)
        axis = replay.axis_name(self.target_stage_id, self.target_iter_id)
        self.schedule(replay)
        return f"s[{name}].compute_at(s[{target}], {axis})\n"


@dataclass(frozen=True, slots=True)
class ComputeInlineStep(Step):
    """Inline the values of a stage into its readers."""

    prefix: ClassVar[str] = "CI"

    def record(self) -> list[Any]:
        return [self.prefix, self.stage_id]

    def apply(self, state: StateObject, dag: Any) -> tuple[StateObject, None]:
        stage = state.stages[self.stage_id]
        if any(state.attached_at(self.stage_id, i) for i in range(len(stage.iters))):
            raise TilewrightError(f"{stage.op.name} cannot be inlined: other stages are computed inside its loops")
        state = state.with_stage(self.stage_id, replace(stage, compute_at=INLINED))
        return replace(state, attach_map=state.attach_map.detach(self.stage_id)), None

    def schedule(self, replay: Replay) -> None:
        replay.stages[self.stage_id].compute_inline()

    def python(self, replay: Replay) -> str:
        self.schedule(replay)
        return f"s[{replay.stage_name(self.stage_id)}].compute_inline()\n"


@dataclass(frozen=True, slots=True)
class ComputeRootStep(Step):
    """Compute the whole of a stage before its readers."""

    prefix: ClassVar[str] = "CR"

    def record(self) -> list[Any]:
        return [self.prefix, self.stage_id]

    def apply(self, state: StateObject, dag: Any) -> tuple[StateObject, None]:
        stage = state.stages[self.stage_id]
        iters = tuple(it.with_range(None) for it in stage.iters)
        state = state.with_stage(self.stage_id, replace(stage, iters=iters, compute_at=ROOT))
        return replace(state, attach_map=state.attach_map.detach(self.stage_id)), None

    def schedule(self, replay: Replay) -> None:
        replay.stages[self.stage_id].compute_root()

    def python(self, replay: Replay) -> str:
        self.schedule(replay)
        return f"s[{replay.stage_name(self.stage_id)}].compute_root()\n"


class StageAddingStep(Step):
    """A step that adds a stage."""

    __slots__ = ()

    def added(self, state: StateObject, dag: Any) -> tuple[Any, tuple[Operation, ...]]:
        """The operations after this step: those of the initial DAG after the steps of this kind so far."""
        grown = dag.replay(stage_adding_steps([*state.transform_steps, self]))
        return grown, grown.ops


def stage_adding_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps that add stages, and before an rfactor the split and fusion that made its loop."""
    kept: list[Step] = []
    for i, step in enumerate(steps):
        if isinstance(step, RfactorStep):
            if i >= 2 and isinstance(steps[i - 2], FuseStep) and steps[i - 2].stage_id == step.stage_id:
                kept.append(steps[i - 2])
            if i < 1 or not isinstance(steps[i - 1], SplitStep) or steps[i - 1].stage_id != step.stage_id:
                raise TilewrightError("an rfactor follows the split of its stage that made its loop")
            kept.append(steps[i - 1])
        if isinstance(step, StageAddingStep):
            kept.append(step)
    return tuple(kept)


def _with_ops(stages: Sequence[Stage], ops: Sequence[Operation]) -> list[Stage]:
    return [s if s.op is op else replace(s, op=op) for s, op in zip(stages, ops, strict=True)]


@dataclass(frozen=True, slots=True)
class CacheReadStep(StageAddingStep):
    """Let the readers read a copy of a stage in memory of ``scope_name``; the copy follows the stage."""

    prefix: ClassVar[str] = "CHR"
    scope_name: str
    reader_stage_ids: tuple[int, ...]

    def record(self) -> list[Any]:
        return [self.prefix, self.stage_id, self.scope_name, list(self.reader_stage_ids)]

    def apply(self, state: StateObject, dag: Any) -> tuple[StateObject, int]:
        grown, ops = self.added(state, dag)
        new = self.stage_id + 1
        stages = [*state.stages[:new], Stage.of(ops[new]), *state.stages[new:]]
        return _grown(state, stages, grown, new), new

    def schedule(self, replay: Replay) -> Any:
        stage = replay.stages[self.stage_id]
        readers = [replay.stages[i].op for i in self.reader_stage_ids]
        copy = replay.schedule.cache_read(stage.op.output(0), self.scope_name, readers)
        replay.stages.insert(self.stage_id + 1, replay.schedule[copy])
        replay.reset_axes(replay.schedule[copy])
        return copy

    def python(self, replay: Replay) -> str:
        source = replay.stage_name(self.stage_id)
        readers = ", ".join(replay.stage_name(i) for i in self.reader_stage_ids)
        copy = clean_name(self.schedule(replay).op.name)
        text = f'{copy} = s.cache_read({source}, "{self.scope_name}", [{readers}])\n'
        return text + f"{axis_names(replay, self.stage_id + 1)} = tuple({copy}.op.axis)\n"


@dataclass(frozen=True, slots=True)
class CacheWriteStep(StageAddingStep):
    """Compute a stage in memory of ``scope_name`` and copy the result; the new stage precedes the stage."""

    prefix: ClassVar[str] = "CHW"
    scope_name: str

    def record(self) -> list[Any]:
        return [self.prefix, self.stage_id, self.scope_name]

    def apply(self, state: StateObject, dag: Any) -> tuple[StateObject, int]:
        grown, ops = self.added(state, dag)
        first = self.stage_id
        stages = [*state.stages[:first], Stage.of(ops[first]), Stage.of(ops[first + 1]), *state.stages[first + 1 :]]
        return _grown(state, stages, grown, first), first

    def schedule(self, replay: Replay) -> list[Any]:
        stage = replay.stages[self.stage_id]
        made = replay.schedule.cache_write(list(stage.op.outputs), self.scope_name)
        replay.stages.insert(self.stage_id, replay.schedule[made[0]])
        replay.reset_axes(stage)
        replay.reset_axes(replay.schedule[made[0]])
        return list(made)

    def python(self, replay: Replay) -> str:
        stage = replay.stages[self.stage_id]
        given = ", ".join([replay.stage_name(self.stage_id)] * stage.op.num_outputs)
        made = [clean_name(t.op.name) for t in self.schedule(replay)]
        text = f'{"".join(f"{m}, " for m in made)}= s.cache_write([{given}], "{self.scope_name}")\n'
        axes = axis_names(replay, self.stage_id)
        return text + "".join(f"{axes} = tuple({m}.op.axis) + tuple({m}.op.reduce_axis)\n" for m in made)


@dataclass(frozen=True, slots=True)
class RfactorStep(StageAddingStep):
    """Make a reduction loop an axis, at ``factor_iter_id``, of a partial result that precedes the stage."""

    prefix: ClassVar[str] = "RF"
    iter_id: int
    factor_iter_id: int

    def record(self) -> list[Any]:
        return [self.prefix, self.stage_id, self.iter_id, self.factor_iter_id]

    def apply(self, state: StateObject, dag: Any) -> tuple[StateObject, int]:
        grown, ops = self.added(state, dag)
        first = self.stage_id
        final = replace(Stage.of(ops[first + 1]), compute_at=state.stages[first].compute_at)
        stages = [*state.stages[:first], Stage.of(ops[first]), final, *state.stages[first + 1 :]]
        return _grown(state, stages, grown, first), first

    def schedule(self, replay: Replay) -> list[Any]:
        stage = replay.stages[self.stage_id]
        axis = replay.axes[stage][self.iter_id]
        made = replay.schedule.rfactor(stage.op.output(0), axis, self.factor_iter_id)
        tensors = made if isinstance(made, list) else [made]
        replay.stages.insert(self.stage_id, replay.schedule[tensors[0]])
        replay.reset_axes(stage)
        replay.reset_axes(replay.schedule[tensors[0]])
        return tensors

    def python(self, replay: Replay) -> str:
        name, axis = replay.stage_name(self.stage_id), replay.axis_name(self.stage_id, self.iter_id)
        made = [clean_name(t.op.name) for t in self.schedule(replay)]
        text = f"{', '.join(made)} = s.rfactor({name}, {axis}, {self.factor_iter_id})\n"
        axes = axis_names(replay, self.stage_id)
        text += "".join(f"{axes} = tuple({m}.op.axis) + tuple({m}.op.reduce_axis)\n" for m in made)
        axes = axis_names(replay, self.stage_id + 1)
        return text + f"{axes} = tuple(s[{name}].op.axis) + tuple(s[{name}].op.reduce_axis)\n"


def _grown(state: StateObject, stages: Sequence[Stage], grown: Any, new: int) -> StateObject:
    attached = state.attach_map.insert_stage(new)
    stages = _with_ops(stages, grown.ops)
    return replace(state, stages=tuple(stages), attach_map=attached, current_compute_dag=grown)


def axis_names(replay: Replay, stage_id: int) -> str:
    """The names of all loops of a stage in printed Python."""
    return ", ".join(replay.axis_name(stage_id, i) for i in range(len(replay.axes[replay.stages[stage_id]])))


_KINDS: dict[str, Any] = {
    kind.prefix: kind
    for kind in (
        AnnotationStep, FuseStep, PragmaStep, ReorderStep, SplitStep, FollowSplitStep, FollowFusedSplitStep,
        StorageAlignStep, ComputeAtStep, ComputeInlineStep, ComputeRootStep, CacheReadStep, CacheWriteStep, RfactorStep,
    )
}  # fmt: skip


def step_from_record(record: Sequence[Any]) -> Step:
    """Convert a record's list to a step."""
    kind = _KINDS.get(record[0])
    if kind is None:
        raise TilewrightError(f"a record has the step {record[0]!r}; known are {', '.join(_KINDS)}")
    values: list[Any] = [tuple(v) if isinstance(v, list) else v for v in record[1:]]
    if kind is SplitStep:
        stage_id, iter_id, extent, lengths, inner_to_outer = values
        return SplitStep(stage_id, iter_id, extent or None, lengths, bool(inner_to_outer))
    if kind is FollowFusedSplitStep:
        values[-1] = bool(values[-1])
    return kind(*values)


def apply_step(state: StateObject, step: Step, dag: Any) -> tuple[StateObject, Any]:
    """Apply a step and record it in the state; return the state, and the step's result."""
    made, result = step.apply(state, dag)
    return made.with_step(step), result


def is_stage_adding(step: Step) -> bool:
    """Return whether a step changes the numbers of stages."""
    return isinstance(step, StageAddingStep)


def replayed(state: StateObject, steps: Sequence[Step], dag: Any) -> StateObject:
    """Return ``state`` after more steps."""
    for step in steps:
        state, _ = apply_step(state, step, dag)
    return state
