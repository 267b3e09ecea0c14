"""The tuning loop: choose a batch, measure it, learn from it, report."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tilewright.autotvm.env import GLOBAL_SCOPE
from tilewright.autotvm.measurement import MeasureInput, MeasureResult
from tilewright.autotvm.task.space import ConfigEntity, ConfigSpace
from tilewright.autotvm.task.task import Task, first_configs, untuned_config
from tilewright.autotvm.utils import format_si_prefix, mean
from tilewright.tuning.measure.measure_methods import create_measure_batch
from tilewright.tuning.tuner.failures import Failures

logger = logging.getLogger("autotvm")

Callback = Callable[[Any, Sequence[MeasureInput], Sequence[MeasureResult]], Any]
_NEVER = 1 << 62


def speed(inp: MeasureInput, result: MeasureResult) -> float:
    """FLOPS of a trial; 0 of one that failed."""
    return float(inp.task.flop or 0) / mean(result.costs) if result.error_no == 0 else 0.0


class Tuner:
    """Base of tuners, which choose the next trials (``has_next``, ``next_batch``) and learn from results (``update``).

    ``best_flops``, ``best_config``, ``best_measure_pair`` and ``best_iter`` describe the best so far, ``failures`` the
    failures, ``own_seconds`` the time besides measuring.
    """

    def __init__(self, task: Task, **kwargs: Any) -> None:
        self.task = task
        self.param = kwargs
        self.best_config: ConfigEntity | None = None
        self.best_flops = 0.0
        self.best_measure_pair: tuple[MeasureInput, MeasureResult] | None = None
        self.best_iter = 0
        self.ttl: int | None = None  # trials left
        self.n_trial: int | None = None
        self.early_stopping: int | None = None
        self.failures = Failures()
        self._starts: list[ConfigEntity] = []  # before those that the tuner chooses
        self.done, self._measured_untuned = 0, False
        self.own_seconds = self.all_seconds = self._measuring = 0.0
        self.known: dict[int | None, tuple[MeasureInput, MeasureResult]] = {}  # of earlier runs, by number

    @property
    def space(self) -> ConfigSpace:
        """The configurations of the task."""
        assert self.task.config_space is not None
        return self.task.config_space

    def has_next(self) -> bool:
        """Return whether there is anything left that was not measured."""
        raise NotImplementedError

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        """The configurations to measure next, ``batch_size`` or fewer."""
        raise NotImplementedError

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from measurements."""

    def load_history(self, data_set: Iterable[tuple[Any, Any]], min_seed_records: int = 500) -> None:
        """Learn from records of this and other workloads, if there are at least ``min_seed_records``."""
        raise NotImplementedError

    def tune(
        self,
        n_trial: int,
        measure_option: Mapping[str, Any],
        early_stopping: int | None = None,
        callbacks: Sequence[Callback] = (),
        si_prefix: str = "G",
    ) -> None:
        """Measure up to ``n_trial`` configurations.

        Parameters
        ----------
        measure_option : the result of :func:`autotvm.measure_option`
        early_stopping : stop after that many trials without improvement
        callbacks : called with (tuner, inputs, results) of every batch
        si_prefix : unit of FLOPS in the log

        Raises
        ------
        NothingWorks : all of the first 32 trials failed; the message shows the first of each kind of failure
        """
        format_si_prefix(0, si_prefix)  # says now that it does not know a unit
        self.begin(measure_option)
        self.n_trial, self.early_stopping = n_trial, early_stopping or _NEVER
        while self.done < n_trial and self.advance(n_trial - self.done, callbacks, si_prefix):
            if self.done >= self.best_iter + self.early_stopping:
                logger.debug("nothing better since trial %d", self.best_iter)
                break
        while self.measure.pending:  # on a cluster some are still under way
            self.advance(0, callbacks, si_prefix)

    def begin(self, measure_option: Mapping[str, Any]) -> None:
        """Get ready to measure; ``advance`` then measures batch by batch."""
        self.measure = create_measure_batch(self.task, measure_option)
        self.failures = Failures(self.measure.describe)
        self.done, self._measured_untuned = 0, False
        self._starts = first_configs(self.task)
        self.own_seconds = self.all_seconds = 0.0

    def advance(
        self, at_most: int, callbacks: Sequence[Callback] = (), si_prefix: str = "G", wait: bool = True
    ) -> bool:
        """Measure up to ``at_most`` trials, including pending ones, and learn from the results.

        Returns False when nothing is left. A local runner measures a batch; a cluster has many pending trials and
        returns results as they come: without ``wait``, possibly none.

        Raises
        ------
        NothingWorks : as ``tune``
        """
        began, self._measuring = time.perf_counter(), 0.0
        GLOBAL_SCOPE.in_tuning = True
        try:
            found = self._measured(self._untuned)
            searched = not found
            if searched:
                self._submit(at_most)
                if not self.measure.pending:
                    return False
                found = self._measured(lambda: self.measure.collect(wait))
            if found:
                self._learn(found, searched, callbacks, si_prefix)
            return True
        finally:
            GLOBAL_SCOPE.in_tuning = False
            elapsed = time.perf_counter() - began
            self.all_seconds += elapsed
            self.own_seconds += elapsed - self._measuring

    def _measured(self, measure: Callable[[], Any]) -> Any:
        """Call ``measure`` and exclude its time from the tuner's own."""
        start = time.perf_counter()
        found = measure()
        self._measuring += time.perf_counter() - start
        return found

    def _submit(self, at_most: int) -> None:
        """Submit more trials up to the runner's capacity; skip ``known`` configurations."""
        assert self.task.target is not None
        slots = min(self.measure.n_parallel, at_most) - self.measure.pending
        while slots > 0 and (self._starts or self.has_next()):
            configs, self._starts = self._starts[:slots], self._starts[slots:]
            configs = configs or self.next_batch(slots)
            if not configs:
                return
            old = [self.known[c.index] for c in configs if c.index in self.known]
            if old:
                self.update([inp for inp, _ in old], [result for _, result in old])
            batch = [MeasureInput(self.task.target, self.task, c) for c in configs if c.index not in self.known]
            self._measured(functools.partial(self.measure.submit, batch))
            slots -= len(batch)

    def _learn(
        self, found: list[tuple[MeasureInput, MeasureResult]], searched: bool, callbacks: Sequence[Callback], unit: str
    ) -> None:
        inputs, results = [inp for inp, _ in found], [result for _, result in found]
        self._keep_best(self.done, inputs, results, unit)
        self.done += len(results)
        if self.n_trial is not None and self.early_stopping is not None:
            self.ttl = min(self.early_stopping + self.best_iter, self.n_trial) - self.done
        if all(inp.config.index is not None for inp in inputs):
            self.update(inputs, results)
        if searched:
            for inp, result in found:
                self.failures.add(inp, result)
        for callback in callbacks:
            callback(self, inputs, results)
        self.failures.check()

    def _untuned(self) -> list[tuple[MeasureInput, MeasureResult]]:
        """Measure the untuned choice before all others, so that no record is slower than it."""
        if self.done or self._measured_untuned:
            return []
        self._measured_untuned = True
        result = self.measure.measure_untuned()
        if result is None:
            return []
        assert self.task.target is not None
        return [(MeasureInput(self.task.target, self.task, untuned_config(self.task)), result)]

    def _keep_best(
        self, done: int, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult], si_prefix: str
    ) -> None:
        for k, (inp, result) in enumerate(zip(inputs, results, strict=True)):
            flops = speed(inp, result)
            if flops > self.best_flops:
                self.best_flops, self.best_config = flops, inp.config
                self.best_measure_pair, self.best_iter = (inp, result), done + k
            logger.debug(
                "No: %d\t%sFLOPS: %.2f/%.2f\tresult: %s\t%s",
                done + k + 1, si_prefix, format_si_prefix(flops, si_prefix),
                format_si_prefix(self.best_flops, si_prefix), result, inp.config,
            )  # fmt: skip

    def reset(self) -> None:
        """Forget the best configuration."""
        self.best_config = self.best_measure_pair = None
        self.best_flops = 0.0
