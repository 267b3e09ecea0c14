"""Graphs as the importer reads them: nodes, their inputs and attributes, functions, constants as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.relay.frontend.tensorflow.proto import TensorflowImportError, parsed

Array = np.ndarray[Any, Any]

DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64", 9: "int64",
    10: "bool", 11: "int8", 12: "uint8", 13: "int32", 14: "bfloat16", 15: "int16", 16: "uint16", 17: "uint16",
    18: "complex128", 19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64", 24: "float8_e5m2",
    25: "float8_e4m3fn",
}  # fmt: skip
_VALUES = {
    "float32": "float_val", "float64": "double_val", "int32": "int_val", "uint8": "int_val", "int16": "int_val",
    "int8": "int_val", "uint16": "int_val", "int64": "int64_val", "bool": "bool_val", "uint32": "uint32_val",
    "uint64": "uint64_val", "float16": "half_val", "bfloat16": "half_val", "complex64": "scomplex_val",
    "complex128": "dcomplex_val",
}  # fmt: skip
_MOST_BYTES = 1 << 33  # of a constant: a file that claims more is damaged or hostile

# Results of operators with several named ones, in order: inside a function "TopKV2:indices:0" reads one by its name.
_RESULTS = {
    "TopKV2": ("values", "indices"), "Unique": ("y", "idx"), "UniqueV2": ("y", "idx"),
    "UniqueWithCounts": ("y", "idx", "count"), "UniqueWithCountsV2": ("y", "idx", "count"),
    "FusedBatchNorm": ("y", "batch_mean", "batch_variance"), "FusedBatchNormV2": ("y", "batch_mean", "batch_variance"),
    "FusedBatchNormV3": ("y", "batch_mean", "batch_variance"), "TensorArrayV3": ("handle", "flow"),
    "TensorListPopBack": ("output_handle", "tensor"), "TensorArrayConcatV3": ("value", "lengths"),
    "TensorListConcatV2": ("tensor", "lengths"), "TensorListConcat": ("tensor", "lengths"),
    "LSTMBlockCell": ("i", "cs", "f", "o", "ci", "co", "h"), "NonMaxSuppressionV4": ("selected_indices",
    "valid_outputs"), "NonMaxSuppressionV5": ("selected_indices", "selected_scores", "valid_outputs"),
    "CombinedNonMaxSuppression": ("nmsed_boxes", "nmsed_scores", "nmsed_classes", "valid_detections"),
    "SparseReshape": ("output_indices", "output_shape"), "SparseFillEmptyRows": ("output_indices", "output_values",
    "empty_row_indicator", "reverse_index_map"), "Switch": ("output_false", "output_true"),
    "Merge": ("output", "value_index"), "SoftmaxCrossEntropyWithLogits": ("loss", "backprop"),
    "SparseSoftmaxCrossEntropyWithLogits": ("loss", "backprop"), "Qr": ("q", "r"), "Svd": ("s", "u", "v"),
    "GRUBlockCell": ("r", "u", "c", "h"),
}  # fmt: skip


@dataclass(frozen=True)
class Ref:
    """One result of a node."""

    name: str
    index: int = 0


@dataclass(frozen=True, eq=False)
class Node:
    """An operator of a graph."""

    name: str
    op: str
    inputs: tuple[Ref, ...]
    controls: tuple[str, ...]
    attrs: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes by name; of a function also the names of its arguments, and what it returns."""

    name: str
    nodes: Mapping[str, Node]
    arguments: tuple[str, ...] = ()
    results: tuple[Ref, ...] = ()
    functions: Mapping[str, Graph] = field(default_factory=dict)


@dataclass(frozen=True)
class Called:
    """A function that an attribute names, with its attributes."""

    name: str
    attrs: Mapping[str, Any]


def dtype_of(number: int, what: str) -> str:
    """Return a data type by its number; a reference to a variable has 100 more."""
    found = DTYPES.get(number - 100 if number > 100 else number)
    if found is None:
        raise TensorflowImportError(f"{what}: the data type {number} is unknown")
    return found


def shape_of(message: Any) -> tuple[int | None, ...] | None:
    """Return dimensions, None for unknown ones; None for an unknown rank."""
    if message.unknown_rank:
        return None
    return tuple(int(d.size) if d.size >= 0 else None for d in message.dim)


def array_of(tensor: Any, what: str) -> Array:
    """Return the elements of a constant; strings as objects of bytes."""
    dtype = dtype_of(tensor.dtype, what)
    shape = shape_of(tensor.shape)
    if shape is None or None in shape:
        raise TensorflowImportError(f"{what}: a constant whose shape is unknown")
    dims = [int(d) for d in shape if d is not None]
    if dtype == "string":
        return _filled(np.array(list(tensor.string_val), object), dims, what)
    if dtype not in _VALUES:
        raise TensorflowImportError(f"{what}: a constant of the type {dtype}")
    kind = np.dtype(getattr(ml_dtypes, dtype) if hasattr(ml_dtypes, dtype) else dtype)
    if tensor.content:
        if len(tensor.content) != math.prod(dims) * kind.itemsize:
            raise TensorflowImportError(
                f"{what}: {len(tensor.content)} bytes for {dtype} of the shape {tuple(dims)}: damaged or cut off"
            )
        return np.frombuffer(tensor.content, kind).reshape(dims)
    values = np.array(getattr(tensor, _VALUES[dtype]))
    if dtype in ("float16", "bfloat16"):
        values = values.astype(np.uint16).view(kind)
    elif dtype.startswith("complex"):
        values = values[0::2] + 1j * values[1::2]
    return _filled(values.astype(kind), dims, what)


def _filled(values: Array, dims: Sequence[int], what: str) -> Array:
    """Return elements in a shape; the last one stands for all that follow, and no element for zeros."""
    count = math.prod(dims)
    if count * values.itemsize > _MOST_BYTES:
        raise TensorflowImportError(f"{what}: a constant of {count * values.itemsize / 2**30:.3g} GiB; refusing")
    if values.size > max(count, 0):
        raise TensorflowImportError(f"{what}: {values.size} elements for the shape {tuple(dims)}")
    if values.size < count:
        last = values[-1] if values.size else (b"" if values.dtype == object else 0)
        values = np.concatenate([values, np.full(count - values.size, last, values.dtype)])
    return values.reshape(dims)


_SCALARS = ("s", "i", "f", "b", "placeholder")


def _value(message: Any, what: str) -> Any:
    """Return an attribute: a number, bytes, a data type's name, a shape, an array, a function, or a list of these."""
    for name in _SCALARS:
        if message.HasField(name):
            return getattr(message, name)
    if message.HasField("type"):
        return dtype_of(message.type, what)
    if message.HasField("shape"):
        return shape_of(message.shape)
    if message.HasField("tensor"):
        return message.tensor
    if message.HasField("func"):
        return Called(message.func.name, _attributes(message.func.attr, what))
    return _list(message.list, what)


def _list(values: Any, what: str) -> list[Any]:
    for name in ("s", "i", "f", "b"):
        if getattr(values, name):
            return list(getattr(values, name))
    if values.type:
        return [dtype_of(t, what) for t in values.type]
    if values.shape:
        return [shape_of(s) for s in values.shape]
    return [Called(f.name, _attributes(f.attr, what)) for f in values.func]


def _attributes(entries: Iterable[Any], what: str) -> dict[str, Any]:
    return {entry.key: _value(entry.value, what) for entry in entries}


def _refs(node: Any, arguments: Mapping[str, int] | None, ops: Mapping[str, str]) -> tuple[list[Ref], list[str]]:
    """Return the results that a node reads, and the nodes that only run before it."""
    inputs, controls = [], []
    for text in node.input:
        if text.startswith("^"):
            controls.append(text[1:])
        else:
            inputs.append(_ref(text, arguments is not None, ops))
    return inputs, controls


def _ref(text: str, in_function: bool, ops: Mapping[str, str]) -> Ref:
    name, *rest = text.split(":")
    if not in_function or len(rest) < 2:
        return Ref(name, int(rest[0]) if rest and rest[0].isdigit() else 0)
    results = _RESULTS.get(ops.get(name, ""), ())
    first = results.index(rest[0]) if rest[0] in results else 0
    return Ref(name, first + int(rest[1]))


def _nodes(messages: Iterable[Any], arguments: Mapping[str, int] | None) -> dict[str, Node]:
    messages = list(messages)
    ops = {m.name: m.op for m in messages}
    found: dict[str, Node] = {}
    for message in messages:
        what = f"TensorFlow node {message.name!r} ({message.op})"
        if message.name in found:
            raise TensorflowImportError(f"{what}: two nodes have this name")
        inputs, controls = _refs(message, arguments, ops)
        attrs = _attributes(message.attr, what)
        found[message.name] = Node(message.name, message.op, tuple(inputs), tuple(controls), attrs)
    return found


def _function(message: Any) -> Graph:
    arguments = {arg.name: i for i, arg in enumerate(message.signature.input_arg)}
    nodes = _nodes(message.node_def, arguments)
    returned = {entry.key: entry.value for entry in message.ret}
    ops = {n.name: n.op for n in nodes.values()}
    results = [_ref(returned[arg.name], True, ops) for arg in message.signature.output_arg if arg.name in returned]
    return Graph(message.signature.name, nodes, tuple(arguments), tuple(results))


def read_graph(source: Any, what: str) -> Graph:
    """Return the graph in the bytes of a ``GraphDef``, or in a message of this package."""
    message = parsed("Graph", source, what) if isinstance(source, bytes) else source
    functions = {f.signature.name: _function(f) for f in message.library.function}
    nodes = _nodes(message.node, None)
    if not nodes:
        raise TensorflowImportError(f"{what}: the graph has no nodes")
    return Graph("", nodes, functions=functions)
