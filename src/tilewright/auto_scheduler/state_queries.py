"""Queries of the rules on a state: readers, changes of a stage, and other places to compute it."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from tilewright.auto_scheduler.access_analysis import NO_SPLIT_AT_INNER, AccessAnalyzer
from tilewright.auto_scheduler.loop_nest import (
    COMPUTE,
    INLINED,
    ITER,
    NONE,
    PARALLEL,
    REDUCTION,
    ROOT,
    SPATIAL,
    THREAD_X,
    UNROLL,
    Iterator,
    LoopKey,
    Stage,
    StateObject,
)
from tilewright.auto_scheduler.stage_steps import (
    CacheReadStep,
    CacheWriteStep,
    RfactorStep,
    StageAddingStep,
)
from tilewright.auto_scheduler.task import TaskRecord
from tilewright.auto_scheduler.transform_step import SplitStep, Step
from tilewright.te.operation import Operation


def is_gpu(task: TaskRecord) -> bool:
    """Return whether the task's programs run in blocks of threads."""
    return task.target.kind.capabilities.threads


def is_mali(task: TaskRecord) -> bool:
    """Return whether the task's target is a Mali GPU, whose memory is one."""
    return bool(task.target.attrs.get("device") == "mali")


def analysis(task: TaskRecord, state: StateObject) -> AccessAnalyzer:
    """The accesses of the computation as the state's steps left it."""
    dag: Any = state.current_compute_dag or task.compute_dag
    found: AccessAnalyzer = dag.access_analyzer
    return found


def _ids(state: StateObject, ops: Iterable[Operation]) -> list[int]:
    wanted = set(ops)
    return [i for i, stage in enumerate(state.stages) if stage.op in wanted]


def _inlined(state: StateObject) -> list[Operation]:
    return [s.op for s in state.stages if s.compute_at == INLINED]


def consumers(task: TaskRecord, state: StateObject, stage_id: int) -> list[int]:
    """The stages that read a stage, through inlined ones."""
    return _ids(state, analysis(task, state).consumers(state.stages[stage_id].op, _inlined(state)))


def producers(task: TaskRecord, state: StateObject, stage_id: int) -> list[int]:
    """The stages that a stage reads, through inlined ones."""
    return _ids(state, analysis(task, state).producers(state.stages[stage_id].op, _inlined(state)))


def direct_producers(task: TaskRecord, state: StateObject, stage_id: int) -> list[int]:
    """The stages that a stage's own expressions read."""
    return _ids(state, analysis(task, state).read_from[state.stages[stage_id].op])


def single_consumer(task: TaskRecord, state: StateObject, stage_id: int) -> int | None:
    """Return the only reader of a stage, or the one to which all its readers are attached, if there is one."""
    found = consumers(task, state, stage_id)
    if len(found) == 1:
        return found[0]
    chains = [_around(state, c) for c in found]
    return next((s for s in chains[0] if all(s in chain for chain in chains)), None) if chains else None


def _around(state: StateObject, stage_id: int) -> list[int]:
    """A stage, the stage that it is computed inside, the one that this is computed inside, ..."""
    chain = [stage_id]
    while chain[-1] in state.attach_map.stage_to_attach_iter:
        chain.append(state.attach_map.stage_to_attach_iter[chain[-1]][0])
    return chain


def places_hold(task: TaskRecord, state: StateObject) -> bool:
    """Return whether all that reads a stage which is computed inside a loop is inside that loop, too."""
    attached = state.attach_map.stage_to_attach_iter
    for stage_id, (target, position) in attached.items():
        for reader in consumers(task, state, stage_id):
            while reader != target:
                if reader not in attached:
                    return False
                reader, inside = attached[reader]
                if reader == target and inside < position:
                    return False
    return True


def needs_tiling(task: TaskRecord, state: StateObject, stage_id: int) -> bool:
    """Return whether a stage reads its inputs again and again."""
    return analysis(task, state).tiled[state.stages[stage_id].op]


def is_output(task: TaskRecord, state: StateObject, stage_id: int) -> bool:
    """Return whether a stage is a result of the computation."""
    return state.stages[stage_id].op in analysis(task, state).outputs


def is_inlineable(task: TaskRecord, state: StateObject, stage_id: int) -> bool:
    """Return whether inlining a stage always pays."""
    return analysis(task, state).inlineable[state.stages[stage_id].op]


def matched_consumer(task: TaskRecord, state: StateObject, stage_id: int) -> int | None:
    """Return the only reader of a stage, if it reads element by element and may be fused with it."""
    found = consumers(task, state, stage_id)
    if len(found) != 1:
        return None
    stage, target = state.stages[stage_id], state.stages[found[0]]
    if stage.has_reduction and target.has_reduction:
        return None
    matches = analysis(task, state).elementwise_match(stage.op, target.op)
    return found[0] if matches and not target.op.name.endswith(".shared") else None


def common_outer(task: TaskRecord, state: StateObject, stage_id: int, target: int) -> int:
    """Return how many outermost axes a stage and one that reads it have in common."""
    return analysis(task, state).num_common_outer(state.stages[stage_id].op, state.stages[target].op)


def space_and_reduction(stage: Stage) -> tuple[int, int]:
    """Iterations of all spatial loops, and of all reduction loops."""
    return (
        prod(it.extent for it in stage.iters if it.iter_kind == SPATIAL),
        prod(it.extent for it in stage.iters if it.iter_kind == REDUCTION),
    )


def needs_rfactor(task: TaskRecord, state: StateObject, stage_id: int) -> bool:
    """Return whether a stage has more work in its reductions than cores could share by its other loops."""
    stage = state.stages[stage_id]
    if stage.op_type != COMPUTE:
        return False
    space, reduced = space_and_reduction(stage)
    cores = task.hardware_params.num_cores
    if needs_tiling(task, state, stage_id):
        return not (space > reduced or space > cores * 16)
    return reduced > 1 and reduced > cores


def _was_changed(state: StateObject, stage_id: int, kind: type[Step]) -> bool:
    """Return whether a step of a kind worked on a stage, whose number changed with the stages added since."""
    for step in reversed(state.transform_steps):
        if isinstance(step, kind) and step.stage_id == stage_id:
            return True
        if isinstance(step, StageAddingStep) and stage_id > step.stage_id:
            stage_id -= 1
    return False


def has_cache_read(state: StateObject, stage_id: int) -> bool:
    """Return whether a stage is read through a copy."""
    return _was_changed(state, stage_id, CacheReadStep)


def has_cache_write(state: StateObject, stage_id: int) -> bool:
    """Return whether a stage is the computing half of a ``cache_write``."""
    return _was_changed(state, stage_id, CacheWriteStep)


def has_rfactor(state: StateObject, stage_id: int) -> bool:
    """Return whether a stage is the partial result of an ``rfactor``."""
    return _was_changed(state, stage_id, RfactorStep)


def has_cross_thread_reduction(state: StateObject, stage_id: int) -> bool:
    """Return whether threads share a reduction of a stage, or of one computed inside it."""
    inside = [s for i in range(len(state.stages[stage_id].iters)) for s in state.attached_at(stage_id, i)]
    return any(
        it.annotation == THREAD_X and it.iter_kind == REDUCTION
        for s in (stage_id, *inside)
        for it in state.stages[s].iters
    )


def split_steps_of(state: StateObject, stage_id: int) -> list[int]:
    """The numbers of the split steps of a stage, the last first."""
    found: list[int] = []
    for number in reversed(range(len(state.transform_steps))):
        step = state.transform_steps[number]
        if isinstance(step, SplitStep) and step.stage_id == stage_id:
            found.append(number)
        if isinstance(step, StageAddingStep) and stage_id > step.stage_id:
            stage_id -= 1
    return found


def spatial_split_steps(state: StateObject, stage_id: int) -> list[int]:
    """The numbers of the steps that split a stage's spatial loops, which come before those of its reductions."""
    op = state.stages[stage_id].op
    kept = names_in(op, NO_SPLIT_AT_INNER)
    reductions = sum(iv.var.name not in kept for iv in op.reduce_axis)
    return split_steps_of(state, stage_id)[reductions:]


def stage_of_step(state: StateObject, number: int) -> int:
    """The stage that a step worked on, by its number now."""
    stage_id = state.transform_steps[number].stage_id
    for step in state.transform_steps[number + 1 :]:
        if isinstance(step, StageAddingStep) and step.stage_id <= stage_id:
            stage_id += 1
    return int(stage_id)


def names_in(op: Operation, key: str) -> frozenset[str]:
    """The names of axes that an attribute of an operation lists."""
    return frozenset(str(getattr(n, "value", n)) for n in op.attrs.get(key, ()))


def original_names(name: str) -> set[str]:
    """The axes that a loop's name speaks of: ``i.0@j.0@`` of i and j."""
    parts = name.replace("@", ".").split(".")
    return {part for part in parts if part and not part[0].isdigit()}


def compute_locations(task: TaskRecord, state: StateObject, stage_id: int) -> list[LoopKey]:
    """Return the loops to which a stage could be attached: of its only reader, and of that one's attachments."""
    target = single_consumer(task, state, stage_id)
    if target is None:
        return []
    stage = state.stages[target]
    inside_other = stage.compute_at == ITER
    found = _locations_in_reader(state, target, inside_other)
    if inside_other:
        outer = state.attach_map.stage_to_attach_iter[target][0]
        for i, it in enumerate(state.stages[outer].iters):
            if it.iter_kind == REDUCTION or it.annotation == UNROLL:
                break
            if it.extent != 1:
                found.append((outer, i))
            if state.attached_at(outer, i):
                break
    return found


def _locations_in_reader(state: StateObject, target: int, inside_other: bool) -> list[LoopKey]:
    stage = state.stages[target]
    found: list[LoopKey] = []
    reduced = False
    for i, it in enumerate(stage.iters):
        if it.iter_kind == REDUCTION:
            reduced = True
            if not stage.is_tiled:
                break
        elif it.iter_kind == SPATIAL and reduced:
            break
        if it.annotation == UNROLL:
            break
        first_level = inside_other and it.iter_kind == SPATIAL and it.name.endswith(".0")
        if it.extent == 1 or first_level:
            continue
        found.append((target, i))
        if state.attached_at(target, i):
            break
    return found


def has_nested_parallel(state: StateObject) -> bool:
    """Return whether a parallel loop stands inside another, which threads of a CPU cannot run."""

    def count(stage_id: int) -> int:
        stage = state.stages[stage_id]
        if stage.compute_at == INLINED:
            return 0
        own = sum(it.annotation == PARALLEL for it in stage.iters)
        return own + sum(count(s) for i in range(len(stage.iters)) for s in state.attached_at(stage_id, i))

    return any(s.compute_at == ROOT and count(i) >= 2 for i, s in enumerate(state.stages))


def last_of_outer_reduction(stage: Stage) -> Iterator:
    """Return the last reduction loop of the outermost tile, after which every reduction axis has been split once."""
    kept = names_in(stage.op, NO_SPLIT_AT_INNER)
    wanted = sum(iv.var.name not in kept for iv in stage.op.reduce_axis)
    names: set[str] = set()
    for it in stage.iters:
        if it.iter_kind == REDUCTION:
            names |= original_names(it.name)
            if len(names) >= wanted:
                return it
    raise AssertionError(f"{stage.op.name} has no reduction")


def outer_space(state: StateObject, stage_id: int) -> list[Iterator]:
    """The outermost loops that run over space, are free, and have nothing computed between them."""
    found: list[Iterator] = []
    for i, it in enumerate(state.stages[stage_id].iters):
        if it.iter_kind == REDUCTION or it.annotation != NONE or (i and state.attached_at(stage_id, i - 1)):
            break
        found.append(it)
    return found
