"""Parts of a search state: loops, stages, and which stage is computed inside which loop.

::

    state   ::= stage*  step*  attach        stages in the order of the schedule's; the steps that made them
    stage   ::= op, kind, loop*, place       place ::= root | inlined | iter (computed inside a loop of another stage)
    loop    ::= name, range | None, kind, annotation

All of it is immutable: a step returns a new state that shares the unchanged parts. A range is None after a step that
makes it unknown (``compute_at``); ``ComputeDAG.infer_bound_from_state`` fills it in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from tilewright.ir.prim_expr import IntImm
from tilewright.te.operation import ComputeOp, Operation, PlaceholderOp
from tilewright.tir.expr import IterVar

SPATIAL, REDUCTION, MIXED, SPECIAL = range(4)
ROOT, INLINED, ITER = range(3)
PLACEHOLDER, COMPUTE = range(2)

ANNOTATIONS = (
    "for", "unroll", "vectorize", "parallel", "vthread", "blockIdx.x", "threadIdx.x", "blockIdx.y", "threadIdx.y",
    "blockIdx.z", "threadIdx.z", "tensorize",
)  # fmt: skip
NONE, UNROLL, VECTORIZE, PARALLEL, VTHREAD, BLOCK_X, THREAD_X, BLOCK_Y, THREAD_Y, BLOCK_Z, THREAD_Z, TENSORIZE = range(
    12
)

LoopKey = tuple[int, int]
"""(stage, position of the loop in it)"""


class LoopRange(NamedTuple):
    """The values that a loop runs over."""

    min: int
    extent: int


@dataclass(frozen=True, eq=False, slots=True)
class AxisOrigin:
    """A loop is axis number ``axis`` of its operation, reductions after the others."""

    axis: int


@dataclass(frozen=True, eq=False, slots=True)
class SplitOrigin:
    """A loop is the ``position``-th, from the outside, of those that ``parent`` was split into by ``lengths``."""

    parent: Origin
    lengths: tuple[int | None, ...]
    inner_to_outer: bool
    position: int


@dataclass(frozen=True, eq=False, slots=True)
class FuseOrigin:
    """A loop is several in one, outermost first."""

    parts: tuple[Origin, ...]


Origin = AxisOrigin | SplitOrigin | FuseOrigin


@dataclass(frozen=True, eq=False, slots=True)
class Iterator:
    """A loop. ``orig_iters``: the loops that were fused into it; ``origin``: how it came from the operation's axes."""

    name: str
    range: LoopRange | None
    iter_kind: int
    annotation: int = NONE
    orig_iters: tuple[Iterator, ...] = ()
    origin: Origin | None = None

    @property
    def extent(self) -> int:
        """The number of iterations, or -1 if unknown."""
        return -1 if self.range is None else self.range.extent

    def with_range(self, extent: int | None) -> Iterator:
        """The loop over another number of iterations."""
        known = None if extent is None else LoopRange(0, extent)
        if known == self.range:
            return self
        return Iterator(self.name, known, self.iter_kind, self.annotation, self.orig_iters, self.origin)


@dataclass(frozen=True, eq=False, slots=True)
class Stage:
    """The loops of one operation. ``compute_at``: 0 at root, 1 inlined, 2 inside a loop of another stage."""

    op: Any
    op_type: int
    iters: tuple[Iterator, ...]
    compute_at: int = ROOT
    auto_unroll_max_step: int = 0
    storage_offset: int = 0

    COMPUTE_AT_TRANS_TABLE: ClassVar[dict[str, int]] = {"root": ROOT, "inlined": INLINED, "iter": ITER}

    @staticmethod
    def of(op: Operation) -> Stage:
        """The stage of an operation before any step."""
        if isinstance(op, PlaceholderOp):
            return Stage(op, PLACEHOLDER, ())
        assert isinstance(op, ComputeOp)
        kinds = [SPATIAL] * len(op.axis) + [REDUCTION] * len(op.reduce_axis)
        loops = [
            Iterator(clean_name(iv.var.name), _range(iv), kind, origin=AxisOrigin(number))
            for number, (iv, kind) in enumerate(zip(op.root_iter_vars, kinds, strict=True))
        ]
        return Stage(op, COMPUTE, tuple(loops))

    @property
    def is_tiled(self) -> bool:
        """Return whether splits or fusions changed the number of loops."""
        return len(self.iters) != len(self.op.axis) + len(self.op.reduce_axis)

    @property
    def has_reduction(self) -> bool:
        """Return whether some loop runs over a reduction."""
        return any(it.iter_kind != SPATIAL for it in self.iters)

    def with_iters(self, iters: Sequence[Iterator]) -> Stage:
        """The stage with other loops."""
        kept = self.compute_at, self.auto_unroll_max_step, self.storage_offset
        return Stage(self.op, self.op_type, tuple(iters), *kept)

    def __repr__(self) -> str:
        return f"auto_scheduler.Stage({self.op.name})"


def _range(iv: IterVar) -> LoopRange:
    assert iv.dom is not None
    low, extent = iv.dom.min, iv.dom.extent
    assert isinstance(low, IntImm) and isinstance(extent, IntImm)
    return LoopRange(low.value, extent.value)


def clean_name(name: str, prefix: str = "") -> str:
    """A name as an identifier: ``i.outer`` is ``i_o``; with a prefix, ``prefix_i_o``."""
    name = name.replace(".", "_").replace("@", "_").replace("outer", "o").replace("inner", "i")
    return f"{prefix}_{name}" if prefix else name


@dataclass(frozen=True, slots=True)
class AttachMap:
    """The attachment of stages to loops, in both directions."""

    stage_to_attach_iter: dict[int, LoopKey] = field(default_factory=dict)
    iter_to_attached_stages: dict[LoopKey, list[int]] = field(default_factory=dict)

    @staticmethod
    def of(places: dict[int, LoopKey]) -> AttachMap:
        """Create the map with its inverse; stages of one loop are in the order in which they run."""
        inverse: dict[LoopKey, list[int]] = {}
        for stage in sorted(places):
            inverse.setdefault(places[stage], []).append(stage)
        return AttachMap(places, inverse)

    def attach(self, stage: int, key: LoopKey) -> AttachMap:
        """Attach ``stage`` to the loop ``key``, wherever it was before."""
        places = {s: k for s, k in self.stage_to_attach_iter.items() if s != stage}
        places[stage] = key
        return AttachMap.of(places)

    def detach(self, stage: int) -> AttachMap:
        """Detach ``stage`` from its loop."""
        if stage not in self.stage_to_attach_iter:
            return self
        return AttachMap.of({s: k for s, k in self.stage_to_attach_iter.items() if s != stage})

    def move_loops(self, moved: dict[LoopKey, LoopKey]) -> AttachMap:
        """Loops in other positions."""
        if not any(key in moved for key in self.iter_to_attached_stages):
            return self
        return AttachMap.of({s: moved.get(k, k) for s, k in self.stage_to_attach_iter.items()})

    def insert_stage(self, start: int) -> AttachMap:
        """Stages from ``start`` on count one more."""
        if not self.stage_to_attach_iter:
            return self
        later = {s + (s >= start): (t + (t >= start), i) for s, (t, i) in self.stage_to_attach_iter.items()}
        return AttachMap.of(later)


@dataclass(frozen=True, eq=False, slots=True)
class StateObject:
    """A loop structure and the steps that made it from the initial one.

    ``current_compute_dag``: the operations as cache_read, cache_write and rfactor left them, None before these.
    ``concrete``: no split waits for its factors. States of equal loops are equal, whatever steps made them.
    """

    stages: tuple[Stage, ...]
    transform_steps: tuple[Any, ...] = ()
    attach_map: AttachMap = field(default_factory=AttachMap)
    concrete: bool = True
    current_compute_dag: Any = None

    def with_stage(self, stage_id: int, stage: Stage) -> StateObject:
        """The state with another stage at a position."""
        stages = (*self.stages[:stage_id], stage, *self.stages[stage_id + 1 :])
        return StateObject(stages, self.transform_steps, self.attach_map, self.concrete, self.current_compute_dag)

    def with_step(self, step: Any) -> StateObject:
        """The state that remembers one step more."""
        steps = (*self.transform_steps, step)
        return StateObject(self.stages, steps, self.attach_map, self.concrete, self.current_compute_dag)

    def attached_at(self, stage_id: int, iter_id: int) -> list[int]:
        """The stages that are computed inside a loop."""
        return self.attach_map.iter_to_attached_stages.get((stage_id, iter_id), [])

    def to_str(self, delete_trivial_loop: bool = True) -> str:
        """The loops as text; those of one iteration are left out by default."""
        inputs = ", ".join(s.op.name for s in self.stages if s.op_type == PLACEHOLDER)
        lines = [f"Placeholder: {inputs}"]
        for stage_id, stage in enumerate(self.stages):
            if stage.op_type == COMPUTE and stage.compute_at == ROOT:
                self._print_stage(lines, stage_id, 0, delete_trivial_loop)
        return "\n".join(lines) + "\n"

    def _print_stage(self, lines: list[str], stage_id: int, indent: int, delete_trivial_loop: bool) -> None:
        stage = self.stages[stage_id]
        if stage.auto_unroll_max_step:
            lines.append(f"{' ' * indent}{stage.op.name} auto_unroll: {stage.auto_unroll_max_step}")
        if stage.storage_offset:
            lines.append(f"{' ' * indent}{stage.op.name} storage_offset: {stage.storage_offset}")
        for position, it in enumerate(stage.iters):
            if not (delete_trivial_loop and it.extent == 1):
                bounds = "None" if it.range is None else f"{it.range.min},{it.range.extent}"
                lines.append(f"{' ' * indent}{ANNOTATIONS[it.annotation]} {it.name} ({bounds})")
                indent += 2
            for attached in self.attached_at(stage_id, position):
                self._print_stage(lines, attached, indent, delete_trivial_loop)
        lines.append(f"{' ' * indent}{stage.op.name} = ...")

    def __str__(self) -> str:
        return self.to_str()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StateObject) and (self is other or self.to_str() == other.to_str())

    def __hash__(self) -> int:
        return hash(self.to_str())
