"""Plug-in packages: each names, under an entry-point group, a function that registers its parts.

::

    [project.entry-points."tilewright.executors"]
    mine = "my_package:register"

A group is loaded when an unregistered name is requested, so unused groups cost nothing. A plug-in that fails raises a
warning that names its package (for front ends, the error about a model that none takes names it); its parts stay
unregistered.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from .fork import forked_lock

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_loaded: set[tuple[str, str]] = set()
_failures: dict[str, list[str]] = {}
_lock = forked_lock(recursive=True)


def load_plugins(group: str, name: str | None = None, warn: bool = True) -> None:
    """Call the functions that installed packages name under an entry-point group, each once in a process.

    Args:
        group: the group, such as "tilewright.targets".
        name: only the entry points of this name.
        warn: whether one that fails raises a warning; ``plugin_failures`` has it in any case.
    """
    from importlib.metadata import entry_points  # here: it takes a tenth of the time of `import tilewright.runtime`

    with _lock:
        for entry in entry_points(group=group):
            if (group, entry.value) in _loaded or name not in (None, entry.name):
                continue
            _loaded.add((group, entry.value))  # first: what it calls may ask for plug-ins itself
            if failure := _load(entry):
                _failures.setdefault(group, []).append(failure)
                if warn:
                    warnings.warn(failure, RuntimeWarning, stacklevel=3)


def plugin_failures(group: str) -> list[str]:
    """Return why plug-ins of a group could not be loaded, one text for each."""
    return list(_failures.get(group, ()))


def _load(entry: EntryPoint) -> str:
    """Load a plug-in; return why it cannot be loaded, or an empty text."""
    try:
        entry.load()()
    except Exception as error:
        package = entry.dist.name if entry.dist is not None else "?"
        why = f"{type(error).__name__}: {error}"
        return f"the plug-in {entry.name!r} ({entry.value}) of the package {package} cannot be loaded: {why}"
    return ""
