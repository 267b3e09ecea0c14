"""Tuning of a network: its tasks, measured in the order of the network's gain, and their records."""

from __future__ import annotations

import contextlib
import logging
import re
import statistics
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.autotvm.lines import encode, load_from_buffer, measure_str_key
from tilewright.autotvm.measurement import MeasureInput, MeasureResult
from tilewright.autotvm.store import is_current
from tilewright.autotvm.task.task import Task, untuned_config
from tilewright.autotvm.utils import mean
from tilewright.ir.errors import TilewrightError
from tilewright.tuning.measure.measure_methods import LocalBuilder, LocalRunner
from tilewright.tuning.roofline import Machine
from tilewright.tuning.tuner.failures import NothingWorks
from tilewright.tuning.tuner.model_based_tuner import ModelBasedTuner
from tilewright.tuning.tuner.tuner import Tuner

logger = logging.getLogger("autotvm")

DONE_AT = 0.97  # of the roofline
_SLICE = 16  # trials of a task before another may have its turn
_FINALISTS = 3
_TURNS = 5  # measurements of every finalist
_LEAST_SEARCHED = 0.25  # of the minutes
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
    left: int = 0  # trials of its slices that are not done
    mark: tuple[int, float] = (0, float("inf"))  # trials, and the best, when the last slice ended
    note: str = ""
    trials: list[Record] = field(default_factory=list)
    record: Record | None = None

    @property
    def best(self) -> float:
        """The fastest so far, the untuned choice among them."""
        return min([self.untuned, *(mean(r.costs) for _, r in self.trials if r.error_no == 0)])

    @property
    def share(self) -> float:
        """The share of the machine's peak."""
        return self.least / self.best if self.best < float("inf") else 0.0

    @property
    def expected_gain(self) -> float:
        """Seconds that the network may gain by a slice of trials.

        Half as much after each slice that brought nothing, and for each that is under way.
        """
        if self.note or self.untuned == float("inf"):
            return 0.0
        return self.uses * self.best * max(0.0, 1.0 - self.share) * 0.5 ** (self.stale + self.left / _SLICE)


class NetworkTuner:
    """Tunes the tasks of a network on this machine or on boards.

    Parameters
    ----------
    tasks : with the number of uses of each in the network
    make_tuner : a tuner for a task
    option : the result of ``measure_option``
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

        The untuned choices come first. However long they take, a quarter of the minutes is for the search.
        Ctrl-C ends the search; what was found stays, and goes to the finals.
        """
        try:
            self._begin()
            self._search(trials, self._deadline(minutes))
        except KeyboardInterrupt:
            self.interrupted = True
        for state in self.states:
            if hasattr(state.tuner, "measure"):
                state.tuner.measure.cancel()
        return self._finals()

    def _deadline(self, minutes: float | None) -> float | None:
        if minutes is None:
            return None
        return max(self.began + 60 * minutes, time.monotonic() + _LEAST_SEARCHED * 60 * minutes)

    def _begin(self) -> None:
        """Measure the untuned choices, and read the log."""
        for state in self.states:
            state.tuner.begin(self.option)
            state.tuner.measure.begin_untuned()
        known = self._known()
        for state in self.states:
            tuner, task = state.tuner, state.task
            tuner.measure.measure_untuned()
            untuned = tuner.measure.untuned
            if untuned is not None:
                state.untuned = mean(untuned.result.costs)
                if self.machine is not None:
                    state.least = self.machine.least_seconds(task.flop or 0, untuned.built.arg_info or ())
            else:
                state.note = "its untuned choice fails"
            self._remember(state, known.get(task.workload, []))
            state.mark = len(state.trials), state.best
            self._check_done(state)
            self.watch(self)

    def _known(self) -> dict[Any, list[Record]]:
        """Return trials of earlier runs by workload: the log's, and those measured without a tuner."""
        known = self._read_log()
        logged = {measure_str_key(inp) for records in known.values() for inp, _ in records}
        found = [r for r in self.option["runner"].measured() if measure_str_key(r[0]) not in logged]
        self._write_log(found)
        for inp, result in found:
            known.setdefault(inp.task.workload, []).append((inp, result))
        return known

    def _write_log(self, records: Sequence[Record]) -> None:
        lines = "".join(encode(inp, result) + "\n" for inp, result in records)
        try:
            with open(self.log, "ab") as file:
                file.write(lines.encode())
        except OSError as error:
            raise TilewrightError(
                f"{self.log}: {error.strerror}. The trials in it are kept: make room, and run the same command again"
            ) from error

    def _read_log(self) -> dict[Any, list[Record]]:
        found: dict[Any, list[Record]] = {}
        passed = 0
        text = self.log.read_bytes().decode(errors="replace") if self.log.exists() else ""
        if text and not text.endswith("\n"):  # a run that ended while it wrote
            with open(self.log, "ab") as file:
                file.write(b"\n")
        for line in text.splitlines():
            try:
                records = list(load_from_buffer([line]))
            except TilewrightError:
                passed += 1
                continue
            for inp, result in records:
                found.setdefault(inp.task.workload, []).append((inp, result))
        if passed:
            logger.warning(
                "%s has %d lines that are no records of this version; they are passed over", self.log, passed
            )
        return found

    def _remember(self, state: TaskState, records: list[Record]) -> None:
        """Add trials of an earlier run whose configurations have the same numbers still."""
        space, target = state.tuner.space, state.task.target
        for inp, result in records:
            index = inp.config.index
            if (
                not is_current((inp, result))
                or str(inp.target) != str(target)
                or index is None
                or not 0 <= index < len(space)
            ):
                continue
            config = space.get(index)
            if config.to_json_dict()["entity"] == inp.config.to_json_dict()["entity"]:
                assert target is not None
                state.trials.append((MeasureInput(target, state.task, config), result))
        state.tuner.known = {i.config.index: (i, r) for i, r in state.trials}
        if state.trials and isinstance(state.tuner, ModelBasedTuner):
            inputs, results = [i for i, _ in state.trials], [r for _, r in state.trials]
            state.tuner.update(inputs, results)

    def _search(self, trials: int, deadline: float | None) -> None:
        """Slices of trials to the tasks that promise most: one after the other here, on a cluster many at a time."""
        while deadline is None or time.monotonic() < deadline:
            self._hand_out(trials)
            busy = [s for s in self.states if s.left]
            if not busy:
                return
            if not sum([self._advance(state) for state in busy]):
                busy[0].tuner.measure.wait(1.0)

    def _hand_out(self, trials: int) -> None:
        """Hand out slices of trials while runners have free slots."""
        slots = max((s.tuner.measure.n_parallel for s in self.states), default=0)
        while (handed := sum(s.left for s in self.states)) < slots and self.trials_done + handed < trials:
            state = max(self.states, key=lambda s: s.expected_gain)
            if state.expected_gain <= 0:
                return
            state.left += min(_SLICE, trials - self.trials_done - handed)

    def _advance(self, state: TaskState) -> int:
        """Record the results of a task's trials; return how many there were."""
        done = 0

        def keep(_: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
            nonlocal done
            done = len(inputs)
            self.trials_done += done
            records = list(zip(inputs, results, strict=True))
            state.trials += records
            self._write_log(records)
            self.watch(self)

        try:
            if not state.tuner.advance(state.left, [keep], wait=False):
                state.note, state.left = state.note or "all measured", 0
        except NothingWorks as error:
            state.note, state.left = f"stopped: {error}", 0
            state.tuner.measure.cancel()
        state.left = max(0, state.left - done)
        if len(state.trials) - state.mark[0] >= _SLICE or not state.left:
            state.stale = 0 if state.best < 0.99 * state.mark[1] else state.stale + 1
            state.mark = len(state.trials), state.best
            self._check_done(state)
        return done

    def _check_done(self, state: TaskState) -> None:
        if not state.note and state.share >= DONE_AT:
            state.note = f"{state.share:.0%} of the roofline"

    def _finals(self) -> list[Record]:
        """Return the records that win when the finalists of each task are measured again, in turns with the untuned."""
        records = []
        for state in self.states:
            if state.untuned < float("inf"):
                with contextlib.suppress(KeyboardInterrupt):
                    state.record = self._final(state)
            if state.record is not None:
                records.append(state.record)
            self.watch(self)
        return records

    def _finalists(self, state: TaskState) -> list[MeasureInput]:
        """Return the fastest choices without the untuned one, which noise alone could make win against itself."""
        good = sorted((r for r in state.trials if r[1].error_no == 0), key=lambda r: mean(r[1].costs))
        fastest = {i.config.index: i for i, _ in good[: 4 * _FINALISTS]}
        fastest.pop(untuned_config(state.task).index, None)
        return list(fastest.values())[:_FINALISTS]

    def _final(self, state: TaskState) -> Record | None:
        inputs = self._finalists(state)
        if not inputs:
            return None
        began = time.monotonic()
        medians = [statistics.median(times) for times in state.tuner.measure.in_turns(inputs, _TURNS)]
        state.untuned = medians[0]
        best = min(range(1, len(medians)), key=lambda k: medians[k])
        if medians[best] > _WORTH * medians[0]:
            return None
        return inputs[best - 1], MeasureResult((medians[best],), 0, time.monotonic() - began, time.time())

    def close(self) -> None:
        """End the processes."""
        for part in self.option.values():
            if hasattr(part, "close"):
                part.close()


def trials_file(output: Path) -> Path:
    """Return the file that logs all trials of a run whose records go to ``output``."""
    return output.with_name(f"{output.stem}.trials{output.suffix or '.jsonl'}")


def is_on_this_machine(option: dict[str, Any]) -> bool:
    """Return whether candidates run here."""
    return isinstance(option["runner"], LocalRunner)


def own_share(states: Sequence[TaskState]) -> float:
    """The tuners' own time as a share of the whole."""
    whole = sum(s.tuner.all_seconds for s in states)
    return sum(s.tuner.own_seconds for s in states) / whole if whole else 0.0


def run_name(log: Path) -> str:
    """Return the name of the tuning run whose trials are in ``log``, or a new one."""
    if log.exists():
        found = re.search(r"^# run ([\w-]+)$", log.read_bytes().decode(errors="replace"), re.MULTILINE)
        if found:
            return found[1]
    name = uuid.uuid4().hex[:12]
    with open(log, "a") as file:
        file.write(f"# run {name}\n")
    return name
