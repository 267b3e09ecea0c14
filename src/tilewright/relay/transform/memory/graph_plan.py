"""Storage planning for graphs.

Two tensors may share memory when their lifetimes do not overlap. Tensors are placed largest first ("greedy by size":
Y. Pisarchyk and J. Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): by ``plan_arena`` at
offsets of one arena, by ``plan_storage`` into storages that each hold one tensor at a time, as TVM 0.8's executor
requires.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.relay.op.views import ALIGNMENT


@dataclass(slots=True)
class Lifetime:
    """A tensor's size in bytes, and the first and last step (inclusive) at which it must exist.

    ``dedicated`` tensors (inputs and parameters, which are set from outside) share their storage with no other.
    """

    nbytes: int
    first: int
    last: int
    dedicated: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor at a fixed ``offset`` of the buffer it belongs to."""

    offset: int
    tensor: Lifetime


@dataclass(frozen=True)
class ArenaPlan:
    """Sizes of the arenas, and for each buffer its arena's number and its start there; in bytes."""

    sizes: list[int]
    starts: list[int]
    places: list[int]

    @property
    def nbytes(self) -> int:
        """Return the bytes of all arenas together."""
        return sum(self.sizes)


class _Arena:
    """Tensors placed so far, as arrays: for 10,000 tensors a loop over each pair would take too long."""

    def __init__(self, count: int, alignment: int) -> None:
        self.count = self.nbytes = 0
        self.alignment = alignment
        self.first, self.last, self.low, self.high = (np.zeros(count, np.int64) for _ in range(4))

    def forbidden(self, buffer: Sequence[Placed]) -> tuple[np.ndarray, np.ndarray]:
        """Return the open intervals in which the buffer must not begin, in order of their lower ends."""
        first, last = self.first[: self.count], self.last[: self.count]
        lows, highs = [], []
        for item in buffer:
            clash = np.nonzero((first <= item.tensor.last) & (last >= item.tensor.first))[0]
            lows.append(self.low[clash] - item.offset - aligned(item.tensor.nbytes, self.alignment))
            highs.append(self.high[clash] - item.offset)
        low, high = np.concatenate(lows), np.concatenate(highs)
        order = np.argsort(low, kind="stable")
        return low[order], high[order]

    def lowest_start(self, buffer: Sequence[Placed]) -> int:
        """Return the lowest possible start of the buffer."""
        least = -min(item.offset for item in buffer)
        low, high = self.forbidden(buffer)
        reach = -(-np.maximum.accumulate(np.concatenate(([least], high))) // self.alignment) * self.alignment
        gaps = np.nonzero(low >= reach[:-1])[0]
        return int(reach[gaps[0]] if len(gaps) else reach[-1])

    def put(self, buffer: Sequence[Placed], start: int) -> None:
        for item in buffer:
            low = start + item.offset
            high = low + aligned(item.tensor.nbytes, self.alignment)
            self.first[self.count], self.last[self.count] = item.tensor.first, item.tensor.last
            self.low[self.count], self.high[self.count] = low, high
            self.count += 1
            self.nbytes = max(self.nbytes, high)


def plan_arena(
    buffers: Sequence[Sequence[Placed]], alignment: int = ALIGNMENT, limits: Sequence[int | None] = (None,)
) -> ArenaPlan:
    """Place buffers in arenas, each at the lowest offset where none of its tensors overlaps a live one.

    Several orders are tried, since the best depends on the graph, until the arena reaches its lower bound; of several
    arenas the last is to be smallest, then the one before.

    Parameters
    ----------
    buffers : tensors that lie at fixed offsets of each other
    alignment : what starts are multiples of
    limits : for each arena its largest size in bytes; a buffer goes to the first that has room, or to the last, which
        may become larger than its limit
    """
    spans = [max(p.offset + aligned(p.tensor.nbytes, alignment) for p in b) - min(p.offset for p in b) for b in buffers]
    firsts = [min(p.tensor.first for p in b) for b in buffers]
    steps = [max(p.tensor.last for p in b) - first + 1 for b, first in zip(buffers, firsts, strict=True)]
    orders: list[Callable[[int], tuple[int, ...]]] = [
        lambda i: (-spans[i], firsts[i], i),
        lambda i: (-spans[i] * steps[i], firsts[i], i),
        lambda i: (firsts[i], -spans[i], i),
    ]
    least = _most_alive([p.tensor for b in buffers for p in b], alignment)
    best: ArenaPlan | None = None
    for key in orders:
        plan = _plan_in_order(buffers, sorted(range(len(buffers)), key=key), alignment, limits)
        if best is None or plan.sizes[::-1] < best.sizes[::-1]:
            best = plan
        if best.sizes == [least]:
            break
    assert best is not None
    return best


def _most_alive(tensors: Sequence[Lifetime], alignment: int) -> int:
    """Return the largest number of bytes live at one step, a lower bound of the arena's size."""
    change: dict[int, int] = {}
    for tensor in tensors:
        nbytes = aligned(tensor.nbytes, alignment)
        change[tensor.first] = change.get(tensor.first, 0) + nbytes
        change[tensor.last + 1] = change.get(tensor.last + 1, 0) - nbytes
    return max(itertools.accumulate((change[step] for step in sorted(change)), initial=0))


def _plan_in_order(
    buffers: Sequence[Sequence[Placed]], order: Sequence[int], alignment: int, limits: Sequence[int | None]
) -> ArenaPlan:
    arenas = [_Arena(sum(len(b) for b in buffers), alignment) for _ in limits]
    starts, places = [0] * len(buffers), [0] * len(buffers)
    for index in order:
        for place, (arena, limit) in enumerate(zip(arenas, limits, strict=True)):
            start = arena.lowest_start(buffers[index])
            end = start + max(p.offset + aligned(p.tensor.nbytes, alignment) for p in buffers[index])
            if limit is None or end <= limit or place == len(arenas) - 1:
                starts[index], places[index] = start, place
                arena.put(buffers[index], start)
                break
    return ArenaPlan([arena.nbytes for arena in arenas], starts, places)


@dataclass(slots=True)
class _Storage:
    nbytes: int
    busy: list[tuple[int, int]] = field(default_factory=list)  # sorted, disjoint

    def is_free(self, first: int, last: int) -> bool:
        at = bisect.bisect_left(self.busy, (first, first))
        if at > 0 and self.busy[at - 1][1] >= first:
            return False
        return at == len(self.busy) or self.busy[at][0] > last


@dataclass(frozen=True)
class StoragePlan:
    """Storage of each tensor: ``storage[i]`` is that of tensor ``i``; sizes are in bytes."""

    storage: list[int]
    sizes: list[int]

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all storages together."""
        return sum(self.sizes)


def plan_storage(tensors: Sequence[Lifetime]) -> StoragePlan:
    """Assign each tensor to a storage; storages are numbered by the first tensor that uses them.

    Each tensor goes into the fitting storage that wastes least; largest first, so that a storage never has to be
    enlarged.
    """
    shared = [i for i, t in enumerate(tensors) if not t.dedicated]
    storages: list[_Storage] = []
    assigned = [-1] * len(tensors)
    for index in sorted(shared, key=lambda i: (-tensors[i].nbytes, tensors[i].first, i)):
        tensor = tensors[index]
        best = -1
        for s, storage in enumerate(storages):
            fits = storage.nbytes >= tensor.nbytes and storage.is_free(tensor.first, tensor.last)
            if fits and (best < 0 or storage.nbytes < storages[best].nbytes):
                best = s
        if best < 0:
            best = len(storages)
            storages.append(_Storage(aligned(tensor.nbytes)))
        bisect.insort(storages[best].busy, (tensor.first, tensor.last))
        assigned[index] = best
    for index, tensor in enumerate(tensors):
        if tensor.dedicated:
            assigned[index] = len(storages)
            storages.append(_Storage(aligned(tensor.nbytes)))
    order = list(dict.fromkeys(assigned))
    number = {old: new for new, old in enumerate(order)}
    return StoragePlan([number[s] for s in assigned], [storages[s].nbytes for s in order])


def aligned(nbytes: int, alignment: int = ALIGNMENT) -> int:
    """Return ``nbytes``, at least 1, rounded up to the alignment of tensors."""
    return -(-max(nbytes, 1) // alignment) * alignment
