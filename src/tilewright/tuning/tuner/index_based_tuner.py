"""Tuners that learn nothing: all configurations in order, or at random."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from tilewright.autotvm.task.space import ConfigEntity
from tilewright.autotvm.task.task import Task
from tilewright.tuning.tuner.tuner import Tuner


class IndexBaseTuner(Tuner):
    """Configurations by their numbers; ``range_idx`` is the first and the last of those that are measured."""

    def __init__(self, task: Task, range_idx: tuple[int, int] | None = None) -> None:
        super().__init__(task)
        self.index_offset, self.range_length = 0, len(self.space)
        if range_idx is not None:
            first, last = range_idx
            if not 0 <= first < last:
                raise ValueError(f"range_idx is (first, last) with 0 <= first < last, found {range_idx}")
            self.index_offset, self.range_length = first, last - first + 1
        self.counter = 0

    def has_next(self) -> bool:
        """Return whether some were not measured."""
        return self.counter < self.range_length

    def load_history(self, data_set: Iterable[tuple[Any, Any]], min_seed_records: int = 500) -> None:
        """Nothing is learned."""

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        """The next configurations."""
        batch = [self.space.get(self._next()) for _ in range(min(batch_size, self.range_length - self.counter))]
        return batch

    def _next(self) -> int:
        raise NotImplementedError


class GridSearchTuner(IndexBaseTuner):
    """All configurations in order."""

    def _next(self) -> int:
        self.counter += 1
        return self.index_offset + self.counter - 1


class RandomTuner(IndexBaseTuner):
    """All configurations in random order, none twice."""

    def __init__(self, task: Task, range_idx: tuple[int, int] | None = None) -> None:
        super().__init__(task, range_idx)
        self.visited: list[int] = []
        self._moved: dict[int, int] = {}  # Fisher and Yates' shuffle, of which only what differs from order is kept

    def _next(self) -> int:
        left = self.range_length - self.counter
        at = random.randrange(left)
        found = self._moved.get(at, at)
        self._moved[at] = self._moved.get(left - 1, left - 1)
        self.counter += 1
        self.visited.append(found + self.index_offset)
        return self.visited[-1]
