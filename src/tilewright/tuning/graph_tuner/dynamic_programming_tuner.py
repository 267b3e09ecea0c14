"""The graph tuner that finds the optimum."""

from __future__ import annotations

from typing import Any

from tilewright.tuning.graph_tuner.base_graph_tuner import BaseGraphTuner
from tilewright.tuning.graph_tuner.problem import solve_exactly

_MOST_STATES = 1 << 26


class DPTuner(BaseGraphTuner):
    """Chooses by dynamic programming: the optimum, for networks whose branches are not woven too closely.

    ``run(max_num_states=)`` bounds the tables, 2**26 entries by default; more is a RuntimeError, and ``PBQPTuner`` is
    for such networks.
    """

    def run(self, **kwargs: Any) -> None:
        """Choose a record for each operator; with ``alike=True`` one for all of a workload."""
        most, alike = kwargs.get("max_num_states"), kwargs.get("alike", False)
        self._choose(solve_exactly(self.problem(alike), _MOST_STATES if most is None else most), alike)
        self._logger.info("the optimum costs %.3e s", self.optimal_cost)
