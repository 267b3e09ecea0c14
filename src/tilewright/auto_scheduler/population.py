"""Random completion of a sketch to a program: tile sizes, places, threads, unrolling and vectors.

Each rule takes a state and returns a state, or None if the draw is no valid program.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilewright.auto_scheduler import state_queries as ask
from tilewright.auto_scheduler.access_analysis import ALWAYS_UNROLL_INNER
from tilewright.auto_scheduler.factorization import factors_of, sample_lengths
from tilewright.auto_scheduler.layout_rewrite import LayoutRewriteOption
from tilewright.auto_scheduler.loop_bounds import LoopBounds
from tilewright.auto_scheduler.loop_nest import (
    INLINED,
    NONE,
    PLACEHOLDER,
    REDUCTION,
    ROOT,
    VECTORIZE,
    Stage,
    StateObject,
)
from tilewright.auto_scheduler.loop_state import State
from tilewright.auto_scheduler.register_tiles import fill_register_tiles, vector_lanes
from tilewright.auto_scheduler.stage_steps import replayed
from tilewright.auto_scheduler.transform_step import SplitStep, Step
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import Call
from tilewright.te.operation import ComputeOp

PopulationRule = Callable[[Any, StateObject, random.Random], StateObject | None]

_LANES_IN_PARTS = (16, 32, 64)

_SHORT = 4096  # iterations, in vectors, that take a microsecond

_MOST_REPEATED = 1.3  # times that a stage inside another may be computed, in the mean

_LONGEST_CODE = 1024  # operations on registers that a stage is written out to: LLVM took three minutes for 2,880

UNROLL_STEPS_CPU = (0, 16, 64, 512)
UNROLL_STEPS_GPU = (0, 16, 64, 512, 1024)


def unroll_steps(policy: Any) -> Sequence[int]:
    """Return the possible values of ``auto_unroll_max_step``."""
    return UNROLL_STEPS_GPU if ask.is_gpu(policy.search_task) else UNROLL_STEPS_CPU


def rebuilt(policy: Any, steps: Sequence[Step]) -> StateObject | None:
    """Replay steps on the initial state, with all ranges; return None if a step cannot be applied."""
    dag = policy.search_task.compute_dag
    try:
        return brief(policy, bounded(policy, replayed(dag.init_state, steps, dag)))
    except TilewrightError:
        return None


def bounded(policy: Any, state: StateObject) -> StateObject:
    """The state with the range of every loop."""
    return LoopBounds(state, policy.search_task.compute_dag).bounded()


def fill_tile_sizes(policy: Any, state: StateObject, rng: random.Random) -> StateObject | None:
    """Lengths of all splits that wait for some; for half of the programs on CPUs, tiles that registers hold."""
    limit = policy.params["max_innermost_split_factor"]
    task = policy.search_task
    steps: list[Step] = list(state.transform_steps)
    if not ask.is_gpu(task) and rng.random() < policy.params["register_tile_ratio"]:
        # Inputs that callers pack have no padding for parts of a vector.
        uneven = task.layout_rewrite_option != LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED
        fill_register_tiles(steps, vector_lanes(task), limit, uneven, rng)
    for i, step in enumerate(steps):
        if isinstance(step, SplitStep) and None in step.lengths:
            assert step.extent is not None
            steps[i] = replace(step, lengths=sample_lengths(step.extent, len(step.lengths), limit, rng))
    return rebuilt(policy, steps)


def reduce_lanes_in_parts(policy: Any, state: StateObject, rng: random.Random) -> StateObject | None:
    """For half of the programs, sum a vector's lanes in parts: 16 lanes as 4 times 4 at once, then the last 4.

    One lane after the other, each addition waits for the one before.
    """
    if rng.random() >= policy.params["lane_parts_ratio"]:
        return state
    edited = State(state, policy.search_task.compute_dag)
    try:
        for stage_id in reversed(range(len(state.stages))):
            if _sums_lanes(state, stage_id):
                _reduce_in_parts(edited, stage_id)
        return edited.state_object if edited.state_object is state else bounded(policy, edited.state_object)
    except TilewrightError:
        return None


def _sums_lanes(state: StateObject, stage_id: int) -> bool:
    """Return whether a stage is the last of a vector reduction: it reduces the whole lanes that an rfactor
    left to it.
    """
    stage = state.stages[stage_id]
    if stage.op_type == PLACEHOLDER or stage.compute_at == INLINED or not stage_id:
        return False
    reduced = [it for it in stage.iters if it.iter_kind == REDUCTION]
    before = state.stages[stage_id - 1].op.name
    lanes = reduced[0].extent if len(reduced) == 1 and stage.iters[-1] is reduced[0] else 0
    return before == f"{stage.op.name}.rf" and lanes in _LANES_IN_PARTS


def _reduce_in_parts(edited: State, stage_id: int) -> None:
    lanes = edited.stages[stage_id].iters[-1].extent
    while lanes in _LANES_IN_PARTS:
        iters = edited.stages[stage_id].iters
        spatial, lanes = len(iters) - 1, lanes // 4
        part = edited.split(stage_id, iters[-1], [lanes])[1]
        made = edited.stage_id_map[edited.rfactor(stage_id, part, spatial)]
        iters = edited.stages[made].iters
        edited.reorder(made, [*iters[:spatial], *iters[spatial + 1 :], iters[spatial]])
        stage_id = made + 1


def change_compute_location(policy: Any, state: StateObject, rng: random.Random) -> StateObject | None:
    """Stages that are not tiled: inside a loop of their reader, at root, or inlined.

    On CPUs, half of the programs have each stage as far inside its reader as it can be with nothing computed twice.
    """
    if policy.params["disable_change_compute_location"]:
        return state
    task = policy.search_task
    edited = State(state, task.compute_dag)
    move = _move_inside if rng.random() < policy.params["compute_inside_ratio"] else _move
    try:
        for stage_id in reversed(range(len(state.stages))):
            stage = edited.stages[stage_id]
            if stage.op_type == PLACEHOLDER or stage.compute_at == INLINED or stage.is_tiled:
                continue
            if _is_padding(stage) and rng.random() < policy.params["inline_padding_ratio"]:
                edited.compute_inline(stage_id)
            elif not ask.needs_tiling(task, edited.state_object, stage_id):
                move(policy, edited, stage_id, rng)
        return bounded(policy, edited.state_object)
    except TilewrightError:
        return None


def _is_padding(stage: Stage) -> bool:
    """Return whether a stage pads an image: copies its inside, with a value around it."""
    bodies = stage.op.body if isinstance(stage.op, ComputeOp) else ()
    return len(bodies) == 1 and isinstance(bodies[0], Call) and bodies[0].op.name == "tir.if_then_else"


def _move(policy: Any, edited: State, stage_id: int, rng: random.Random) -> None:
    state = edited.state_object
    places = ask.compute_locations(policy.search_task, state, stage_id)
    choice = rng.randrange(len(places) + 2)
    if choice == 0:
        if not state.stages[stage_id].has_reduction and stage_id in state.attach_map.stage_to_attach_iter:
            edited.compute_inline(stage_id)
    elif choice == 1:
        edited.compute_root(stage_id)
    else:
        target, position = places[choice - 2]
        edited.compute_at(stage_id, target, edited.stages[target].iters[position])


def _move_inside(policy: Any, edited: State, stage_id: int, rng: random.Random) -> None:
    """Attach to the innermost loop in which each element is computed once, or few more than once."""
    places = ask.compute_locations(policy.search_task, edited.state_object, stage_id)
    dag = policy.search_task.compute_dag
    # Loops of the nearest reader come first, from the outside in; what that reader is inside comes last.
    own = [p for p in places if p[0] == places[0][0]]
    for target, position in [*reversed(own), *reversed(places[len(own) :])]:
        tried = edited.copy()
        tried.compute_at(stage_id, target, tried.stages[target].iters[position])
        bounds = LoopBounds(tried.state_object, dag)
        if bounds.repetition(stage_id) <= _MOST_REPEATED:
            edited.compute_at(stage_id, target, edited.stages[target].iters[position])
            return
    if places:
        edited.compute_root(stage_id)


def parallelize(policy: Any, state: StateObject, rng: random.Random) -> StateObject | None:
    """Run the outermost loops of each large root stage in parallel, as many as occupy all cores."""
    edited = State(state, policy.search_task.compute_dag)
    wanted = policy.search_task.hardware_params.num_cores * 16
    for stage_id, stage in enumerate(state.stages):
        if stage.compute_at == ROOT and stage.op_type != PLACEHOLDER and not _is_short(state, stage_id):
            _parallelize(edited, stage_id, 0, wanted)
    return edited.state_object


def _is_short(state: StateObject, stage_id: int) -> bool:
    """Return whether a stage, with the stages attached to it, takes less time than to start threads."""
    inside = [s for position in range(len(state.stages[stage_id].iters)) for s in state.attached_at(stage_id, position)]
    return not inside and math.prod(it.extent for it in state.stages[stage_id].iters) < _SHORT


def _parallelize(edited: State, stage_id: int, first: int, wanted: int) -> None:
    state, stage = edited.state_object, edited.stages[stage_id]
    fused, degree, position = [], 1, first
    while position < len(stage.iters):
        it = stage.iters[position]
        if it.iter_kind == REDUCTION or it.annotation != NONE:
            break
        fused.append(it)
        degree *= it.extent
        if degree > wanted or state.attached_at(stage_id, position):
            break
        position += 1
    if degree == 1 and state.attached_at(stage_id, position):
        for attached in state.attached_at(stage_id, position):
            _parallelize(edited, attached, 0, wanted)
        _parallelize(edited, stage_id, position + 1, wanted)
    if fused:
        edited.parallel(stage_id, fused[0] if len(fused) == 1 else edited.fuse(stage_id, fused))


def unroll(policy: Any, state: StateObject, rng: random.Random) -> StateObject | None:
    """Choose how much of each reduction is unrolled."""
    edited = State(state, policy.search_task.compute_dag)
    for stage_id, stage in enumerate(state.stages):
        if stage.op_type == PLACEHOLDER or stage.compute_at == INLINED:
            continue
        if ALWAYS_UNROLL_INNER in stage.op.attrs:
            _unroll_inner(edited, stage_id, stage)
        if stage.has_reduction:
            first = edited.stages[stage_id].iters[0]
            edited.pragma(stage_id, first, f"auto_unroll_max_step${rng.choice(unroll_steps(policy))}")
    return edited.state_object


def _unroll_inner(edited: State, stage_id: int, stage: Stage) -> None:
    """Unroll the loops of the innermost tile over axes that the operation marks for it."""
    names = ask.names_in(stage.op, ALWAYS_UNROLL_INNER)
    seen: set[str] = set()
    for it in reversed(stage.iters):
        own = ask.original_names(it.name)
        if own <= seen:
            break
        seen |= own
        if len(own) == 1 and own <= names and it.annotation == NONE:
            edited.unroll(stage_id, it)


def vectorize(policy: Any, state: StateObject, rng: random.Random) -> StateObject | None:
    """Vectorize the innermost spatial loop of each stage: part of a long one, several short ones of untiled stages."""
    edited = State(state, policy.search_task.compute_dag)
    limit = policy.params["max_vectorize_size"]
    for stage_id, stage in enumerate(state.stages):
        if stage.op_type == PLACEHOLDER or stage.compute_at == INLINED:
            continue
        count, lanes = 0, 1
        for position in reversed(range(len(stage.iters))):
            it = stage.iters[position]
            lanes *= max(1, it.extent)
            taken = it.iter_kind == REDUCTION or it.annotation != NONE or state.attached_at(stage_id, position)
            if taken or (stage.is_tiled and count) or lanes > limit:
                break
            count += 1
        if count > 1:
            count = rng.randint(1, count - 1)
        iters = edited.stages[stage_id].iters
        inner = iters[len(iters) - count :]
        if count:
            edited.vectorize(stage_id, inner[0] if count == 1 else edited.fuse(stage_id, inner))
        elif iters and not state.attached_at(stage_id, len(iters) - 1):
            _vectorize_part(edited, stage_id, limit, vector_lanes(policy.search_task), rng)
    return edited.state_object


def _vectorize_part(edited: State, stage_id: int, limit: int, whole: int, rng: random.Random) -> None:
    """Split the innermost loop, which is too long for a vector, by one of its larger divisors, or whole vectors."""
    it = edited.stages[stage_id].iters[-1]
    if it.iter_kind == REDUCTION or it.annotation != NONE or it.extent <= limit:
        return
    lanes = [f for f in factors_of(it.extent) if 4 <= f <= limit][-3:]
    if not lanes or lanes[-1] < whole:
        lanes += [n for n in (whole, 2 * whole) if n <= min(limit, it.extent // 4)]
    if lanes:
        edited.vectorize(stage_id, edited.split(stage_id, it, [rng.choice(lanes)])[1])


def brief(policy: Any, state: StateObject, rng: random.Random | None = None) -> StateObject | None:
    """Return the state, unless the code of one of its stages on a CPU would take minutes to compile."""
    if ask.is_gpu(policy.search_task):
        return state
    whole = vector_lanes(policy.search_task)
    return state if all(_code_length(stage, whole) <= _LONGEST_CODE for stage in state.stages) else None


def _code_length(stage: Stage, whole: int) -> int:
    """Operations on vectors of ``whole`` lanes that a stage's automatic unrolling writes out, of one of its stores."""
    steps = registers = 1
    for it in reversed(stage.iters):
        extent = max(1, it.extent)
        if it.annotation == VECTORIZE:
            registers *= -(-extent // whole)
        elif steps * extent > stage.auto_unroll_max_step:
            break
        else:
            steps *= extent
    return steps * registers


CPU_POPULATION: tuple[PopulationRule, ...] = (
    fill_tile_sizes, reduce_lanes_in_parts, change_compute_location, parallelize, unroll, vectorize, brief
)  # fmt: skip
