"""Splitting a stage into tiles of several levels, and a reader of it alike."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.auto_scheduler.access_analysis import NO_SPLIT_AT_INNER
from tilewright.auto_scheduler.loop_nest import PARALLEL, REDUCTION, SPATIAL, UNROLL, VECTORIZE, Iterator
from tilewright.auto_scheduler.loop_state import State
from tilewright.auto_scheduler.state_queries import names_in
from tilewright.ir.errors import TilewrightError


def multi_level_tiling(state: State, stage_id: int, structure: str) -> list[int]:
    """Split each loop of a stage into the levels of its kind in ``structure``, and order them so.

    Parameters
    ----------
    structure : levels from the outside in, S for space and R for reduction: ``SSRSRS`` gives
        ``i.0 j.0 | i.1 j.1 | k.0 | i.2 j.2 | k.1 | i.3 j.3``; lengths wait for the search

    Returns
    -------
    The numbers of the steps that split spatial loops. Axes of the attribute ``auto_scheduler_no_split_at_inner`` stay
    whole, in the innermost level.
    """
    levels = structure.upper()
    counts = {SPATIAL: levels.count("S"), REDUCTION: levels.count("R")}
    if sum(counts.values()) != len(levels):
        raise TilewrightError(f"the tiling structure {structure!r} has letters other than S and R")
    tiles: dict[int, list[list[Iterator]]] = {kind: [[] for _ in range(n)] for kind, n in counts.items()}
    kept: dict[int, list[Iterator]] = {SPATIAL: [], REDUCTION: []}
    steps: list[int] = []
    whole = names_in(state.stages[stage_id].op, NO_SPLIT_AT_INNER)
    for it in state.stages[stage_id].iters:
        if it.name in whole:
            kept[it.iter_kind].append(it)
            continue
        count = counts[it.iter_kind]
        parts = [it] if count == 1 else state.split(stage_id, it, [None] * (count - 1))
        if count > 1 and it.iter_kind == SPATIAL:
            steps.append(len(state.transform_steps) - 1)
        for tile, part in zip(tiles[it.iter_kind], parts, strict=True):
            tile.append(part)
    for kind, iters in kept.items():
        tiles[kind][-1][:0] = iters
    remaining = {kind: iter(found) for kind, found in tiles.items()}
    order = [it for letter in levels for it in next(remaining[SPATIAL if letter == "S" else REDUCTION])]
    state.reorder(stage_id, order)
    return steps


def follow_tiling(state: State, stage_id: int, split_steps: Sequence[int], count: int) -> None:
    """Split the loops of a stage as ``split_steps`` split those of its input, into ``count`` + 1 levels."""
    stage = state.stages[stage_id]
    whole = names_in(stage.op, NO_SPLIT_AT_INNER)
    levels: list[list[Iterator]] = [[] for _ in range(count + 1)]
    steps = iter(split_steps)
    for it in stage.iters:
        if it.iter_kind != SPATIAL:
            raise TilewrightError(f"{stage.op.name} is to be tiled like what it reads, but has the reduction {it.name}")
        if it.name in whole:
            levels[count].append(it)
            continue
        parts = state.follow_split(stage_id, it, next(steps), count)
        if it.annotation in (UNROLL, VECTORIZE):
            mark = state.unroll if it.annotation == UNROLL else state.vectorize
            parts[count] = mark(stage_id, parts[count])
        elif it.annotation == PARALLEL:
            parts[0] = state.parallel(stage_id, parts[0])
        for level, part in zip(levels, parts, strict=True):
            level.append(part)
    state.reorder(stage_id, [it for level in levels for it in level])


def fuse_reductions(state: State, stage_id: int) -> tuple[int, Iterator]:
    """Make one loop of all reduction loops; return the number of spatial loops, and the loop."""
    iters = state.stages[stage_id].iters
    reductions = [it for it in iters if it.iter_kind == REDUCTION]
    spatial = sum(it.iter_kind == SPATIAL for it in iters)
    return spatial, reductions[0] if len(reductions) == 1 else state.fuse(stage_id, reductions)
