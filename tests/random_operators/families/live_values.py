"""Tensors whose extents are known when a model runs: what each extent is in each round."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tests.random_operators.case import Graph

ROUNDS = 3
# What a tensor holds at most, in any round.
MOST = 3000
# A number, or what it is in each round.
Extent = int | tuple[int, ...]
LiveShape = tuple[Extent, ...]
# Names and shapes of float32 values, the newest last.
Values = list[tuple[str, LiveShape]]


def sizes(extent: Extent) -> tuple[int, ...]:
    """What an extent is, in each round."""
    return (extent,) * ROUNDS if isinstance(extent, int) else extent


def shape_of(shape: LiveShape, turn: int) -> tuple[int, ...]:
    """What a shape is in a round."""
    return tuple(sizes(d)[turn] for d in shape)


def fits(shape: LiveShape) -> bool:
    """Whether a tensor is small enough in all rounds."""
    return all(math.prod(shape_of(shape, i)) <= MOST for i in range(ROUNDS))


def each(function: Callable[[tuple[int, ...]], int], *extents: Extent) -> Extent:
    """``function`` of the extents of each round; a number if all of them are."""
    if all(isinstance(d, int) for d in extents):
        return function(tuple(sizes(d)[0] for d in extents))
    return tuple(function(tuple(sizes(d)[i] for d in extents)) for i in range(ROUNDS))


def pick(g: Graph, options: Sequence[int]) -> tuple[int, ...]:
    """One of the options for each round."""
    return tuple(g.draw.of(*options) for _ in range(ROUNDS))


def any_of(g: Graph, values: Values) -> tuple[str, LiveShape]:
    """One of the values, of new ones with more likelihood."""
    return values[-1 - g.draw.below(min(len(values), g.draw.of(1, 3, len(values))))]


def constant(g: Graph, shape: Sequence[Any]) -> str:
    """A part of the model."""
    return g.fixed(g.draw.array("float32", shape, "mild"))


def node(g: Graph, operator: str, inputs: list[str], **attributes: Any) -> str:
    """A node of one output."""
    return g.emit(inputs, operator=operator, **attributes)[0]
