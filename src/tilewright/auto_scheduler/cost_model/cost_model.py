"""Base class of cost models, and a random one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class CostModel:
    """Predicts scores of states: higher is better, minus infinity for states that make no program."""

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from measurements."""
        raise NotImplementedError

    def predict(self, task: Any, states: Sequence[Any]) -> Sequence[float]:
        """A score for each state of a task."""
        raise NotImplementedError

    def predict_stages(self, task: Any, states: Sequence[Any]) -> Sequence[float]:
        """The scores, then for each state the number of its stages and a score for each."""
        raise NotImplementedError


class PythonBasedModel(CostModel):
    """Base class of models that users write; ``update`` may do nothing."""

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn nothing."""


class RandomModel(CostModel):
    """Scores at random, the same ones in every run."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Ignore measurements: there is nothing to learn."""

    def predict(self, task: Any, states: Sequence[Any]) -> Sequence[float]:
        return [float(s) for s in self._rng.uniform(0, 1, len(states))]
