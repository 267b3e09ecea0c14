"""The graph tuner that is fast for any network."""

from __future__ import annotations

from typing import Any

from tilewright.tuning.graph_tuner.base_graph_tuner import BaseGraphTuner
from tilewright.tuning.graph_tuner.problem import solve_by_reduction


class PBQPTuner(BaseGraphTuner):
    """Chooses by reductions of a partitioned boolean quadratic problem; the optimum where no operator has more than
    two neighbours in what is left, and near it else. ``is_optimal`` says which.
    """

    is_optimal = False

    def run(self, **kwargs: Any) -> None:
        """Choose a record for each operator; with ``alike=True`` one for all of a workload."""
        alike = kwargs.get("alike", False)
        chosen, self.is_optimal = solve_by_reduction(self.problem(alike))
        self._choose(chosen, alike)
        found = "the optimum" if self.is_optimal else "a solution"
        self._logger.info("%s costs %.3e s", found, self.optimal_cost)
