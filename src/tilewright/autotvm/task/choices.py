"""Choices that schedules leave open wherever they stand: ``choose("sum_registers", [1, 2, 4], 4)``.

Untuned, a choice is its default. While a kernel is tuned as a whole (``relay.backend.kernel_task``), every choice that
its schedules meet becomes a knob of the kernel's config space, under its name.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import TypeVar

from tilewright.autotvm.task.space import ConfigSpace, OtherOptionEntity

T = TypeVar("T")
_local = threading.local()


@contextlib.contextmanager
def choosing(config: ConfigSpace) -> Iterator[None]:
    """Choices are those of ``config``, in this thread."""
    before = getattr(_local, "config", None)
    _local.config = config
    try:
        yield
    finally:
        _local.config = before


def choose(name: str, candidates: Sequence[T], default: T) -> T:
    """One of ``candidates``: ``default``, or what the configuration says of the kernel that is being tuned or built.

    Choices of one name in a kernel are one; candidates of later ones do not count.
    """
    config: ConfigSpace | None = getattr(_local, "config", None)
    if config is None:
        return default
    ordered = [default, *(c for c in dict.fromkeys(candidates) if c != default)]
    known = name in config
    config.define_knob(name, ordered)
    if config.is_fallback and not known:
        config[name] = OtherOptionEntity(default)
    if name not in config:
        return default
    value: T = config[name].val
    return value if value in ordered else default
