"""Choices that stay open wherever they are met: ``choose("sum_registers", [1, 2, 4], 4)``.

Untuned, a choice is its default. While a kernel is tuned as a whole (``relay.backend.kernel_task``), every choice that
its schedules meet becomes a knob of the kernel's config space, under its name. Of a convolution or a dense layer as a
task (``relay.backend.open_task``), what AlterOpLayout and MergeRows choose are knobs too: the configuration goes with
the operator, as the text of an attribute (``choices_of``), to where its schedule chooses.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from typing import TypeVar

from tilewright.autotvm.task.space import ConfigEntity, ConfigSpace, OtherOptionEntity, SplitEntity

ALGORITHM = "algorithm"
"""The choice by which there are other choices afterwards."""

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


def in_choice() -> bool:
    """Return whether choices of this thread are those of a configuration."""
    return getattr(_local, "config", None) is not None


def choices_of(text: str) -> ConfigEntity:
    """The configuration that ``text_of`` made a text of."""
    return ConfigEntity.from_json_dict(json.loads(text))


def text_of(config: ConfigEntity) -> str:
    """A configuration as the attribute of an operator."""
    return json.dumps(config.to_json_dict())


@contextlib.contextmanager
def choosing_as(text: str) -> Iterator[None]:
    """Take choices from an operator's attribute; without one, those in force stay."""
    if not text:
        yield
        return
    with choosing(choices_of(text)):
        yield


def choose(name: str, candidates: Sequence[T], default: T) -> T:
    """Return one of ``candidates``: ``default``, or the choice in the configuration of the current kernel.

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


def choose_part(name: str, extent: int, candidates: Sequence[int], default: int, whole: bool = True) -> int:
    """Return the innermost part of a split of ``extent``: ``default``, or the configuration's if it divides or need not
    be ``whole``.

    ``candidates`` are what is tried.
    """
    config: ConfigSpace | None = getattr(_local, "config", None)
    if config is None:
        return default
    known = name in config
    ordered = [default, *(c for c in dict.fromkeys(candidates) if c != default)]
    config.define_split(name, extent, policy="candidate", candidate=[[-1, part] for part in ordered])
    if config.is_fallback and not known:
        config[name] = SplitEntity([-1, default])
    if name not in config:
        return default
    part = int(config[name].size[-1])
    return part if part > 0 and (extent % part == 0 or not whole) else default
