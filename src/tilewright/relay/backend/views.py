"""Tensors that are parts of other tensors' memory: concatenation and splitting without copies.

A concatenation along the outermost axis that has an extent (every axis before it is 1) lays its inputs one behind
the other: when each input is written there in the first place, nothing is left to do. A split of that axis, or a
slice of it with stride 1, is the same read backwards. ``view_of`` recognises such operators; ``Buffers`` keeps which
tensors lie in which buffer, and where, while concatenations merge buffers.

Growing concatenations, as in DenseNet, share one buffer: in ``c1 = (x0, x1)``, ``c2 = (x0, x1, x2)`` the second finds
x0 and x1 one behind the other already and takes over the buffer of c1, x2 following.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.transform import PassContext
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.backend.memory_plan import ALIGNMENT
from tilewright.relay.expr import Call, Function, Tuple, Var
from tilewright.relay.op.transform.slicing import slices_of

PassContext.register_option(
    "relay.graph.storage_offset",
    bool,
    True,
    "place tensors anywhere in one arena; False gives each the beginning of a storage, as TVM 0.8's executor needs",
)


@dataclass(frozen=True)
class View:
    """Where parts lie in the whole, in bytes: the inputs of a concatenation in its result (``joins``), or the
    results of a split or slice in its input.
    """

    joins: bool
    offsets: tuple[int, ...]


def tensor_bytes(type_: TensorType) -> int:
    """Size of a tensor of known shape."""
    return math.prod(type_.concrete_shape) * dt.nbytes(type_.dtype)


def view_of(expr: RelayExpr) -> View | None:
    """How ``expr``, a typed call of an operator, can be done without moving data; None when it cannot."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return None
    match expr.op.name:
        case "concatenate":
            return _join(expr.attrs, expr.args[0].checked_type, expr.checked_type)
        case "split":
            return _split(expr.attrs, expr.args[0].checked_type, expr.checked_type)
        case "strided_slice" if len(expr.args) == 1:
            return _slice(expr.attrs, expr.args[0].checked_type)
    return None


def view_of_kernel(func: Function, num_inputs: int) -> tuple[View, list[int]] | None:
    """The view that a fused function is, and for each part (or the whole that is cut) the number of its input."""
    view = view_of(func.body)
    if view is None or not isinstance(func.body, Call):
        return None
    argument = func.body.args[0]
    if isinstance(argument, Var):  # a tuple counts as its fields
        return (view, list(range(num_inputs))) if argument is func.params[0] else None
    if not isinstance(argument, Tuple) or not all(item in func.params for item in argument.fields):
        return None
    return view, [func.params.index(item) for item in argument.fields]


def _join(attrs: Any, parts: Type, whole: Type) -> View | None:
    if not isinstance(parts, TupleType) or not isinstance(whole, TensorType) or not _outermost(whole, attrs.axis):
        return None
    return _in_turn(True, parts)


def _split(attrs: Any, whole: Type, parts: Type) -> View | None:
    if not isinstance(parts, TupleType) or not isinstance(whole, TensorType) or not _outermost(whole, attrs.axis):
        return None
    return _in_turn(False, parts)


def _slice(attrs: Any, whole: Type) -> View | None:
    if not isinstance(whole, TensorType) or whole.is_dynamic:
        return None
    shape = whole.concrete_shape
    ranges = [part.indices(extent) for part, extent in zip(slices_of(shape, attrs), shape, strict=True)]
    cut = [i for i, (r, extent) in enumerate(zip(ranges, shape, strict=True)) if r != (0, extent, 1)]
    if len(cut) > 1 or (cut and (ranges[cut[0]][2] != 1 or not _outermost(whole, cut[0]))):
        return None
    row = tensor_bytes(whole) // max(shape[cut[0]], 1) if cut else 0
    offset = ranges[cut[0]][0] * row if cut else 0
    return View(False, (offset,)) if offset % ALIGNMENT == 0 else None


def _outermost(whole: TensorType, axis: int) -> bool:
    """Whether tensors joined along ``axis`` lie one behind the other in memory."""
    return not whole.is_dynamic and all(extent == 1 for extent in whole.concrete_shape[: axis % len(whole.shape)])


def _in_turn(joins: bool, parts: TupleType) -> View | None:
    offsets, end = [], 0
    for part in parts.fields:
        if not isinstance(part, TensorType) or part.is_dynamic or end % ALIGNMENT:
            return None
        offsets.append(end)
        end += tensor_bytes(part)
    return View(joins, tuple(offsets))


@dataclass(slots=True)
class Owner:
    """A tensor that a kernel writes: ``nbytes`` at ``start`` of its buffer."""

    start: int
    nbytes: int
    tensor: Any

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.start + self.nbytes


@dataclass
class Buffers:
    """Which tensors lie in which buffer; a tensor is anything that can be a key.

    The tensors that kernels write (*owners*) never overlap. Positions are relative: a buffer may reach below 0.
    """

    _parent: dict[Hashable, tuple[Hashable, int]] = field(default_factory=dict)
    owners: dict[Hashable, list[Owner]] = field(default_factory=dict)
    fixed: set[Hashable] = field(default_factory=set)

    def add(self, tensor: Hashable, nbytes: int, fixed: bool = False) -> None:
        """A tensor in a buffer of its own; a ``fixed`` one (an input, a parameter) must stay alone there."""
        self.owners[tensor] = [Owner(0, nbytes, tensor)]
        if fixed:
            self.fixed.add(tensor)

    def view(self, tensor: Hashable, source: Hashable, offset: int = 0) -> None:
        """A tensor inside ``source``'s memory."""
        self._parent[tensor] = (source, offset)

    def find(self, tensor: Hashable) -> tuple[Hashable, int]:
        """The buffer of a tensor and the tensor's position there."""
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
        """Whether a tensor's memory is given from outside."""
        return self.find(tensor)[0] in self.fixed

    def under(self, tensor: Hashable, nbytes: int) -> list[Any]:
        """The owners whose memory a tensor of ``nbytes`` bytes lies in."""
        buffer, start = self.find(tensor)
        return [o.tensor for o in self.owners[buffer] if o.start < start + nbytes and o.end > start]

    def join(
        self, result: Hashable, parts: Sequence[tuple[Hashable, int, int]], keep: Sequence[int] = ()
    ) -> list[bool]:
        """Make ``result`` a tensor whose memory is that of its parts, where that is possible.

        Parameters
        ----------
        parts : for each part the tensor, its offset in the result, and its size, in bytes
        keep : numbers of parts that must stay apart from the result

        Returns
        -------
        For each part whether it lies in its place now; the others, if not empty, must be copied to tensors of their
        own, which ``place`` then puts there. All False: nothing was changed, and ``result`` is unknown.
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
        """A new tensor that a kernel writes at a free place of ``result``."""
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
    """Whether what ``owner`` covers of a result of ``size`` bytes is within ``places``."""
    start, end = max(owner.start, 0), min(owner.end, size)
    return start >= end or any(low <= start and end <= high for low, high in places)


def _overlap(a: Sequence[Owner], b: Sequence[Owner]) -> bool:
    intervals = sorted((o.start, o.end) for o in (*a, *b) if o.nbytes)
    return any(left[1] > right[0] for left, right in itertools.pairwise(intervals))
