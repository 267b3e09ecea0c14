"""Locks that hold across ``os.fork``."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def forked_lock(recursive: bool = False) -> Any:
    """Return a lock that is free in a child made by fork.

    A thread of the parent may hold it during the fork, and no thread of the child could release it.
    """
    lock: Any = threading.RLock() if recursive else threading.Lock()
    _locks.add(lock)
    return lock


def _renew() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()


os.register_at_fork(after_in_child=_renew)
