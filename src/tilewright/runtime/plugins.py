"""Packages that plug in: each names, under an entry-point group, a function that registers what it has.

::

    [project.entry-points."tilewright.executors"]
    mine = "my_package:register"

A group is loaded when a name is asked for that is not registered yet; what is never asked for costs nothing.
"""

from __future__ import annotations

import threading
from importlib.metadata import entry_points

from .error import TVMError

_loaded: set[tuple[str, str]] = set()
_lock = threading.RLock()


def load_plugins(group: str) -> None:
    """Call the functions that installed packages name under an entry-point group, each once in a process.

    Raises:
        TVMError: one cannot be loaded or fails; the message names it and its package.
    """
    with _lock:
        for entry in entry_points(group=group):
            if (group, entry.value) in _loaded:
                continue
            _loaded.add((group, entry.value))
            try:
                entry.load()()
            except Exception as error:
                package = entry.dist.name if entry.dist is not None else "?"
                raise TVMError(
                    f"the plug-in {entry.name!r} ({entry.value}) of the package {package} cannot be loaded: "
                    f"{type(error).__name__}: {error}"
                ) from error
