"""Who does a runner's work, where it is not ``tuning.processes``: anything with ``submit``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Executor:
    """Runs functions for a runner; set ``runner.executor`` to one.

    ``submit(func, *args, **kwargs)`` gives something whose ``result()`` is the function's.
    """

    DEFAULT_TIMEOUT = 120  # seconds

    def submit(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Begin a call."""
        raise NotImplementedError
