"""``ComputeDAG``: a computation, its access analysis, and the conversion between states and schedules.

>>> dag = ComputeDAG([A, B, C])
>>> print(dag)
A = PLACEHOLDER [64, 64]
B = PLACEHOLDER [64, 64]
C(i, j) += (A[i, k]*B[k, j])
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from tilewright import te
from tilewright.auto_scheduler import layout_rewrite as rewriting
from tilewright.auto_scheduler.access_analysis import AccessAnalyzer
from tilewright.auto_scheduler.expression_counts import ExpressionCounts
from tilewright.auto_scheduler.flop import count_flops
from tilewright.auto_scheduler.index_forms import AccessForms
from tilewright.auto_scheduler.layout_rewrite import LayoutRewriteOption, get_shape_from_rewritten_layout
from tilewright.auto_scheduler.loop_nest import INLINED, LoopRange, Stage, StateObject
from tilewright.auto_scheduler.loop_state import State
from tilewright.auto_scheduler.stage_steps import axis_names, replayed
from tilewright.auto_scheduler.tensor_records import tensors_from_record, tensors_to_record
from tilewright.auto_scheduler.transform_step import Replay, Step
from tilewright.auto_scheduler.workload_registry import workload_key_to_tensors
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import Add, Call, IntImm, Max, Min, Select
from tilewright.runtime.registry import get_global_func
from tilewright.te.operation import ComputeOp, Operation, PlaceholderOp
from tilewright.te.schedule.bounds import infer_bound
from tilewright.te.tensor import Tensor
from tilewright.tir.expr import Reduce
from tilewright.topi.utils import get_const_tuple

_MAX_LINE_WIDTH = 256
_HASH_FUNCTION = "auto_scheduler.compute_dag.hash_func"


class ComputeDAG:
    """The computation of some tensors.

    Parameters
    ----------
    compute_or_sche : input and output tensors, or a workload key, or a schedule, whose operations as they stand now
        are the computation

    Attributes
    ----------
    tensors : list of Tensor
        inputs and outputs
    ops : tuple of Operation
        all operations in the order of a schedule's stages
    flop_ct : float
        operations on values of the results' kind, -1 if not known
    init_state : StateObject
        the loops before any step
    access_analyzer : AccessAnalyzer
        who reads what of whom
    access_forms, expression_counts : AccessForms, ExpressionCounts
        the indices of all reads and the operations of each element, for bounds and features
    """

    def __init__(self, compute_or_sche: Sequence[Tensor] | str | te.Schedule) -> None:
        given = compute_or_sche
        if isinstance(given, te.Schedule):
            self._fill(_io_of_schedule(given), tuple(s.op for s in given.stages), given.outputs)
            return
        if isinstance(given, str):
            given = workload_key_to_tensors(given)
        if not isinstance(given, (list, tuple)):
            raise ValueError(
                f"a ComputeDAG is made of tensors, a workload key or a schedule, not of a {type(given).__name__}"
            )
        for item in given:
            if not isinstance(item, Tensor):
                raise ValueError(f"a ComputeDAG takes a list of tensors, found a {type(item).__name__}")
        outputs = list(dict.fromkeys(t.op for t in given if not isinstance(t.op, PlaceholderOp)))
        self._fill(list(given), tuple(s.op for s in te.create_schedule(outputs).stages), outputs)

    def _fill(self, tensors: list[Tensor], ops: tuple[Operation, ...], outputs: Sequence[Operation]) -> None:
        _check(ops)
        self.tensors = tensors
        self.ops = ops
        self.outputs = list(outputs)
        self.access_analyzer = AccessAnalyzer(outputs)
        self.flop_ct = count_flops(ops)
        self.init_state = StateObject(tuple(Stage.of(op) for op in ops))
        self.access_forms = AccessForms(ops)
        self.expression_counts = ExpressionCounts(ops, outputs)
        self._replayed: dict[tuple[Step, ...], ComputeDAG] = {}

    def get_init_state(self) -> State:
        """The state before any step."""
        return State(self.init_state, self)

    def start(self, steps: Sequence[Step]) -> Replay:
        """Return the default schedule of the computation, to which ``steps`` are applied."""
        schedule = te.create_schedule(self.outputs)
        return Replay(schedule, [schedule[op] for op in self.ops], steps)

    def apply_steps_from_state(
        self,
        state: State | StateObject,
        layout_rewrite: int = LayoutRewriteOption.NO_REWRITE,
        inputs: Collection[Tensor] | None = None,
    ) -> tuple[te.Schedule, list[Tensor]]:
        """The schedule that a state's steps make, and the tensors to lower it with.

        Parameters
        ----------
        layout_rewrite : whether inputs of the attribute ``layout_free_placeholders`` get the layout that the schedule
            reads best, and who brings them into it (``LayoutRewriteOption``)
        inputs : of these inputs only
        """
        steps = _object(state).transform_steps
        if layout_rewrite != LayoutRewriteOption.NO_REWRITE and steps and rewriting.has_layout_free(self.ops):
            dag, steps = self._rewritten(steps, layout_rewrite, inputs)
            return dag.apply_steps(steps).schedule, dag.tensors
        return self.apply_steps(steps).schedule, self.tensors

    def apply_steps(self, steps: Sequence[Step]) -> Replay:
        """The schedule after the steps, with the stages and loops that these speak of."""
        replay = self.start(steps)
        for step in steps:
            step.schedule(replay)
        return replay

    def replay(self, steps: tuple[Step, ...]) -> ComputeDAG:
        """The computation as the steps leave it, with the stages that they add; made once for the same steps."""
        found = self._replayed.get(steps)
        if found is None:
            found = self._replayed[steps] = ComputeDAG(self.apply_steps(steps).schedule)
        return found

    def print_python_code_from_state(self, state: State | StateObject) -> str:
        """A state's steps as a program that schedules with ``s``; the operations are named as in the DAG."""
        steps = _object(state).transform_steps
        replay = self.start(steps)
        text = ""
        for stage_id, op in enumerate(self.ops):
            if isinstance(op, ComputeOp):
                name = replay.stage_name(stage_id)
                text += f"{axis_names(replay, stage_id)} = tuple({name}.op.axis) + tuple({name}.op.reduce_axis)\n"
        return text + "".join(step.python(replay) for step in steps)

    def infer_bound_from_state(self, state: State | StateObject) -> State:
        """Return the state with the range of every loop, from bound inference of ``te``.

        A state that was read from a record has only steps; it gets its stages here.
        """
        updated = State(self.infer_bound(_object(state)), self)
        if isinstance(state, State):
            updated.stage_id_map.update(state.stage_id_map)
        return updated

    def infer_bound(self, state: StateObject) -> StateObject:
        """Infer the bounds of a ``State``; see ``infer_bound_from_state``."""
        if not state.concrete:
            raise TilewrightError("bounds are inferred of states whose splits all have lengths; sample them first")
        if not state.stages:
            state = replayed(self.init_state, state.transform_steps, self)
        replay = self.apply_steps(state.transform_steps)
        ranges = infer_bound(replay.schedule.normalize()).ranges
        stages = []
        for stage, te_stage in zip(state.stages, replay.stages, strict=True):
            if stage.compute_at != INLINED:
                axes = replay.axes[te_stage] if stage.iters else []
                found = [_loop_range(ranges[axis]) for axis in axes]
                stage = stage.with_iters([replace(i, range=r) for i, r in zip(stage.iters, found, strict=True)])
            stages.append(stage)
        return replace(state, stages=tuple(stages))

    def rewrite_layout_from_state(self, state: State | StateObject) -> ComputeDAG:
        """The computation with its layout-free inputs in the layout that the state's schedule reads best."""
        return self._rewritten(_object(state).transform_steps, LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED)[0]

    def input_packings(self, state: State | StateObject) -> dict[Tensor, list[tuple[int, int]]]:
        """The layout that a state's schedule reads each layout-free input best in: (dimension, extent) of its parts."""
        if not rewriting.has_layout_free(self.ops):
            return {}
        return rewriting.packings(self.infer_bound(StateObject((), _object(state).transform_steps)))

    def _rewritten(
        self, steps: Sequence[Step], option: int, inputs: Collection[Tensor] | None = None
    ) -> tuple[ComputeDAG, tuple[Step, ...]]:
        state = self.infer_bound(StateObject((), tuple(steps)))
        tensors, new_steps = rewriting.rewrite_layouts(self.tensors, self.ops, state, option, inputs)
        return ComputeDAG(tensors), new_steps

    def workload_key(self) -> str:
        """A JSON list that names the computation: a hash of it, then the shapes of its inputs and outputs."""
        text = self.print_dag(simple_mode=True)
        function: Callable[[str], str] | None = get_global_func(_HASH_FUNCTION, allow_missing=True)
        digest = function(text) if function is not None else hashlib.md5(text.encode()).hexdigest()
        return json.dumps([digest, *[list(get_const_tuple(t.shape)) for t in self.tensors]])

    def print_dag(self, simple_mode: bool = False) -> str:
        """Return one line for each result; simple mode omits shapes of inputs and arguments of calls."""
        return "".join(line for op in self.ops for line in _lines_of(op, simple_mode))

    def __str__(self) -> str:
        def shortened(line: str) -> str:
            if len(line) <= _MAX_LINE_WIDTH:
                return line
            return f"{line[: _MAX_LINE_WIDTH // 2]} ..(OMITTED).. {line[-_MAX_LINE_WIDTH // 2 :]}"

        return "\n".join(shortened(line) for line in self.print_dag().split("\n"))

    def __getstate__(self) -> dict[str, Any]:
        return {"tensors": tensors_to_record(self.tensors)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ComputeDAG.__init__(self, tensors_from_record(state["tensors"]))


def _object(state: State | StateObject) -> StateObject:
    return state.state_object if isinstance(state, State) else state


def _io_of_schedule(schedule: te.Schedule) -> list[Tensor]:
    wanted = [s.op for s in schedule.stages if isinstance(s.op, PlaceholderOp) or s.is_output]
    return [t for op in wanted for t in op.outputs]


def _check(ops: Sequence[Operation]) -> None:
    for op in ops:
        if not isinstance(op, (ComputeOp, PlaceholderOp)):
            raise TilewrightError(
                f"the auto-scheduler takes computes and inputs only; {op.name} is a {type(op).__name__}"
            )
        names = [iv.var.name for iv in op.root_iter_vars]
        for name in names:
            if names.count(name) > 1:
                raise TilewrightError(f"two axes of {op.name} are called {name}; give each a name of its own")


def _loop_range(found: Any) -> LoopRange | None:
    if not isinstance(found.extent, IntImm):
        return None
    return LoopRange(found.min.value if isinstance(found.min, IntImm) else 0, found.extent.value)


def _lines_of(op: Operation, simple_mode: bool) -> list[str]:
    if isinstance(op, PlaceholderOp):
        return [f"{op.name} = PLACEHOLDER {'' if simple_mode else list(op.shape)}\n"]
    assert isinstance(op, ComputeOp)
    axes = ", ".join(iv.var.name for iv in op.axis)
    lines = []
    for index, body in enumerate(op.body):
        number = f".v{index}" if len(op.body) > 1 else ""
        lines.append(f"{op.name}({axes}){number}{_meaning(body, index, simple_mode)}\n")
    return lines


def _meaning(body: Any, index: int, simple_mode: bool) -> str:
    if not isinstance(body, Reduce):
        if simple_mode and isinstance(body, Call):
            return f" = Op({body.op.name})"
        return f" = {body}"
    combined = body.combiner.result[index]
    for kind, sign in ((Add, "+="), (Max, "max="), (Min, "min=")):
        if isinstance(combined, kind):
            return f" {sign} {body.source[0]}"
    if isinstance(combined, Select):
        chosen = f"select({combined.condition}, {combined.true_value}, {combined.false_value})"
        return f" {chosen}= ({','.join(repr(s) for s in body.source)})"
    return f"reduce{combined}"


__all__ = ["ComputeDAG", "LayoutRewriteOption", "get_shape_from_rewritten_layout"]
