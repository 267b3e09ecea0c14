"""Branches and loops that are known while importing."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from tests.random_operators.case import EXACT, Graph, Tolerance, generator, onnx_type

_KINDS = ("float32", "int32", "int64", "float64")


def _value(name: str, dtype: str, shape: tuple[int, ...] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx_type(dtype), shape)


def _body(
    nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any], weights: list[onnx.TensorProto] | None = None
) -> onnx.GraphProto:
    return helper.make_graph(nodes, "body", inputs, outputs, weights or [])


@generator("If")
def if_(g: Graph) -> Tolerance:
    dtype, shape = g.draw.of(*_KINDS), g.draw.shape()
    condition = g.fixed(np.array(g.draw.of(True, False), bool))
    x, y = g.data(dtype, shape, "mild"), g.data(dtype, shape, "mild")
    branches = {}
    for name, operator in (("then_branch", "Add"), ("else_branch", "Sub")):
        node = helper.make_node(operator, [x, y], [f"{name}_out"])
        branches[name] = _body([node], [], [_value(f"{name}_out", dtype, shape)])
    g.emit([condition], **branches)
    return EXACT


@generator("Loop")
def loop(g: Graph) -> Tolerance:
    """``state += x`` for some iterations, collecting the states; it ends early if a counter says so."""
    dtype, shape = g.draw.of(*_KINDS), g.draw.shape(0, 3)
    x = g.data(dtype, shape, "mild")
    count, stop = g.draw.between(1, 4), g.draw.between(0, 5)
    nodes = [
        helper.make_node("Add", ["state", x], ["next"]),
        helper.make_node("Identity", ["next"], ["seen"]),
        helper.make_node("Less", ["step", "stop"], ["go_on"]),
    ]
    if g.opset < 9:  # Less of whole numbers came later
        nodes[-1] = helper.make_node("Identity", ["condition"], ["go_on"])
    body = _body(
        nodes,
        [_value("step", "int64", ()), _value("condition", "bool", ()), _value("state", dtype, shape)],
        [_value("go_on", "bool", ()), _value("next", dtype, shape), _value("seen", dtype, shape)],
        [numpy_helper.from_array(np.array(stop), "stop")],
    )
    state = g.data(dtype, shape, "mild")
    g.emit([g.ints(count), g.fixed(np.array(True)), state], outputs=2, body=body)
    return EXACT


@generator("Scan")
def scan(g: Graph) -> Tolerance:
    """Running sums along an axis, forwards or backwards, with the states collected along another."""
    if g.opset < 9:
        return _scan_of_batches(g)
    dtype, shape = g.draw.of(*_KINDS), list(g.draw.shape(0, 2))
    axis, out_axis = (g.draw.between(-len(shape) - 1, len(shape)) if g.opset >= 11 else 0 for _ in range(2))
    length = g.draw.between(1, 5)
    whole = list(shape)
    whole.insert(axis % (len(shape) + 1), length)
    nodes = [helper.make_node("Add", ["state", "x"], ["next"]), helper.make_node("Neg", ["next"], ["seen"])]
    values = [_value(name, dtype, tuple(shape)) for name in ("state", "x", "next", "seen")]
    attributes: dict[str, Any] = {"scan_input_directions": [g.draw.of(0, 1)], "scan_input_axes": [axis]}
    attributes |= {"scan_output_directions": [g.draw.of(0, 1)], "scan_output_axes": [out_axis]}
    inputs = [g.data(dtype, shape, "mild"), g.data(dtype, whole, "mild")]
    g.emit(inputs, outputs=2, body=_body(nodes, values[:2], values[2:]), num_scan_inputs=1, **attributes)
    return EXACT


def _scan_of_batches(g: Graph) -> Tolerance:
    batch, length, width = (g.draw.of(1, 2, 3) for _ in range(3))
    nodes = [helper.make_node("Add", ["state", "x"], ["next"]), helper.make_node("Neg", ["next"], ["seen"])]
    values = [_value(name, "float32", (width,)) for name in ("state", "x", "next", "seen")]
    state, x = g.data("float32", (batch, width), "mild"), g.data("float32", (batch, length, width), "mild")
    g.emit(["", state, x], outputs=2, body=_body(nodes, values[:2], values[2:]), num_scan_inputs=1)
    return EXACT
