"""Tuner by a genetic algorithm: a configuration is a gene, its speed the fitness."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tilewright.autotvm.measurement import MeasureInput, MeasureResult
from tilewright.autotvm.task.space import ConfigEntity
from tilewright.autotvm.task.task import Task
from tilewright.autotvm.utils import sample_ints
from tilewright.tuning.tuner.points import knob2point, point2knob
from tilewright.tuning.tuner.tuner import Tuner, speed


class GATuner(Tuner):
    """Generations of ``pop_size`` configurations.

    The next has crossings of those that were fast, each choice changed with the probability ``mutation_prob``; the
    ``elite_num`` fastest of all stay among the parents. Nothing is measured twice.
    """

    def __init__(self, task: Task, pop_size: int = 100, elite_num: int = 3, mutation_prob: float = 0.1) -> None:
        super().__init__(task)
        if elite_num > pop_size:
            raise ValueError(f"elite_num {elite_num} is more than pop_size {pop_size}")
        self.pop_size = min(pop_size, len(self.space))
        self.elite_num = min(elite_num, self.pop_size)
        self.mutation_prob = mutation_prob
        self.dims = self.space.dims
        self.elites: list[tuple[float, list[int]]] = []
        self._begin_generation([point2knob(p, self.dims) for p in sample_ints(0, len(self.space), self.pop_size)])
        self.visited = {knob2point(g, self.dims) for g in self.genes}

    def has_next(self) -> bool:
        """Return whether some configuration was not measured."""
        return self.trial_pt < len(self.genes)

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        """The next of this generation."""
        batch = self.genes[self.trial_pt : self.trial_pt + batch_size]
        self.trial_pt += len(batch)
        return [self.space.get(knob2point(gene, self.dims)) for gene in batch]

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """After a whole generation, the next; results come in any order, those of others are parents too."""
        for inp, result in zip(inputs, results, strict=True):
            index, score = inp.config.index, speed(inp, result)
            if index in self._places:
                self.scores[self._places[index]] = score
            elif index is not None:
                self.visited.add(index)
                self.elites.append((score, point2knob(index, self.dims)))
        if len(self.scores) >= len(self.genes):
            self._next_generation()

    def _next_generation(self) -> None:
        parents = [*((self.scores[i], gene) for i, gene in enumerate(self.genes)), *self.elites]
        self.elites = sorted(parents, key=lambda p: -p[0])[: self.elite_num]
        weights = np.array([score for score, _ in parents]) + 1e-8
        weights /= weights.sum()
        genes = []
        for _ in range(min(self.pop_size, len(self.space) - len(self.visited))):
            first, second = np.random.choice(len(parents), size=2, p=weights)
            cut = random.randrange(len(self.dims)) if self.dims else 0
            child = [*parents[first][1][:cut], *parents[second][1][cut:]]
            genes.append(self._unseen(self._mutated(child)))
        self._begin_generation(genes)

    def _begin_generation(self, genes: list[list[int]]) -> None:
        self.genes, self.trial_pt = genes, 0
        self.scores: dict[int, float] = {}  # by place
        self._places: dict[int | None, int] = {knob2point(g, self.dims): i for i, g in enumerate(genes)}

    def _mutated(self, gene: list[int]) -> list[int]:
        return [
            random.randrange(d) if random.random() < self.mutation_prob else v
            for v, d in zip(gene, self.dims, strict=True)
        ]

    def _unseen(self, gene: list[int]) -> list[int]:
        """Mutate ``gene`` until it is new; in an almost exhausted space, take the next unseen one."""
        for _ in range(10 * len(self.dims)):
            if knob2point(gene, self.dims) not in self.visited:
                break
            at = random.randrange(len(self.dims))
            gene[at] = random.randrange(self.dims[at])
        point = knob2point(gene, self.dims)
        while point in self.visited:
            point = (point + 1) % len(self.space)
        self.visited.add(point)
        return point2knob(point, self.dims)

    def load_history(self, data_set: Iterable[tuple[Any, Any]], min_seed_records: int = 500) -> None:
        """Nothing is learned."""
