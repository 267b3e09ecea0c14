"""Stores of product results: the storing operation, and its axes as those of rows and columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.tir.expr import IterVar
from tilewright.topi import tag
from tilewright.topi.gpu.contraction import BATCH, COLUMNS, ROWS
from tilewright.topi.utils import get_const_tuple, operations

MOST_BLOCKS_OF_AXIS = 65535  # of a CUDA grid along y and z


def store_of(s: te.Schedule, result: Any, tensors: Sequence[te.Tensor]) -> Any:
    """Return the operation that stores results: the only output if it has the same indices, else ``result``."""
    last = tensors[0].op
    if len(tensors) > 1 or last is result or not tag.is_injective(last.tag) or not _same_place(last, result):
        return result
    return last


def _same_place(last: Any, result: Any) -> bool:
    """Return whether every operation from ``result`` to ``last`` reads it at the index that it writes."""
    shape = get_const_tuple(result.output(0).shape)
    pending, seen = [last], {result}
    while pending:
        op = pending.pop()
        if op in seen:
            continue
        seen.add(op)
        fits = op.tag in (tag.ELEMWISE, tag.BROADCAST) and get_const_tuple(op.output(0).shape) == shape
        if not isinstance(op, te.ComputeOp) or not fits:
            return False
        pending += [t.op for t in op.input_tensors if result in operations([t])]
    return True


def axes_by_role(stage: te.Stage, result: Any) -> tuple[IterVar | None, IterVar, IterVar]:
    """Return the stage's axes of batch (None if there are none), rows and columns, each fused."""
    roles: dict[str, list[IterVar]] = {BATCH: [], ROWS: [], COLUMNS: []}
    for axis, parts in zip(stage.op.axis, result.attrs["contraction_axes"], strict=True):
        loops: list[IterVar] = []
        rest = axis
        for extent, _ in reversed(parts[1:]):
            rest, inner = stage.split(rest, factor=int(extent))
            loops.insert(0, inner)
        for loop, (_, role) in zip([rest, *loops], parts, strict=True):
            roles[str(role)].append(loop)
    stage.reorder(*(axis for role in (BATCH, ROWS, COLUMNS) for axis in roles[role]))
    batch, rows, columns = (fuse(stage, roles[role]) for role in (BATCH, ROWS, COLUMNS))
    assert rows is not None and columns is not None
    return batch, rows, columns


def fuse(stage: te.Stage, axes: Sequence[IterVar]) -> IterVar | None:
    """Fuse the axes to one; return None when there are none."""
    if not axes:
        return None
    return axes[0] if len(axes) == 1 else stage.fuse(*axes)


def bind_blocks(stage: te.Stage, axes: Sequence[IterVar], counts: Sequence[int]) -> None:
    """Bind the last of ``axes`` to blocks along x, those before to y and z; all to x when these are too many.

    ``counts`` are the extents of the axes, which are the outermost loops.
    """
    if any(count > MOST_BLOCKS_OF_AXIS for count in counts[:-1]):
        axes = [stage.fuse(*axes)]
    for axis, name in zip(reversed(list(axes)), "xyz", strict=False):
        stage.bind(axis, te.thread_axis(f"blockIdx.{name}"))


def block_counts(result: Any, tile: tuple[int, int]) -> list[int]:
    """Return the blocks of ``tile`` rows and columns of a contraction: along its batch if it has one, rows, columns."""
    parts = [part for axis in result.attrs["contraction_axes"] for part in axis]
    batch, rows, columns = ([int(n) for n, r in parts if r == role] for role in (BATCH, ROWS, COLUMNS))
    cut = [-(-math.prod(extents) // size) for extents, size in zip((rows, columns), tile, strict=True)]
    return [math.prod(batch), *cut] if batch else cut
