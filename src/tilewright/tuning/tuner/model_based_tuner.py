"""Tuners that choose by a cost model."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.autotvm.measurement import MeasureInput, MeasureResult
from tilewright.autotvm.task.space import ConfigEntity
from tilewright.autotvm.task.task import Task
from tilewright.tuning.tuner.points import knob2point, point2knob, points_to_knobs
from tilewright.tuning.tuner.tuner import Tuner, speed


class CostModel:
    """Predicts the speed of configurations from their numbers."""

    def fit(self, xs: Sequence[int], ys: Sequence[float], plan_size: int) -> None:
        """Learn that the configurations ``xs`` have the speeds ``ys``."""
        raise NotImplementedError

    def fit_log(self, records: Iterable[tuple[Any, Any]], plan_size: int, min_seed_records: int = 500) -> bool:
        """Learn from records; return False if there are too few."""
        raise NotImplementedError

    def predict(self, xs: Any, output_margin: bool = False) -> np.ndarray:
        """Scores of configurations: larger is faster."""
        raise NotImplementedError

    def load_basemodel(self, base_model: Any) -> None:
        """Start from another model's knowledge."""
        raise NotImplementedError

    def spawn_base_model(self) -> Any:
        """Return an untrained model of this kind."""
        raise NotImplementedError


class ModelOptimizer:
    """Finds the configurations that a model ranks best."""

    def find_maximums(self, model: CostModel, num: int, exclusive: Iterable[int]) -> list[int]:
        """Return the best ``num`` configurations by the model, in order, without those of ``exclusive``."""
        raise NotImplementedError


class ModelBasedTuner(Tuner):
    """Measures ``plan_size`` configurations, fits the model, and lets it plan the next.

    The first plan is random, and of every plan the last 5 % are. With ``diversity_filter_ratio`` the model proposes as
    many times ``plan_size``, of which those are taken that have most choices between them.
    """

    def __init__(
        self,
        task: Task,
        cost_model: CostModel,
        model_optimizer: ModelOptimizer,
        plan_size: int,
        diversity_filter_ratio: float | None = None,
    ) -> None:
        super().__init__(task)
        if diversity_filter_ratio is not None and diversity_filter_ratio < 1:
            raise ValueError(f"diversity_filter_ratio is at least 1, found {diversity_filter_ratio}")
        self.target = task.target
        self.plan_size = plan_size
        self.dims = self.space.dims
        self.cost_model, self.model_optimizer = cost_model, model_optimizer
        self.diversity_filter_ratio = diversity_filter_ratio
        self.trials: list[int] = []
        self.trial_pt = 0
        self.visited: set[int] = set()
        self.xs: list[int] = []
        self.ys: list[float] = []
        self.flops_max = 0.0
        self.train_ct = 0

    def begin(self, measure_option: Mapping[str, Any]) -> None:
        """Prepare measuring; a plan is at least one batch, since the remainder would be random."""
        super().begin(measure_option)
        self.plan_size = max(self.plan_size, self.measure.n_parallel)

    def has_next(self) -> bool:
        """Return whether some configuration was not measured."""
        return len(self.visited) < len(self.space)

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        """Return the next configurations of the plan, or random ones after its end."""
        batch: list[ConfigEntity] = []
        while len(batch) < batch_size and self.has_next():
            index = self._planned()
            self.visited.add(index)
            batch.append(self.space.get(index))
        return batch

    def _planned(self) -> int:
        while self.trial_pt < len(self.trials) - int(0.05 * self.plan_size):
            index = int(self.trials[self.trial_pt])
            self.trial_pt += 1
            if index not in self.visited:
                return index
        return self._unseen()

    def _unseen(self) -> int:
        size = len(self.space)
        for _ in range(100):
            index = random.randrange(size)
            if index not in self.visited:
                return index
        return random.choice([i for i in range(size) if i not in self.visited])

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Record measurements, and make a plan when there are enough new ones."""
        for inp, result in zip(inputs, results, strict=True):
            index = inp.config.index
            assert index is not None
            self.xs.append(index)
            self.ys.append(speed(inp, result))
            self.visited.add(index)  # of trials of earlier runs, passed in to resume
        self.flops_max = max([self.flops_max, *self.ys[-len(inputs) :]])
        if len(self.xs) >= self.plan_size * (self.train_ct + 1) and self.flops_max > 1e-6 and self.has_next():
            self.cost_model.fit(self.xs, self.ys, self.plan_size)
            self.trials, self.trial_pt = self._plan(), 0
            self.train_ct += 1

    def _plan(self) -> list[int]:
        if not self.diversity_filter_ratio:
            return self.model_optimizer.find_maximums(self.cost_model, self.plan_size, self.visited)
        many = int(self.plan_size * self.diversity_filter_ratio)
        found = self.model_optimizer.find_maximums(self.cost_model, many, self.visited)
        knobs = points_to_knobs(np.array(found), self.dims)
        return [found[i] for i in submodular_pick(np.zeros(len(found)), knobs, min(self.plan_size, len(found)))]

    def load_history(self, data_set: Iterable[tuple[Any, Any]], min_seed_records: int = 500) -> None:
        """Start with a model of earlier records, if there are at least ``min_seed_records``."""
        base = self.cost_model.spawn_base_model()
        if not base.fit_log(data_set, self.plan_size, min_seed_records):
            return
        if not self.trials:
            self.trials = self.model_optimizer.find_maximums(base, self.plan_size, self.visited)
            self.trial_pt = 0
        self.cost_model.load_basemodel(base)


def submodular_pick(scores: np.ndarray, knobs: np.ndarray, n_pick: int, knob_weight: float = 1.0) -> list[int]:
    """Greedily the items of the highest sum of scores and ``knob_weight`` for each value of a choice that is new."""
    values = np.asarray(knobs)
    gain = np.asarray(scores, float) + knob_weight * values.shape[1]
    seen: list[set[int]] = [set() for _ in range(values.shape[1])]
    picked: list[int] = []
    for _ in range(n_pick):
        at = int(np.argmax(gain))
        picked.append(at)
        for column, known in enumerate(seen):
            value = int(values[at, column])
            if value not in known:
                known.add(value)
                gain = gain - knob_weight * (values[:, column] == value)
        gain[at] = -np.inf
    return picked


__all__ = [
    "CostModel", "ModelBasedTuner", "ModelOptimizer", "knob2point", "point2knob", "submodular_pick",
]  # fmt: skip
