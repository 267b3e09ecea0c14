"""``State``: a loop structure that a program schedules step by step, as it does with a ``te`` schedule.

>>> s = dag.get_init_state()
>>> io, ii = s.split(C, s[C].iters[0], [16])
>>> s.parallel(C, io)
>>> print(s)

A ``State`` holds an immutable ``StateObject`` and the numbers of the stages that it knows by their operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tilewright.auto_scheduler.loop_nest import (
    ANNOTATIONS,
    PARALLEL,
    UNROLL,
    VECTORIZE,
    AttachMap,
    Iterator,
    LoopRange,
    Stage,
    StateObject,
)
from tilewright.auto_scheduler.stage_steps import (
    CacheReadStep,
    CacheWriteStep,
    ComputeAtStep,
    ComputeInlineStep,
    ComputeRootStep,
    RfactorStep,
    apply_step,
)
from tilewright.auto_scheduler.transform_step import (
    AnnotationStep,
    FollowFusedSplitStep,
    FollowSplitStep,
    FuseStep,
    PragmaStep,
    ReorderStep,
    SplitStep,
    Step,
    StorageAlignStep,
)
from tilewright.ir.errors import TilewrightError
from tilewright.te.operation import Operation
from tilewright.te.tensor import Tensor

StageKey = int | Operation | Tensor


class State:
    """A state in the search, with the schedule primitives of ``te``.

    A stage is specified by its number, its operation or its tensor; a loop by the ``Iterator`` in ``state[op].iters``.
    Primitives return loops of the new state. ``compute_dag``: the ``ComputeDAG`` that it is a state of.
    """

    ANNOTATION_TRANS_TABLE: ClassVar[dict[str, int]] = {n: i for i, n in enumerate(("none", *ANNOTATIONS[1:]))}

    def __init__(self, state_object: StateObject, dag: Any) -> None:
        self.state_object = state_object
        self.compute_dag = dag
        self.stage_id_map: dict[Operation, int] = {}
        self._number_stages()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages, in the order of a schedule's."""
        return self.state_object.stages

    @property
    def transform_steps(self) -> tuple[Any, ...]:
        """The steps that made the state."""
        return self.state_object.transform_steps

    @property
    def stage_ops(self) -> list[Operation]:
        """The operation of each stage."""
        return [stage.op for stage in self.stages]

    def _apply(self, step: Step) -> Any:
        self.state_object, result = apply_step(self.state_object, step, self.compute_dag)
        return result

    def _number_stages(self) -> None:
        self.stage_id_map.update((stage.op, i) for i, stage in enumerate(self.stages))

    def _apply_adding(self, step: Step) -> Operation:
        """A step that adds a stage; operations known from before keep their (new) numbers."""
        new = self._apply(step)
        for op, number in self.stage_id_map.items():
            if number >= new:
                self.stage_id_map[op] = number + 1
        self._number_stages()
        op = self.stages[new].op
        assert isinstance(op, Operation)
        return op

    def _stage_id(self, stage: StageKey) -> int:
        if isinstance(stage, int):
            return stage
        op = stage.op if isinstance(stage, Tensor) else stage
        if op not in self.stage_id_map:
            known = ", ".join(s.op.name for s in self.stages)
            raise TilewrightError(f"{getattr(op, 'name', op)!s} is no stage of this state, whose stages are {known}")
        return self.stage_id_map[op]

    def _place(self, stage: StageKey, iterator: Iterator) -> tuple[int, int]:
        stage_id = self._stage_id(stage)
        for i, it in enumerate(self.stages[stage_id].iters):
            if it is iterator:
                return stage_id, i
        names = ", ".join(it.name for it in self.stages[stage_id].iters)
        raise TilewrightError(
            f"{iterator.name} is no loop of {self.stages[stage_id].op.name} in this state, whose loops are {names}; "
            "take loops from state[op].iters after the last step"
        )

    def _places(self, stage: StageKey, iters: Sequence[Iterator]) -> tuple[int, tuple[int, ...]]:
        return self._stage_id(stage), tuple(self._place(stage, it)[1] for it in iters)

    def bind(self, stage: StageKey, iterator: Iterator, thread_name: str) -> Iterator:
        """Let threads (vthread, blockIdx.x, threadIdx.x, ...) be the iterations of a loop; return the loop."""
        if thread_name not in self.ANNOTATION_TRANS_TABLE:
            raise ValueError(f"invalid thread_name {thread_name!r}; known are {', '.join(ANNOTATIONS[4:11])}")
        return self._annotate(stage, iterator, self.ANNOTATION_TRANS_TABLE[thread_name])

    def _annotate(self, stage: StageKey, iterator: Iterator, annotation: int) -> Iterator:
        made: Iterator = self._apply(AnnotationStep(*self._place(stage, iterator), annotation))
        return made

    def parallel(self, stage: StageKey, iterator: Iterator) -> Iterator:
        """Share the iterations of a loop among the pool's threads; return the loop."""
        return self._annotate(stage, iterator, PARALLEL)

    def unroll(self, stage: StageKey, iterator: Iterator, max_unroll: int | None = None) -> Iterator:
        """Write out the iterations of a loop, unless they are more than ``max_unroll``; return the loop."""
        if max_unroll and iterator.extent > max_unroll:
            return iterator
        return self._annotate(stage, iterator, UNROLL)

    def vectorize(self, stage: StageKey, iterator: Iterator) -> Iterator:
        """Run the iterations of a loop as one vector; return the loop."""
        return self._annotate(stage, iterator, VECTORIZE)

    def fuse(self, stage: StageKey, iters: Sequence[Iterator]) -> Iterator:
        """Fuse consecutive loops; a stage attached to the last is attached to the fused loop."""
        fused: Iterator = self._apply(FuseStep(*self._places(stage, iters)))
        return fused

    def pragma(self, stage: StageKey, iterator: Iterator, pragma_type: str) -> None:
        """Attach a hint to a loop: ``auto_unroll_max_step$64``."""
        self._apply(PragmaStep(*self._place(stage, iterator), pragma_type))

    def reorder(self, stage: StageKey, order: Sequence[Iterator]) -> None:
        """Reorder all loops of a stage."""
        self._apply(ReorderStep(*self._places(stage, order)))

    def split(
        self, stage: StageKey, iterator: Iterator, lengths: Sequence[int | None], inner_to_outer: bool = True
    ) -> list[Iterator]:
        """Split a loop into ``len(lengths) + 1``.

        Parameters
        ----------
        lengths : iterations of the inner loops, or with ``inner_to_outer`` False of the outer ones; None waits for
            the search to choose
        """
        extent = iterator.extent if iterator.range is not None else None
        step = SplitStep(*self._place(stage, iterator), extent, tuple(lengths), bool(inner_to_outer))
        made: list[Iterator] = self._apply(step)
        return made

    def follow_split(self, stage: StageKey, iterator: Iterator, src_step_id: int, n_split: int) -> list[Iterator]:
        """Split into ``n_split`` + 1 loops, by the lengths of an earlier split (its number in ``transform_steps``)."""
        made: list[Iterator] = self._apply(FollowSplitStep(*self._place(stage, iterator), src_step_id, n_split))
        return made

    def follow_fused_split(
        self, stage: StageKey, iterator: Iterator, src_step_ids: Sequence[int], level: int, factor_or_nparts: bool
    ) -> list[Iterator]:
        """Split in two by the product of the lengths that earlier splits have at ``level``.

        Parameters
        ----------
        factor_or_nparts : True if the inner loop has that extent, False for the outer one
        """
        place = self._place(stage, iterator)
        step = FollowFusedSplitStep(*place, tuple(src_step_ids), level, bool(factor_or_nparts))
        made: list[Iterator] = self._apply(step)
        return made

    def storage_align(self, stage: StageKey, iterator: Iterator, factor: int, offset: int) -> None:
        """Pad the stored tensor so that the stride of an axis is ``k*factor + offset`` elements."""
        self._apply(StorageAlignStep(*self._place(stage, iterator), factor, offset))

    def compute_at(self, stage: StageKey, target_stage: StageKey, target_iter: Iterator) -> None:
        """Compute a stage inside a loop of another; the ranges of its loops are not known then."""
        self._apply(ComputeAtStep(self._stage_id(stage), *self._place(target_stage, target_iter)))

    def compute_inline(self, stage: StageKey) -> None:
        """Inline the values of a stage into its readers."""
        self._apply(ComputeInlineStep(self._stage_id(stage)))

    def compute_root(self, stage: StageKey) -> None:
        """Compute the whole of a stage before its readers; the ranges of its loops are not known then."""
        self._apply(ComputeRootStep(self._stage_id(stage)))

    def cache_read(self, stage: StageKey, scope_name: str, reader_stages: Sequence[StageKey]) -> Operation:
        """Let the readers read a copy in memory of ``scope_name``; return the copy's operation."""
        readers = tuple(self._stage_id(r) for r in reader_stages)
        return self._apply_adding(CacheReadStep(self._stage_id(stage), scope_name, readers))

    def cache_write(self, stage: StageKey, scope_name: str) -> Operation:
        """Compute a stage in memory of ``scope_name`` and copy the result; return the operation that computes."""
        return self._apply_adding(CacheWriteStep(self._stage_id(stage), scope_name))

    def rfactor(self, stage: StageKey, iterator: Iterator, factor_iter_id: int) -> Operation:
        """Make a reduction loop an axis of a partial result, at position ``factor_iter_id``; return its operation."""
        return self._apply_adding(RfactorStep(*self._place(stage, iterator), factor_iter_id))

    def copy(self) -> State:
        """A state that can go other ways."""
        made = State(self.state_object, self.compute_dag)
        made.stage_id_map = dict(self.stage_id_map)
        return made

    def __getitem__(self, key: Operation | Tensor) -> Stage:
        return self.stages[self._stage_id(key)]

    def __str__(self) -> str:
        return str(self.state_object)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self.state_object == other.state_object

    def __hash__(self) -> int:
        return hash(self.state_object)


__all__ = ["AttachMap", "Iterator", "LoopRange", "Stage", "State", "StateObject"]
