"""Steps that work on the loops of one stage, and the base of all steps.

A step is applied to a state (which changes loops), to a ``te`` schedule (``Replay``), or printed as Python; and it is
one list in a record:

    step ::= AN stage loop annotation | FU stage [loop*] | PR stage loop text | RE stage [loop*]
           | SP stage loop extent [length*] inner_to_outer | FSP stage loop step parts
           | FFSP stage loop [step*] level inner_to_outer | SA stage loop factor offset

Steps on several stages are in ``stage_steps.py``. Names and lists are those of TVM 0.8's records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tilewright import te
from tilewright.auto_scheduler.loop_nest import (
    ANNOTATIONS,
    MIXED,
    NONE,
    PARALLEL,
    SPECIAL,
    TENSORIZE,
    UNROLL,
    VECTORIZE,
    FuseOrigin,
    Iterator,
    LoopKey,
    LoopRange,
    SplitOrigin,
    StateObject,
    clean_name,
)
from tilewright.ir.errors import TilewrightError
from tilewright.te.schedule.stage import Stage as TeStage
from tilewright.tir.expr import IterVar

_AUTO_UNROLL = "auto_unroll_max_step$"


class Replay:
    """A ``te`` schedule on which steps are repeated: its stages in the order of the state's, and their loops."""

    def __init__(self, schedule: te.Schedule, stages: Sequence[TeStage], steps: Sequence[Step]) -> None:
        self.schedule = schedule
        self.stages = list(stages)
        self.steps = tuple(steps)
        self.axes: dict[TeStage, list[IterVar]] = {}
        for stage in stages:
            self.reset_axes(stage)

    def reset_axes(self, stage: TeStage) -> None:
        """The loops of a stage are those of its operation."""
        self.axes[stage] = list(stage.op.root_iter_vars)

    def axis_name(self, stage_id: int, iter_id: int) -> str:
        """The name of a loop in printed Python."""
        stage = self.stages[stage_id]
        return clean_name(self.axes[stage][iter_id].var.name, self.stage_name(stage_id))

    def stage_name(self, stage_id: int) -> str:
        """The name of a stage in printed Python."""
        return clean_name(self.stages[stage_id].op.name)


@dataclass(frozen=True, slots=True)
class Step:
    """One transformation of a state. ``prefix`` names it in records."""

    prefix: ClassVar[str] = ""
    stage_id: int

    def record(self) -> list[Any]:
        """The step as a record's list."""
        raise NotImplementedError

    def apply(self, state: StateObject, dag: Any) -> tuple[StateObject, Any]:
        """Apply the step; return the state and the step's result: its new loops, or the position of its new stage.

        ``state.transform_steps`` holds the steps before this one.
        """
        raise NotImplementedError

    def schedule(self, replay: Replay) -> Any:
        """Do the same to a ``te`` schedule."""
        raise NotImplementedError

    def python(self, replay: Replay) -> str:
        """The step in Python's API, after which ``replay`` is a step further."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class AnnotationStep(Step):
    """Run a loop in parallel, as a vector, unrolled, or bound to a thread."""

    prefix: ClassVar[str] = "AN"
    iter_id: int
    annotation: int

    def record(self) -> list[Any]:
        return [self.prefix, self.stage_id, self.iter_id, self.annotation]

    def apply(self, state: StateObject, dag: Any) -> tuple[StateObject, Iterator]:
        stage = state.stages[self.stage_id]
        old = stage.iters[self.iter_id]
        if old.annotation != NONE:
            raise TilewrightError(
                f"loop {old.name} of {stage.op.name} is marked {ANNOTATIONS[old.annotation]} already; "
                f"it cannot be {ANNOTATIONS[self.annotation]}, too"
            )
        new = replace(old, annotation=self.annotation)
        iters = (*stage.iters[: self.iter_id], new, *stage.iters[self.iter_id + 1 :])
        return state.with_stage(self.stage_id, stage.with_iters(iters)), new

    def schedule(self, replay: Replay) -> None:
        stage = replay.stages[self.stage_id]
        axis = replay.axes[stage][self.iter_id]
        if self.annotation in (UNROLL, VECTORIZE, PARALLEL):
            getattr(stage, ANNOTATIONS[self.annotation])(axis)
        elif self.annotation == TENSORIZE:
            raise TilewrightError(
                f"{stage.op.name}: a record does not say which intrinsic a tensorized loop stands for"
            )
        elif self.annotation != NONE:
            stage.bind(axis, te.thread_axis(ANNOTATIONS[self.annotation]))

    def python(self, replay: Replay) -> str:
        name, axis = replay.stage_name(self.stage_id), replay.axis_name(self.stage_id, self.iter_id)
        self.schedule(replay)
        text = ANNOTATIONS[self.annotation]
        if self.annotation in (UNROLL, VECTORIZE, PARALLEL):
            return f"s[{name}].{text}({axis})\n"
        return f's[{name}].bind({axis}, te.thread_axis("{text}"))\n'


@dataclass(frozen=True, slots=True)
class FuseStep(Step):
    """Fuse consecutive loops."""

    prefix: ClassVar[str] = "FU"
    fused_ids: tuple[int, ...]

    def record(self) -> list[Any]:
        return [self.prefix, self.stage_id, list(self.fused_ids)]

    def apply(self, state: StateObject, dag: Any) -> tuple[StateObject, Iterator]:
        stage, ids = state.stages[self.stage_id], self.fused_ids
        parts = tuple(stage.iters[i] for i in ids)
        self._check(state, parts)
        extent: int | None = 1
        for it in parts:
            extent = None if extent is None or it.range is None else extent * it.range.extent
        kinds = {it.iter_kind for it in parts}
        kind = SPECIAL if not kinds else kinds.pop() if len(kinds) == 1 else MIXED
        known = None if extent is None else LoopRange(0, extent)
        origin = FuseOrigin(tuple(it.origin for it in parts if it.origin is not None))
        fused = Iterator("".join(f"{it.name}@" for it in parts), known, kind, NONE, parts, origin)
        if not ids:
            return state.with_stage(self.stage_id, stage.with_iters([fused])), fused
        first, last = ids[0], ids[-1]
        iters = (*stage.iters[:first], fused, *stage.iters[last + 1 :])
        moved = {
            (self.stage_id, i): (self.stage_id, first if i <= last else i - last + first)
            for i in range(first + 1, len(stage.iters))
        }
        state = state.with_stage(self.stage_id, stage.with_iters(iters))
        return replace(state, attach_map=state.attach_map.move_loops(moved)), fused

    def _check(self, state: StateObject, parts: Sequence[Iterator]) -> None:
        stage, names = state.stages[self.stage_id], ", ".join(it.name for it in parts)
        if any(b != a + 1 for a, b in zip(self.fused_ids, self.fused_ids[1:], strict=False)):
            raise TilewrightError(f"fuse: {names} of {stage.op.name} do not follow each other; reorder them first")
        for i in self.fused_ids[:-1]:
            if state.attached_at(self.stage_id, i):
                raise TilewrightError(f"fuse: a stage is computed inside {stage.iters[i].name}, between {names}")

    def schedule(self, replay: Replay) -> IterVar:
        stage = replay.stages[self.stage_id]
        axes, ids = replay.axes[stage], self.fused_ids
        fused = stage.fuse(*[axes[i] for i in ids])
        replay.axes[stage] = [*axes[: ids[0]], fused, *axes[ids[-1] + 1 :]] if ids else [fused]
        return fused

    def python(self, replay: Replay) -> str:
        name = replay.stage_name(self.stage_id)
        parts = ", ".join(replay.axis_name(self.stage_id, i) for i in self.fused_ids)
        fused = self.schedule(replay)
        return f"{clean_name(fused.var.name, name)} = s[{name}].fuse({parts})\n"


@dataclass(frozen=True, slots=True)
class PragmaStep(Step):
    """Attach a hint to a loop: ``auto_unroll_max_step$N``, or a pragma's name."""

    prefix: ClassVar[str] = "PR"
    iter_id: int
    pragma_type: str

    def record(self) -> list[Any]:
        return [self.prefix, self.stage_id, self.iter_id, self.pragma_type]

    @property
    def max_step(self) -> int | None:
        """N of ``auto_unroll_max_step$N``."""
        return int(self.pragma_type.removeprefix(_AUTO_UNROLL)) if self.pragma_type.startswith(_AUTO_UNROLL) else None

    def apply(self, state: StateObject, dag: Any) -> tuple[StateObject, None]:
        if self.pragma_type == "debug_skip_region":
            return replace(state, attach_map=state.attach_map.detach(self.stage_id)), None
        if self.max_step is None:
            raise TilewrightError(
                f"pragma {self.pragma_type} is not known; states take auto_unroll_max_step$N and debug_skip_region"
            )
        stage = replace(state.stages[self.stage_id], auto_unroll_max_step=self.max_step)
        return state.with_stage(self.stage_id, stage), None

    def _pragmas(self) -> list[tuple[str, Any]]:
        if self.max_step is None:
            return [(self.pragma_type, None)]
        return [("auto_unroll_max_step", self.max_step), ("unroll_explicit", True)]

    def schedule(self, replay: Replay) -> None:
        stage = replay.stages[self.stage_id]
        axes = replay.axes[stage]
        if self.iter_id < len(axes):
            for name, value in self._pragmas():
                stage.pragma(axes[self.iter_id], name, value)

    def python(self, replay: Replay) -> str:
        stage, axis = replay.stage_name(self.stage_id), replay.axis_name(self.stage_id, self.iter_id)
        self.schedule(replay)
        tail = [f'"{name}"' if value is None else f'"{name}", {value}' for name, value in self._pragmas()]
        return "".join(f"s[{stage}].pragma({axis}, {t})\n" for t in tail)


@dataclass(frozen=True, slots=True)
class ReorderStep(Step):
    """Put all loops of a stage in another order."""

    prefix: ClassVar[str] = "RE"
    after_ids: tuple[int, ...]

    def record(self) -> list[Any]:
        return [self.prefix, self.stage_id, list(self.after_ids)]

    def apply(self, state: StateObject, dag: Any) -> tuple[StateObject, None]:
        stage = state.stages[self.stage_id]
        if sorted(self.after_ids) != list(range(len(stage.iters))):
            names = ", ".join(it.name for it in stage.iters)
            raise TilewrightError(f"reorder of {stage.op.name} takes each of its loops once: {names}")
        return state.with_stage(self.stage_id, stage.with_iters([stage.iters[i] for i in self.after_ids])), None

    def schedule(self, replay: Replay) -> None:
        stage = replay.stages[self.stage_id]
        axes = [replay.axes[stage][i] for i in self.after_ids]
        stage.reorder(*axes)
        replay.axes[stage] = axes

    def python(self, replay: Replay) -> str:
        order = ", ".join(replay.axis_name(self.stage_id, i) for i in self.after_ids)
        self.schedule(replay)
        return f"s[{replay.stage_name(self.stage_id)}].reorder({order})\n"


@dataclass(frozen=True, slots=True)
class _Splitting(Step):
    """Base of the splits: ``factors`` returns the lengths, from a step's own fields and the steps before it."""

    iter_id: int

    def factors(self, steps: Sequence[Step]) -> tuple[tuple[int | None, ...], bool]:
        """The lengths, and whether they go from the inner loops outward."""
        raise NotImplementedError

    def apply(self, state: StateObject, dag: Any) -> tuple[StateObject, list[Iterator]]:
        lengths, inner_to_outer = self.factors(state.transform_steps)
        stage = state.stages[self.stage_id]
        made = _split_loop(stage.iters[self.iter_id], lengths, inner_to_outer)
        iters = (*stage.iters[: self.iter_id], *made, *stage.iters[self.iter_id + 1 :])
        moved: dict[LoopKey, LoopKey] = {
            (self.stage_id, i): (self.stage_id, i + len(lengths)) for i in range(self.iter_id, len(stage.iters))
        }
        state = state.with_stage(self.stage_id, stage.with_iters(iters))
        concrete, attached = state.concrete and None not in lengths, state.attach_map.move_loops(moved)
        steps, current = state.transform_steps, state.current_compute_dag
        return StateObject(state.stages, steps, attached, concrete, current), made

    def schedule(self, replay: Replay) -> list[IterVar]:
        return [axis for _, axis in self._split(replay)]

    def _split(self, replay: Replay) -> list[tuple[tuple[IterVar, IterVar, IterVar] | None, IterVar]]:
        """Each loop from the outside in, with the split (parent, outer, inner) that made it the last."""
        lengths, inner_to_outer = self.factors(replay.steps)
        stage = replay.stages[self.stage_id]
        axes = replay.axes[stage]
        rest = axes[self.iter_id]
        made: list[tuple[tuple[IterVar, IterVar, IterVar] | None, IterVar]] = []
        for length in reversed(lengths) if inner_to_outer else lengths:
            if length is None:
                raise TilewrightError(f"a split of {stage.op.name} has no length yet; sample or give one")
            if inner_to_outer:
                outer, inner = stage.split(rest, factor=length)
                made.insert(0, ((rest, outer, inner), inner))
                rest = outer
            else:
                outer, inner = stage.split(rest, nparts=length)
                made.append(((rest, outer, inner), outer))
                rest = inner
        made.insert(0 if inner_to_outer else len(made), (None, rest))
        replay.axes[stage] = [*axes[: self.iter_id], *[axis for _, axis in made], *axes[self.iter_id + 1 :]]
        return made

    def python(self, replay: Replay) -> str:
        lengths, inner_to_outer = self.factors(replay.steps)
        name = replay.stage_name(self.stage_id)
        splits = [how for how, _ in self._split(replay) if how is not None]
        word, order = ("factor", reversed(lengths)) if inner_to_outer else ("nparts", iter(lengths))
        text = ""
        for (parent, outer, inner), length in zip(reversed(splits) if inner_to_outer else splits, order, strict=True):
            old, first, second = (clean_name(iv.var.name, name) for iv in (parent, outer, inner))
            text += f"{first}, {second} = s[{name}].split({old}, {word}={length})\n"
        return text


def _split_loop(it: Iterator, lengths: Sequence[int | None], inner_to_outer: bool) -> list[Iterator]:
    """The loops that a loop is split into, outermost first."""
    count, rest = len(lengths), it.range
    ranges: list[LoopRange | None] = []
    for length in reversed(lengths) if inner_to_outer else lengths:
        known = None if length is None or rest is None else LoopRange(rest.min, length)
        ranges.append(known)
        rest = None if known is None or rest is None else LoopRange(0, -(-rest.extent // known.extent))
    ranges.append(rest)
    if inner_to_outer:
        ranges.reverse()
    made: list[Iterator] = []
    for position, extent in zip(range(count + 1), ranges, strict=True):
        origin = None if it.origin is None else SplitOrigin(it.origin, tuple(lengths), inner_to_outer, position)
        made.append(Iterator(f"{it.name}.{position}", extent, it.iter_kind, NONE, (), origin))
    return made


@dataclass(frozen=True, slots=True)
class SplitStep(_Splitting):
    """Split a loop by ``lengths``; None leaves a length to the search. ``extent``: of the loop, None if unknown."""

    prefix: ClassVar[str] = "SP"
    extent: int | None
    lengths: tuple[int | None, ...]
    inner_to_outer: bool = True

    def record(self) -> list[Any]:
        lengths, order = list(self.lengths), int(self.inner_to_outer)
        return [self.prefix, self.stage_id, self.iter_id, self.extent or 0, lengths, order]

    def factors(self, steps: Sequence[Step]) -> tuple[tuple[int | None, ...], bool]:
        return self.lengths, self.inner_to_outer


@dataclass(frozen=True, slots=True)
class FollowSplitStep(_Splitting):
    """Split as an earlier step did, into ``n_split`` + 1 loops; the last takes the remaining lengths together."""

    prefix: ClassVar[str] = "FSP"
    src_step_id: int
    n_split: int

    def record(self) -> list[Any]:
        return [self.prefix, self.stage_id, self.iter_id, self.src_step_id, self.n_split]

    def factors(self, steps: Sequence[Step]) -> tuple[tuple[int | None, ...], bool]:
        lengths = _followed(steps, self.src_step_id).lengths
        if self.n_split > len(lengths) + 1:
            raise TilewrightError(
                f"step {self.src_step_id} splits into {len(lengths) + 1} loops, not into more than {self.n_split}"
            )
        return (*lengths[: self.n_split - 1], _product(lengths[self.n_split - 1 :])), True


@dataclass(frozen=True, slots=True)
class FollowFusedSplitStep(_Splitting):
    """Split by the extent that the loops of ``level`` of several earlier splits have when they are fused."""

    prefix: ClassVar[str] = "FFSP"
    src_step_ids: tuple[int, ...]
    level: int
    factor_or_nparts: bool

    def record(self) -> list[Any]:
        steps, order = list(self.src_step_ids), int(self.factor_or_nparts)
        return [self.prefix, self.stage_id, self.iter_id, steps, self.level, order]

    def factors(self, steps: Sequence[Step]) -> tuple[tuple[int | None, ...], bool]:
        lengths = [_followed(steps, i).lengths[self.level] for i in self.src_step_ids]
        return (_product(lengths),), self.factor_or_nparts


def _followed(steps: Sequence[Step], step_id: int) -> SplitStep:
    step = steps[step_id] if step_id < len(steps) else None
    if not isinstance(step, SplitStep):
        raise TilewrightError(f"step {step_id} is to be followed, but it is not a split")
    return step


def _product(lengths: Sequence[int | None]) -> int | None:
    result = 1
    for length in lengths:
        if length is None:
            return None
        result *= length
    return result


@dataclass(frozen=True, slots=True)
class StorageAlignStep(Step):
    """Pad the stored tensor so that the stride of an axis is ``k*factor + offset`` elements."""

    prefix: ClassVar[str] = "SA"
    iter_id: int
    factor: int
    offset: int

    def record(self) -> list[Any]:
        return [self.prefix, self.stage_id, self.iter_id, self.factor, self.offset]

    def apply(self, state: StateObject, dag: Any) -> tuple[StateObject, None]:
        stage = replace(state.stages[self.stage_id], storage_offset=self.offset)
        return state.with_stage(self.stage_id, stage), None

    def schedule(self, replay: Replay) -> None:
        stage = replay.stages[self.stage_id]
        stage.storage_align(replay.axes[stage][self.iter_id], self.factor, self.offset)

    def python(self, replay: Replay) -> str:
        axis = replay.axis_name(self.stage_id, self.iter_id)
        self.schedule(replay)
        return f"s[{replay.stage_name(self.stage_id)}].storage_align({axis}, {self.factor}, {self.offset})\n"
