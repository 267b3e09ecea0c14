"""Outputs that are views of one tensor share its memory, as they do in PyTorch.

A graph says which: its fake tensors lie in fake memory. The tensor that the views are of is computed once, and each of
them is a place, sizes and strides in it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

_MOST_KNOWN = 256  # geometries that are remembered of a program whose sizes vary


def memory_of(value: torch.Tensor) -> StorageWeakRef:
    """Return what is equal of tensors, fake ones too, that lie in the same memory."""
    return StorageWeakRef(value.untyped_storage())


def bases(graph: fx.Graph, outputs: Iterable[Any]) -> dict[fx.Node, fx.Node]:
    """Return the computed tensors that outputs are views of, by output, where several outputs share one's memory."""
    first: dict[StorageWeakRef, fx.Node] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            first.setdefault(memory_of(value), node)
    sharing: dict[StorageWeakRef, list[fx.Node]] = {}
    for node in dict.fromkeys(o for o in outputs if isinstance(o, fx.Node)):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            sharing.setdefault(memory_of(value), []).append(node)
    return {
        node: first[memory]
        for memory, nodes in sharing.items()
        if len(nodes) > 1 and first[memory].op == "call_function" and _begins(first[memory])
        for node in nodes
    }


def _begins(base: fx.Node) -> bool:
    offset = base.meta["val"].storage_offset()
    return isinstance(offset, int) and offset == 0


@dataclass(frozen=True)
class Geometry:
    """Sizes, strides and the place of the first element of a view, for the inputs of a call."""

    of: Callable[[Sequence[Any]], tuple[Sequence[int], Sequence[int], int]]


def geometry(value: torch.Tensor, inputs: Sequence[fx.Node]) -> Geometry | None:
    """Return the geometry of a fake tensor; None where the inputs do not tell it."""
    parts = [*value.shape, *value.stride(), value.storage_offset()]
    rank = value.dim()
    if all(isinstance(part, int) for part in parts):
        fixed = (tuple(parts[:rank]), tuple(parts[rank:-1]), parts[-1])
        return Geometry(lambda args: fixed)
    wanted: set[Any] = set()
    for part in parts:
        wanted |= part.node.expr.free_symbols if isinstance(part, torch.SymInt) else set()
    sources = _sources(inputs)
    if not wanted <= set(sources):
        return None
    return Geometry(_Symbolic(parts, rank, {symbol: sources[symbol] for symbol in wanted}))


class _Symbolic:
    """A geometry whose sizes are expressions of symbols, which it computes once for each of their values."""

    def __init__(self, parts: Sequence[Any], rank: int, sources: Mapping[Any, Callable[[Sequence[Any]], int]]) -> None:
        self._parts, self._rank, self._sources = parts, rank, sources
        self._known: dict[tuple[int, ...], tuple[Sequence[int], Sequence[int], int]] = {}

    def __call__(self, args: Sequence[Any]) -> tuple[Sequence[int], Sequence[int], int]:
        values = tuple(source(args) for source in self._sources.values())
        found = self._known.get(values)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[values] = self._computed(dict(zip(self._sources, values, strict=True)))
        return found

    def _computed(self, values: Mapping[Any, int]) -> tuple[Sequence[int], Sequence[int], int]:
        numbers = [
            int(sympy_interp(PythonReferenceAnalysis, dict(values), part.node.expr))
            if isinstance(part, torch.SymInt)
            else part
            for part in self._parts
        ]
        return tuple(numbers[: self._rank]), tuple(numbers[self._rank : -1]), numbers[-1]


def _sources(inputs: Sequence[fx.Node]) -> dict[Any, Callable[[Sequence[Any]], int]]:
    """Return where the values of symbols stand: in an input that is an integer, or in a tensor's shape."""
    found: dict[Any, Callable[[Sequence[Any]], int]] = {}
    for place, size, axis in _sizes(inputs):
        if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
            found.setdefault(size.node.expr, operator.itemgetter(place) if axis is None else _extent(place, axis))
    return found


def _sizes(inputs: Sequence[fx.Node]) -> Iterator[tuple[int, Any, int | None]]:
    for place, node in enumerate(inputs):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            yield from ((place, size, axis) for axis, size in enumerate(value.shape))
        else:
            yield place, value, None


def _extent(place: int, axis: int) -> Callable[[Sequence[Any]], int]:
    return lambda args: int(args[place].shape[axis])
