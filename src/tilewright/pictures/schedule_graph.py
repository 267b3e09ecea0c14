"""Schedules as graphs: stages and their loops, how loops are made, which stage reads which."""

from __future__ import annotations

from tilewright.pictures.drawing import Box, Drawing
from tilewright.te.operation import PlaceholderOp
from tilewright.te.schedule.schedule import Schedule
from tilewright.te.schedule.stage import AttachType, Fuse, Rebase, Split
from tilewright.te.schedule.text import attachment, axis_text
from tilewright.tir.expr import IterVar


def draw_stages(schedule: Schedule) -> Drawing:
    """Return the stages with their loops; a stage hangs below the one that it is computed at."""
    stages = list(schedule.stages)
    number = {id(stage): i for i, stage in enumerate(stages)}
    boxes, arrows = [], []
    for i, stage in enumerate(stages):
        loops = [f"{'  ' * depth}for {axis_text(stage, axis)}" for depth, axis in enumerate(stage.leaf_iter_vars)]
        shown = [] if stage.attach_type is AttachType.INLINE else loops
        boxes.append(Box((stage.name, *filter(None, [attachment(stage)]), *shown), attachment(stage)))
        spec = stage.attach_spec
        if spec.attach_type is AttachType.SCOPE and id(spec.attach_stage) in number:
            arrows.append((number[id(spec.attach_stage)], i))
    return Drawing(tuple(boxes), tuple(arrows))


def draw_loops(schedule: Schedule) -> Drawing:
    """Return for each stage its loops and the splits and fusions that made them."""
    boxes: list[Box] = []
    arrows: list[tuple[int, int]] = []
    for stage in schedule.stages:
        number = {}
        for axis in stage.all_iter_vars:
            number[axis] = len(boxes)
            boxes.append(
                Box((f"{stage.name}: {axis_text(stage, axis)}",), "loop" if axis in stage.leaf_iter_vars else "")
            )
        for relation in stage.relations:
            ends: tuple[tuple[IterVar, ...], tuple[IterVar, ...]]
            match relation:
                case Split(parent, outer, inner, factor, nparts):
                    ends, text = ((parent,), (outer, inner)), f"split {factor if factor is not None else nparts}"
                case Fuse(outer, inner, fused):
                    ends, text = ((outer, inner), (fused,)), "fuse"
                case Rebase(parent, rebased):
                    ends, text = ((parent,), (rebased,)), "rebase"
                case _:
                    continue
            boxes.append(Box((text,), "relation"))
            at = len(boxes) - 1
            arrows += [(number[axis], at) for axis in ends[0]] + [(at, number[axis]) for axis in ends[1]]
    return Drawing(tuple(boxes), tuple(arrows))


def draw_data_flow(schedule: Schedule) -> Drawing:
    """Return the stages, with an arrow from each to those that read it."""
    stages = [stage for stage in schedule.stages if stage.op is not None]
    number = {stage.op: i for i, stage in enumerate(stages)} | {stage.origin_op: i for i, stage in enumerate(stages)}
    boxes = []
    for stage in stages:
        shapes = [f"{tensor.dtype} {tuple(map(str, tensor.shape))}" for tensor in stage.op.outputs]
        boxes.append(Box((stage.name, *shapes), "input" if isinstance(stage.op, PlaceholderOp) else ""))
    arrows = [(number[t.op], i) for i, stage in enumerate(stages) for t in stage.op.input_tensors if t.op in number]
    return Drawing(tuple(boxes), tuple(dict.fromkeys(arrows)))
