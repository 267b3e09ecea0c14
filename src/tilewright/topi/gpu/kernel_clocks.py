"""A model of how many clock cycles the kernel of a product takes on a GPU, for choosing its tile.

A block goes through its product in steps. In each one its threads copy a tile of both factors to shared memory and
multiply. The blocks of a multiprocessor share its units, and a block waits for what it loads. The constants were
fitted to the measured times of 660 tiles of 29 products (an NVIDIA H200, 2026-11-27): the tile that the model takes
for the fastest of a product's takes 1.0 to 1.6 times as long as the fastest, 1.12 in the geometric mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.target.gpu import GpuLimits
from tilewright.topi.gpu.common import VECTOR_BYTES

_SCHEDULERS = 4  # of a multiprocessor, each of which starts an instruction of a warp in a clock
_OVERLAP = 0.2  # how much of the shorter of throughput and latency is not hidden behind the longer


@dataclass(frozen=True)
class Costs:
    """Clock cycles of what kernels of one kind do."""

    launch: float  # of a kernel's start and end
    wide_load: float  # of a warp's load of neighbours, with its address
    gather: float  # of a warp's load of single elements, each with an address of its own
    store: float  # of a warp's store of an element to shared memory
    latency: float  # until a step's first load has arrived
    later_loads: float  # until each further load of a thread has arrived
    arithmetic: float  # of a scheduler, over what the units' peak is
    alone: float  # of a warp that no other warp of its scheduler hides, over the units' peak
    read: float  # of a warp's read of shared memory that its arithmetic waits for
    shared: float  # of 128 bytes read from shared memory
    byte: float  # of a byte from the second-level cache


BY_THREADS = Costs(5700, 28, 28, 2.9, 270, 32, 0.73, 2.2, 10.6, 2.0, 0.078)
BY_WARPS = Costs(7700, 1, 55, 0, 460, 60, 5.0, 2.6, 0.43, 1.76, 0.045)


@dataclass(frozen=True)
class Step:
    """The work of a block in one step, counted for one of its warps."""

    warps: int
    peak: float  # clocks of a scheduler for the arithmetic at the units' peak
    reads: float  # of shared memory that arithmetic waits for
    read_lines: float  # of 128 bytes
    copies: Sequence[tuple[int, int]]  # for each factor: loads of a thread, and how many elements each takes
    bytes: int  # of both tiles


def clocks(costs: Costs, limits: GpuLimits, blocks: int, together: int, steps: int, step: Step) -> float:
    """Return the estimated clock cycles of a kernel.

    Args:
        costs: of kernels of this kind.
        limits: the processor's.
        blocks: of the kernel.
        together: how many blocks a multiprocessor runs at once.
        steps: of a block.
        step: what a block does in each.
    """
    on_core = -(-blocks // limits.cores)
    at_once = min(together, on_core)
    waves = -(-on_core // at_once)
    loads = sum(count for count, _ in step.copies)
    copy = sum(
        count * ((costs.wide_load if lanes > 1 else costs.gather) + costs.store * lanes) for count, lanes in step.copies
    )
    issued = step.warps * (costs.arithmetic * step.peak + costs.shared * step.read_lines + copy) / _SCHEDULERS
    alone = costs.latency + costs.later_loads * loads + costs.alone * step.peak + costs.read * step.reads + copy
    busy = at_once * issued
    longest = max(busy, alone, at_once * step.bytes * costs.byte)
    return costs.launch + waves * steps * (longest + _OVERLAP * min(busy, alone))


def copies(elements: Sequence[int], threads: int, lanes: Sequence[int]) -> list[tuple[int, int]]:
    """Return for each factor how many loads a thread of ``threads`` does, and how many elements each one takes."""
    return [(-(-count // (threads * wide)), wide) for count, wide in zip(elements, lanes, strict=True)]


def vector_lanes(size: int, depth: int, extent: int, depth_next: bool) -> int:
    """Return how many neighbours along the depth one load takes: up to 16 bytes of elements of ``size`` bytes."""
    return math.gcd(VECTOR_BYTES // size, depth, extent) if depth_next else 1
