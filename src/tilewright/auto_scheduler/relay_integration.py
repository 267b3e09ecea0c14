"""Networks: their tasks, and schedules for their kernels from records.

A build with ``PassContext(config={"relay.backend.use_auto_scheduler": True})`` asks ``scheduled_by_record`` for the
schedule of each kernel; data keeps the layouts that the network has, so that the kernels are those that
``extract_tasks`` found. Constant weights get the layout that the record reads them in, once, when the network is built
(``packing``).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tilewright import te
from tilewright.auto_scheduler.compute_dag import ComputeDAG, LayoutRewriteOption
from tilewright.auto_scheduler.dispatcher import DispatchContext, FallbackContext
from tilewright.auto_scheduler.layout_rewrite import LAYOUT_FREE, rewritten_body
from tilewright.auto_scheduler.loop_nest import StateObject
from tilewright.auto_scheduler.measure import prepare_input_map
from tilewright.auto_scheduler.search_task import TASK_INPUT_BUFFER_TABLE, HardwareParams, SearchTask
from tilewright.auto_scheduler.workload_registry import register_workload_tensors
from tilewright.ir import walk
from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.transform import PassContext
from tilewright.relay.backend.te_compiler import (
    auto_scheduled,
    computed,
    inline_scalars,
    kernel_name,
    operator_names,
    tuned_schedules,
)
from tilewright.relay.build_module import optimize
from tilewright.relay.expr import Call, Constant, Function
from tilewright.relay.function_attributes import PRIMITIVE
from tilewright.relay.transform.layout.auto_scheduler_layout_rewrite import packing_choosers, without_packing
from tilewright.relay.visitor import post_order
from tilewright.target.target import Target
from tilewright.te.operation import ComputeOp, PlaceholderOp
from tilewright.te.tensor import Tensor
from tilewright.tir.expr import Reduce

logger = logging.getLogger("auto_scheduler")

_OPTION = "relay.backend.use_auto_scheduler"


class TracingMode:
    """Modes of tracing: all kernels, or those with reductions."""

    EXTRACT_TASK = 0
    EXTRACT_COMPLEX_TASK_ONLY = 1


class TracingEnvironment:
    """While it is entered, kernels are noted instead of scheduled."""

    current: ClassVar[TracingEnvironment | None] = None

    def __init__(self, tracing_mode: int) -> None:
        self.tracing_mode = tracing_mode
        self.wkl_key_to_weight: dict[str, tuple[int, dict[str, None]]] = {}
        self.wkl_key_to_input_names: dict[str, list[str]] = {}
        self.with_free_layouts: dict[str, bool] = {}
        """by workload, whether all inputs that may have any layout are constant wherever it is used"""

    def __enter__(self) -> TracingEnvironment:
        TracingEnvironment.current = self
        return self

    def __exit__(self, *_: object) -> None:
        TracingEnvironment.current = None

    def add_workload_key(self, func_name: str, workload_key: str) -> None:
        """Note a use of a workload in the kernel ``func_name``."""
        weight, names = self.wkl_key_to_weight.get(workload_key, (0, {}))
        self.wkl_key_to_weight[workload_key] = weight + 1, {**names, func_name: None}

    def add_workload_input_names(self, workload_key: str, input_names: Sequence[str]) -> None:
        """Note which inputs of a workload have special values."""
        self.wkl_key_to_input_names[workload_key] = list(input_names)


def extract_tasks(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None,
    target: Target | str,
    target_host: Target | str | None = None,
    hardware_params: HardwareParams | None = None,
    include_simple_tasks: bool = False,
    dump_workload_to_dag_log: str | None = None,
    opt_level: int = 3,
) -> tuple[list[SearchTask], list[int]]:
    """The tasks of a network, each once, and how often each is used.

    Parameters
    ----------
    mod, params : the network, or its main function, and arrays of parameters by name
    target, target_host : what it is tuned for
    hardware_params : of the tasks, by default of the target
    include_simple_tasks : also kernels without a reduction
    dump_workload_to_dag_log : write the computation of each workload key to this JSON file
    opt_level : of the graph passes before
    """
    made, _ = Target.check_and_update_host_consist(target, target_host)
    mode = TracingMode.EXTRACT_TASK if include_simple_tasks else TracingMode.EXTRACT_COMPLEX_TASK_ONLY
    with FallbackContext() as context, TracingEnvironment(mode) as env:
        assert isinstance(context, FallbackContext)
        context.verbose = 0
        call_all_topi_funcs(mod, params, made, opt_level)
    tasks, weights = [], []
    for key, (weight, names) in env.wkl_key_to_weight.items():
        inputs = env.wkl_key_to_input_names.get(key)
        packed = env.with_free_layouts.get(key, False)
        option = LayoutRewriteOption.get_target_default(made, True) if packed else LayoutRewriteOption.NO_REWRITE
        task = SearchTask(
            workload_key=key, target=made, hardware_params=hardware_params, desc=",".join(names), task_inputs=inputs,
            layout_rewrite_option=option,
        )  # fmt: skip
        tasks.append(task)
        weights.append(weight)
    if dump_workload_to_dag_log is not None:
        text = json.dumps({task.workload_key: str(task.compute_dag) for task in tasks})
        Path(dump_workload_to_dag_log).write_text(text)
    return tasks, weights


def call_all_topi_funcs(
    mod: IRModule | Function, params: Mapping[str, Any] | None, target: Target, opt_level: int = 3
) -> None:
    """Note every kernel of a network that can be a task in the current ``TracingEnvironment``."""
    module = IRModule.from_expr(mod) if isinstance(mod, Function) else mod
    with PassContext(opt_level=opt_level, config={**PassContext.current().config, _OPTION: True}):
        optimized, _ = optimize(module, target, params)
        for call in _kernel_calls(optimized):
            try:
                _note(call, target)
            except TilewrightError as error:
                logger.info("a kernel is no task: %s", error)


def _kernel_calls(module: IRModule) -> Iterable[Call]:
    """The calls of primitive functions in a module."""
    for function in module.functions.values():
        if isinstance(function, Function):
            for expr in post_order(function):
                if isinstance(expr, Call) and isinstance(expr.op, Function) and PRIMITIVE.on(expr.op):
                    yield expr


def _note(call: Call, target: Target) -> None:
    """Note the kernel that ``call`` calls in the current ``TracingEnvironment``."""
    env = TracingEnvironment.current
    assert env is not None and isinstance(call.op, Function)
    kernel = _Kernel.of(call.op, target)
    if kernel is None or not (kernel.has_reduction or env.tracing_mode == TracingMode.EXTRACT_TASK):
        return
    env.add_workload_key(kernel.name, kernel.key)
    constant = [i for i, arg in enumerate(call.args) if isinstance(arg, Constant)]
    if not kernel.layout_free <= {kernel.inputs[i] for i in kernel.positions(constant)}:
        env.with_free_layouts[kernel.key] = False
    elif kernel.layout_free:
        env.with_free_layouts.setdefault(kernel.key, True)
    tensors = kernel.dag.tensors
    special = [n for n in prepare_input_map(tensors).values() if n in TASK_INPUT_BUFFER_TABLE.get("default", {})]
    if special:
        env.add_workload_input_names(kernel.key, special)


def traverse_to_get_io_tensors(outs: Sequence[Tensor]) -> tuple[list[Tensor], bool, bool]:
    """Return inputs and results of a kernel, whether an input has a free layout, and whether there is a reduction.

    There are none ([]) where a shape is not known.
    """
    tensors = walk.post_order(outs, lambda tensor: tensor.op.input_tensors)
    inputs = [t for t in tensors if isinstance(t.op, PlaceholderOp)]
    computes = [t.op for t in tensors if isinstance(t.op, ComputeOp)]
    everything = [*inputs, *outs]
    if any(not isinstance(extent, IntImm) for t in everything for extent in t.shape):
        return [], False, False
    has_layout_free = any(LAYOUT_FREE in op.attrs for op in computes)
    return everything, has_layout_free, any(isinstance(b, Reduce) for op in computes for b in op.body)


@dataclass
class _Kernel:
    """A kernel of a network as a workload."""

    name: str
    param_count: int
    inputs: list[Tensor]
    outputs: list[Tensor]
    builder: Any
    dag: ComputeDAG
    key: str
    has_reduction: bool

    @classmethod
    def of(cls, func: Function, target: Target) -> _Kernel | None:
        """Return the workload of a primitive function; None if the auto-scheduler cannot take it."""
        with target:
            inputs, outputs, builder = computed(func, target, plain=True)
        name = kernel_name(operator_names(func), "")
        tensors, _, has_reduction = traverse_to_get_io_tensors(list(dict.fromkeys(outputs)))
        if not tensors:
            return None
        try:
            dag = ComputeDAG(tensors)
        except TilewrightError as error:
            logger.info("%s cannot be scheduled: %s", name, error)
            return None
        key = register_workload_tensors(dag.workload_key(), tensors)
        return cls(name, len(func.params), inputs, outputs, builder, dag, key, has_reduction)

    @property
    def layout_free(self) -> set[Tensor]:
        """The inputs that may have any layout."""
        computes = [op for op in self.dag.ops if isinstance(op, ComputeOp)]
        return {t for op in computes for t in op.attrs.get(LAYOUT_FREE, ()) if isinstance(t.op, PlaceholderOp)}

    def positions(self, params: Sequence[int]) -> Sequence[int]:
        """Return the positions of parameters among the inputs; empty if one is a tuple."""
        return params if self.param_count == len(self.inputs) else ()

    def state(self, target: Target) -> StateObject | None:
        """Return the state of the kernel in the current records."""
        return DispatchContext.current.query(target, self.key, self.has_reduction, self.dag, self.name)


def packing(func: Function, constant: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
    """Return how a kernel's record reads its constant inputs of free layout.

    Parameters
    ----------
    constant : which parameters of ``func`` are constant

    Returns
    -------
    For parameters, (dimension, extent) of each part of their layout; none where that is the layout they have.
    """
    target = Target.current()
    if target is None or LayoutRewriteOption.get_target_default(target, True) == LayoutRewriteOption.NO_REWRITE:
        return {}
    kernel = _Kernel.of(func, target)
    state = kernel.state(target) if kernel is not None and kernel.layout_free else None
    if kernel is None or state is None:
        return {}
    found = kernel.dag.input_packings(state)
    free = [(i, found[t]) for i in kernel.positions(constant) if (t := kernel.inputs[i]) in found]
    return {i: parts for i, parts in free if [dim for dim, _ in parts] != sorted(dim for dim, _ in parts)}


def scheduled_by_record(func: Function, target: Target) -> Any | None:
    """Return inputs, outputs, schedule and builder of a kernel from the current records, or None."""
    if not auto_scheduled():
        return None
    plain, packed = without_packing(func)
    kernel = _Kernel.of(plain, target)
    state = kernel.state(target) if kernel is not None else None
    if kernel is None or state is None:
        return None
    option = LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED if packed else LayoutRewriteOption.NO_REWRITE
    schedule, tensors = kernel.dag.apply_steps_from_state(state, option, [kernel.inputs[i] for i in packed])
    now = dict(zip(kernel.dag.tensors, tensors, strict=True))
    inputs, outputs = ([now.get(t, t) for t in ts] for ts in (kernel.inputs, kernel.outputs))
    inline_scalars(kernel.builder, outputs, schedule)
    kernel.builder.recorded = "a record of the auto-scheduler"
    return inputs, outputs, schedule, kernel.builder


def auto_schedule_topi(func_name: str, outs: Sequence[Tensor], target: Target | None = None) -> te.Schedule | None:
    """Return the schedule of a kernel from the current records; None without a record."""
    tensors, _, has_reduction = traverse_to_get_io_tensors(outs)
    if not tensors:
        return None
    dag = ComputeDAG(tensors)
    key = register_workload_tensors(dag.workload_key(), tensors)
    state = DispatchContext.current.query(target or Target.current(), key, has_reduction, dag, func_name)
    return dag.apply_steps_from_state(state)[0] if state is not None else None


def rewrite_compute_body(compute_tensor: Tensor, new_layout: str) -> Any:
    """The computation with its one layout-free input read in ``new_layout``; the input has that layout's shape."""
    op: Any = compute_tensor.op
    sources = op.attrs[LAYOUT_FREE]
    if len(sources) != 1:
        raise TilewrightError(f"{op.name} has {len(sources)} layout-free inputs; one can be rewritten")
    made = ComputeOp(op.name, op.tag, op.attrs, op.axis, rewritten_body(op, sources[0].op, new_layout), op.reduce_axis)
    return made.output(0) if made.num_outputs == 1 else made.outputs


def is_auto_scheduler_enabled() -> bool:
    """Return whether this build takes schedules of the auto-scheduler."""
    return auto_scheduled()


tuned_schedules.append(scheduled_by_record)
packing_choosers.append(packing)
