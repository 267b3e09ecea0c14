"""Which configuration a template gets: a stack of contexts, the innermost first asked.

>>> with autotvm.apply_history_best("records.log"):      # tuned where a record covers the workload
...     lib = relay.build(mod, target, params=params)
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, ClassVar, Self

from tilewright.autotvm.space import ConfigEntity, ConfigSpace, FallbackConfigEntity
from tilewright.target.target import Target

Workload = tuple[Any, ...]


class DispatchContext:
    """Base of contexts. ``DispatchContext.current`` is the one in force."""

    current: ClassVar[DispatchContext]

    def __init__(self) -> None:
        self._old: DispatchContext | None = None

    def is_fallback(self) -> bool:
        """Whether this context knows nothing: every query gives a fallback configuration."""
        return False

    def query(self, target: Target | str | None, workload: Workload) -> ConfigSpace:
        """The configuration for ``workload`` on ``target``; asks the enclosing context when this one has none."""
        found = self._query_inside(target, workload)
        if found is None and self._old is not None:
            found = self._old.query(target, workload)
        return found if found is not None else FallbackConfigEntity()

    def query_of(self, outs: Iterable[Any], target: Target | str | None) -> ConfigSpace | None:
        """The configuration for the template that computes ``outs``; None when no template does."""
        from tilewright.autotvm.task import workload_of

        workload = workload_of(outs)
        return None if workload is None else self.query(target, workload)

    def update(self, target: Target | str | None, workload: Workload, cfg: ConfigSpace) -> None:
        """Use ``cfg`` for ``workload`` from now on."""
        raise TypeError(f"{type(self).__name__} cannot be updated")

    def _query_inside(self, target: Target | str | None, workload: Workload) -> ConfigSpace | None:
        return None

    def __enter__(self) -> Self:
        self._old = DispatchContext.current
        DispatchContext.current = self
        return self

    def __exit__(self, *exc: object) -> None:
        if self._old is not None:
            DispatchContext.current = self._old
        self._old = None


class FallbackContext(DispatchContext):
    """The outermost context: a fallback configuration for every workload, the same object each time."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: dict[tuple[str, Workload], ConfigSpace] = {}
        self.silent = True

    def is_fallback(self) -> bool:
        """True until ``update`` gave it something to know."""
        return all(cfg.is_fallback for cfg in self.memory.values())

    def _query_inside(self, target: Target | str | None, workload: Workload) -> ConfigSpace:
        return self.memory.setdefault((str(target), workload), FallbackConfigEntity())

    def clear_cache(self, target: Target | str | None, workload: Workload) -> None:
        """Forget what was used for ``workload``."""
        self.memory.pop((str(target), workload), None)

    def update(self, target: Target | str | None, workload: Workload, cfg: ConfigSpace) -> None:
        """Use ``cfg`` for ``workload`` from now on."""
        self.memory[(str(target), workload)] = cfg


class ApplyConfig(DispatchContext):
    """One configuration for every workload."""

    def __init__(self, config: ConfigSpace) -> None:
        super().__init__()
        self._config = config
        self.workload: Workload | None = None

    def _query_inside(self, target: Target | str | None, workload: Workload) -> ConfigSpace:
        self.workload = workload
        return self._config


class ApplyHistoryBest(DispatchContext):
    """The fastest recorded configuration of each workload.

    ``records`` is a file name, an open file, or (MeasureInput, MeasureResult) pairs. A record applies to targets with
    one of its target's keys, and, where the target names a ``-model``, best to that model.
    """

    def __init__(self, records: Any) -> None:
        super().__init__()
        self.best_by_targetkey: dict[tuple[str, Workload], tuple[Any, Any]] = {}
        self.best_by_model: dict[tuple[str, Workload], tuple[Any, Any]] = {}
        self._best_user_defined: dict[tuple[str, Workload], ConfigSpace] = {}
        if records:
            self.load(records)

    def load(self, records: Any) -> None:
        """Take over more records."""
        from tilewright.autotvm.record import load_from_buffer, load_from_file

        if isinstance(records, (str, os.PathLike)):
            records = load_from_file(records)
        elif hasattr(records, "read"):
            records = load_from_buffer(records)
        for inp, res in records:
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
        if known is None or _mean(res.costs) < _mean(known[1].costs):
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
                config.cost = _mean(res.costs)
                return config
        return None

    def update(self, target: Target | str | None, workload: Workload, cfg: ConfigSpace) -> None:
        """Use ``cfg`` for ``workload`` from now on."""
        target = target if isinstance(target, Target) else Target(target or "llvm")
        for key in ([target.model] if target.model else []) + list(target.keys):
            self._best_user_defined[(key, workload)] = cfg


def _mean(costs: Iterable[float]) -> float:
    values = list(costs)
    return sum(values) / len(values) if values else float("inf")


DispatchContext.current = FallbackContext()
