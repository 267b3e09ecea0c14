"""Search for the best configurations of a model, by simulated annealing of many points, or all of a small space."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import numpy as np

from tilewright.autotvm.task.task import Task
from tilewright.autotvm.utils import sample_ints
from tilewright.tuning.tuner.model_based_tuner import CostModel, ModelOptimizer
from tilewright.tuning.tuner.points import knobs_to_points, points_to_knobs

logger = logging.getLogger("autotvm")

_ALL = 20_000  # configurations of a space that is looked at as a whole


class SimulatedAnnealingOptimizer(ModelOptimizer):
    """Walks of ``parallel_size`` points, which change one choice at a time.

    A step that is better is taken, one that is worse with a probability that falls with the temperature (``temp``, from
    the first to the second value). The search ends after ``n_iter`` steps, or ``early_stop`` that found nothing.
    ``persistent``: the next search begins where the last ended.
    """

    def __init__(
        self,
        task: Task,
        n_iter: int = 500,
        temp: float | Sequence[float] = (1, 0),
        persistent: bool = True,
        parallel_size: int = 128,
        early_stop: int | None = 50,
        log_interval: int = 50,
    ) -> None:
        assert task.config_space is not None
        self.task = task
        self.size = len(task.config_space)
        self.dims = task.config_space.dims
        self.n_iter, self.temp, self.persistent = n_iter, temp, persistent
        self.parallel_size = min(parallel_size, self.size)
        self.early_stop, self.log_interval = early_stop or n_iter, log_interval
        self.points: np.ndarray | None = None
        self._changeable = np.array([i for i, dim in enumerate(self.dims) if dim > 1], np.int64)

    def find_maximums(self, model: CostModel, num: int, exclusive: Iterable[int]) -> list[int]:
        """Return the best ``num`` configurations by the model, in order, without those of ``exclusive``."""
        best = _Best(num, exclusive)
        if self.size <= _ALL:
            points = np.arange(self.size)
            best.offer(points, model.predict(points))
            return best.points()
        points = self.points if self.persistent and self.points is not None else self._random()
        scores = model.predict(points)
        best.offer(points, scores)
        first, last = (self.temp[0], self.temp[-1]) if isinstance(self.temp, Sequence) else (self.temp, self.temp)
        changed = 0
        for step in range(self.n_iter):
            if step - changed >= self.early_stop:
                break
            temperature = first + (last - first) * step / (self.n_iter + 1)
            new = self._walk(points)
            new_scores = model.predict(new)
            chance = np.exp(np.minimum((new_scores - scores) / (temperature + 1e-5), 0))
            taken = np.random.random(len(points)) < chance
            points, scores = np.where(taken, new, points), np.where(taken, new_scores, scores)
            if best.offer(new, new_scores):
                changed = step
            if self.log_interval and step % self.log_interval == 0:
                logger.debug("annealing: step %d, best %.2f, temperature %.2f", step, best.top(), temperature)
        if self.persistent:
            self.points = points
        return best.points()

    def _random(self) -> np.ndarray:
        return np.array(sample_ints(0, self.size, self.parallel_size))

    def _walk(self, points: np.ndarray) -> np.ndarray:
        """Each point with another value of one choice."""
        knobs = points_to_knobs(points, self.dims)
        rows = np.arange(len(points))
        columns = self._changeable[np.random.randint(len(self._changeable), size=len(points))]
        dims = np.array(self.dims)[columns]
        step = 1 + (np.random.random(len(points)) * (dims - 1)).astype(np.int64)
        knobs[rows, columns] = (knobs[rows, columns] + step) % dims
        return knobs_to_points(knobs, self.dims)


class _Best:
    """The ``num`` points of the highest scores, each once."""

    def __init__(self, num: int, exclusive: Iterable[int]) -> None:
        self.num = num
        self._excluded = set(exclusive)
        self._scores: dict[int, float] = {}
        self._least = -np.inf

    def offer(self, points: np.ndarray, scores: np.ndarray) -> bool:
        """Keep better points; return whether there were any."""
        before = len(self._scores)
        better = scores > self._least
        found = {
            int(p): float(s)
            for p, s in zip(points[better], scores[better], strict=True)
            if int(p) not in self._excluded and int(p) not in self._scores
        }
        if not found:
            return False
        self._scores.update(found)
        ranked = sorted(self._scores.items(), key=lambda item: -item[1])[: self.num]
        taken = len(ranked) > before or any(point in found for point, _ in ranked)
        self._scores = dict(ranked)
        if len(ranked) == self.num:
            self._least = ranked[-1][1]
        return taken

    def points(self) -> list[int]:
        """The points, the best first."""
        return list(self._scores)

    def top(self) -> float:
        """The highest score."""
        return next(iter(self._scores.values()), float("-inf"))
