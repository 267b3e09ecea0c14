"""Networks: their tasks, and schedules for their kernels from records.

A build with ``PassContext(config={"relay.backend.use_auto_scheduler": True})`` asks ``auto_schedule_topi`` for the
schedule of each kernel; operators keep the layouts that the network has, so that the kernels are those that
``extract_tasks`` found.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tilewright import te
from tilewright.auto_scheduler.compute_dag import ComputeDAG, LayoutRewriteOption
from tilewright.auto_scheduler.dispatcher import DispatchContext, FallbackContext
from tilewright.auto_scheduler.layout_rewrite import LAYOUT_FREE, rewritten_body
from tilewright.auto_scheduler.measure import prepare_input_map
from tilewright.auto_scheduler.search_task import TASK_INPUT_BUFFER_TABLE, HardwareParams, SearchTask
from tilewright.auto_scheduler.workload_registry import register_workload_tensors
from tilewright.ir import walk
from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.transform import PassContext
from tilewright.relay.backend.te_compiler import auto_scheduled, build_schedule, register_auto_scheduler
from tilewright.relay.build_module import optimize
from tilewright.relay.expr import Call, Function
from tilewright.relay.visitor import post_order
from tilewright.target.target import Target
from tilewright.te.operation import ComputeOp, PlaceholderOp
from tilewright.te.tensor import Tensor
from tilewright.tir.expr import Reduce

logger = logging.getLogger("auto_scheduler")

_OPTION = "relay.backend.use_auto_scheduler"


class TracingMode:
    """What is traced: all kernels, or those with reductions."""

    EXTRACT_TASK = 0
    EXTRACT_COMPLEX_TASK_ONLY = 1


class TracingEnvironment:
    """While it is entered, kernels are noted instead of scheduled."""

    current: ClassVar[TracingEnvironment | None] = None

    def __init__(self, tracing_mode: int) -> None:
        self.tracing_mode = tracing_mode
        self.wkl_key_to_weight: dict[str, tuple[int, dict[str, None]]] = {}
        self.wkl_key_to_input_names: dict[str, list[str]] = {}

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
        task = SearchTask(
            workload_key=key, target=made, hardware_params=hardware_params, desc=",".join(names), task_inputs=inputs,
            layout_rewrite_option=LayoutRewriteOption.NO_REWRITE,
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
    """Schedule every kernel of a network, as a build does, and forget it; kernels that cannot be are left out."""
    module = IRModule.from_expr(mod) if isinstance(mod, Function) else mod
    with PassContext(opt_level=opt_level, config={**PassContext.current().config, _OPTION: True}):
        optimized, _ = optimize(module, target, params)
        for func in _kernels(optimized):
            try:
                with target:
                    build_schedule(func, target)
            except TilewrightError as error:
                logger.info("a kernel is no task: %s", error)


def _kernels(module: IRModule) -> Iterable[Function]:
    """The primitive functions of a module, as often as they are called."""
    for function in module.functions.values():
        if isinstance(function, Function):
            for expr in post_order(function):
                if isinstance(expr, Call) and isinstance(expr.op, Function) and expr.op.attrs.get("Primitive"):
                    yield expr.op


def traverse_to_get_io_tensors(outs: Sequence[Tensor]) -> tuple[list[Tensor], bool, bool]:
    """Inputs and results of a kernel, whether some input may have any layout, and whether there is a reduction.

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


def auto_schedule_topi(func_name: str, outs: Sequence[Tensor], target: Target | None = None) -> te.Schedule | None:
    """The schedule of a kernel from the records of the current context; None where there is none.

    While tasks are extracted, kernels are noted.
    """
    tensors, _, has_reduction = traverse_to_get_io_tensors(outs)
    if not tensors:
        return None
    try:
        dag = ComputeDAG(tensors)
    except TilewrightError as error:
        logger.info("%s cannot be scheduled: %s", func_name, error)
        return None
    key = register_workload_tensors(dag.workload_key(), tensors)
    env = TracingEnvironment.current
    if env is not None:
        if has_reduction or env.tracing_mode == TracingMode.EXTRACT_TASK:
            env.add_workload_key(func_name, key)
            special = [
                n for n in prepare_input_map(tensors).values() if n in TASK_INPUT_BUFFER_TABLE.get("default", {})
            ]
            if special:
                env.add_workload_input_names(key, special)
        return None
    state = DispatchContext.current.query(target or Target.current(), key, has_reduction, dag, func_name)
    if state is None:
        return None
    schedule, _ = dag.apply_steps_from_state(state)
    return schedule


def rewrite_compute_body(compute_tensor: Tensor, new_layout: str) -> Any:
    """The computation with its one layout-free input read in ``new_layout``; the input has that layout's shape."""
    op: Any = compute_tensor.op
    sources = op.attrs[LAYOUT_FREE]
    if len(sources) != 1:
        raise TilewrightError(f"{op.name} has {len(sources)} layout-free inputs; one can be rewritten")
    made = ComputeOp(op.name, op.tag, op.attrs, op.axis, rewritten_body(op, sources[0].op, new_layout), op.reduce_axis)
    return made.output(0) if made.num_outputs == 1 else made.outputs


def is_auto_scheduler_enabled() -> bool:
    """Whether this build takes schedules of the auto-scheduler."""
    return auto_scheduled()


register_auto_scheduler(auto_schedule_topi)
