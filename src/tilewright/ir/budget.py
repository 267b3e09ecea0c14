"""Budgets of importing and compiling a model, so that no file exhausts the machine.

``relay.budget`` begins one with the limits of ``PassContext``; loops over a program count against it here::

    with limited(nodes=1000, memory=1 << 30, seconds=60):
        count_nodes(3, lambda: "ONNX node 'loop' (Loop)")
        check_budget("pass FuseOps")

Both do nothing where no budget is in force.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path

from tilewright.ir.errors import TilewrightError

_LOOK_AGAIN_SECONDS = 0.02  # looking at the process's memory costs 10 us
_PAGE = resource.getpagesize()
_GROUP = Path("/sys/fs/cgroup")
_LIMITS_OF_CONTAINERS = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"

Construct = str | Callable[[], str]


class BudgetError(TilewrightError):
    """Importing or compiling makes more than its budget; the message names the construct, the budget and the option."""


class Budget:
    """A limit, and its use: nodes, bytes by which the process grows, seconds since it began."""

    def __init__(self, nodes: int, memory: int, seconds: float) -> None:
        self.nodes, self.memory, self.seconds = nodes, memory, seconds
        self.made = 0
        self._began = time.monotonic()
        self._resident = resident_bytes()
        self._look_at = 0.0

    def count(self, nodes: int, construct: Construct) -> None:
        """Add nodes that were made, or are about to be."""
        self.made += nodes
        if self.made > self.nodes:
            self.exceeded(construct, f"the model takes {self.made:,} nodes and more", f"{self.nodes:,} nodes", "nodes")
        self.check(construct)

    def check(self, construct: Construct, more: int = 0) -> None:
        """Raise BudgetError if time or memory are used up, or would be by ``more`` bytes."""
        now = time.monotonic()
        if not more and now < self._look_at:
            return
        self._look_at = now + _LOOK_AGAIN_SECONDS
        if now - self._began > self.seconds:
            self.exceeded(construct, "the time is over", f"{self.seconds:g} seconds", "seconds")
        needed = resident_bytes() - self._resident + more
        if needed > self.memory:
            said = f"{needed / 2**20:,.0f} MiB are needed"
            self.exceeded(construct, said, f"{self.memory / 2**20:,.0f} MiB", "memory")

    def exceeded(self, construct: Construct, found: str, budget: str, name: str) -> None:
        """Raise the error: the limit, the construct, and how to raise the budget."""
        where = construct if isinstance(construct, str) else construct()
        option = {"nodes": "--max-nodes", "memory": "--max-memory", "seconds": "--timeout"}[name]
        raise BudgetError(
            f"{where}: {found}; the budget is {budget}. For a model that you trust, raise it by "
            f'PassContext(config={{"relay.budget.{name}": ...}}), or {option} on the command line'
        )


_current: ContextVar[Budget | None] = ContextVar("tilewright_budget", default=None)


@contextlib.contextmanager
def limited(nodes: int, memory: int, seconds: float) -> Iterator[Budget]:
    """Begin a budget; an enclosing budget continues, so that an import and a build may share it."""
    if (outer := _current.get()) is not None:
        yield outer
        return
    token = _current.set(budget := Budget(nodes, memory, seconds))
    try:
        yield budget
    finally:
        _current.reset(token)


def count_nodes(nodes: int, construct: Construct) -> None:
    """Count nodes that a construct makes; raise BudgetError if they are too many."""
    if budget := _current.get():
        budget.count(nodes, construct)


def check_budget(construct: Construct, more: int = 0) -> None:
    """Raise BudgetError if time or memory are used up; ``more`` bytes are about to be allocated."""
    if budget := _current.get():
        budget.check(construct, more)


def made_nodes() -> int:
    """Return how many nodes were made so far."""
    budget = _current.get()
    return budget.made if budget else 0


def resident_bytes() -> int:
    """Return the bytes that this process holds, without pages of files, which the system takes back; its peak if the
    system does not tell.
    """
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
            return (resident - shared) * _PAGE
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def machine_memory() -> int:
    """The bytes of memory of this machine, or of its container."""
    found = [os.sysconf("SC_PHYS_PAGES") * _PAGE]
    for file in map(Path, _LIMITS_OF_CONTAINERS):
        with contextlib.suppress(OSError, ValueError):  # "max" for none
            found.append(int(file.read_text()))
    return min(found)


def available_memory() -> int | None:
    """Return the bytes of memory, swap included, that are there for more; None if the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes = {name: int(rest.split()[0]) << 10 for name, _, rest in (line.partition(":") for line in lines)}
        free = sizes["MemAvailable"] + sizes.get("SwapFree", 0)
    except (OSError, ValueError, LookupError):
        return None
    with contextlib.suppress(OSError, ValueError, LookupError):  # "max", or another kind of container: no limit
        limit, used = (int((_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        pages = dict(line.split() for line in (_GROUP / "memory.stat").read_text().splitlines())
        free = min(free, limit - used + int(pages["file"]))  # pages of files are given back
    return free
