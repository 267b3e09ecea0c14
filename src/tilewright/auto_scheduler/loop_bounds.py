"""Numeric loop extents and strides of a state, fast enough for thousands of states.

Works from the outputs back to the inputs, as bound inference of ``te`` does. For a stage inside loops of another, the
loops around it stand still and say where its part begins; the others say how large it is:

    for i.0: for j.0:              C.local is computed inside j.0: C reads C.local[i.0*8 + i.1, j.0*16 + j.1]
      C.local = ...                => C.local's part: 8 x 16 elements, at (8 i.0, 16 j.0)
      for i.1, j.1: C = ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tilewright.auto_scheduler.index_forms import Access, AccessForms, Form
from tilewright.auto_scheduler.loop_nest import (
    COMPUTE,
    INLINED,
    ITER,
    THREAD_X,
    THREAD_Y,
    THREAD_Z,
    VTHREAD,
    AxisOrigin,
    FuseOrigin,
    LoopKey,
    Origin,
    SplitOrigin,
    StateObject,
)

_THREADS = (VTHREAD, THREAD_X, THREAD_Y, THREAD_Z)

Motion = dict[LoopKey, tuple[float, float]]
"""for each loop how much one iteration, and how much all of them, change a value"""


class LoopBounds:
    """The loops of a state with every range known.

    Attributes
    ----------
    extents : for each stage the iterations of its loops
    axes : for each stage how much of each axis its part covers
    motion : for each stage, for each axis, which loops move it; those around the stage, too
    paths : for each stage the loops of others around it, the outermost first
    """

    def __init__(self, state: StateObject, dag: Any) -> None:
        current = state.current_compute_dag or dag
        self.state = state
        self.forms: AccessForms = current.access_forms
        self.inlined = frozenset(i for i, s in enumerate(state.stages) if s.compute_at == INLINED)
        count = len(state.stages)
        self.extents: list[list[int]] = [[] for _ in range(count)]
        self.axes: list[list[int]] = [[] for _ in range(count)]
        self.motion: list[list[Motion]] = [[] for _ in range(count)]
        self.paths: list[list[LoopKey]] = [[] for _ in range(count)]
        self._readers: list[list[tuple[int, tuple[Form, ...]]]] = [[] for _ in range(count)]
        self._run()

    def repetition(self, stage_id: int) -> float:
        """Return how many times a stage computes each of its elements, on average."""
        rank = len(self.forms.shapes[stage_id])
        around = prod(self.extents[s][i] for s, i in self.paths[stage_id])
        return around * prod(self.axes[stage_id][:rank]) / max(1, prod(self.forms.shapes[stage_id]))

    def reads(self, stage_id: int) -> list[Access]:
        """Return the reads of a stage, through inlined ones."""
        return self.forms.reads(stage_id, self.inlined)

    def _run(self) -> None:
        stages = self.state.stages
        for stage_id in reversed(range(len(stages))):
            stage = stages[stage_id]
            if stage.op_type != COMPUTE or stage_id in self.inlined:
                continue
            whole = self.forms.axes[stage_id]
            self.axes[stage_id] = list(whole)
            self.motion[stage_id] = [{} for _ in whole]
            if stage.compute_at == ITER:
                self._place_inside(stage_id)
            self._run_loops(stage_id)
            for read, forms in self.reads(stage_id):
                self._readers[read].append((stage_id, forms))

    def _place_inside(self, stage_id: int) -> None:
        target, position = self.state.attach_map.stage_to_attach_iter[stage_id]
        path = [*self.paths[target], *[(target, i) for i in range(position + 1)]]
        self.paths[stage_id] = path
        around = set(path)
        if self.state.stages[stage_id].op.name.endswith(".shared"):  # a part for all threads of a block
            around = {(s, i) for s, i in path if self.state.stages[s].iters[i].annotation not in _THREADS}
        shape = self.forms.shapes[stage_id]
        low: list[float] = [0.0] * len(shape)
        high: list[float] = [-1.0] * len(shape)
        for number, (reader, forms) in enumerate(self._readers[stage_id]):
            for dim, form in enumerate(forms):
                below, above, outer = self._span(reader, form, around, shape[dim])
                if number == 0:
                    low[dim], high[dim] = below, above
                    self.motion[stage_id][dim].update(outer)
                else:
                    low[dim], high[dim] = min(low[dim], below), max(high[dim], above)
        for dim, size in enumerate(shape):
            self.axes[stage_id][dim] = max(1, min(size, int(high[dim] - low[dim]) + 1))

    def _span(self, reader: int, form: Form, around: set[LoopKey], size: int) -> tuple[float, float, Motion]:
        """Return the range of an index while the loops ``around`` are fixed, and how these move it."""
        moved = self.index_motion(reader, form)
        if not form.known:
            return 0.0, size - 1.0, {}
        below = above = 0.0
        outer: Motion = {}
        for key, (step, reach) in moved.items():
            if key in around:
                outer[key] = (step, reach)
            elif step < 0:
                below -= reach
            else:
                above += reach
        if above > below:
            above += form.slack
        if form.period and above - below >= form.period:
            below, above = 0.0, form.period - 1.0
        return form.const + below, form.const + above, outer

    def index_motion(self, stage_id: int, form: Form) -> Motion:
        """Return which loops move an index of a stage, and how far."""
        if len(form.terms) == 1:
            axis, c = form.terms[0]
            own = self.motion[stage_id][axis]
            return own if c == 1.0 else {k: (s * c, r * abs(c)) for k, (s, r) in own.items()}
        moved: Motion = {}
        for axis, c in form.terms:
            for key, (step, reach) in self.motion[stage_id][axis].items():
                before = moved.get(key, (0.0, 0.0))
                moved[key] = (before[0] + step * c, before[1] + reach * abs(c))
        return moved

    def _run_loops(self, stage_id: int) -> None:
        known: dict[Origin, int] = {}
        axes = self.axes[stage_id]
        for position, it in enumerate(self.state.stages[stage_id].iters):
            assert it.origin is not None
            extent = extent_of_origin(it.origin, axes, known)
            if it.annotation in _THREADS:
                extent = max(extent, _given_length(it.origin))
            self.extents[stage_id].append(extent)
            for axis, step, reach in moved_axes(it.origin, extent, axes, known):
                if reach:
                    self.motion[stage_id][axis][stage_id, position] = (step, reach)

    def bounded(self) -> StateObject:
        """The state with the range of every loop."""
        stages = [
            stage.with_iters([it.with_range(e) for it, e in zip(stage.iters, extents, strict=True)])
            if extents
            else stage
            for stage, extents in zip(self.state.stages, self.extents, strict=True)
        ]
        return replace(self.state, stages=tuple(stages))


def _given_length(origin: Origin) -> int:
    """Return the loop length that a split sets: a block has that many threads, even if some have no work."""
    if not isinstance(origin, SplitOrigin):
        return 1
    place = origin.position - 1 if origin.inner_to_outer else origin.position
    return (origin.lengths[place] or 1) if 0 <= place < len(origin.lengths) else 1


def extent_of_origin(origin: Origin, axes: Sequence[int], known: dict[Origin, int]) -> int:
    """Return the iterations of a loop from the extents of its stage's axes."""
    found = known.get(origin)
    if found is not None:
        return found
    if isinstance(origin, AxisOrigin):
        found = axes[origin.axis]
    elif isinstance(origin, FuseOrigin):
        found = prod(extent_of_origin(part, axes, known) for part in origin.parts)
    else:
        rest = extent_of_origin(origin.parent, axes, known)
        found = split_extents(rest, origin.lengths, origin.inner_to_outer)[origin.position]
    known[origin] = found
    return found


def split_extents(extent: int, lengths: Sequence[int | None], inner_to_outer: bool) -> list[int]:
    """The iterations of the loops that a loop is split into, the outermost first."""
    made: list[int] = []
    for length in reversed(lengths) if inner_to_outer else lengths:
        part = min(length or 1, extent)
        made.append(part)
        extent = -(-extent // max(1, part))
    made.append(extent)
    return made[::-1] if inner_to_outer else made


def moved_axes(
    origin: Origin, extent: int, axes: Sequence[int], known: dict[Origin, int]
) -> list[tuple[int, float, float]]:
    """Return (axis, change by one iteration, change by all) for each axis that a loop moves."""
    unit = 1
    while isinstance(origin, SplitOrigin):
        parts = split_extents(extent_of_origin(origin.parent, axes, known), origin.lengths, origin.inner_to_outer)
        unit *= prod(parts[origin.position + 1 :])
        origin = origin.parent
    if isinstance(origin, AxisOrigin):
        return [(origin.axis, float(unit), float(unit * (extent - 1)))]
    return _moved_by_fused(origin, unit, extent, axes, known)


def _moved_by_fused(
    origin: FuseOrigin, unit: int, extent: int, axes: Sequence[int], known: dict[Origin, int]
) -> list[tuple[int, float, float]]:
    """Return the changes for a fused loop in steps of ``unit``: digits of a mixed-radix number."""
    span = unit * (extent - 1)
    inside = 1
    total: dict[int, list[float]] = {}
    for part in reversed(origin.parts):
        own = extent_of_origin(part, axes, known)
        moves = own > 1 and span > 0 and unit % (inside * own) != 0
        values = min(own, -(-(span + 1) // inside)) if moves else 1
        for axis, step, _ in moved_axes(part, own, axes, known):
            entry = total.setdefault(axis, [0.0, 0.0])
            entry[0] += step * (unit // inside) if moves and unit >= inside else 0.0
            entry[1] += abs(step) * (values - 1)
        inside *= own
    return [(axis, step, reach) for axis, (step, reach) in total.items()]
