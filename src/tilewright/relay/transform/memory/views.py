"""Tensors that are parts of other tensors' memory: concatenation and splitting without copies.

``relay.op.views`` says which operators need not move data; ``Buffers`` records which tensors are in which buffer, and
at which offset, while concatenations merge buffers.

Repeated concatenations, as in DenseNet, share one buffer: in ``c1 = (x0, x1)``, ``c2 = (x0, x1, x2)`` the second finds
x0 and x1 adjacent already and takes over the buffer of c1, with x2 after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.relay.expr import Call, Function, Tuple, Var
from tilewright.relay.function_attributes import IN_PLACE
from tilewright.relay.op.views import ALIGNMENT, View, view_of


def view_of_kernel(func: Function, num_inputs: int) -> tuple[View, list[int]] | None:
    """Return the view that a fused function is, and for each part (or the whole that is cut) the number of its
    input.
    """
    view = view_of(func.body)
    if view is None or not isinstance(func.body, Call):
        return None
    argument = func.body.args[0]
    if isinstance(argument, Var):  # a tuple counts as its fields
        return (view, list(range(num_inputs))) if argument is func.params[0] else None
    if not isinstance(argument, Tuple) or not all(item in func.params for item in argument.fields):
        return None
    return view, [func.params.index(item) for item in argument.fields]


def moves_only(func: Function) -> bool:
    """Return whether a fused function may be a view, or copies a tensor into one."""
    return view_of(func.body) is not None or IN_PLACE.on(func)


@dataclass(slots=True)
class Owner:
    """A tensor that a kernel writes: ``nbytes`` at ``start`` of its buffer."""

    start: int
    nbytes: int
    tensor: Any

    @property
    def end(self) -> int:
        """Return the first byte after it."""
        return self.start + self.nbytes


@dataclass
class Buffers:
    """Tensors by buffer; a tensor is any hashable key.

    The tensors that kernels write (*owners*) never overlap. Positions are relative: a buffer may extend below 0.
    """

    _parent: dict[Hashable, tuple[Hashable, int]] = field(default_factory=dict)
    owners: dict[Hashable, list[Owner]] = field(default_factory=dict)
    fixed: set[Hashable] = field(default_factory=set)

    def add(self, tensor: Hashable, nbytes: int, fixed: bool = False) -> None:
        """Add a tensor in a new buffer; a ``fixed`` one (an input, a parameter) must stay alone there."""
        self.owners[tensor] = [Owner(0, nbytes, tensor)]
        if fixed:
            self.fixed.add(tensor)

    def view(self, tensor: Hashable, source: Hashable, offset: int = 0) -> None:
        """Add a tensor inside the memory of ``source``."""
        self._parent[tensor] = (source, offset)

    def find(self, tensor: Hashable) -> tuple[Hashable, int]:
        """Return the buffer of a tensor and the tensor's position in it."""
        path = []
        while tensor in self._parent:
            path.append(tensor)
            tensor = self._parent[tensor][0]
        offset = 0
        for step in reversed(path):
            offset += self._parent[step][1]
            self._parent[step] = (tensor, offset)
        return tensor, offset

    def is_fixed(self, tensor: Hashable) -> bool:
        """Return whether a tensor's memory is the caller's."""
        return self.find(tensor)[0] in self.fixed

    def under(self, tensor: Hashable, nbytes: int) -> list[Any]:
        """Return the owners that a tensor of ``nbytes`` bytes overlaps."""
        buffer, start = self.find(tensor)
        return [o.tensor for o in self.owners[buffer] if o.start < start + nbytes and o.end > start]

    def join(
        self, result: Hashable, parts: Sequence[tuple[Hashable, int, int]], keep: Sequence[int] = ()
    ) -> list[bool]:
        """Make ``result`` a tensor whose memory is that of its parts, where that is possible.

        Parameters
        ----------
        parts : for each part the tensor, its offset in the result, and its size, in bytes
        keep : numbers of parts that must stay separate from the result

        Returns
        -------
        For each part whether it is in its place now; the others, if not empty, must be copied to tensors of their own,
        which ``place`` then puts there. All False: nothing was changed, and ``result`` is unknown.
        """
        size = max((offset + nbytes for _, offset, nbytes in parts), default=0)
        moves: dict[tuple[Hashable, int], list[int]] = {}
        for i, (part, offset, nbytes) in enumerate(parts):
            buffer, position = self.find(part)
            if nbytes and i not in keep and buffer not in self.fixed and (offset - position) % ALIGNMENT == 0:
                moves.setdefault((buffer, offset - position), []).append(i)
        by_size = sorted(moves.items(), key=lambda item: -sum(parts[i][2] for i in item[1]))
        placed = [False] * len(parts)
        frame: list[Owner] = []
        merged: dict[Hashable, int] = {}
        for (buffer, shift), members in by_size:
            moved = [Owner(o.start + shift, o.nbytes, o.tensor) for o in self.owners[buffer]]
            places = _coalesced([(parts[i][1], parts[i][1] + parts[i][2]) for i in members])
            if buffer in merged or not all(_inside(o, size, places) for o in moved) or _overlap(frame, moved):
                continue
            merged[buffer] = shift
            frame += moved
            for i in members:
                placed[i] = True
        if merged:
            for buffer, shift in merged.items():
                del self.owners[buffer]
                self._parent[buffer] = (result, shift)
            self.owners[result] = frame
        return placed

    def place(self, tensor: Hashable, result: Hashable, offset: int, nbytes: int) -> None:
        """Add a tensor that a kernel writes at a free place of ``result``."""
        buffer, position = self.find(result)
        self._parent[tensor] = (result, offset)
        self.owners[buffer].append(Owner(position + offset, nbytes, tensor))


def _coalesced(intervals: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    result: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def _inside(owner: Owner, size: int, places: Sequence[tuple[int, int]]) -> bool:
    """Return whether the part of a result of ``size`` bytes that ``owner`` covers is within ``places``."""
    start, end = max(owner.start, 0), min(owner.end, size)
    return start >= end or any(low <= start and end <= high for low, high in places)


def _overlap(a: Sequence[Owner], b: Sequence[Owner]) -> bool:
    intervals = sorted((o.start, o.end) for o in (*a, *b) if o.nbytes)
    return any(left[1] > right[0] for left, right in itertools.pairwise(intervals))
