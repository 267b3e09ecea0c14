"""Whole graphs: several values live at once, joined, split, chosen between, with branches and loops."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper
from tests.random_operators.case import Graph, Tolerance
from tests.random_operators.families import chains
from tests.random_operators.families.chains import Shape

OPSET = chains.OPSET
_MOST = 3000
# Names and shapes of float32 values, the newest last.
Values = list[tuple[str, Shape]]
# A step adds nodes that read some of the values; it gives new ones, none where it does not fit.
Join = Callable[[Graph, Values], Values]


def _any(g: Graph, values: Values) -> tuple[str, Shape]:
    """One of the values, of new ones with more likelihood."""
    return values[-1 - g.draw.below(min(len(values), g.draw.of(1, 3, len(values))))]


def chained(g: Graph, values: Values) -> Values:
    """A step of a chain."""
    made = g.draw.of(*chains.STEPS)(g, *_any(g, values))
    return [made] if made is not None else []


def combined(g: Graph, values: Values) -> Values:
    """Two values that broadcast; products are kept small, since errors of large ones would show in differences."""
    (a, left), (b, right) = _any(g, values), _any(g, values)
    try:
        shape = np.broadcast_shapes(left, right)
    except ValueError:
        return []
    if math.prod(shape) > _MOST:
        return []
    operator = g.draw.of("Add", "Sub", "Max", "Min", "Mul")
    (name,) = g.emit([a, b], operator=operator)
    return [(g.emit([name], operator="Tanh")[0] if operator == "Mul" else name, shape)]


def joined(g: Graph, values: Values) -> Values:
    """Values of shapes that are alike but along one axis, one after the other."""
    name, shape = _any(g, values)
    if not shape:
        return []
    axis = g.draw.below(len(shape))
    alike = [
        (n, s)
        for n, s in values
        if s[:axis] + s[axis + 1 :] == shape[:axis] + shape[axis + 1 :] and len(s) == len(shape)
    ]
    others = [g.draw.of(*alike) for _ in range(g.draw.of(1, 2))]
    extent = shape[axis] + sum(s[axis] for _, s in others)
    out = (*shape[:axis], extent, *shape[axis + 1 :])
    if math.prod(out) > _MOST:
        return []
    return [(g.emit([name, *(n for n, _ in others)], operator="Concat", axis=axis)[0], out)]


def split(g: Graph, values: Values) -> Values:
    """A value in two parts."""
    name, shape = _any(g, values)
    if not shape or max(shape) < 2:
        return []
    axis = shape.index(max(shape))
    first = g.draw.between(1, shape[axis] - 1)
    names = g.emit([name, g.ints(first, shape[axis] - first)], 2, operator="Split", axis=axis)
    sizes = (first, shape[axis] - first)
    return [(n, (*shape[:axis], size, *shape[axis + 1 :])) for n, size in zip(names, sizes, strict=True)]


def chosen(g: Graph, values: Values) -> Values:
    """Elements of one value or of a constant, by a mask."""
    name, shape = _any(g, values)
    mask, other = g.fixed(g.draw.array("bool", shape)), g.fixed(g.draw.array("float32", (), "mild"))
    return [(g.emit([mask, name, other], operator="Where")[0], shape)]


def gathered(g: Graph, values: Values) -> Values:
    """Entries along an axis, some of them more than once."""
    name, shape = _any(g, values)
    if not shape or 0 in shape:
        return []
    axis = g.draw.below(len(shape))
    places = g.draw.integers("int64", (g.draw.of(2, 1, 3),), -shape[axis], shape[axis])
    out = (*shape[:axis], len(places), *shape[axis + 1 :])
    if math.prod(out) > _MOST:
        return []
    return [(g.emit([name, g.fixed(places)], operator="Gather", axis=axis)[0], out)]


def branched(g: Graph, values: Values) -> Values:
    """One of two computations on values around them."""
    name, shape = _any(g, values)
    branches = {}
    for key, operator in (("then_branch", "Tanh"), ("else_branch", "Neg")):
        out = helper.make_tensor_value_info(f"{key}_{len(g.nodes)}", TensorProto.FLOAT, shape)
        branches[key] = helper.make_graph([helper.make_node(operator, [name], [out.name])], key, [], [out])
    condition = np.array(g.draw.of(True, False))
    found = g.emit([g.fed(condition) if g.draw.of(False, True) else g.fixed(condition)], operator="If", **branches)
    return [(found[0], shape)]


def repeated(g: Graph, values: Values) -> Values:
    """A loop that carries a value and collects another."""
    name, shape = _any(g, values)
    count = g.draw.of(2, 0, 1, 3)
    if math.prod(shape) * max(count, 1) > _MOST:
        return []
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Identity", ["go"], ["on"]),
        helper.make_node("Tanh", ["carried"], ["small"]),
        helper.make_node("Add", ["small", "carried"], ["next"]),
        helper.make_node("Neg", ["small"], ["kept"]),
    ]
    inputs = [info("step", TensorProto.INT64, ()), info("go", TensorProto.BOOL, ())]
    tensors = [info(n, TensorProto.FLOAT, shape) for n in ("carried", "next", "kept")]
    body = helper.make_graph(nodes, "body", [*inputs, tensors[0]], [info("on", TensorProto.BOOL, ()), *tensors[1:]])
    go = g.fixed(np.array(True))
    if g.draw.of(False, True):  # rounds that are counted when it runs, and nothing collected: all shapes are known
        del body.output[2], body.node[3]
        return [(g.emit([g.fed(np.array(count)), go, name], operator="Loop", body=body)[0], shape)]
    names = g.emit([g.fixed(np.array(count)), go, name], 2, operator="Loop", body=body)
    return [(names[1], (count, *shape)), (names[0], shape)]


JOINS: tuple[Join, ...] = (chained, combined, joined, split, chosen, gathered, branched, repeated, chained, combined)


def graph(g: Graph) -> Tolerance:
    values: Values = []
    for _ in range(g.draw.of(1, 2, 3)):
        shape = g.draw.shape(0, 4, extents=(2, 1, 3, 4, 5, 8, 0, 7))
        values.append((g.fed(g.draw.array("float32", shape, "mild")), shape))
    for _ in range(g.draw.between(2, 10)):
        values += [(n, s) for n, s in g.draw.of(*JOINS)(g, values) if math.prod(s) <= 2 * _MOST]
    if not g.nodes:
        chains.unary(g, *values[0])
    return Tolerance("close", 4096)
