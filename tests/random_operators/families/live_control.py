"""Branches, loops and sequences over named dimensions, some decided when the model runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from tests.random_operators.case import Graph
from tests.random_operators.families.live_values import ROUNDS, Extent, LiveShape, Values, each, node, pick, sizes

_FLOAT, _INT64, _BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def _value(name: str, kind: int = _FLOAT, rank: int = 0) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, (None,) * rank)


def _body(nodes: list[Any], inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]) -> onnx.GraphProto:
    return helper.make_graph(
        [helper.make_node(*n[:3], **(n[3] if len(n) > 3 else {})) for n in nodes], "body", inputs, outputs
    )


def _scalar(g: Graph, numbers: tuple[int, ...]) -> str:
    """An integer that is another one in each round."""
    return g.fed_by_rounds([np.array(v) for v in numbers], ())


def branched(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape]:
    """One of two computations on a value around them, by a scalar input or by an extent."""
    if shape and g.draw.of(True, False):
        extent = node(g, "Gather", [node(g, "Shape", [x]), g.fixed(np.array(g.draw.below(len(shape))))])
        condition = node(g, "Greater", [extent, g.fixed(np.array(3))])
    else:
        condition = node(g, "Greater", [_scalar(g, pick(g, (0, 1))), g.fixed(np.array(0))])
    tag = len(g.nodes)
    then = [("Tanh", [x], [f"a{tag}"]), ("Add", [f"a{tag}", x], [f"then{tag}"])]
    branches = {
        "then_branch": _body(then, [], [_value(f"then{tag}", rank=len(shape))]),
        "else_branch": _body([("Neg", [x], [f"else{tag}"])], [], [_value(f"else{tag}", rank=len(shape))]),
    }
    return node(g, "If", [condition], **branches), shape


def _rounds(g: Graph, values: Values) -> tuple[str, Extent]:
    """How often: a constant, an input, or an extent."""
    live = [
        (name, i, d) for name, shape in values for i, d in enumerate(shape) if not isinstance(d, int) and max(d) < 9
    ]
    kind = g.draw.of("constant", "input", "extent")
    if kind == "extent" and live:
        name, axis, extent = g.draw.of(*live)
        return node(g, "Gather", [node(g, "Shape", [name]), g.fixed(np.array(axis))]), extent
    if kind == "input":
        numbers = pick(g, (2, 0, 1, 4))
        return _scalar(g, numbers), numbers
    count = g.draw.of(2, 0, 1, 3)
    return g.fixed(np.array(count)), count


def looped(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape]:
    """A value goes from round to round, another is collected."""
    count, turns = _rounds(g, values)
    rank = len(shape)
    nodes = [
        ("Identity", ["go"], ["on"]),
        ("Tanh", ["carried"], ["small"]),
        ("Add", ["small", x], ["next"]),
        ("Neg", ["small"], ["kept"]),
    ]
    inputs = [_value("step", _INT64), _value("go", _BOOL), _value("carried", rank=rank)]
    outputs = [_value("on", _BOOL), _value("next", rank=rank), _value("kept", rank=rank)]
    found = g.emit(
        [count, g.draw.of("", g.fixed(np.array(True))), x], 2, operator="Loop", body=_body(nodes, inputs, outputs)
    )
    if 0 in sizes(turns):
        g.outputs.remove(found[1])  # of what no round collects, extents may be unknown
        return found[0], shape
    return (found[0], shape) if g.draw.of(True, False) else (found[1], (turns, *shape))


def grown(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    """What goes from round to round grows by a value around the loop, as caches do."""
    if not shape:
        return None
    count, turns = _rounds(g, values)
    axis, rank = g.draw.below(len(shape)), len(shape)
    nodes = [("Identity", ["go"], ["on"]), ("Concat", ["carried", x], ["next"], {"axis": axis})]
    inputs = [_value("step", _INT64), _value("go", _BOOL), _value("carried", rank=rank)]
    outputs = [_value("on", _BOOL), _value("next", rank=rank)]
    (name,) = g.emit([count, "", x], operator="Loop", body=_body(nodes, inputs, outputs))
    extent = each(lambda e: e[0] * (e[1] + 1), shape[axis], turns)
    return name, (*shape[:axis], extent, *shape[axis + 1 :])


def stopped(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape]:
    """A loop that ends when a number is reached that is an input of the model."""
    limit, rank = _scalar(g, pick(g, (2, 0, 1, 4))), len(shape)
    nodes = [("Less", ["step", limit], ["on"]), ("Tanh", ["carried"], ["small"]), ("Sub", ["small", x], ["next"])]
    inputs = [_value("step", _INT64), _value("go", _BOOL), _value("carried", rank=rank)]
    outputs = [_value("on", _BOOL), _value("next", rank=rank)]
    (name,) = g.emit(["", g.fixed(np.array(True)), x], operator="Loop", body=_body(nodes, inputs, outputs))
    return name, shape


def scanned(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    """Running sums along an axis, that of each place collected along another."""
    axes = [i for i, d in enumerate(shape) if min(sizes(d))]
    if not axes:
        return None
    axis, back = g.draw.of(*axes), g.draw.of(0, 1)
    rest = (*shape[:axis], *shape[axis + 1 :])
    out = g.draw.below(len(shape))
    start = node(g, "ReduceMax", [x, g.ints(axis)], keepdims=0)
    nodes = [("Add", ["state", "x"], ["sum"]), ("Tanh", ["sum"], ["next"]), ("Neg", ["sum"], ["seen"])]
    inputs, outputs = ([_value(n, rank=len(rest)) for n in names] for names in (("state", "x"), ("next", "seen")))
    attributes: dict[str, Any] = {"scan_input_axes": [axis], "scan_output_axes": [out], "num_scan_inputs": 1}
    attributes |= {"scan_input_directions": [back], "scan_output_directions": [g.draw.of(0, 1)]}
    found = g.emit([start, x], 2, operator="Scan", body=_body(nodes, inputs, outputs), **attributes)
    return found[1], (*rest[:out], shape[axis], *rest[out:])


def sequenced(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    """A sequence of values: one of them, or all, one after the other or along a new axis."""
    y = node(g, "Tanh", [x])
    items = node(g, "SequenceConstruct", [x, y])
    if g.draw.chance(2):
        items = node(g, "SequenceInsert", [items, node(g, "Neg", [x])])
    count = 3 if g.nodes[-1].op_type == "SequenceInsert" else 2
    kind = g.draw.of("at", "concat", "stack")
    if kind == "at":
        return node(g, "SequenceAt", [items, g.fixed(np.array(g.draw.between(-count, count - 1)))]), shape
    if kind == "stack":
        axis = g.draw.below(len(shape) + 1)
        name = node(g, "ConcatFromSequence", [items], axis=axis, new_axis=1)
        return name, (*shape[:axis], count, *shape[axis:])
    if not shape:
        return node(g, "SequenceAt", [items, g.fixed(np.array(0))]), shape
    axis = g.draw.below(len(shape))
    name = node(g, "ConcatFromSequence", [items], axis=axis, new_axis=0)
    return name, (*shape[:axis], each(lambda e: e[0] * count, shape[axis]), *shape[axis + 1 :])


def found(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    """How many elements are not 0, and where: as many as there are is known when the model runs."""
    given = [v for v in values if v[0] in g.inputs and v[1] and g.inputs[v[0]].dtype == np.float32]
    if not given:
        return None
    name, own = g.draw.of(*given)
    kept = node(g, "NonZero", [node(g, "Relu", [name])])
    total = node(g, "ReduceSum", [kept, g.ints(1)], keepdims=0)
    return node(g, "Cast", [total], to=_FLOAT), (len(own),)


def limited(g: Graph, x: str, shape: LiveShape, values: Values) -> tuple[str, LiveShape] | None:
    """A slice of which an end is an input of the model."""
    if not shape:
        return None
    axis, ends = g.draw.below(len(shape)), tuple(g.draw.of(2, 0, 1, -1, 100) for _ in range(ROUNDS))
    extents = tuple(len(range(*slice(0, e).indices(d))) for e, d in zip(ends, sizes(shape[axis]), strict=True))
    name = g.fed_by_rounds([np.array([e]) for e in ends], (1,))
    return node(g, "Slice", [x, g.ints(0), name, g.ints(axis)]), (*shape[:axis], extents, *shape[axis + 1 :])


STEPS = (branched, looped, grown, stopped, scanned, sequenced, found, limited)
