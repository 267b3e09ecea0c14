"""Layout rewriting: inputs stored in the order in which a schedule's loops visit their elements.

With C's loops ``i.0 j.0 k.0 i.1 j.1 k.1`` (``j.0`` of 4, ``k.0`` of 8, ``j.1`` of 16, ``k.1`` of 2 iterations), the
input ``B[k, j]`` becomes ``B[j.0, k.0, j.1, k.1]``; its layout is written ``4j8k16j2k``. Constants are packed once,
when a network is compiled; a stand-alone computation packs in every run, in a stage added before the reader.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tilewright import te, tir
from tilewright.auto_scheduler.loop_nest import PARALLEL, VECTORIZE, Iterator, StateObject, clean_name
from tilewright.auto_scheduler.stage_steps import CacheReadStep, ComputeAtStep, StageAddingStep
from tilewright.auto_scheduler.transform_step import AnnotationStep, FuseStep, Step
from tilewright.ir import prim_ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import IntImm, PrimExpr, Var
from tilewright.te.operation import ComputeOp, Operation, PlaceholderOp, producer_loads
from tilewright.te.schedule.primitives import MapLoads, replace_inputs
from tilewright.te.tensor import Tensor
from tilewright.tir.expr import ProducerLoad

LAYOUT_FREE = "layout_free_placeholders"
_LEAST_READS = 4  # of each element of a matrix that is worth a transformation
_LEAST_LANES, _MOST_LANES = 4, 64  # of a vector of the stage that transforms a layout


class LayoutRewriteOption:
    """Modes of layout rewriting: whether inputs of free layout are rewritten, and who packs them."""

    NO_REWRITE = 0
    INSERT_TRANSFORM_STAGE = 1
    """the kernel itself, each time: for a computation on its own"""
    REWRITE_FOR_PRE_TRANSFORMED = 2
    """the caller: the kernel takes arguments of other shapes. In a network the compiler does it once for weights."""

    @staticmethod
    def get_target_default(target: Any, in_relay_integration: bool = False) -> int:
        """The option for a target: CPUs rewrite layouts, other devices do not."""
        if not target.kind.capabilities.rewrites_layouts and target.attrs.get("device") != "mali":
            return LayoutRewriteOption.NO_REWRITE
        if in_relay_integration:
            return LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED
        return LayoutRewriteOption.INSERT_TRANSFORM_STAGE


class _Part(NamedTuple):
    """A dimension of a new layout: ``extent`` values of dimension ``dim``, whose axis is called ``name``."""

    dim: int
    extent: int
    name: str


def has_layout_free(ops: Sequence[Operation]) -> bool:
    """Return whether an operation says that some input may have any layout."""
    return any(isinstance(op, ComputeOp) and LAYOUT_FREE in op.attrs for op in ops)


def rewrite_layouts(
    tensors: Sequence[Tensor],
    ops: Sequence[Operation],
    state: StateObject,
    option: int,
    only: Collection[Tensor] | None = None,
) -> tuple[list[Tensor], tuple[Step, ...]]:
    """The computation with its layout-free inputs in the layout that ``state`` reads best, and the steps for it;
    with ``only``, of these inputs.

    An input stays as it is where the loops do not tell its layout: read with an index that is no axis, or, for the
    caller to rewrite, split unevenly. A stage of its own fills up what uneven splits leave over; it is not added where
    each element is read once or a few times.
    """
    steps = state.transform_steps
    all_ops, new = list(ops), list(tensors)
    inserted = option == LayoutRewriteOption.INSERT_TRANSFORM_STAGE
    for source, parts in _layouts(state, inserted).items():
        if only is not None and source.output(0) not in only:
            continue
        before = all_ops
        all_ops, new = _rewritten(all_ops, new, source, parts, option)
        if inserted:
            steps = _with_transform(steps, before.index(source) + 1, [p.extent for p in parts])
    return new, steps


def packings(state: StateObject) -> dict[Tensor, list[tuple[int, int]]]:
    """Return the layouts of rewritten inputs: dimension and extent of each part."""
    return {op.output(0): [(part.dim, part.extent) for part in parts] for op, parts in _layouts(state, False).items()}


def _layouts(state: StateObject, inserted: bool) -> dict[Operation, list[_Part]]:
    """The new layout of each input; those that a stage of its own makes if ``inserted``."""
    found: dict[Operation, list[_Part]] = {}
    for stage_id, stage in enumerate(state.stages):
        op = stage.op
        if not isinstance(op, ComputeOp):
            continue
        for tensor in op.attrs.get(LAYOUT_FREE, ()):
            if tensor not in op.input_tensors or tensor.op in found or not isinstance(tensor.op, PlaceholderOp):
                continue
            if inserted and _reads_of_each(op, tensor) < _LEAST_READS:
                continue
            parts = _parts(state, stage_id, op, tensor, padded=inserted)
            if parts is not None:
                found[tensor.op] = parts
    return found


def _reads_of_each(op: ComputeOp, tensor: Tensor) -> float:
    """Return how often an operation reads each element of a tensor, in the mean."""
    extents = [_value(iv.dom.extent) for iv in op.root_iter_vars if iv.dom is not None]
    sizes = [_value(extent) for extent in tensor.shape]
    return math.prod(extents) / max(1, math.prod(sizes))


def _parts(state: StateObject, stage_id: int, op: ComputeOp, tensor: Tensor, padded: bool) -> list[_Part] | None:
    """Return the layout in which a stage's loops visit ``tensor``, padded for uneven splits if ``padded``; None if
    unknown.
    """
    accesses = [load.indices for load in producer_loads(op.body) if load.producer is tensor]
    position = {iv.var: i for i, iv in enumerate(op.root_iter_vars)}
    if len(accesses) != 1:
        return None
    dims: dict[int, int] = {}
    for dim, index in enumerate(accesses[0]):
        if isinstance(index, Var) and index in position and position[index] not in dims:
            dims[position[index]] = dim
        elif not isinstance(index, IntImm) or _value(tensor.shape[dim]) != 1:
            return None
    names = [clean_name(iv.var.name) for iv in op.root_iter_vars]
    visited = _visited_axes(state, stage_id)
    if visited is None:
        return None
    parts = [_Part(dims[axis], extent, base_name(names[axis])) for axis, extent in visited if axis in dims]
    for dim, size in _sizes(parts).items():
        if size < _value(tensor.shape[dim]) or (size > _value(tensor.shape[dim]) and not padded):
            return None
    return parts if len({p.name for p in parts}) >= len(dims) else None


def _sizes(parts: Sequence[_Part]) -> dict[int, int]:
    """Return the capacity of a layout, in elements, in each dimension."""
    sizes: dict[int, int] = {}
    for part in parts:
        sizes[part.dim] = sizes.get(part.dim, 1) * part.extent
    return sizes


def _visited_axes(state: StateObject, stage_id: int) -> list[tuple[int, int]] | None:
    """Return (axis, iterations) of each loop around a stage's body, outermost first; None if a loop mixes axes.

    Loops of stages that this one is computed inside are those of the axis in the same place.
    """
    visited: list[tuple[int, int]] = []
    last = len(state.stages[stage_id].iters)
    while True:
        stage = state.stages[stage_id]
        axes = {clean_name(iv.var.name): i for i, iv in enumerate(stage.op.root_iter_vars)}
        own: list[tuple[int, int]] = []
        for it in stage.iters[:last]:
            for part in _unfused(it):
                axis = axes.get(re.sub(r"(\.\d+)*$", "", part.name))
                if axis is None or part.extent < 1:
                    return None
                own.append((axis, part.extent))
        visited = own + visited
        place = state.attach_map.stage_to_attach_iter.get(stage_id)
        if place is None:
            return visited
        stage_id, last = place[0], place[1] + 1


def _unfused(it: Iterator) -> list[Iterator]:
    return [part for orig in it.orig_iters for part in _unfused(orig)] if it.orig_iters else [it]


def base_name(name: str) -> str:
    """The name of an axis before the last underscore: ``i_c``, of a cached stage, is ``i``."""
    return name.rpartition("_")[0] or name


def _value(extent: PrimExpr) -> int:
    return extent.value if isinstance(extent, IntImm) else -1


def layout_text(parts: Sequence[tuple[int, str]]) -> str:
    """Format ``[(4, "j"), (8, "k")]`` as ``4j8k``."""
    return "".join(f"{extent}{name}" for extent, name in parts)


def parse_layout(text: str) -> list[tuple[int, str]]:
    """Parse ``4j8k`` to ``[(4, "j"), (8, "k")]``; raises TilewrightError for other text."""
    if not re.fullmatch(r"(\d+[A-Za-z_]+)+", text):
        raise TilewrightError(f"{text!r} is no layout; it is numbers with the names of axes, such as 4j8k16j2k")
    return [(int(extent), name) for extent, name in re.findall(r"(\d+)([A-Za-z_]+)", text)]


def get_shape_from_rewritten_layout(rewritten_layout: str, axis_names: Sequence[str]) -> list[int]:
    """The shape before a layout was rewritten, with one dimension for each of ``axis_names``."""
    parts = parse_layout(rewritten_layout)
    shape = dict.fromkeys(axis_names, 1)
    for extent, name in parts:
        if name not in shape:
            raise TilewrightError(f"layout {rewritten_layout} has the axis {name}, which is none of {list(axis_names)}")
        shape[name] *= extent
    return list(shape.values())


def _strides(parts: Sequence[_Part]) -> list[int]:
    """Return how far apart in its dimension neighbours of each part are."""
    inner: dict[int, int] = {}
    strides: list[int] = []
    for part in reversed(parts):
        stride = inner.get(part.dim, 1)
        strides.insert(0, stride)
        inner[part.dim] = stride * part.extent
    return strides


def new_indices(indices: Sequence[PrimExpr], parts: Sequence[tuple[int, int]]) -> list[PrimExpr]:
    """Return the indices, in a layout of ``(dimension, extent)`` parts, of the element at ``indices``."""
    strides = _strides([_Part(dim, extent, "") for dim, extent in parts])
    return [
        prim_ops.floormod(prim_ops.floordiv(indices[dim], stride), extent)
        for (dim, extent), stride in zip(parts, strides, strict=True)
    ]


def _rewritten(
    ops: Sequence[Operation], tensors: Sequence[Tensor], source: Operation, parts: list[_Part], option: int
) -> tuple[list[Operation], list[Tensor]]:
    """All operations and tensors, with ``source`` in a new layout."""
    old = source.output(0)
    inserted = option == LayoutRewriteOption.INSERT_TRANSFORM_STAGE
    shape = [p.extent for p in parts]
    new = _transformed(old, parts) if inserted else te.placeholder(shape, old.dtype, source.name)
    mapped: dict[Tensor, Tensor] = {} if inserted else {old: new}
    made: list[Operation] = []
    for op in ops:
        if op is source:
            made += [source, new.op] if inserted else [new.op]
            continue
        fresh = replace_inputs(op, {t: n for t, n in mapped.items() if t is not old})
        if isinstance(fresh, ComputeOp) and old in op.input_tensors:
            fresh = _read_anew(fresh, old, new, parts)
        mapped |= dict(zip(op.outputs, fresh.outputs, strict=True))
        made.append(fresh)
    return made, [mapped.get(t, t) for t in tensors]


def _read_anew(op: ComputeOp, old: Tensor, new: Tensor, parts: list[_Part]) -> ComputeOp:
    dims = [(p.dim, p.extent) for p in parts]

    def read(tensor: Tensor, indices: tuple[PrimExpr, ...]) -> PrimExpr | None:
        return ProducerLoad(new, new_indices(indices, dims)) if tensor is old else None

    mapper = MapLoads(read)
    names = {p.dim: p.name for p in parts}
    before = layout_text([(_value(extent), names.get(d, "IntImm")) for d, extent in enumerate(old.shape)])
    attrs = dict(op.attrs.items()) | {
        "ori_placeholder_layout": before,
        "new_placeholder_layout": layout_text([(p.extent, p.name) for p in parts]),
        LAYOUT_FREE: tuple(t for t in op.attrs.get(LAYOUT_FREE, ()) if t is not old),
    }
    body = [mapper.visit_expr(b) for b in op.body]
    return ComputeOp(op.name, op.tag, attrs, op.axis, body, op.reduce_axis)


def _transformed(old: Tensor, parts: list[_Part]) -> Tensor:
    strides = _strides(parts)
    sizes = _sizes(parts)

    def element(*axes: Any) -> PrimExpr:
        indices: list[Any] = [prim_ops.const(0)] * len(old.shape)
        for axis, part, stride in zip(axes, parts, strides, strict=True):
            indices[part.dim] = indices[part.dim] + axis * stride
        inside = [indices[dim] < old.shape[dim] for dim, size in sizes.items() if size > _value(old.shape[dim])]
        return (
            tir.if_then_else(tir.all(*inside), old(*indices), prim_ops.const(0, old.dtype)) if inside else old(*indices)
        )

    made: Tensor = te.compute([p.extent for p in parts], element, name="auto_scheduler_layout_transform")
    return made


def _with_transform(steps: Sequence[Step], position: int, extents: Sequence[int]) -> tuple[Step, ...]:
    """The steps of a computation with one stage more, at ``position``, that brings an input into a new layout.

    Its outer loops are parallel, its innermost one a vector. If that gathers a column, ``TransposeLoads`` makes rows of
    several, where the loop around it goes along them.
    """
    made: list[Step] = []
    for step in steps:
        moved = _renumbered(step, position)
        if isinstance(step, StageAddingStep):
            position += step.stage_id < position
        made.append(moved)
    loops = len(extents)
    if loops >= 3:
        fused = (0, 1, 2) if loops >= 5 else (0, 1)
        made.append(FuseStep(position, fused))
        loops -= len(fused) - 1
    made.append(AnnotationStep(position, 0, PARALLEL))
    if loops > 1 and _LEAST_LANES <= extents[-1] <= _MOST_LANES:
        made.append(AnnotationStep(position, loops - 1, VECTORIZE))
    return tuple(made)


def _renumbered(step: Step, position: int) -> Step:
    changes: dict[str, Any] = {"stage_id": step.stage_id + (step.stage_id >= position)}
    if isinstance(step, ComputeAtStep):
        changes["target_stage_id"] = step.target_stage_id + (step.target_stage_id >= position)
    if isinstance(step, CacheReadStep):
        changes["reader_stage_ids"] = tuple(r + (r >= position) for r in step.reader_stage_ids)
    return replace(step, **changes)


def rewritten_body(op: ComputeOp, source: Operation, layout: str) -> list[PrimExpr]:
    """The body of ``op``, whose reads of ``source`` name axes, as if ``source`` had the layout ``4j8k...``."""
    parts = parse_layout(layout)

    def read(tensor: Tensor, indices: tuple[PrimExpr, ...]) -> PrimExpr | None:
        if tensor.op is not source:
            return None
        named = {_axis_name(index): dim for dim, index in enumerate(indices)}
        missing = [name for _, name in parts if name not in named]
        if missing:
            raise TilewrightError(f"layout {layout}: {op.name} reads {source.name} with no axis called {missing[0]}")
        return ProducerLoad(tensor, new_indices(indices, [(named[name], extent) for extent, name in parts]))

    mapper = MapLoads(read)
    return [mapper.visit_expr(b) for b in op.body]


def _axis_name(index: PrimExpr) -> str:
    return base_name(clean_name(index.name)) if isinstance(index, Var) else "IntImm"
