"""Changes of ONNX models that keep them readable: of inputs, attributes, types, shapes, opsets, names and order.

A change takes a model and a generator of numbers and alters the model; one that finds nothing to alter leaves it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto, helper

_INTEGERS = (-(2**63), -(2**31), -7, -2, -1, 0, 1, 2, 3, 5, 64, 2**31 - 1, 2**40, 2**63 - 1)
_FLOATS = (float("nan"), float("inf"), -1e38, -1.0, -0.0, 1e-45, 0.5, 1.0, 3.0)
_TEXTS = (b"", b"SAME_UPPER", b"linear", b"constant", b"NOTSET", b"\xff\xfe", b"a" * 5000, b"\x1b[31m")
_EXTENTS = (0, 1, 2, 3, 7, 17, 2**31, 2**40, -1)
_PATHS = ("missing.bin", "../secret", "/etc/hostname", "", ".", "a/../../b", "x\0y")
_OPERATORS = (
    "Add", "Cast", "Concat", "Conv", "CumSum", "Einsum", "Expand", "Flatten", "Gather", "Gemm", "Identity", "MatMul",
    "MaxPool", "Mod", "NonZero", "Not", "OneHot", "Pad", "Pow", "ReduceSum", "Relu", "Reshape", "Resize", "ScatterND",
    "Shape", "Slice", "Softmax", "Split", "Squeeze", "TopK", "Transpose", "Unsqueeze", "Where", "NoSuchOperator",
)  # fmt: skip
_TYPES = (1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 0, 99)

Change = Callable[[onnx.ModelProto, random.Random], None]


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and those in attributes of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from graphs(inner)


def _some_graph(model: onnx.ModelProto, rng: random.Random) -> onnx.GraphProto:
    return rng.choice(list(graphs(model.graph)))


def _some_node(model: onnx.ModelProto, rng: random.Random) -> onnx.NodeProto | None:
    nodes = [node for graph in graphs(model.graph) for node in graph.node]
    return rng.choice(nodes) if nodes else None


def _names(graph: onnx.GraphProto) -> list[str]:
    values = [name for node in graph.node for name in (*node.input, *node.output)]
    return [*values, *(v.name for v in graph.input), *(t.name for t in graph.initializer), "", "nobody"]


def inputs(model: onnx.ModelProto, rng: random.Random) -> None:
    """Leave one out, swap two, give another value (also a later one: a cycle), or one more."""
    node = _some_node(model, rng)
    if node is None:
        return
    names = list(node.input)
    at = rng.randrange(len(names) + 1)
    match rng.randrange(4):
        case 0:
            del names[at : at + 1]
        case 1 if len(names) > 1:
            names[at - 1], names[at - 2] = names[at - 2], names[at - 1]
        case 2:
            names[at : at + 1] = [rng.choice(_names(model.graph))]
        case _:
            names.insert(at, rng.choice(_names(model.graph)))
    del node.input[:]
    node.input.extend(names)


def outputs(model: onnx.ModelProto, rng: random.Random) -> None:
    """Rename, leave out or repeat an output of a node or of the graph."""
    node = _some_node(model, rng)
    if node is not None and node.output and rng.random() < 0.7:
        at = rng.randrange(len(node.output))
        node.output[at] = rng.choice(_names(model.graph))
    elif model.graph.output:
        rng.choice(model.graph.output).name = rng.choice(_names(model.graph))


def _new_value(attribute: AttributeProto, rng: random.Random) -> None:
    match attribute.type:
        case AttributeProto.INT:
            attribute.i = rng.choice(_INTEGERS)
        case AttributeProto.FLOAT:
            attribute.f = rng.choice(_FLOATS)
        case AttributeProto.STRING:
            attribute.s = rng.choice(_TEXTS)
        case AttributeProto.INTS:
            _new_element(attribute.ints, _INTEGERS, rng)
        case AttributeProto.FLOATS:
            _new_element(attribute.floats, _FLOATS, rng)
        case AttributeProto.TENSOR:
            _tensor(attribute.t, rng)


def _new_element(values: Any, choices: tuple[Any, ...], rng: random.Random) -> None:
    made = list(values)
    at = rng.randrange(len(made) + 1)
    made[at : at + rng.randrange(2)] = [] if rng.random() < 0.3 else [rng.choice(choices)]
    del values[:]
    values.extend(made)


def attributes(model: onnx.ModelProto, rng: random.Random) -> None:
    """Change, remove, add or retype an attribute."""
    node = _some_node(model, rng)
    if node is None:
        return
    if not node.attribute or rng.random() < 0.15:
        name = rng.choice(("axis", "keepdims", "perm", "mode", "to", "auto_pad", "unknown"))
        node.attribute.append(helper.make_attribute(name, rng.choice((1, -9, [0, 1], "x", 0.5))))
        return
    attribute = rng.choice(node.attribute)
    match rng.randrange(5):
        case 0:
            node.attribute.remove(attribute)
        case 1:
            attribute.type = rng.choice((1, 2, 3, 4, 6, 7, 0))
        case _:
            _new_value(attribute, rng)


def element_types(model: onnx.ModelProto, rng: random.Random) -> None:
    """Give an input, an output or a weight another element type."""
    graph = _some_graph(model, rng)
    values = [
        v.type.tensor_type for v in (*graph.input, *graph.output, *graph.value_info) if v.type.HasField("tensor_type")
    ]
    if values:
        rng.choice(values).elem_type = rng.choice(_TYPES)


def shapes(model: onnx.ModelProto, rng: random.Random) -> None:
    """Change, add, remove or name a dimension of an input or output, or forget its shape."""
    graph = _some_graph(model, rng)
    values = [v.type.tensor_type for v in (*graph.input, *graph.output) if v.type.HasField("tensor_type")]
    if not values:
        return
    kind = rng.choice(values)
    dims = kind.shape.dim
    match rng.randrange(5):
        case 0:
            kind.ClearField("shape")
        case 1:
            dims.add().dim_value = rng.choice(_EXTENTS)
        case 2 if dims:
            del dims[rng.randrange(len(dims))]
        case 3 if dims:
            rng.choice(dims).dim_param = rng.choice(("N", "M", "", "a b", "\n"))
        case _ if dims:
            rng.choice(dims).dim_value = rng.choice(_EXTENTS)


def _tensor(tensor: TensorProto, rng: random.Random) -> None:
    match rng.randrange(7):
        case 0:
            tensor.data_type = rng.choice(_TYPES)
        case 1:
            tensor.dims.append(rng.choice(_EXTENTS))
        case 2 if tensor.dims:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(_EXTENTS)
        case 3:
            tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
        case 4:
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", rng.choice(_PATHS)), ("offset", str(rng.choice(_INTEGERS)))):
                entry = tensor.external_data.add()
                entry.key, entry.value = key, value
        case 5 if tensor.int64_data:
            _new_element(tensor.int64_data, _INTEGERS, rng)
        case _ if tensor.data_type == TensorProto.INT64 and tensor.raw_data:
            at = rng.randrange(len(tensor.raw_data)) // 8 * 8
            number = rng.choice(_INTEGERS).to_bytes(8, "little", signed=True)
            tensor.raw_data = tensor.raw_data[:at] + number + tensor.raw_data[at + 8 :]


def weights(model: onnx.ModelProto, rng: random.Random) -> None:
    """Change a weight: its type, shape, numbers, length, or the file that it is in."""
    tensors = [tensor for graph in graphs(model.graph) for tensor in graph.initializer]
    if tensors:
        _tensor(rng.choice(tensors), rng)


def as_weights(model: onnx.ModelProto, rng: random.Random) -> None:
    """Make an input a weight, whose numbers are then known when the model is compiled."""
    if not model.graph.input:
        return
    value = rng.choice(model.graph.input)
    dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
    count = 1
    for extent in dims:
        count *= extent
    if value.type.tensor_type.elem_type in (1, 6, 7, 9) and 0 < count < 10_000:
        numbers = [rng.choice((-1, 0, 1, 2)) for _ in range(count)]
        model.graph.initializer.append(helper.make_tensor(value.name, value.type.tensor_type.elem_type, dims, numbers))
        model.graph.input.remove(value)


def opsets(model: onnx.ModelProto, rng: random.Random) -> None:
    """Ask for another version of the operators, for none, or for a domain that nobody has."""
    match rng.randrange(4):
        case 0:
            del model.opset_import[:]
        case 1:
            model.opset_import.append(helper.make_opsetid("nobody.has.it", 1))
        case 2:
            model.ir_version = rng.choice((0, 3, 7, 10, 99))
        case _ if model.opset_import:
            rng.choice(model.opset_import).version = rng.choice((0, 1, 5, 7, 9, 11, 13, 17, 18, 21, 23, 25, 99, -1))


def operators(model: onnx.ModelProto, rng: random.Random) -> None:
    """Let a node be another operator, or of another domain."""
    node = _some_node(model, rng)
    if node is None:
        return
    if rng.random() < 0.1:
        node.domain = rng.choice(("ai.onnx.ml", "com.microsoft", "nobody.has.it"))
    else:
        node.op_type = rng.choice(_OPERATORS)


def order(model: onnx.ModelProto, rng: random.Random) -> None:
    """Remove, repeat or move a node."""
    graph = _some_graph(model, rng)
    nodes = list(graph.node)
    if not nodes:
        return
    node = nodes.pop(rng.randrange(len(nodes)))
    match rng.randrange(3):
        case 1:
            nodes[:0] = [node]
        case 2:
            nodes += [node, node]
    del graph.node[:]
    graph.node.extend(nodes)


def names(model: onnx.ModelProto, rng: random.Random) -> None:
    """Give a node or an input a name with what no name has."""
    name = rng.choice(("", "x" * 3000, "a\0b", "\x1b[2J", "a/b c%s{}", "output_0"))
    node = _some_node(model, rng)
    if node is not None and rng.random() < 0.7:
        node.name = name
    elif model.graph.input:
        value = rng.choice(model.graph.input)
        for each in (node for graph in graphs(model.graph) for node in graph.node):
            each.input[:] = [name if old == value.name else old for old in each.input]
        value.name = name


def branches(model: onnx.ModelProto, rng: random.Random) -> None:
    """Put a node of the graph into both branches of an If, whose condition is an input."""
    graph = model.graph
    if not graph.node:
        return
    at = rng.randrange(len(graph.node))
    node = onnx.NodeProto()
    node.CopyFrom(graph.node[at])
    outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
    inner = helper.make_graph([node], "branch", [], outs)
    graph.node[at].CopyFrom(
        helper.make_node("If", ["condition"], list(node.output), then_branch=inner, else_branch=inner)
    )
    graph.input.append(helper.make_tensor_value_info("condition", TensorProto.BOOL, []))


CHANGES: tuple[Change, ...] = (
    inputs, outputs, attributes, attributes, element_types, shapes, shapes, weights, as_weights, opsets, operators,
    order, names, branches,
)  # fmt: skip


def changed(model: onnx.ModelProto, rng: random.Random) -> tuple[onnx.ModelProto, list[str]]:
    """Return a copy of a model with one to three changes, and their names."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice(CHANGES)
        change(copy, rng)
        done.append(change.__name__)
    return copy, done
