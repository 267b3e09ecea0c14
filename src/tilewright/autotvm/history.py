"""Tuning records in force.

>>> with autotvm.apply_history_best("records.log"):      # tuned where a record covers the workload
...     lib = relay.build(mod, target, params=params)
"""

from __future__ import annotations

import logging
import os
from typing import Any

from tilewright.autotvm.env import GLOBAL_SCOPE
from tilewright.autotvm.lines import load_from_buffer, load_from_file
from tilewright.autotvm.task.dispatcher import DispatchContext, Workload
from tilewright.autotvm.task.space import ConfigEntity, ConfigSpace
from tilewright.autotvm.task.task import task_in_words
from tilewright.autotvm.utils import mean
from tilewright.target.target import Target

logger = logging.getLogger("autotvm")


class ApplyHistoryBest(DispatchContext):
    """The fastest recorded configuration of each workload.

    ``records`` is a file name, an open file, or (MeasureInput, MeasureResult) pairs. A record applies to targets with
    one of its target's keys, and, where the target names a ``-model``, best to that model. ``silent`` says nothing of
    workloads without a record.
    """

    def __init__(self, records: Any, silent: bool = False) -> None:
        self.silent = silent
        self.best_by_targetkey: dict[tuple[str, Workload], tuple[Any, Any]] = {}
        self.best_by_model: dict[tuple[str, Workload], tuple[Any, Any]] = {}
        self._best_user_defined: dict[tuple[str, Workload], ConfigSpace] = {}
        self._templates: set[str] = set()
        self._missed: dict[Workload, None] = {}
        if records:
            self.load(records)

    def records_text(self) -> str | None:
        """Return every record in force, with its cost: of two that fit one kernel the faster is taken."""
        if self._best_user_defined:
            return None
        tables = (self.best_by_targetkey, self.best_by_model)
        return repr([[(k, inp.config.to_json_dict(), res.costs) for k, (inp, res) in t.items()] for t in tables])

    def load(self, records: Any) -> None:
        """Add records."""
        if isinstance(records, (str, os.PathLike)):
            records = load_from_file(records)
        elif hasattr(records, "read"):
            records = load_from_buffer(records)
        for inp, res in records:
            self._templates.add(inp.task.name)
            if res.error_no != 0:
                continue
            for key in inp.target.keys:
                self._keep(self.best_by_targetkey, (key, inp.task.workload), inp, res)
            if inp.target.model and inp.target.model != "unknown":
                self._keep(self.best_by_model, (inp.target.model, inp.task.workload), inp, res)

    @staticmethod
    def _keep(
        table: dict[tuple[str, Workload], tuple[Any, Any]], key: tuple[str, Workload], inp: Any, res: Any
    ) -> None:
        known = table.get(key)
        if known is None or mean(res.costs) < mean(known[1].costs):
            table[key] = (inp, res)

    def _query_inside(self, target: Target | str | None, workload: Workload) -> ConfigSpace | None:
        if target is None:
            return None
        target = target if isinstance(target, Target) else Target(target)
        candidates = [(target.model, self.best_by_model)] if target.model else []
        candidates += [(key, self.best_by_targetkey) for key in target.keys]
        for key, table in candidates:
            if (key, workload) in self._best_user_defined:
                return self._best_user_defined[(key, workload)]
            if (key, workload) in table:
                inp, res = table[(key, workload)]
                config: ConfigEntity = inp.config
                config.cost = mean(res.costs)
                return config
        self._warn(target, workload)
        return None

    def _warn(self, target: Target, workload: Workload) -> None:
        """Warn once that workloads have no record although their templates have some; at level DEBUG, of each."""
        if not workload or workload[0] not in self._templates or workload in self._missed:
            return
        if self.silent or GLOBAL_SCOPE.silent:
            return
        if not self._missed:
            logger.warning(
                "no record of some operators, the first %s (%s): they are as untuned, which is right where tuning "
                "found nothing faster. Level DEBUG of the logger autotvm tells of all",
                task_in_words(str(workload[0]), workload[1:]),
                workload[0],
            )
        self._missed[workload] = None
        logger.debug("no record of %s for %s", str(workload)[:300], target)

    def update(self, target: Target | str | None, workload: Workload, cfg: ConfigSpace) -> None:
        """Use ``cfg`` for ``workload`` from now on."""
        target = target if isinstance(target, Target) else Target(target or "llvm")
        for key in ([target.model] if target.model else []) + list(target.keys):
            self._best_user_defined[(key, workload)] = cfg


apply_history_best = ApplyHistoryBest


class ApplyGraphBest(DispatchContext):
    """Records chosen by a graph tuner, in the order of the network's operators; equal workloads take them in turn.

    ``records`` is a file name, an open file, or (MeasureInput, MeasureResult) pairs.
    """

    def __init__(self, records: Any) -> None:
        if isinstance(records, (str, os.PathLike)):
            records = load_from_file(records)
        elif hasattr(records, "read"):
            records = load_from_buffer(records)
        self._queues: dict[Workload, list[ConfigSpace]] = {}
        for inp, _ in records:
            self._queues.setdefault(inp.task.workload, []).append(inp.config)

    def _query_inside(self, target: Target | str | None, workload: Workload) -> ConfigSpace | None:
        queue = self._queues.get(workload)
        if not queue:
            return None
        return queue.pop(0) if len(queue) > 1 else queue[0]

    def update(self, target: Target | str | None, workload: Workload, cfg: ConfigSpace) -> None:
        """Use ``cfg`` for ``workload`` from now on."""
        self._queues[workload] = [cfg]


apply_graph_best = ApplyGraphBest
