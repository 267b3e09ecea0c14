"""``TaskScheduler``: choice of the task to tune next.

"gradient" follows section 6 of "Ansor" (Zheng et al., OSDI 2020): the next round goes to the task from which the
objective is expected to gain most, by what its last rounds gained, by what it could gain at the same pace, and by how
fast similar tasks are.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.auto_scheduler.cost_model import CostModel, RandomModel, XGBModel
from tilewright.auto_scheduler.measure import ProgramMeasurer
from tilewright.auto_scheduler.measure_record import RecordReader
from tilewright.auto_scheduler.search_policy import PreloadMeasuredStates, SearchPolicy, SketchPolicy
from tilewright.auto_scheduler.search_task import SearchTask, TuningOptions

_TAG = "auto_scheduler_task_scheduler_tag"
_UNKNOWN = 1e10  # seconds of a task that was not measured yet


def make_search_policies(
    search_policy: str | Sequence[SearchPolicy],
    search_policy_params: dict[str, Any] | None,
    tasks: Sequence[SearchTask],
    num_measures_per_round: int,
    verbose: int,
    load_model_file: str | None = None,
    load_log_file: str | None = None,
    adapative_training: bool = False,
) -> list[SearchPolicy]:
    """Return one policy for each task, all with one cost model.

    Parameters
    ----------
    search_policy : "default", "sketch.xgb", "sketch.random", or the policies
    load_model_file, load_log_file : what the model begins with: trees, or a file of records
    """
    if not isinstance(search_policy, str):
        return list(search_policy)
    kind, _, model_name = ("sketch.xgb" if search_policy == "default" else search_policy).partition(".")
    if kind != "sketch" or model_name not in ("xgb", "random"):
        raise ValueError(f"invalid search policy {search_policy!r}; known are default, sketch.xgb and sketch.random")
    model: CostModel = RandomModel()
    if model_name == "xgb":
        learned = XGBModel(
            num_warmup_sample=len(tasks) * num_measures_per_round,
            model_file=load_model_file,
            adapative_training=adapative_training,
        )
        if load_model_file and os.path.isfile(load_model_file):
            learned.load(load_model_file)
        elif load_log_file:
            learned.update_from_file(load_log_file)
        model = learned
    callbacks = [PreloadMeasuredStates(load_log_file)] if load_log_file else None
    return [
        SketchPolicy(task, model, search_policy_params, verbose=verbose, init_search_callbacks=callbacks)
        for task in tasks
    ]


def derive_similarity_tag(dag: Any, log_base: float = 1.618) -> str:
    """Return the tag that similar computations share: their operations' tags and the size; "" without such tags."""
    tags = "".join(f"{op.attrs[_TAG]}_" for op in dag.ops if op.attrs.get(_TAG))
    return f"{tags}{int(math.log(dag.flop_ct + 1, log_base))}" if tags else ""


class TaskSchedulerCallback:
    """Is called before and after each round of a task."""

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """Before the round."""

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """After the round."""


class TaskScheduler:
    """Tunes many tasks together.

    Parameters ---------- tasks : the tasks task_weights : how often each is used; the objective is the sum of weight
    times seconds objective_func : of the seconds of all tasks, instead of that sum; less is better strategy :
    "gradient" or "round-robin" load_model_file, load_log_file : initial state of the cost model; records also restore
    measurements alpha, beta, gamma, backward_window_size : of "gradient": weight of the last rounds' gain, how much
    faster similar tasks may be, (unused), and how many rounds back are looked at callbacks : by default a table, and a
    file ``total_latency.tsv``
    """

    def __init__(
        self,
        tasks: Sequence[SearchTask],
        task_weights: Sequence[float] | None = None,
        objective_func: Callable[[Sequence[float]], Any] | None = None,
        strategy: str = "gradient",
        load_model_file: str | None = None,
        load_log_file: str | None = None,
        alpha: float = 0.2,
        beta: float = 2,
        gamma: float = 0.5,
        backward_window_size: int = 3,
        callbacks: Sequence[TaskSchedulerCallback] | None = None,
    ) -> None:
        if not tasks:
            raise ValueError("a TaskScheduler needs tasks")
        if strategy not in ("round-robin", "gradient"):
            raise ValueError(f"invalid strategy {strategy!r}; known are gradient and round-robin")
        self.tasks = list(tasks)
        weights = list(task_weights) if task_weights else [1.0] * len(tasks)
        self.objective_func = objective_func or (lambda costs: sum(c * w for c, w in zip(costs, weights, strict=True)))
        self.strategy, self.load_model_file, self.load_log_file = strategy, load_model_file, load_log_file
        self.alpha, self.beta, self.gamma, self.backward_window_size = alpha, beta, gamma, backward_window_size
        default = [PrintTableInfo(), LogEstimatedLatency("total_latency.tsv")] if callbacks is None else []
        self.callbacks: list[TaskSchedulerCallback] = [*default, *(callbacks or ())]
        count = len(self.tasks)
        self.task_cts, self.task_best_cts = [0] * count, [0] * count
        self.task_costs_history: list[list[float]] = [[] for _ in range(count)]
        self.best_costs = _UNKNOWN * np.ones(count)
        self.cur_score = self._score(self.best_costs)
        self.dead_tasks: set[int] = set()
        self.ct = self.best_ct = 0
        self.num_measures_per_round = 0
        self.tic = time.time()
        self.task_tags: list[str] = [derive_similarity_tag(task.compute_dag) for task in self.tasks]
        self.flop_cts = [task.compute_dag.flop_ct for task in self.tasks]

    def tune(
        self,
        tune_option: TuningOptions,
        search_policy: str | Sequence[SearchPolicy] = "default",
        search_policy_params: dict[str, Any] | None = None,
        adapative_training: bool = False,
        per_task_early_stopping: int | None = None,
    ) -> None:
        """Tune, a round of one task after the other, until the trials are used up.

        Parameters
        ----------
        search_policy, search_policy_params, adapative_training : as of ``make_search_policies``
        per_task_early_stopping : stop a task after that many measurements in a row without improvement

        Raises ValueError when there is not one trial for each task.
        """
        self.tune_option = tune_option
        patience = tune_option.early_stopping if tune_option.early_stopping >= 0 else math.inf
        self._task_patience = math.inf if per_task_early_stopping is None else per_task_early_stopping
        self.measurer = ProgramMeasurer(
            tune_option.builder, tune_option.runner, tune_option.measure_callbacks, tune_option.verbose
        )
        self.ct, self.tic = 0, time.time()
        share = tune_option.num_measure_trials // len(self.tasks)
        self.num_measures_per_round = min(tune_option.num_measures_per_round, share)
        if self.num_measures_per_round <= 0:
            trials = tune_option.num_measure_trials
            raise ValueError(f"num_measure_trials is {trials}; {len(self.tasks)} tasks need one each at least")
        if self.load_log_file:
            self._restore(self.load_log_file)
        self.search_policies = make_search_policies(
            search_policy, search_policy_params, self.tasks, self.num_measures_per_round, tune_option.verbose,
            self.load_model_file, self.load_log_file, adapative_training,
        )  # fmt: skip
        for index, count in enumerate(self.task_cts):
            if not count:
                self._tune_task(index)
        self._run(patience)

    def _run(self, patience: float) -> None:
        best_score, self.best_ct, last = self.cur_score, self.ct, -1
        while self.ct < self.tune_option.num_measure_trials and len(self.dead_tasks) < len(self.tasks):
            last = self._next(last)
            self._tune_task(last)
            self._check_similarity(last)
            if self.cur_score < best_score:
                best_score, self.best_ct = self.cur_score, self.ct
            elif self.ct - self.best_ct >= patience and all(c < _UNKNOWN / 10 for c in self.best_costs):
                if self.tune_option.verbose >= 1:
                    print(f"Stop early since no performance improvement in the last {patience} measurement trials.")
                break

    def _next(self, last: int) -> int:
        alive = [i for i in range(len(self.tasks)) if i not in self.dead_tasks]
        if self.strategy == "round-robin":
            return next((i for i in alive if i > last), alive[0])
        gains = {i: self._gradient(i) for i in alive}
        if len(alive) > 1 and max(gains.values()) == min(gains.values()):
            return int(np.random.choice(alive))
        return min(alive, key=gains.__getitem__)

    def _gradient(self, i: int) -> float:
        """Return the expected change of the objective by another round of a task (negative: it falls)."""
        step = 1e-4
        changed = list(self.best_costs)
        changed[i] -= step
        influence = (self._score(self.best_costs) - self._score(changed)) / step
        history, count, window = self.task_costs_history[i], self.task_cts[i], self.backward_window_size
        backward = 0.0
        if count - 1 < len(history) and count - 1 - window >= 0:
            backward = (history[count - 1] - history[count - 1 - window]) / window
        expected = self.best_costs[i] - self.best_costs[i] / max(1, count)
        group = self._group(i)
        if len(group) > 1:
            fastest = max(self.flop_cts[j] / self.best_costs[j] for j in group)
            expected = min(expected, self.beta * self.flop_cts[i] / fastest)
        return float(influence * (self.alpha * backward + (1 - self.alpha) * (expected - self.best_costs[i])))

    def _group(self, i: int) -> list[int]:
        return [j for j, tag in enumerate(self.task_tags) if tag and tag == self.task_tags[i]]

    def _check_similarity(self, i: int) -> None:
        """A task that stays much slower than those it seemed similar to is similar to none."""
        group = self._group(i)
        if len(group) <= 1:
            return
        fastest = max(self.flop_cts[j] / self.best_costs[j] for j in group)
        rounds = max(self.task_cts[j] for j in group if j != i)
        if self.flop_cts[i] / self.best_costs[i] < fastest / self.beta and self.task_cts[i] > 5 + rounds:
            self.task_tags[i] = ""

    def _tune_task(self, i: int) -> None:
        for callback in self.callbacks:
            callback.pre_tune(self, i)
        inputs, results = self.search_policies[i].continue_search_one_round(self.num_measures_per_round, self.measurer)
        self.task_cts[i] += 1
        for res in results:
            if res.error_no == 0 and res.mean < self.best_costs[i]:
                self.task_best_cts[i], self.best_costs[i] = self.task_cts[i], res.mean
        unchanged = (self.task_cts[i] - self.task_best_cts[i]) * self.num_measures_per_round
        if not inputs or unchanged > self._task_patience:
            self.dead_tasks.add(i)
        self.task_costs_history[i].append(self.best_costs[i])
        self.ct += len(inputs)
        self.cur_score = self._score(self.best_costs)
        for callback in self.callbacks:
            callback.post_tune(self, i)

    def _score(self, costs: Sequence[float] | np.ndarray[Any, Any]) -> float:
        score = self.objective_func(costs)  # type: ignore[arg-type]
        return float(getattr(score, "value", score))

    def _restore(self, log_file: str) -> None:
        """Read from a file of records how often tasks were tuned, and their best."""
        number = {task.workload_key: i for i, task in enumerate(self.tasks)}
        target = str(self.tasks[0].target)
        counts, bests = [0] * len(self.tasks), [0] * len(self.tasks)
        for inp, res in RecordReader(log_file):
            i = number.get(inp.task.workload_key)
            if i is None or str(inp.task.target) != target:
                continue
            counts[i] += 1
            if res.error_no == 0 and res.mean < self.best_costs[i]:
                self.best_costs[i], bests[i] = res.mean, counts[i]
        for i, (count, best) in enumerate(zip(counts, bests, strict=True)):
            if count - best > self._task_patience:
                self.dead_tasks.add(i)
            self.task_cts[i] = int(count / self.num_measures_per_round + 0.5)
            self.task_best_cts[i] = int(best / self.num_measures_per_round + 0.5)
            self.task_costs_history[i].append(self.best_costs[i])
        self.cur_score = self._score(self.best_costs)


class PrintTableInfo(TaskSchedulerCallback):
    """Prints a table of all tasks before each round."""

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        if task_scheduler.tune_option.verbose < 1:
            return
        print("|  ID  | Latency (ms) | Speed (GFLOPS) | Trials |\n" + "-" * 49)
        for i, cost in enumerate(task_scheduler.best_costs):
            known = cost < _UNKNOWN / 10
            latency = f"{1e3 * cost:.3f}" if known else "-"
            speed = f"{task_scheduler.flop_cts[i] / cost / 1e9:.2f}" if known else "-"
            trials = task_scheduler.task_cts[i] * task_scheduler.num_measures_per_round
            print(f"| {i:4d} | {latency:>12} | {speed:>14} | {trials:6d} |")
        print("-" * 49)
        print(
            f"Estimated total latency: {_total(task_scheduler, '-')} ms\tTrials: {task_scheduler.ct}\t"
            f"Used time : {time.time() - task_scheduler.tic:.0f} s\tNext ID: {task_id}",
            flush=True,
        )


def _total(scheduler: TaskScheduler, unknown: str) -> str:
    known = all(c < _UNKNOWN / 10 for c in scheduler.best_costs)
    return f"{scheduler.cur_score * 1e3:.3f}" if known else unknown


class LogEstimatedLatency(TaskSchedulerCallback):
    """Writes the time so far, the objective in milliseconds and the trials to a file, a line for each round."""

    def __init__(self, log_file: str) -> None:
        self.log_file = log_file
        Path(log_file).unlink(missing_ok=True)

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        with open(self.log_file, "a", encoding="utf-8") as file:
            file.write(
                f"ElapsedTime(s)\t{time.time() - task_scheduler.tic:.0f}\t"
                f"EstimatedLatency(ms)\t{_total(task_scheduler, 'N/A')}\tTrials\t{task_scheduler.ct}\n"
            )
