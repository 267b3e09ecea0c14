"""Pinning of measuring threads: one that moves finds cold caches, and two on one core wait for each other."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class PinnedThreads:
    """Pins the main thread and those of the runtime's pool to a core each, once the pool has its threads.

    Threads that were there before (of numpy's libraries) are left alone. Where there are more threads than cores, or
    the system cannot pin, nothing is.
    """

    def __init__(self) -> None:
        self._others = _threads()
        self._cores = _whole_cores()
        self.pinned: dict[int, int] = {}  # core by thread

    def update(self) -> None:
        """Pin threads that are new."""
        pool = [t for t in _threads() if t not in self._others]
        if not pool or len(pool) >= len(self._cores) or all(t in self.pinned for t in pool):
            return
        for thread, core in zip([os.getpid(), *pool], self._cores, strict=False):
            with contextlib.suppress(OSError):  # it has ended
                os.sched_setaffinity(thread, {core})
                self.pinned[thread] = core


def _threads() -> list[int]:
    """Return this process's threads, the oldest first; none if the system does not tell."""
    with contextlib.suppress(OSError):
        return sorted(int(name) for name in os.listdir("/proc/self/task"))
    return []


def _whole_cores() -> list[int]:
    """Return one processor number of every core that this process may use."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    found: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            core = path.read_text().strip()
        except OSError:
            core = str(cpu)
        found.setdefault(core, cpu)
    return list(found.values())
