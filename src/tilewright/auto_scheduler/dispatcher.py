"""Lookup of the state that schedules a kernel of a network: a stack of contexts, innermost first."""

from __future__ import annotations

import logging
import math
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from tilewright.auto_scheduler.cost_model import CostModel, RandomModel, XGBModel
from tilewright.auto_scheduler.loop_nest import StateObject
from tilewright.auto_scheduler.measure import LocalRunner
from tilewright.auto_scheduler.measure_pair import MeasureInput, MeasureResult
from tilewright.auto_scheduler.measure_record import RecordToFile, load_records
from tilewright.auto_scheduler.search_policy import PreloadMeasuredStates, SketchPolicy
from tilewright.auto_scheduler.search_task import SearchTask, TuningOptions
from tilewright.auto_scheduler.utils import calc_workload_dis_factor, decode_workload_key
from tilewright.ir.errors import TilewrightError

logger = logging.getLogger("auto_scheduler")

Best = dict[tuple[str, str], dict[tuple[Any, ...] | None, tuple[StateObject, float]]]
"""by target's key and workload's name, by arguments: the state, and its seconds"""


class DispatchContext:
    """Base class; as ``with`` statement it is the innermost context."""

    current: ClassVar[DispatchContext]

    def __init__(self) -> None:
        self._old_ctx: DispatchContext | None = getattr(DispatchContext, "current", None)

    def query(
        self, target: Any, workload_key: str, has_complex_op: bool, dag: Any, func_name: str
    ) -> StateObject | None:
        """The state of a workload: of this context, or of the ones around it; None for the kernel's own schedule.

        Parameters
        ----------
        has_complex_op : whether the kernel has a reduction
        dag : its computation
        func_name : its name, for messages
        """
        found = self._query_inside(target, workload_key, func_name)
        if found is None and self._old_ctx is not None:
            found = self._old_ctx.query(target, workload_key, has_complex_op, dag, func_name)
        return found

    def update(self, target: Any, workload_key: str, state: StateObject) -> None:
        """Set the state of a workload."""
        raise NotImplementedError

    def _query_inside(self, target: Any, workload_key: str, func_name: str) -> StateObject | None:
        raise NotImplementedError

    def __enter__(self) -> DispatchContext:
        self._old_ctx = DispatchContext.current
        DispatchContext.current = self
        return self

    def __exit__(self, *_: object) -> None:
        assert self._old_ctx is not None
        DispatchContext.current = self._old_ctx


class ApplyHistoryBest(DispatchContext):
    """The fastest record of each workload.

    Parameters
    ----------
    records : a file of records, or pairs of ``MeasureInput`` and ``MeasureResult``
    n_lines : only so many of the first
    include_compatible : also of workloads that the kernel's is a multiple of
    """

    def __init__(
        self,
        records: str | os.PathLike[str] | Iterable[tuple[MeasureInput, MeasureResult]] | None,
        n_lines: int | None = None,
        include_compatible: bool = False,
    ) -> None:
        super().__init__()
        self.include_compatible = include_compatible
        self._measured: Best = {}
        self._given: Best = {}
        self.load(records, n_lines)

    def load(
        self,
        records: str | os.PathLike[str] | Iterable[tuple[MeasureInput, MeasureResult]] | None,
        n_lines: int | None = None,
    ) -> None:
        """Add records."""
        pairs = load_records(os.fspath(records)) if isinstance(records, (str, os.PathLike)) else records or ()
        for number, (inp, res) in enumerate(pairs):
            if n_lines is not None and number >= n_lines:
                break
            if res.error_no == 0:
                self._add(self._measured, inp.task.target, inp.task.workload_key, inp.state, res.mean)

    def _add(self, best: Best, target: Any, workload_key: str, state: StateObject, cost: float) -> None:
        name, args = decode_workload_key(workload_key)
        for key in _keys(target):
            entry = best.setdefault((key, name), {})
            if args not in entry or cost < entry[args][1]:
                entry[args] = state, cost

    def _query_inside(self, target: Any, workload_key: str, func_name: str) -> StateObject | None:
        if target is None:
            raise TilewrightError("records are for targets; write `with tvm.target.Target('llvm'):` around this")
        for key in _keys(target):
            for best in (self._given, self._measured):
                found = self._match(best, key, workload_key)
                if found is not None:
                    return found
        return None

    def _match(self, best: Best, key: str, workload_key: str) -> StateObject | None:
        name, args = decode_workload_key(workload_key)
        entry = best.get((key, name), {})
        if args in entry:
            return entry[args][0]
        if not self.include_compatible:
            return None
        candidates = [
            (cost * factor, state)
            for given, (state, cost) in entry.items()
            if not math.isinf(factor := calc_workload_dis_factor((name, args), (name, given)))
        ]
        return min(candidates, key=lambda c: c[0])[1] if candidates else None

    def update(self, target: Any, workload_key: str, state: StateObject) -> None:
        self._add(self._given, target, workload_key, state, 1.0)


def _keys(target: Any) -> list[str]:
    """Return the lookup keys of a target's records: its model if known, then its keys."""
    model = str(target.attrs.get("model") or "unknown")
    return [*([f"model {model}"] if model != "unknown" else []), *target.keys]


class ApplyHistoryBestOrSample(ApplyHistoryBest):
    """The fastest record of each workload, and for a workload without any a program that is drawn.

    Parameters
    ----------
    records : as of ``ApplyHistoryBest``
    sample_simple_workloads : also for kernels without a reduction
    cost_model_file : trees that rank the drawn programs; by default the choice is random
    num_measure : number of drawn programs to measure; -1 measures none
    """

    def __init__(
        self,
        records: Any,
        sample_simple_workloads: bool = False,
        cost_model_file: str | None = None,
        num_measure: int = -1,
    ) -> None:
        self.sample_simple_workloads = sample_simple_workloads
        self.num_measure = num_measure
        self.cost_model: CostModel = RandomModel()
        if cost_model_file is not None:
            model = XGBModel()
            model.load(cost_model_file)
            self.cost_model = model
        super().__init__(records, None, include_compatible=True)

    def query(
        self, target: Any, workload_key: str, has_complex_op: bool, dag: Any, func_name: str
    ) -> StateObject | None:
        found = self._query_inside(target, workload_key, func_name)
        if found is None and (has_complex_op or self.sample_simple_workloads):
            found = self._sample(target, workload_key, dag)
        if found is None and self._old_ctx is not None:
            found = self._old_ctx.query(target, workload_key, has_complex_op, dag, func_name)
        return found

    def _sample(self, target: Any, workload_key: str, dag: Any) -> StateObject | None:
        task = SearchTask(workload_key=workload_key, target=target, compute_dag=dag)
        params = {"eps_greedy": 0.01, "sample_init_min_population": 64, "evolutionary_search_num_iters": 0}
        with tempfile.TemporaryDirectory() as folder:
            log = str(Path(folder) / "sampled.json")
            Path(log).touch()
            callbacks = [PreloadMeasuredStates(log)]
            policy = SketchPolicy(task, self.cost_model, params, verbose=0, init_search_callbacks=callbacks)
            options = TuningOptions(
                self.num_measure, runner=LocalRunner(min_repeat_ms=300), measure_callbacks=[RecordToFile(log)],
                verbose=0,
            )  # fmt: skip
            found = task.tune(options, policy)
        if found is not None:
            self.update(target, workload_key, found)
        return found


class FallbackContext(DispatchContext):
    """The outermost context: it has no states, and warns once for each workload.

    ``verbose``: 0 for no warnings, 1 for kernels with reductions, 2 for all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.memory: dict[tuple[str, str], StateObject | None] = {}
        self.verbose = 1

    def query(
        self, target: Any, workload_key: str, has_complex_op: bool, dag: Any, func_name: str
    ) -> StateObject | None:
        key = str(target), workload_key
        if key not in self.memory:
            if self.verbose == 2 or (has_complex_op and self.verbose == 1):
                logger.warning(
                    "%s has no record for %s (workload %s); it keeps its own schedule", func_name, target, workload_key
                )
            self.memory[key] = None
        return self.memory[key]

    def update(self, target: Any, workload_key: str, state: StateObject) -> None:
        self.memory[str(target), workload_key] = state

    def _query_inside(self, target: Any, workload_key: str, func_name: str) -> StateObject | None:
        return self.memory.get((str(target), workload_key))


DispatchContext.current = FallbackContext()
