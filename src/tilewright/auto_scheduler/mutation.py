"""Mutations of evolutionary search: changes of one decision of a program.

Each rule returns a changed state, or None if there is nothing to change or the result is no valid program. All of them
change one step and replay the steps, so that steps and state agree.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilewright.auto_scheduler import state_queries as ask
from tilewright.auto_scheduler.factorization import factors_of
from tilewright.auto_scheduler.loop_nest import NONE, PARALLEL, REDUCTION, StateObject
from tilewright.auto_scheduler.population import rebuilt, unroll_steps
from tilewright.auto_scheduler.stage_steps import ComputeAtStep, replayed
from tilewright.auto_scheduler.transform_step import AnnotationStep, FuseStep, PragmaStep, SplitStep, Step

Mutation = Callable[[Any, StateObject, random.Random], StateObject | None]


def mutate_tile_size(policy: Any, state: StateObject, rng: random.Random) -> StateObject | None:
    """Move a factor from one length of a split to another."""
    limit = policy.params["max_innermost_split_factor"]
    splits = [
        (i, step)
        for i, step in enumerate(state.transform_steps)
        if isinstance(step, SplitStep) and (step.extent or 0) > 1 and (step.lengths[-1] or limit + 1) <= limit
    ]
    if not splits:
        return None
    number, step = rng.choice(splits)
    lengths = _moved_factor(step, limit, rng)
    return None if lengths is None else _with_step(policy, state, number, replace(step, lengths=lengths))


def _moved_factor(step: SplitStep, limit: int, rng: random.Random) -> tuple[int, ...] | None:
    given = [length or 1 for length in step.lengths]
    inside = 1
    for length in given:
        inside *= length
    assert step.extent is not None
    lengths = [step.extent // inside, *given]
    order = rng.sample(range(len(lengths)), len(lengths))
    for source, target in zip(order, [*order[1:], order[0]], strict=True):
        last = target == len(lengths) - 1
        choices = [f for f in factors_of(lengths[source])[1:] if not last or f * lengths[target] <= limit]
        if choices:
            factor = rng.choice(choices)
            lengths[source] //= factor
            lengths[target] *= factor
            return tuple(lengths[1:])
    return None


def _with_step(policy: Any, state: StateObject, number: int, step: Step) -> StateObject | None:
    steps = state.transform_steps
    return rebuilt(policy, (*steps[:number], step, *steps[number + 1 :]))


def mutate_auto_unroll(policy: Any, state: StateObject, rng: random.Random) -> StateObject | None:
    """Unroll another amount."""
    pragmas = [
        (i, step)
        for i, step in enumerate(state.transform_steps)
        if isinstance(step, PragmaStep) and step.max_step is not None
    ]
    if not pragmas:
        return None
    number, step = rng.choice(pragmas)
    value = rng.choice(unroll_steps(policy))
    return _with_step(policy, state, number, replace(step, pragma_type=f"auto_unroll_max_step${value}"))


def mutate_compute_location(policy: Any, state: StateObject, rng: random.Random) -> StateObject | None:
    """Compute a stage that is not tiled inside another loop."""
    if policy.params["disable_change_compute_location"]:
        return None
    task = policy.search_task
    places: list[tuple[int, ComputeAtStep, int]] = []
    for i, step in enumerate(state.transform_steps):
        if isinstance(step, ComputeAtStep):
            now = ask.stage_of_step(state, i)
            if not state.stages[now].is_tiled and not ask.needs_tiling(task, state, now):
                places.append((i, step, now))
    if not places:
        return None
    number, step, now = rng.choice(places)
    candidates = ask.compute_locations(task, state, now)
    if not candidates:
        return None
    target, position = rng.choice(candidates)
    moved = replace(step, target_stage_id=target - (now - step.stage_id), target_iter_id=position)
    made = _with_step(policy, state, number, moved)
    return made if made is not None and ask.places_hold(task, made) else None


def mutate_parallel(policy: Any, state: StateObject, rng: random.Random) -> StateObject | None:
    """Fuse more or fewer loops into a parallel one."""
    steps = state.transform_steps
    candidates = [
        i
        for i, (before, step) in enumerate(itertools.pairwise(steps), 1)
        if isinstance(step, AnnotationStep) and step.annotation == PARALLEL and step.iter_id == 0
        and isinstance(before, FuseStep) and before.stage_id == step.stage_id and before.fused_ids[0] == 0
    ]  # fmt: skip
    if not candidates:
        return None
    number = rng.choice(candidates)
    fusion = steps[number - 1]
    dag = policy.search_task.compute_dag
    before = replayed(dag.init_state, steps[: number - 1], dag)
    fusible = _fusible(before, fusion.stage_id)
    if not fusible:
        return None
    count = rng.randint(1, fusible)
    offset = len(fusion.fused_ids) - count
    if not offset:
        return None
    rest: list[Step] = []
    for step in steps[number + 1 :]:
        if step.stage_id == fusion.stage_id:
            if not isinstance(step, (AnnotationStep, PragmaStep)):
                return None
            if step.iter_id:
                step = replace(step, iter_id=step.iter_id + offset)
        rest.append(step)
    changed = replace(fusion, fused_ids=tuple(range(count)))
    return rebuilt(policy, (*steps[: number - 1], changed, steps[number], *rest))


def _fusible(state: StateObject, stage_id: int) -> int:
    """Return how many of a stage's outermost loops can be one."""
    for i, it in enumerate(state.stages[stage_id].iters):
        if it.iter_kind == REDUCTION or it.annotation != NONE:
            return i
        if state.attached_at(stage_id, i):
            return i + 1
    return len(state.stages[stage_id].iters)


CPU_MUTATIONS: tuple[tuple[Mutation, float], ...] = (
    (mutate_tile_size, 0.90), (mutate_auto_unroll, 0.04), (mutate_compute_location, 0.05), (mutate_parallel, 0.01),
)  # fmt: skip
GPU_MUTATIONS: tuple[tuple[Mutation, float], ...] = ((mutate_tile_size, 0.90), (mutate_auto_unroll, 0.10))
