"""The rules that derive sketches: programs whose structure is chosen and whose tile sizes are not.

A rule looks at one stage of a state, from the last to the first. ``meets`` says whether it applies, and whether rules
after it are tried, too; ``apply`` returns states with the number of the stage to look at next. The order of the rules
in a list is their priority.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tilewright.auto_scheduler import state_queries as ask
from tilewright.auto_scheduler.access_analysis import SIMPLIFY_CONST_TENSOR
from tilewright.auto_scheduler.loop_nest import COMPUTE, PLACEHOLDER, SPATIAL, UNROLL, Iterator, StateObject
from tilewright.auto_scheduler.loop_state import State
from tilewright.auto_scheduler.tiling import follow_tiling, fuse_reductions, multi_level_tiling
from tilewright.te.operation import ComputeOp

PASS, APPLY, APPLY_AND_SKIP_REST = range(3)

Derived = list[tuple[StateObject, int]]


class SketchRule:
    """One rule. ``policy`` has the task as ``search_task`` and the search's parameters as ``params``."""

    name: ClassVar[str] = ""

    def meets(self, policy: Any, state: StateObject, stage_id: int) -> int:
        """PASS, APPLY, or APPLY_AND_SKIP_REST."""
        raise NotImplementedError

    def apply(self, policy: Any, state: StateObject, stage_id: int) -> Derived:
        """The states that the rule makes, each with the stage to go on with."""
        raise NotImplementedError


def _edit(policy: Any, state: StateObject) -> State:
    return State(state, policy.search_task.compute_dag)


def _structure(policy: Any) -> str:
    kind = "gpu" if ask.is_gpu(policy.search_task) else "cpu"
    return str(policy.params[f"{kind}_multi_level_tiling_structure"])


class SkipStage(SketchRule):
    """Leaves the stage as it is."""

    name = "skip stage"

    def meets(self, policy: Any, state: StateObject, stage_id: int) -> int:
        return APPLY

    def apply(self, policy: Any, state: StateObject, stage_id: int) -> Derived:
        return [(state, stage_id - 1)]


def always_inlined(policy: Any, state: StateObject, stage_id: int) -> bool:
    """Return whether a stage is always inlined: on GPUs all that can be, on CPUs those for which it strictly pays."""
    task, stage = policy.search_task, state.stages[stage_id]
    if stage.op_type == PLACEHOLDER or ask.is_output(task, state, stage_id) or stage.has_reduction:
        return False
    return ask.is_gpu(task) or ask.is_inlineable(task, state, stage_id)


class AlwaysInline(SketchRule):
    """Inlines element-wise stages."""

    name = "always inline"

    def meets(self, policy: Any, state: StateObject, stage_id: int) -> int:
        return APPLY_AND_SKIP_REST if always_inlined(policy, state, stage_id) else PASS

    def apply(self, policy: Any, state: StateObject, stage_id: int) -> Derived:
        edited = _edit(policy, state)
        edited.compute_inline(stage_id)
        return [(edited.state_object, stage_id - 1)]


class MultiLevelTiling(SketchRule):
    """Tiles a stage that reads its inputs again and again."""

    name = "multi-level tiling"

    def meets(self, policy: Any, state: StateObject, stage_id: int) -> int:
        return APPLY_AND_SKIP_REST if ask.needs_tiling(policy.search_task, state, stage_id) else PASS

    def apply(self, policy: Any, state: StateObject, stage_id: int) -> Derived:
        edited = _edit(policy, state)
        multi_level_tiling(edited, stage_id, _structure(policy))
        return [(edited.state_object, stage_id - 1)]


class MultiLevelTilingWithFusion(SketchRule):
    """Tiles a stage, and its element-wise reader alike, and computes it inside a tile of the reader."""

    name = "multi-level tiling with fusion"

    def meets(self, policy: Any, state: StateObject, stage_id: int) -> int:
        task = policy.search_task
        if not ask.needs_tiling(task, state, stage_id) or ask.matched_consumer(task, state, stage_id) is None:
            return PASS
        always = ask.has_cache_write(state, stage_id) or ask.is_gpu(task)
        return APPLY_AND_SKIP_REST if always else APPLY

    def apply(self, policy: Any, state: StateObject, stage_id: int) -> Derived:
        task = policy.search_task
        target = ask.matched_consumer(task, state, stage_id)
        assert target is not None
        structure = _structure(policy)
        base = _edit(policy, state)
        steps = multi_level_tiling(base, stage_id, structure)
        found: Derived = []
        for level in (3,) if ask.is_gpu(task) else (1, 2):
            if structure[level - 1].upper() != "S":
                continue
            edited = base.copy()
            follow_tiling(edited, target, steps, level)
            edited.compute_at(stage_id, target, edited.stages[target].iters[level * len(steps) - 1])
            found.append((edited.state_object, stage_id - 1))
        return found


class AddCacheRead(SketchRule):
    """Reads an input of a tiled stage through shared memory."""

    name = "add cache read"

    def meets(self, policy: Any, state: StateObject, stage_id: int) -> int:
        task = policy.search_task
        readers = ask.consumers(task, state, stage_id)
        if not readers or not ask.needs_tiling(task, state, readers[0]):
            return PASS
        if ask.has_cross_thread_reduction(state, readers[0]):
            return PASS
        return APPLY_AND_SKIP_REST if stage_id in ask.direct_producers(task, state, readers[0]) else PASS

    def apply(self, policy: Any, state: StateObject, stage_id: int) -> Derived:
        edited = _edit(policy, state)
        for added, reader in enumerate(ask.consumers(policy.search_task, state, stage_id), 1):
            copy = edited.cache_read(stage_id, "shared", [reader + added - 1])
            target = edited.stages[reader + added]
            edited.compute_at(copy, reader + added, ask.last_of_outer_reduction(target))
        return [(edited.state_object, stage_id)]


class AddCacheWrite(SketchRule):
    """Adds a copy out of a small memory to a tiled stage without an element-wise reader."""

    name = "add cache write"

    def meets(self, policy: Any, state: StateObject, stage_id: int) -> int:
        task = policy.search_task
        if not ask.needs_tiling(task, state, stage_id) or ask.matched_consumer(task, state, stage_id) is not None:
            return PASS
        return APPLY_AND_SKIP_REST if ask.is_gpu(task) else APPLY

    def apply(self, policy: Any, state: StateObject, stage_id: int) -> Derived:
        edited = _edit(policy, state)
        edited.cache_write(stage_id, "local")
        return [(edited.state_object, stage_id)]


class AddRfactor(SketchRule):
    """Makes part of a long reduction an axis: for threads (the outer part), or for vectors (the inner part)."""

    name = "add rfactor"

    def meets(self, policy: Any, state: StateObject, stage_id: int) -> int:
        needed = ask.needs_rfactor(policy.search_task, state, stage_id)
        return APPLY if needed and not ask.has_cache_write(state, stage_id) else PASS

    def apply(self, policy: Any, state: StateObject, stage_id: int) -> Derived:
        base = _edit(policy, state)
        spatial, fused = fuse_reductions(base, stage_id)
        parts = base.split(stage_id, fused, [1])
        found: Derived = []
        for part in parts:
            edited = base.copy()
            made = edited.stage_id_map[edited.rfactor(stage_id, part, spatial)]
            if part is parts[1]:
                iters = edited.stages[made].iters
                edited.reorder(made, [*iters[:spatial], *iters[spatial + 1 :], iters[spatial]])
            found.append((edited.state_object, made - 1))
        return found


class SimplifyComputeWithConstTensor(SketchRule):
    """Unrolls the axes that index constants (a Winograd transform's), so that the constants are written in."""

    name = "simplify compute with const tensor"

    def meets(self, policy: Any, state: StateObject, stage_id: int) -> int:
        op = state.stages[stage_id].op
        marked = isinstance(op, ComputeOp) and SIMPLIFY_CONST_TENSOR in op.attrs
        return APPLY_AND_SKIP_REST if marked else PASS

    def apply(self, policy: Any, state: StateObject, stage_id: int) -> Derived:
        edited = _edit(policy, state)
        names = ask.names_in(state.stages[stage_id].op, SIMPLIFY_CONST_TENSOR)
        outer: list[Iterator] = []
        inner: list[Iterator] = []
        unrolled: list[Iterator] = []
        for it in state.stages[stage_id].iters:
            if it.name in names:
                unrolled.append(edited.unroll(stage_id, it))
            else:
                assert it.iter_kind == SPATIAL
                first, second = edited.split(stage_id, it, [None])
                outer.append(first)
                inner.append(second)
        edited.reorder(stage_id, [*outer, *inner, *unrolled])
        return [(edited.state_object, stage_id - 1)]


class CrossThreadReduction(SketchRule):
    """Lets the threads of a block share a reduction."""

    name = "cross-thread reduction"

    def meets(self, policy: Any, state: StateObject, stage_id: int) -> int:
        task, stage = policy.search_task, state.stages[stage_id]
        if stage.op_type != COMPUTE or ask.has_cache_write(state, stage_id):
            return PASS
        space, reduced = ask.space_and_reduction(stage)
        hardware = task.hardware_params
        if ask.needs_tiling(task, state, stage_id):
            wanted = space <= hardware.max_threads_per_block and space < reduced
        else:
            wanted = reduced > 1 and reduced > hardware.warp_size
        return APPLY if wanted else PASS

    def apply(self, policy: Any, state: StateObject, stage_id: int) -> Derived:
        task, warp = policy.search_task, policy.search_task.hardware_params.warp_size
        edited = _edit(policy, state)
        _, fused = fuse_reductions(edited, stage_id)
        target = ask.single_consumer(task, edited.state_object, stage_id)
        common = 0 if target is None else ask.common_outer(task, edited.state_object, stage_id, target)
        if target is None or not common or ask.needs_tiling(task, state, target):
            edited.bind(stage_id, edited.split(stage_id, fused, [warp])[1], "threadIdx.x")
            return [(edited.state_object, stage_id - 1)]
        steps = ask.split_steps_of(edited.state_object, target)
        if not steps:
            parts = edited.split(target, edited.stages[target].iters[-1], [warp])
            steps = [len(edited.transform_steps) - 1]
            edited.bind(target, parts[1], "threadIdx.x")
        place = edited.stages[target].iters[common - 1]
        edited.bind(stage_id, edited.follow_split(stage_id, fused, steps[0], 1)[1], "threadIdx.x")
        edited.compute_at(stage_id, target, place)
        return [(edited.state_object, stage_id - 1)]


class SpecialComputeLocationGPU(SketchRule):
    """Attaches the inputs of a transform with constants inside its loops, outside of the unrolled ones."""

    name = "special compute location"

    def meets(self, policy: Any, state: StateObject, stage_id: int) -> int:
        task = policy.search_task
        if not ask.producers(task, state, stage_id) or not always_inlined(policy, state, stage_id):
            return PASS
        readers = ask.consumers(task, state, stage_id)
        special = len(readers) == 1 and SIMPLIFY_CONST_TENSOR in state.stages[readers[0]].op.attrs
        return APPLY_AND_SKIP_REST if special else PASS

    def apply(self, policy: Any, state: StateObject, stage_id: int) -> Derived:
        edited = _edit(policy, state)
        (reader,) = ask.consumers(policy.search_task, state, stage_id)
        iters = state.stages[reader].iters
        first = next((i for i, it in enumerate(iters) if it.annotation == UNROLL), 0)
        if first:
            edited.compute_at(stage_id, reader, iters[first - 1])
        return [(edited.state_object, stage_id - 1)]


class CustomRule(SketchRule):
    """A user's rule: two functions of policy, state and stage."""

    def __init__(self, meets: Callable[..., int], apply: Callable[..., Any], name: str) -> None:
        self._meets, self._apply = meets, apply
        self.rule_name = name

    def meets(self, policy: Any, state: StateObject, stage_id: int) -> int:
        return int(self._meets(policy, state, stage_id))

    def apply(self, policy: Any, state: StateObject, stage_id: int) -> Derived:
        made: Sequence[Sequence[Any]] = self._apply(policy, state, stage_id)
        return [(s.state_object if isinstance(s, State) else s, int(stage)) for s, stage in made]


_TILING: tuple[SketchRule, ...] = (AddCacheWrite(), MultiLevelTilingWithFusion(), MultiLevelTiling(), SkipStage())

CPU_RULES: tuple[SketchRule, ...] = (AlwaysInline(), SimplifyComputeWithConstTensor(), AddRfactor(), *_TILING)

GPU_RULES: tuple[SketchRule, ...] = (
    AddCacheRead(), SpecialComputeLocationGPU(), AlwaysInline(), SimplifyComputeWithConstTensor(),
    CrossThreadReduction(), *_TILING,
)  # fmt: skip
