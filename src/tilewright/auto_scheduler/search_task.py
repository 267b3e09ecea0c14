"""``SearchTask``: a computation to be tuned for a target, and the options of tuning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright import te
from tilewright.auto_scheduler.compute_dag import ComputeDAG, LayoutRewriteOption
from tilewright.auto_scheduler.cost_model import XGBModel
from tilewright.auto_scheduler.loop_nest import StateObject
from tilewright.auto_scheduler.measure import (
    LocalBuilder,
    LocalRunner,
    MeasureCallback,
    ProgramBuilder,
    ProgramMeasurer,
    ProgramRunner,
)
from tilewright.auto_scheduler.measure_pair import MeasureInput
from tilewright.auto_scheduler.measure_record import load_best_record
from tilewright.auto_scheduler.search_policy import SearchPolicy, SketchPolicy
from tilewright.auto_scheduler.task import (
    TASK_INPUT_BUFFER_TABLE,
    HardwareParams,
    TaskRecord,
    get_task_input_buffer,
    register_task_input_buffer,
)
from tilewright.auto_scheduler.utils import decode_workload_key
from tilewright.auto_scheduler.workload_registry import (
    WORKLOAD_FUNC_REGISTRY,
    make_workload_key,
    register_workload_tensors,
)
from tilewright.target.build import build
from tilewright.target.target import Target
from tilewright.te.tensor import Tensor


class TuningOptions:
    """Options of tuning a task.

    Parameters
    ----------
    num_measure_trials : measurements in all; with 0 the search returns the state that the cost model ranks best
    early_stopping : stop when so many measurements in a row are no faster
    num_measures_per_round : measurements between two trainings of the cost model
    verbose : 0 for silence
    builder, runner : "local" for this machine
    measure_callbacks : called after each batch, such as ``RecordToFile``
    """

    def __init__(
        self,
        num_measure_trials: int = 0,
        early_stopping: int | None = None,
        num_measures_per_round: int = 64,
        verbose: int = 1,
        builder: ProgramBuilder | str = "local",
        runner: ProgramRunner | str = "local",
        measure_callbacks: Sequence[MeasureCallback] | None = None,
    ) -> None:
        self.num_measure_trials = num_measure_trials
        self.early_stopping = early_stopping or -1
        self.num_measures_per_round = num_measures_per_round
        self.verbose = verbose
        builder = LocalBuilder() if builder == "local" else builder
        runner = LocalRunner() if runner == "local" else runner
        if not isinstance(builder, ProgramBuilder):
            raise ValueError(f"invalid builder {builder!r}; give 'local' or a ProgramBuilder")
        if not isinstance(runner, ProgramRunner):
            raise ValueError(f"invalid runner {runner!r}; give 'local' or a ProgramRunner")
        self.builder, self.runner = builder, runner
        self.measure_callbacks = list(measure_callbacks or ())


class SearchTask(TaskRecord):
    """A computation, by a registered function and its arguments or by its workload key, and a target.

    Parameters
    ----------
    func, args : a registered workload function, or its name, and its arguments
    compute_dag, workload_key : the computation, and its key, where there is no function
    target, target_host : what programs are for
    hardware_params : what the search asks of the hardware, by default of the target
    layout_rewrite_option : ``LayoutRewriteOption``, by default the target's
    task_inputs : values by the names of inputs that cannot be random, or their names when they are registered
    task_inputs_overwrite, task_inputs_save_to_file : as of ``register_task_input_buffer``
    desc : a description
    """

    def __init__(
        self,
        func: Callable[..., Any] | str | None = None,
        args: Sequence[Any] | None = None,
        compute_dag: ComputeDAG | None = None,
        workload_key: str | None = None,
        target: Target | str | None = None,
        target_host: Target | str | None = None,
        hardware_params: HardwareParams | None = None,
        layout_rewrite_option: int | None = None,
        task_inputs: Mapping[str, Any] | Sequence[str] | None = None,
        task_inputs_overwrite: bool = False,
        task_inputs_save_to_file: bool = False,
        desc: str = "",
    ) -> None:
        if func is None and workload_key is None:
            raise ValueError("a SearchTask needs a function or a workload key")
        if target is None:
            raise ValueError('a SearchTask needs a target, such as target="llvm"')
        key = make_workload_key(func, args or ()) if func is not None else workload_key
        assert key is not None
        made, _ = Target.check_and_update_host_consist(target, target_host)
        if layout_rewrite_option is None:
            layout_rewrite_option = LayoutRewriteOption.get_target_default(made)
        if isinstance(task_inputs, Mapping):
            for name, value in task_inputs.items():
                register_task_input_buffer(key, name, value, task_inputs_overwrite, task_inputs_save_to_file)
        elif task_inputs is not None and not isinstance(task_inputs, (list, tuple)):
            raise ValueError(f"task_inputs is a dictionary or a list, not a {type(task_inputs).__name__}")
        dag = compute_dag if compute_dag is not None else ComputeDAG(key)
        super().__init__(key, made, hardware_params, layout_rewrite_option, list(task_inputs or ()), desc, dag)

    def tune(self, tuning_options: TuningOptions, search_policy: SearchPolicy | None = None) -> StateObject | None:
        """Search for fast programs; ``RecordToFile`` among the options' callbacks saves measurements.

        Parameters
        ----------
        search_policy : by default ``SketchPolicy`` with ``XGBModel``

        Returns
        -------
        The best state.
        """
        policy = search_policy or SketchPolicy(self, XGBModel(), verbose=tuning_options.verbose)
        measurer = ProgramMeasurer(
            tuning_options.builder, tuning_options.runner, tuning_options.measure_callbacks, tuning_options.verbose
        )
        policy.set_verbose(tuning_options.verbose)
        return policy.search(
            tuning_options.num_measure_trials,
            tuning_options.early_stopping,
            tuning_options.num_measures_per_round,
            measurer,
        )

    def _best(self, log_file: str, include_compatible: bool = False) -> MeasureInput:
        found, _ = load_best_record(log_file, self.workload_key, include_compatible=include_compatible)
        if found is None:
            raise RuntimeError(f"Cannot find any valid schedule for {self.workload_key} in file {log_file}")
        return found

    def apply_best(
        self, log_file: str, include_compatible: bool = False, layout_rewrite_option: int | None = None
    ) -> tuple[te.Schedule, list[Tensor]]:
        """The schedule of the fastest record of this task in a file, and the tensors to lower it with.

        Parameters
        ----------
        include_compatible : also of workloads that this one is a multiple of
        layout_rewrite_option : by default the task's

        Raises RuntimeError when the file has no valid record of the task.
        """
        option = layout_rewrite_option or self.layout_rewrite_option
        schedule: tuple[te.Schedule, list[Tensor]] = self.compute_dag.apply_steps_from_state(
            self._best(log_file, include_compatible).state, option
        )
        return schedule

    def print_best(self, log_file: str, print_mode: str = "schedule") -> str:
        """The schedule of the fastest record as Python ("schedule"), or its device's source ("cuda")."""
        state = self._best(log_file).state
        if print_mode == "schedule":
            return str(self.compute_dag.print_python_code_from_state(state))
        if print_mode == "cuda":
            sch, args = self.compute_dag.apply_steps_from_state(state)
            return str(build(sch, args, self.target).imported_modules[0].get_source())
        raise ValueError(f"invalid print_mode {print_mode!r}; known are schedule and cuda")

    def __getstate__(self) -> dict[str, Any]:
        return {
            "compute_dag": self.compute_dag,
            "task": self.record(),
            "hardware_params": self.hardware_params,
            "desc": self.desc,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        key, target, _, host, option, names = state["task"]
        dag = state["compute_dag"]
        if decode_workload_key(key)[0] not in WORKLOAD_FUNC_REGISTRY:
            register_workload_tensors(key, dag.tensors)
        SearchTask.__init__(
            self, compute_dag=dag, workload_key=key, target=target, target_host=host or None,
            hardware_params=state["hardware_params"], layout_rewrite_option=option, task_inputs=names,
            desc=state["desc"],
        )  # fmt: skip


def create_task(*_: Any, **__: Any) -> None:
    """TVM 0.7's way to make a task."""
    raise ValueError(
        "auto_scheduler.create_task is gone; write auto_scheduler.SearchTask(func=..., args=..., target=...)"
    )


def auto_schedule(*_: Any, **__: Any) -> None:
    """TVM 0.7's way to tune."""
    raise ValueError("auto_scheduler.auto_schedule is gone; write task.tune(options), then task.apply_best(log_file)")


__all__ = [
    "TASK_INPUT_BUFFER_TABLE",
    "HardwareParams",
    "SearchTask",
    "TuningOptions",
    "auto_schedule",
    "create_task",
    "get_task_input_buffer",
    "register_task_input_buffer",
]
