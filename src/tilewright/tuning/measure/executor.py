"""Executors of a runner's work other than ``tuning.processes``: any object with ``submit``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Executor:
    """Runs functions for a runner; set ``runner.executor`` to one.

    ``submit(func, *args, **kwargs)`` returns an object whose ``result()`` is the function's.
    """

    DEFAULT_TIMEOUT = 120  # seconds

    def submit(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Begin a call."""
        raise NotImplementedError
