"""Reads an ONNX file, checks the model, and expands operators that are defined by others."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx
import onnx.inliner

from tilewright.ir.errors import UnsupportedError
from tilewright.relay.frontend.onnx.context import OnnxImportError
from tilewright.relay.frontend.onnx.registry import DEFAULT_DOMAINS, find_converter

_OLDEST_OPSET = 7
# Protobuf cannot serialise more, and the checker works on the serialised form.
_PROTOBUF_LIMIT_BYTES = (1 << 31) - 1
# Initializers above this size are left out of what the checker reads: their contents do not concern it.
_CHECKED_ELEMENTS = 1 << 10
# Functions are written out level by level; ONNX's own nest three deep.
_MAX_FUNCTION_DEPTH = 8


def load_model(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Read an ONNX file and the external data beside it.

    Raises ``OnnxImportError`` for a file that is missing, is no ONNX model, is cut short, or names data outside
    its own folder.
    """
    file = Path(path)
    if not file.is_file():
        raise OnnxImportError(f"{file}: no such file")
    try:
        model = onnx.load(str(file), format="protobuf", load_external_data=False)
    except Exception as error:
        raise OnnxImportError(f"{file}: not an ONNX model, or cut short ({first_line(error)})") from None
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise OnnxImportError(f"{file}: not an ONNX model, or cut short: it holds no graph")
    _check_external_data(model, file)
    try:
        onnx.load_external_data_for_model(model, str(file.parent))
    except Exception as error:
        raise OnnxImportError(f"{file}: cannot read the model's external data: {first_line(error)}") from None
    return model


def _all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of the model: weights and attributes, of subgraphs and functions too."""
    graphs = [model.graph]
    nodes = [node for function in model.functions for node in function.node]
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
            nodes.extend(graph.node)
            continue
        for attribute in nodes.pop().attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                graphs.append(attribute.g)
            graphs.extend(attribute.graphs)


def _check_external_data(model: onnx.ModelProto, file: Path) -> None:
    """External data lies inside the model's folder, links followed, and is as long as the model says."""
    folder = file.parent.resolve()
    for tensor in _all_tensors(model):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        target = (folder / location).resolve()
        if os.path.isabs(location) or not target.is_relative_to(folder):
            raise OnnxImportError(
                f"{file}: tensor {tensor.name!r} names data outside the model's folder ({location}); "
                "refusing to read it"
            )
        if not target.is_file():
            raise OnnxImportError(f"{file}: tensor {tensor.name!r} needs {location or 'a file'}, which is not there")
        _check_extent(tensor.name, entries, file, target)


def _check_extent(name: str, entries: Mapping[str, str], file: Path, target: Path) -> None:
    size = target.stat().st_size
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries.get("length", str(max(size - offset, 0))))
    except ValueError:
        raise OnnxImportError(f"{file}: tensor {name!r}: the offset or length of its data is no number") from None
    if offset < 0 or length < 0 or offset + length > size:
        raise OnnxImportError(
            f"{file}: tensor {name!r} needs bytes {offset} to {offset + length} of {target.name}, "
            f"which has {size} bytes"
        )


def first_line(error: Exception) -> str:
    """The first line of an exception's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def checked_nodes(model: onnx.ModelProto, opset: int) -> list[onnx.NodeProto]:
    """The model's nodes, after ONNX's checker accepted it, with functions written out.

    An operator without a converter that ONNX defines by others is written out too: ``Swish(x)`` becomes
    ``Mul(x, Sigmoid(x))``. Raises ``OnnxImportError`` for a model that the checker rejects.
    """
    light = _without_large_weights(model)
    if light.ByteSize() > _PROTOBUF_LIMIT_BYTES:
        raise UnsupportedError("the model holds over 2 GiB beside its initializers, which ONNX's checker cannot read")
    try:
        onnx.checker.check_model(light)
    except Exception as error:
        raise OnnxImportError(f"the model fails ONNX's checker: {first_line(error)}") from None
    return list(_expanded(light, opset).graph.node)


def _expanded(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    if model.functions:
        model = onnx.inliner.inline_local_functions(model, True)
    for _ in range(_MAX_FUNCTION_DEPTH):
        wanted = {(n.domain, n.op_type) for n in model.graph.node if _is_defined_by_others(n, opset)}
        if not wanted:
            break
        try:
            model = onnx.inliner.inline_selected_functions(model, sorted(wanted), False, True)
        except Exception:
            # The inliner cannot write out some operators; they are then reported as unsupported.
            break
    return model


def _is_defined_by_others(node: onnx.NodeProto, opset: int) -> bool:
    if find_converter(node.domain, node.op_type, opset) is not None:
        return False
    domain = "" if node.domain in DEFAULT_DOMAINS else node.domain
    if not onnx.defs.has(node.op_type, domain):
        return False
    schema = onnx.defs.get_schema(node.op_type, domain)
    return bool(schema.has_function or schema.has_context_dependent_function)


def _without_large_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with large initializers as inputs: what the checker asks about, without copies of the weights."""
    large = [t for t in model.graph.initializer if t.name and _is_large(t)]
    if not large:
        return model
    light = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy_field(light, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _copy_field(light.graph, field.name, value)
    names = {t.name for t in large}
    light.graph.initializer.extend(t for t in model.graph.initializer if t.name not in names)
    declared = {value.name for value in model.graph.input}
    for tensor in large:
        if tensor.name not in declared:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            light.graph.input.append(value)
            declared.add(tensor.name)
        elif sum(t.name == tensor.name for t in large) > 1:
            raise OnnxImportError(f"the model has two initializers named {tensor.name!r}")
    return light


def _is_large(tensor: onnx.TensorProto) -> bool:
    # Asking for the length of raw_data would copy it.
    return tensor.HasField("raw_data") and math.prod(tensor.dims) > _CHECKED_ELEMENTS


def _copy_field(message: object, name: str, value: object) -> None:
    target = getattr(message, name)
    if hasattr(target, "extend"):
        target.extend(value)
    elif hasattr(target, "CopyFrom"):
        target.CopyFrom(value)
    else:
        setattr(message, name, value)


def model_opset(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operators that the model uses; an UnsupportedError where it is too old or new."""
    found = [o.version for o in model.opset_import if o.domain in DEFAULT_DOMAINS]
    opset = max(found, default=1)
    newest = onnx.defs.onnx_opset_version()
    if not _OLDEST_OPSET <= opset <= newest:
        raise UnsupportedError(
            f"the model uses ONNX opset {opset}; opsets {_OLDEST_OPSET} to {newest} are supported. "
            "Convert it with onnx.version_converter"
        )
    return int(opset)
