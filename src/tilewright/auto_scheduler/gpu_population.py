"""Threads for the loops of a GPU's program: blocks, virtual threads and threads of the tiles, and shared fetching.

``fits_hardware`` says whether the blocks of a program are within what the hardware has, as VerifyGPUCode does of
lowered code: programs that are not are never measured.
"""

from __future__ import annotations

import random
from collections.abc import Iterator as Iterable
from dataclasses import replace
from math import prod
from typing import Any

from tilewright.auto_scheduler import state_queries as ask
from tilewright.auto_scheduler.factorization import sample_lengths
from tilewright.auto_scheduler.loop_bounds import LoopBounds
from tilewright.auto_scheduler.loop_nest import (
    INLINED,
    ITER,
    PLACEHOLDER,
    ROOT,
    THREAD_X,
    VECTORIZE,
    VTHREAD,
    Iterator,
    StateObject,
)
from tilewright.auto_scheduler.loop_state import State
from tilewright.auto_scheduler.population import PopulationRule, bounded, fill_tile_sizes, rebuilt, unroll, vectorize
from tilewright.auto_scheduler.task import TaskRecord
from tilewright.auto_scheduler.transform_step import SplitStep
from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError

_DRAWS = 200  # of the tiles of one stage: of a small product, one in fifteen has as many threads as it should


def fill_thread_tiles(policy: Any, state: StateObject, rng: random.Random) -> StateObject | None:
    """Fill the tile lengths whose second and third level are virtual threads and threads, with as many as allowed.

    Draws are those of ``fill_tile_sizes``, repeated for a stage until its threads fit.
    """
    hardware, limit = policy.search_task.hardware_params, policy.params["max_innermost_split_factor"]
    steps = list(state.transform_steps)
    for group in _open_tiles(policy, state):
        extents = [steps[i].extent for i in group]
        fewest = hardware.warp_size if prod(extents) > hardware.warp_size * 2 else 1
        for _ in range(_DRAWS):
            drawn = [sample_lengths(e, len(steps[i].lengths), limit, rng) for i, e in zip(group, extents, strict=True)]
            virtual, threads = prod(d[0] for d in drawn), prod(d[1] for d in drawn)
            if virtual <= hardware.max_vthread_extent and fewest <= threads <= hardware.max_threads_per_block:
                break
        for i, lengths in zip(group, drawn, strict=True):
            steps[i] = replace(steps[i], lengths=lengths)
    return rebuilt(policy, steps)


def _open_tiles(policy: Any, state: StateObject) -> Iterable[list[int]]:
    """Yield the numbers of the steps that split the spatial loops of each tiled stage with open lengths."""
    count = str(policy.params["gpu_multi_level_tiling_structure"]).upper().count("S") - 1
    group: list[int] = []
    for number, step in enumerate(state.transform_steps):
        mine = isinstance(step, SplitStep) and None in step.lengths and len(step.lengths) == count
        if group and not (mine and step.stage_id == state.transform_steps[group[0]].stage_id):
            yield group
            group = []
        if mine:
            group.append(number)
    if group:
        yield group


def fits_hardware(task: TaskRecord, state: StateObject) -> bool:
    """Return whether every block has as many threads, virtual threads and bytes of shared memory as it may, and short
    vectors.

    ``state`` has all tile sizes.
    """
    hardware = task.hardware_params
    bounds = LoopBounds(state, task.compute_dag)
    shared: dict[int, int] = {}
    for stage_id, stage in enumerate(state.stages):
        if stage.op_type == PLACEHOLDER or stage.compute_at == INLINED:
            continue
        element = dt.nbytes(stage.op.output(0).dtype)
        for it, extent in zip(stage.iters, bounds.extents[stage_id], strict=True):
            most = {
                THREAD_X: hardware.max_threads_per_block,
                VTHREAD: hardware.max_vthread_extent,
                VECTORIZE: hardware.vector_unit_bytes // element,
            }.get(it.annotation, extent)
            if extent > most:
                return False
        if stage.op.name.endswith(".shared"):
            root = _root(state, stage_id)
            shared[root] = shared.get(root, 0) + prod(bounds.axes[stage_id]) * element
    return max(shared.values(), default=0) <= hardware.max_shared_memory_per_block


def _root(state: StateObject, stage_id: int) -> int:
    """The stage at root whose loops a stage is inside."""
    while state.stages[stage_id].compute_at == ITER:
        stage_id = state.attach_map.stage_to_attach_iter[stage_id][0]
    return stage_id


def bind_threads(policy: Any, state: StateObject, rng: random.Random) -> StateObject | None:
    """Bind every loop nest to blocks and threads; return None if a tile has too few or too many threads."""
    task = policy.search_task
    roots = {
        state.attach_map.stage_to_attach_iter[i][0]
        for i, stage in enumerate(state.stages)
        if stage.compute_at == ITER and stage.op_type != PLACEHOLDER and ask.needs_tiling(task, state, i)
    }
    try:
        edited = State(bounded(policy, state), task.compute_dag)
        for stage_id in reversed(range(len(state.stages))):
            stage = edited.stages[stage_id]
            if stage.op_type == PLACEHOLDER or stage.compute_at == INLINED:
                continue
            if not _bind_stage(policy, edited, stage_id, stage_id in roots):
                return None
        return bounded(policy, edited.state_object)
    except TilewrightError:
        return None


def _bind_stage(policy: Any, edited: State, stage_id: int, is_tiled_root: bool) -> bool:
    stage = edited.stages[stage_id]
    if ask.has_cross_thread_reduction(edited.state_object, stage_id):
        if stage.compute_at == ROOT:
            edited.bind(stage_id, _fuse_outer(edited, stage_id), "blockIdx.x")
        return True
    if any(it.annotation == THREAD_X for it in stage.iters):
        return True
    if stage.compute_at == ROOT:
        return _bind_tiles(policy, edited, stage_id) if is_tiled_root else _bind_simple(policy, edited, stage_id)
    if stage.op.name.endswith(".shared"):
        _fetch_together(edited, stage_id)
    return True


def _fuse_outer(edited: State, stage_id: int) -> Iterator:
    found = ask.outer_space(edited.state_object, stage_id)
    return found[0] if len(found) == 1 else edited.fuse(stage_id, found)


def _bind_simple(policy: Any, edited: State, stage_id: int) -> bool:
    """A stage that is not tiled: one thread for each element."""
    warp = policy.search_task.hardware_params.warp_size
    fused = _fuse_outer(edited, stage_id)
    if fused.extent <= warp:
        edited.bind(stage_id, fused, "threadIdx.x")
        return True
    block, thread = edited.split(stage_id, fused, [warp])
    edited.bind(stage_id, block, "blockIdx.x")
    edited.bind(stage_id, thread, "threadIdx.x")
    return True


def _bind_tiles(policy: Any, edited: State, stage_id: int) -> bool:
    """The three outer levels of tiles: blocks, virtual threads, threads."""
    hardware = policy.search_task.hardware_params
    op = edited.stages[stage_id].op
    total = prod(int(iv.dom.extent.value) for iv in op.root_iter_vars)
    limits = {1: hardware.max_vthread_extent}
    for level, thread in enumerate(("blockIdx.x", "vthread", "threadIdx.x")):
        iters = edited.stages[stage_id].iters[level : level + len(op.axis)]
        tile: list[Iterator] = []
        for it in iters:
            if not it.name.endswith(f".{level}"):
                break
            tile.append(it)
        fused = edited.fuse(stage_id, tile)
        if fused.extent > limits.get(level, fused.extent):
            return False
        if level == 2 and total > hardware.warp_size * 2 and fused.extent < hardware.warp_size:
            return False
        edited.bind(stage_id, fused, thread)
    return True


def _fetch_together(edited: State, stage_id: int) -> None:
    """All threads of a block bring a tile into shared memory."""
    root = edited.state_object.attach_map.stage_to_attach_iter[stage_id][0]
    steps = ask.spatial_split_steps(edited.state_object, root)
    fused = edited.fuse(stage_id, edited.stages[stage_id].iters)
    vector = edited.split(stage_id, fused, [1])[1]
    edited.vectorize(stage_id, vector)
    parts = edited.follow_fused_split(stage_id, edited.stages[stage_id].iters[0], steps, 1, True)
    edited.bind(stage_id, parts[1], "threadIdx.x")


GPU_POPULATION: tuple[PopulationRule, ...] = (fill_thread_tiles, fill_tile_sizes, bind_threads, unroll)
MALI_POPULATION: tuple[PopulationRule, ...] = (*GPU_POPULATION, vectorize)
