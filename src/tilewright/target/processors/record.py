"""What a record of a processor holds. A value that says no other processor was measured on Zen 5.

Each class is one kind of work. The defaults are what processors get on which nobody measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Caches:
    """Sizes of the data caches that one core sees, in bytes."""

    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    """Of what cores share; where models of a family differ, the least of those that are common."""


@dataclass(frozen=True)
class Memory:
    """How data comes from memory."""

    streams_past_caches: bool = False
    """Whether weights that do not stay in the last-level cache are fetched by hints that leave them out of it.

    Zen 5: not to keep them takes 4 to 7 % off a decoding step of GPT-2. Sapphire Rapids: x86's PREFETCHNTA fetches into
    the first-level cache alone, whose few outstanding misses then bound it to half of the memory's bandwidth. True only
    where it was measured to pay.
    """

    row_bytes_ahead: int = 3072
    """Bytes between the weights that a few rows multiply and those that they fetch.

    Zen 5: 2 to 4 KiB are as good. Sapphire Rapids: 3 KiB take 5 % less time than no fetching."""


@dataclass(frozen=True)
class Processor:
    """What was measured on one family of processors."""

    name: str
    """What the family is called."""

    caches: Caches | None = None
    """None: those that are typical of the architecture. Plain ``llvm`` takes the sizes of the machine at hand."""

    memory: Memory = field(default=Memory())
