"""Global state of tuning in this process."""

from __future__ import annotations


class AutotvmGlobalScope:
    """Global flags: ``in_tuning`` while a tuner works; ``silent`` to not report operators without records."""

    current: AutotvmGlobalScope

    def __init__(self) -> None:
        AutotvmGlobalScope.current = self
        self.cuda_target_arch: str | list[str] | None = None
        self.in_tuning = False
        self.silent = False


GLOBAL_SCOPE = AutotvmGlobalScope()
