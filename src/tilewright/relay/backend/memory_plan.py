"""Storage planning: which buffer of the graph each tensor lives in.

Two tensors may share storage when their lifetimes do not overlap. Tensors are placed largest first, each into
the fitting storage that wastes least ("greedy by size": Y. Pisarchyk and J. Lee, "Efficient Memory Management
for Deep Neural Net Inference", 2020), so a storage never has to grow.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

ALIGNMENT = 64


@dataclass(slots=True)
class Lifetime:
    """A tensor's size in bytes, and the first and last step (inclusive) at which it must exist.

    ``dedicated`` tensors (inputs and parameters, which are set from outside) share their storage with no other.
    """

    nbytes: int
    first: int
    last: int
    dedicated: bool = False


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
    """``storage[i]`` is the storage of tensor ``i``; sizes are in bytes."""

    storage: list[int]
    sizes: list[int]

    @property
    def total_bytes(self) -> int:
        """Memory that all storages take together."""
        return sum(self.sizes)


def plan_storage(tensors: Sequence[Lifetime]) -> StoragePlan:
    """Assign each tensor a storage; storages are numbered by the first tensor that uses them."""
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
            storages.append(_Storage(_aligned(tensor.nbytes)))
        bisect.insort(storages[best].busy, (tensor.first, tensor.last))
        assigned[index] = best
    for index, tensor in enumerate(tensors):
        if tensor.dedicated:
            assigned[index] = len(storages)
            storages.append(_Storage(_aligned(tensor.nbytes)))
    order = list(dict.fromkeys(assigned))
    number = {old: new for new, old in enumerate(order)}
    return StoragePlan([number[s] for s in assigned], [storages[s].nbytes for s in order])


def _aligned(nbytes: int) -> int:
    return max(ALIGNMENT, (nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT)
