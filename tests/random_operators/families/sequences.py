"""Sequences: made of tensors, changed, and joined or measured."""

from __future__ import annotations

import numpy as np
from tests.random_operators.case import EXACT, Graph, Tolerance, generator


def _tensors(g: Graph, count: int) -> list[str]:
    shape = g.draw.shape(1, 3, (1, 2, 3, 5))
    return [g.data("float32", shape, "mild") for _ in range(count)]


def _sequence(g: Graph, tensors: list[str]) -> str:
    return g.emit(tensors, operator="SequenceConstruct")[0]


def _joined(g: Graph, sequence: str) -> Tolerance:
    """A tensor of the sequence: its parts along a new axis, or one of them."""
    if g.draw.of(True, False):
        g.emit([sequence], operator="ConcatFromSequence", axis=0, new_axis=1)
    else:
        g.emit([sequence, g.fixed(np.array(g.draw.of(0, -1)))], operator="SequenceAt")
    return EXACT


@generator("SequenceConstruct", "SequenceAt", "ConcatFromSequence", "SequenceLength")
def sequence_read(g: Graph) -> Tolerance:
    count = g.draw.between(1, 4)
    sequence = _sequence(g, _tensors(g, count))
    if g.operator == "SequenceAt":
        g.emit([sequence, g.fixed(np.array(g.draw.between(-count, count - 1)))])
    elif g.operator == "ConcatFromSequence":
        new = g.draw.of(0, 1)
        g.emit([sequence], axis=g.draw.of(0, -1), new_axis=new)
    elif g.operator == "SequenceLength":
        g.emit([sequence])
    else:
        return _joined(g, sequence)
    return EXACT


@generator("SequenceInsert", "SequenceErase", "SequenceEmpty")
def sequence_changed(g: Graph) -> Tolerance:
    count = g.draw.between(2, 4)
    tensors = _tensors(g, count)
    if g.operator == "SequenceEmpty":
        sequence = g.emit([], operator="SequenceEmpty")[0]
        return _joined(g, g.emit([sequence, tensors[0]], operator="SequenceInsert")[0])
    sequence = _sequence(g, tensors[:-1] if g.operator == "SequenceInsert" else tensors)
    inputs = [sequence, tensors[-1]] if g.operator == "SequenceInsert" else [sequence]
    if g.draw.of(True, False):
        length = count - 1 if g.operator == "SequenceInsert" else count
        inputs.append(g.fixed(np.array(g.draw.between(-length, length - 1))))
    return _joined(g, g.emit(inputs)[0])


@generator("SplitToSequence")
def split_to_sequence(g: Graph) -> Tolerance:
    shape = g.draw.shape(1, 3, (1, 2, 3, 5))
    axis = g.draw.between(-len(shape), len(shape) - 1)
    inputs, keepdims = [g.data("float32", shape, "mild")], 1
    if g.draw.of(True, False):
        inputs.append(g.fixed(np.array(g.draw.of(1, 2))))
    else:
        keepdims = g.draw.of(1, 0)
    sequence = g.emit(inputs, axis=axis, keepdims=keepdims)[0]
    g.emit([sequence, g.fixed(np.array(0))], operator="SequenceAt")
    return EXACT


@generator("Optional", "OptionalHasElement", "OptionalGetElement")
def optional(g: Graph) -> Tolerance:
    (x,) = _tensors(g, 1)
    value = g.emit([x], operator="Optional")[0]
    g.emit([value], operator="OptionalHasElement" if g.operator == "OptionalHasElement" else "OptionalGetElement")
    return EXACT
