"""The tasks of a network, measured in the order of what the network gains, and what is kept of them."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.autotvm.lines import encode, load_from_file
from tilewright.autotvm.measure.measure import MeasureInput, MeasureResult
from tilewright.autotvm.measure.measure_methods import BuildResult, LocalBuilder, LocalRunner
from tilewright.autotvm.task.task import Task
from tilewright.autotvm.tuner.failures import NothingWorks
from tilewright.autotvm.tuner.model_based_tuner import ModelBasedTuner
from tilewright.autotvm.tuner.tuner import Tuner
from tilewright.autotvm.utils import mean
from tilewright.tuning.roofline import Machine

DONE_AT = 0.97  # of the roofline
_SLICE = 16  # trials of a task before another may have its turn
_FINALISTS = 3
_TURNS = 5  # measurements of every finalist
_WORTH = 0.98  # of the untuned time, which a record has to stay under

Record = tuple[MeasureInput, MeasureResult]


@dataclass
class TaskState:
    """A task, how often the network has it, and how far its tuning is; times in seconds."""

    task: Task
    uses: int
    tuner: Tuner
    untuned: float = float("inf")
    least: float = 0.0  # by the roofline
    stale: int = 0  # slices that brought nothing
    note: str = ""
    trials: list[Record] = field(default_factory=list)
    record: Record | None = None

    @property
    def best(self) -> float:
        """The fastest so far, the untuned choice among them."""
        return min([self.untuned, *(mean(r.costs) for _, r in self.trials if r.error_no == 0)])

    @property
    def share(self) -> float:
        """Of what the machine could do."""
        return self.least / self.best if self.best < float("inf") else 0.0

    @property
    def expected_gain(self) -> float:
        """Seconds that the network may gain by a slice of trials: half as much after each that brought nothing."""
        if self.note or self.untuned == float("inf"):
            return 0.0
        return self.uses * self.best * max(0.0, 1.0 - self.share) * 0.5**self.stale


class NetworkTuner:
    """Tunes the tasks of a network on this machine or on boards.

    Parameters
    ----------
    tasks : and how often the network has each
    make_tuner : a tuner for a task
    option : what ``measure_option`` gives
    machine : for shares of the roofline; None where it is not known (boards)
    log : file that every trial is appended to; what it has already is not measured again
    watch : called with this object whenever something has changed
    """

    def __init__(
        self,
        tasks: Sequence[tuple[Task, int]],
        make_tuner: Callable[[Task], Tuner],
        option: dict[str, Any],
        machine: Machine | None,
        log: Path,
        watch: Callable[[NetworkTuner], None] = lambda _: None,
    ) -> None:
        self.states = [TaskState(task, uses, make_tuner(task)) for task, uses in tasks]
        self.option, self.machine, self.log, self.watch = option, machine, log, watch
        self.trials_done, self.began, self.interrupted = 0, time.monotonic(), False
        if isinstance(option["builder"], LocalBuilder):
            option["builder"].know([s.task for s in self.states])

    def run(self, trials: int, minutes: float | None = None) -> list[Record]:
        """Measure up to ``trials`` configurations in all, for ``minutes`` at most; the records that are worth it.

        Ctrl-C ends the search; what was found stays, and goes to the finals.
        """
        deadline = None if minutes is None else self.began + 60 * minutes
        try:
            self._begin()
            while self.trials_done < trials and (deadline is None or time.monotonic() < deadline):
                state = max(self.states, key=lambda s: s.expected_gain, default=None)
                if state is None or state.expected_gain <= 0:
                    break
                self._slice(state, trials, deadline)
        except KeyboardInterrupt:
            self.interrupted = True
        return self._finals()

    def _begin(self) -> None:
        """The untuned choices, and what the log knows."""
        known = self._read_log()
        for state in self.states:
            tuner, task = state.tuner, state.task
            tuner.begin(self.option)
            tuner.measure.measure_untuned()
            untuned = tuner.measure.untuned
            if untuned is not None:
                state.untuned = mean(untuned.result.costs)
                if self.machine is not None:
                    state.least = self.machine.least_seconds(task.flop or 0, untuned.built.arg_info or ())
            else:
                state.note = "its untuned choice fails"
            self._remember(state, known.get(task.workload, []))
            self._check_done(state)
            self.watch(self)

    def _read_log(self) -> dict[Any, list[Record]]:
        found: dict[Any, list[Record]] = {}
        if self.log.exists():
            for inp, result in load_from_file(self.log):
                found.setdefault(inp.task.workload, []).append((inp, result))
        return found

    def _remember(self, state: TaskState, records: list[Record]) -> None:
        """Take over trials of an earlier run, whose configurations are still those of the same numbers."""
        space, target = state.tuner.space, state.task.target
        for inp, result in records:
            index = inp.config.index
            if str(inp.target) != str(target) or index is None or not 0 <= index < len(space):
                continue
            config = space.get(index)
            if config.to_json_dict()["entity"] == inp.config.to_json_dict()["entity"]:
                assert target is not None
                state.trials.append((MeasureInput(target, state.task, config), result))
        if state.trials and isinstance(state.tuner, ModelBasedTuner):
            inputs, results = [i for i, _ in state.trials], [r for _, r in state.trials]
            state.tuner.update(inputs, results)

    def _slice(self, state: TaskState, trials: int, deadline: float | None) -> None:
        """Some trials of one task."""
        before, size = state.best, min(_SLICE, trials - self.trials_done)
        done = 0

        def keep(_: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
            nonlocal done
            done += len(inputs)
            self.trials_done += len(inputs)
            state.trials += zip(inputs, results, strict=True)
            with open(self.log, "a") as file:
                file.writelines(encode(i, r) + "\n" for i, r in zip(inputs, results, strict=True))
            self.watch(self)

        while done < size and (deadline is None or time.monotonic() < deadline):
            try:
                if not state.tuner.advance(size - done, [keep]):
                    state.note = "all measured"
                    break
            except NothingWorks as error:
                state.note = f"stopped: {error}"
                break
        state.stale = 0 if state.best < 0.99 * before else state.stale + 1
        self._check_done(state)

    def _check_done(self, state: TaskState) -> None:
        if not state.note and state.share >= DONE_AT:
            state.note = f"{state.share:.0%} of the roofline"

    def _finals(self) -> list[Record]:
        """The records that stand when the finalists of each task are measured again, in turns with the untuned."""
        records = []
        builder, runner = self.option["builder"], self.option["runner"]
        for state in self.states:
            untuned = state.tuner.measure.untuned if hasattr(state.tuner, "measure") else None
            if untuned is None or not isinstance(builder, LocalBuilder) or not isinstance(runner, LocalRunner):
                state.record = self._fastest(state)
            else:
                with contextlib.suppress(KeyboardInterrupt):
                    runner.untuned = untuned
                    state.record = self._final(state, builder, runner)
            if state.record is not None:
                records.append(state.record)
            self.watch(self)
        return records

    def _finalists(self, state: TaskState) -> list[MeasureInput]:
        good = sorted((r for r in state.trials if r[1].error_no == 0), key=lambda r: mean(r[1].costs))
        return list({i.config.index: i for i, _ in good[: 4 * _FINALISTS]}.values())[:_FINALISTS]

    def _fastest(self, state: TaskState) -> Record | None:
        good = [r for r in state.trials if r[1].error_no == 0]
        return min(good, key=lambda r: mean(r[1].costs), default=None)

    def _final(self, state: TaskState, builder: LocalBuilder, runner: LocalRunner) -> Record | None:
        inputs = self._finalists(state)
        built = builder.keep([(state.task, i.config) for i in inputs])
        alive = [(i, b) for i, b in zip(inputs, built, strict=True) if isinstance(b, BuildResult)]
        untuned = state.tuner.measure.untuned
        if not alive or untuned is None:
            return None
        inp: Any = MeasureInput(alive[0][0].target, state.task, None)  # type: ignore[arg-type]
        field_of = [(inp, untuned.built), *alive]
        times: list[list[float]] = [[] for _ in field_of]
        for _ in range(_TURNS):
            for seconds, result in zip(times, runner.run(*map(list, zip(*field_of, strict=True))), strict=True):
                seconds.append(min(result.costs) if result.error_no == 0 else float("inf"))
        medians = [statistics.median(seconds) for seconds in times]
        state.untuned = medians[0]
        best = min(range(1, len(field_of)), key=lambda k: medians[k])
        if medians[best] > _WORTH * medians[0]:
            return None
        return field_of[best][0], MeasureResult((medians[best],), 0, sum(times[best]), time.time())

    def close(self) -> None:
        """End the processes."""
        for part in self.option.values():
            if hasattr(part, "close"):
                part.close()


def trials_file(output: Path) -> Path:
    """Where all trials of a run are logged whose records go to ``output``."""
    return output.with_name(f"{output.stem}.trials{output.suffix or '.jsonl'}")


def is_on_this_machine(option: dict[str, Any]) -> bool:
    """Whether candidates run here."""
    return isinstance(option["runner"], LocalRunner)


def own_share(states: Sequence[TaskState]) -> float:
    """The tuners' own time as a share of the whole."""
    whole = sum(s.tuner.all_seconds for s in states)
    return sum(s.tuner.own_seconds for s in states) / whole if whole else 0.0
