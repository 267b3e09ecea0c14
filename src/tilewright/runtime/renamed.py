"""Names of the last release: one ``DeprecationWarning`` a process announces each, and a later release drops it."""

from __future__ import annotations

import warnings

_noted: set[str] = set()


def warn_renamed(old: str, new: str) -> None:
    """Warn the caller's caller that ``old`` is now ``new``, the first time in this process."""
    if old not in _noted:
        _noted.add(old)
        warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=3)
