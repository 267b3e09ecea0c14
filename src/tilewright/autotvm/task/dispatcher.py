"""Lookup of a template's configuration: a stack of contexts, asked from the innermost outwards.

Every thread has its own stack, as for ``PassContext`` and ``Target``: threads may build under different contexts, and
entering one in a thread does not affect the others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Self

from tilewright.autotvm.task.space import ConfigSpace, FallbackConfigEntity
from tilewright.target.target import Target

Workload = tuple[Any, ...]


def workload_of(outs: Iterable[Any]) -> Workload | None:
    """Return the workload of the template that computes one of ``outs``, directly or below; None when there is none."""
    pending = [out.op for out in outs]
    seen = set(pending)
    for op in pending:
        if "workload" in op.attrs:
            found: Workload = op.attrs["workload"]
            return found
        new = [t.op for t in op.input_tensors if t.op not in seen]
        seen.update(new)
        pending.extend(new)
    return None


_local = threading.local()


def _stack() -> list[DispatchContext]:
    """This thread's contexts, the innermost last."""
    if not hasattr(_local, "stack"):
        _local.stack = [FallbackContext()]
    stack: list[DispatchContext] = _local.stack
    return stack


def contexts_in_force() -> list[DispatchContext]:
    """Return this thread's contexts, the innermost last."""
    return list(_stack())


class _Current(type):
    """Implements ``DispatchContext.current``."""

    @property
    def current(cls) -> DispatchContext:
        """The context in force in this thread."""
        return _stack()[-1]


class DispatchContext(metaclass=_Current):
    """Base of contexts. ``DispatchContext.current`` is the one in force in this thread."""

    def is_fallback(self) -> bool:
        """Return whether this context has no records: every query returns a fallback configuration."""
        return False

    def records_text(self) -> str | None:
        """Return a text that is the same in two processes only if every query has the same answer; None without one."""
        return None

    def query(self, target: Target | str | None, workload: Workload) -> ConfigSpace:
        """Return the configuration for ``workload`` on ``target``; ask the enclosing context when this one has none."""
        stack = _stack()
        outside = next((stack[:at] for at in reversed(range(len(stack))) if stack[at] is self), [])
        for context in (self, *reversed(outside)):
            found = context._query_inside(target, workload)
            if found is not None:
                return found
        return FallbackConfigEntity()

    def query_of(self, outs: Iterable[Any], target: Target | str | None) -> ConfigSpace | None:
        """The configuration for the template that computes ``outs``; None when no template does."""
        workload = workload_of(outs)
        return None if workload is None else self.query(target, workload)

    def update(self, target: Target | str | None, workload: Workload, cfg: ConfigSpace) -> None:
        """Use ``cfg`` for ``workload`` from now on."""
        raise TypeError(f"{type(self).__name__} cannot be updated")

    def _query_inside(self, target: Target | str | None, workload: Workload) -> ConfigSpace | None:
        return None

    def __enter__(self) -> Self:
        _stack().append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _stack().pop()


class FallbackContext(DispatchContext):
    """The outermost context: a fallback configuration for every workload, the same object each time."""

    def __init__(self) -> None:
        self.memory: dict[tuple[str, Workload], ConfigSpace] = {}
        self.silent = True

    def is_fallback(self) -> bool:
        """True until the first ``update``."""
        return all(cfg.is_fallback for cfg in self.memory.values())

    def records_text(self) -> str | None:
        """Return an empty text while there are no records."""
        return "" if self.is_fallback() else None

    def _query_inside(self, target: Target | str | None, workload: Workload) -> ConfigSpace:
        return self.memory.setdefault((str(target), workload), FallbackConfigEntity())

    def clear_cache(self, target: Target | str | None, workload: Workload) -> None:
        """Forget the configuration of ``workload``."""
        self.memory.pop((str(target), workload), None)

    def update(self, target: Target | str | None, workload: Workload, cfg: ConfigSpace) -> None:
        """Use ``cfg`` for ``workload`` from now on."""
        self.memory[(str(target), workload)] = cfg


def clear_fallback_cache(target: Target | str | None, workload: Workload) -> None:
    """Forget the configurations of ``workload`` in this thread's outermost contexts, so that rules are
    consulted again.
    """
    for context in _stack():
        if isinstance(context, FallbackContext):
            context.clear_cache(target, workload)


class ApplyConfig(DispatchContext):
    """One configuration for every workload."""

    def __init__(self, config: ConfigSpace) -> None:
        self._config = config
        self.workload: Workload | None = None

    def _query_inside(self, target: Target | str | None, workload: Workload) -> ConfigSpace:
        self.workload = workload
        return self._config
