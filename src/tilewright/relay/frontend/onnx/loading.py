"""Loading of ONNX files: reads and checks a model, and expands operators that are defined by others."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.external_data_helper
import onnx.inliner
import onnx.shape_inference

from tilewright.ir.errors import UnsupportedError
from tilewright.relay.frontend.onnx.attributes import has_plain_elements
from tilewright.relay.frontend.onnx.context import OnnxImportError
from tilewright.relay.frontend.onnx.functions import check_functions, with_subgraphs
from tilewright.relay.frontend.onnx.inline_weights import read_without_weights
from tilewright.relay.frontend.onnx.microsoft_quantized import split_dynamic_products
from tilewright.relay.frontend.onnx.plain import parts_of
from tilewright.relay.frontend.onnx.registry import DEFAULT_DOMAINS, find_converter
from tilewright.runtime.mapped_files import MappedFile
from tilewright.runtime.ndarray import NDArray, empty, numpy_dtype, numpy_view

_OLDEST_OPSET = 1
# Protobuf cannot serialise more, and the checker works on the serialised form.
_PROTOBUF_LIMIT_BYTES = (1 << 31) - 1
# Initializers above this size are left out of what the checker reads: their contents do not concern it.
_CHECKED_ELEMENTS = 1 << 10
# Bytes of weights that are read from the file to their place, without passing through the message.
_LEAST_OUTSIDE = 1 << 16
# Bytes of weights in a model from which its files are mapped; others are read at once and may be changed then.
_MAPPED_FROM = 1 << 25
_MAPPED_ELEMENT = 8  # the largest, in bytes, that arrays share
# Functions are written out level by level; ONNX's own nest three deep.
_MAX_FUNCTION_DEPTH = 8
_OF_MICROSOFT = frozenset({"SimplifiedLayerNormalization"})
_OWN_DOMAIN = "tilewright.written_out"


@dataclass(frozen=True)
class Weight:
    """Elements of an initializer, in the model's file or one beside it."""

    file: Path
    offset: int
    nbytes: int
    mapped: MappedFile | None = None

    def read(self, shape: Sequence[int], dtype: str) -> NDArray:
        """Return the array: a view of the mapped file, or read directly; no other copy of it is made."""
        itemsize = numpy_dtype(dtype).itemsize
        nbytes = math.prod(shape) * itemsize
        if nbytes != self.nbytes:
            raise ValueError(f"its data has {self.nbytes} bytes, and its shape takes {nbytes}")
        if self.mapped is not None and itemsize <= _MAPPED_ELEMENT:
            return self.mapped.array(self.offset, shape, dtype)
        array = empty(shape, dtype)
        with self.file.open("rb") as stream:
            stream.seek(self.offset)
            view = numpy_view(array, writable=True).reshape(-1).view(np.uint8)
            if stream.readinto(view.data) != self.nbytes:
                raise ValueError(f"{self.file.name} has become shorter")
        return array


@dataclass(frozen=True)
class ModelFile:
    """A model whose large weights are still in its files; ``weights`` has their places by initializer."""

    proto: onnx.ModelProto
    weights: Mapping[str, Weight]


def load_model(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Read an ONNX file and the external data beside it; see :func:`open_model`."""
    model, folder = _read_model(path)
    for tensor in _all_tensors(model):
        _load_external(tensor, folder)
    return model


def open_model(path: str | os.PathLike[str]) -> ModelFile:
    """Read an ONNX file except for large weights in it and in files beside it.

    Raises ``OnnxImportError`` for a file that is missing, is no ONNX model, is cut short, or names data outside
    its own folder.
    """
    model, folder = _read_model(path)
    weights: dict[str, Weight] = {}
    kept = {id(t): t for t in model.graph.initializer if _is_external(t) and _is_large(t) and has_plain_elements(t)}
    for tensor in _all_tensors(model):
        if id(tensor) not in kept:
            _load_external(tensor, folder)
    for tensor in kept.values():
        entries = {entry.key: entry.value for entry in tensor.external_data}
        file, offset = (folder / entries["location"]).resolve(), int(entries.get("offset", "0"))
        weights[tensor.name] = Weight(file, offset, int(entries.get("length", file.stat().st_size - offset)))
    return ModelFile(model, _mapped(weights))


def external_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files beside an ONNX file that hold data of it, in order of their names."""
    model, folder = _read_model(path)
    tensors = (tensor for tensor in _all_tensors(model) if _is_external(tensor))
    found = {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}
    return [folder / name for name in sorted(found)]


def _mapped(weights: dict[str, Weight]) -> dict[str, Weight]:
    """Return the weights with their files mapped, if they are large together."""
    if sum(weight.nbytes for weight in weights.values()) < _MAPPED_FROM:
        return weights
    files = {path: MappedFile(path) for path in {weight.file for weight in weights.values()}}
    return {name: replace(weight, mapped=files[weight.file]) for name, weight in weights.items()}


def no_model(given: Any) -> str:
    """Return why ``given`` cannot be imported, and what to do with it."""
    kind = type(given)
    remedies = {
        "bytes": "onnx.load_model_from_string(...) makes a model of it",
        "GraphProto": "onnx.helper.make_model(graph) makes a model of it",
        "InferenceSession": "give the path of the file that the session was made of",
    }
    remedy = remedies.get(kind.__name__, "")
    if any(base.__module__.startswith("torch.") for base in kind.__mro__):
        remedy = 'export it first: torch.onnx.export(module, example_inputs, "model.onnx")'
    text = f"from_onnx takes an onnx.ModelProto or the path of a file, not {kind.__module__}.{kind.__name__}"
    return f"{text}; {remedy}" if remedy else text


def model_of_bytes(data: bytes) -> onnx.ModelProto:
    """Return the model whose file holds ``data``; raise OnnxImportError where that is none."""
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:
        raise OnnxImportError(f"{len(data)} bytes: not an ONNX model, or cut short ({first_line(error)})") from None
    if not model.HasField("graph"):
        raise OnnxImportError(f"{len(data)} bytes: not an ONNX model, or cut short: it holds no graph")
    return model


def _read_model(path: str | os.PathLike[str]) -> tuple[onnx.ModelProto, Path]:
    """Return a model without its external data, which is checked, and the data's folder."""
    file = Path(path)
    if not file.is_file():
        raise OnnxImportError(f"{file}: {'is a directory, not a file' if file.is_dir() else 'no such file'}")
    try:
        model = read_without_weights(file, _LEAST_OUTSIDE)
    except Exception as error:
        raise OnnxImportError(f"{file}: not an ONNX model, or cut short ({first_line(error)})") from None
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise OnnxImportError(f"{file}: not an ONNX model, or cut short: it holds no graph")
    _check_external_data(model, file)
    return model, file.parent


def _is_external(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def _load_external(tensor: onnx.TensorProto, folder: Path) -> None:
    """Load external data into the tensor."""
    if not _is_external(tensor):
        return
    try:
        onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
    except Exception as error:
        raise OnnxImportError(
            f"cannot read the model's external data: tensor {tensor.name!r}: {first_line(error)}"
        ) from None
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor of the model: weights and attributes, of subgraphs and functions too."""
    for part in parts_of(model):
        sparse: list[onnx.SparseTensorProto] = []
        if isinstance(part, onnx.GraphProto):
            yield from part.initializer
            sparse += part.sparse_initializer
        for attribute in (attribute for node in part.node for attribute in node.attribute):
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            sparse += [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else attribute.sparse_tensors
        for pair in sparse:
            yield from (pair.values, pair.indices)


def _check_external_data(model: onnx.ModelProto, file: Path) -> None:
    """Check that external data is inside of the model's folder, links followed, and as long as the model says."""
    folder = file.parent.resolve()
    for tensor in _all_tensors(model):
        if not _is_external(tensor):
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        target = (folder / location).resolve()
        own = target == file.resolve()  # which may be a link itself
        if os.path.isabs(location) or not (own or target.is_relative_to(folder)):
            raise OnnxImportError(_outside(file, tensor.name, location))
        if not target.is_file():
            raise OnnxImportError(f"{file}: tensor {tensor.name!r} needs {location or 'a file'}, which is not there")
        _check_extent(tensor.name, entries, file, target)


def _outside(file: Path, name: str, location: str) -> str:
    """Return why data outside of the model's folder are not read, and what to do where they are links, as in model
    caches.
    """
    text = f"{file}: tensor {name!r} names data outside the model's folder ({location}); refusing to read it"
    inside = Path(os.path.normpath(file.parent / location)).is_relative_to(file.parent)
    if os.path.isabs(location) or not inside:
        return text
    copied = shlex.join(["cp", "-rL", str(file.parent), "model"])
    return f"{text}, as that is a link out of it. Copy what the links name, and give model/{file.name}: {copied}"


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
    """Return the first line of an exception's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def checked_nodes(model: onnx.ModelProto, opset: int) -> list[onnx.NodeProto]:
    """Return the model's nodes, after ONNX's checker accepted it, with functions expanded.

    An operator without a converter that ONNX defines by others is expanded too: ``Swish(x)`` becomes
    ``Mul(x, Sigmoid(x))``. Raises ``OnnxImportError`` for a model that the checker rejects.
    """
    skeleton = _without_large_weights(model)
    check_functions(skeleton)
    _name_domains(skeleton)
    split_dynamic_products(skeleton)
    if skeleton.ByteSize() > _PROTOBUF_LIMIT_BYTES:
        raise UnsupportedError("the model holds over 2 GiB beside its initializers, which ONNX's checker cannot read")
    try:
        onnx.checker.check_model(skeleton)
    except Exception as error:
        raise OnnxImportError(f"the model fails ONNX's checker: {first_line(error)}") from None
    return list(_expanded(skeleton, opset).graph.node)


def _name_domains(model: onnx.ModelProto) -> None:
    """Set the domain of operators that ONNX Runtime writes without it, which the checker does not know."""
    strange = [node for node in model.graph.node if not node.domain and node.op_type in _OF_MICROSOFT]
    for node in strange:
        node.domain = "com.microsoft"
    if strange and all(o.domain != "com.microsoft" for o in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))


_Kind = tuple[str, str]


def _kinds(model: onnx.ModelProto) -> set[_Kind]:
    return {(node.domain, node.op_type) for node in model.graph.node}


def _expanded(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    if model.functions:
        model = onnx.inliner.inline_local_functions(model, True)
    expander = _Expander(model, opset)
    found = expander.expand(model, frozenset())
    strange = expander.missing(found) - _kinds(model)
    if not strange:
        return found
    # An operator whose parts are not supported either stays as it is, to be reported by its own name.
    kept = set()
    for kind in sorted(expander.defined_by_others(model)):
        others = expander.defined_by_others(model) - {kind}
        if expander.missing(expander.expand(model, frozenset(others))) - _kinds(model):
            kept.add(kind)
    return expander.expand(model, frozenset(kept))


def _name_written_out(model: onnx.ModelProto, written: onnx.ModelProto) -> None:
    """Name the nodes that an operator of ``model`` was written out as after it: users know no other name."""
    givers = {output: node for node in model.graph.node for output in node.output if output}
    giver = None
    for node in reversed(written.graph.node):  # a definition ends with what gives its results
        giver = next((givers[output] for output in node.output if output in givers), giver)
        if giver is None or node.op_type == giver.op_type:
            continue
        for part in with_subgraphs([node]):
            part.name = part.name or giver.name or giver.output[0]


def _types_of_weights(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the types of initializers that the graph does not state; the inliner does not look at them."""
    stated = {v.name for v in (*graph.input, *graph.value_info)}
    weights = [t for t in graph.initializer if t.name not in stated]
    return [onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in weights]


class _Expander:
    """Expander of operators that have no converter and that ONNX defines by others."""

    def __init__(self, model: onnx.ModelProto, opset: int) -> None:
        self.opset = opset
        self.versions = {o.domain: o.version for o in model.opset_import} | dict.fromkeys(DEFAULT_DOMAINS, opset)

    def missing(self, model: onnx.ModelProto) -> set[_Kind]:
        """Return the operators without a converter."""
        return {k for k in _kinds(model) if find_converter(*k, self.opset) is None}

    def defined_by_others(self, model: onnx.ModelProto) -> set[_Kind]:
        """Return the operators without a converter that have a definition."""
        schemas: dict[_Kind, Any] = {kind: self._schema(kind) for kind in self.missing(model)}
        return {k for k, s in schemas.items() if s and (s.has_function or s.has_context_dependent_function)}

    def _schema(self, kind: _Kind) -> onnx.defs.OpSchema | None:
        domain, name = kind
        version = self.versions.get(domain, 1)
        domain = "" if domain in DEFAULT_DOMAINS else domain
        return onnx.defs.get_schema(name, version, domain) if onnx.defs.has(name, version, domain) else None

    def expand(self, model: onnx.ModelProto, kept: frozenset[_Kind]) -> onnx.ModelProto:
        """Return the model with all but the operators ``kept`` expanded."""
        for _ in range(_MAX_FUNCTION_DEPTH):
            wanted = self.defined_by_others(model) - kept
            if not wanted:
                break
            model = self._with_default_attributes(model, wanted)
            model.graph.value_info.extend(_types_of_weights(model.graph))
            try:
                written = onnx.inliner.inline_selected_functions(model, sorted(wanted), False, True)
            except Exception:
                try:
                    written = onnx.inliner.inline_local_functions(self._with_own_functions(model, wanted))
                except Exception:
                    # What cannot be written out is reported as unsupported.
                    break
            _name_written_out(model, written)
            model = written
        return model

    def _with_own_functions(self, model: onnx.ModelProto, wanted: Collection[_Kind]) -> onnx.ModelProto:
        """Add definitions as functions of the model, one for each node.

        The inliner itself refuses a node whose definition depends on the inputs' types when it omits an input before
        the last, and before onnx 1.19 it knows no operators' definitions.
        """
        inferred = onnx.shape_inference.infer_shapes(model).graph
        types = {v.name: v.type for v in (*inferred.input, *inferred.value_info, *inferred.output)}
        types |= {t.name: onnx.helper.make_tensor_type_proto(t.data_type, list(t.dims)) for t in inferred.initializer}
        written = onnx.ModelProto()
        written.CopyFrom(model)
        for index, node in enumerate(written.graph.node):
            schema: Any = self._schema((node.domain, node.op_type))
            if (node.domain, node.op_type) not in wanted:
                continue
            function = onnx.FunctionProto()
            if schema.has_context_dependent_function:
                given = [types[name].SerializeToString() if name else b"" for name in node.input]
                function.ParseFromString(schema.get_context_dependent_function(node.SerializeToString(), given))
            else:
                version = max(v for v in schema.function_opset_versions if v <= self.opset)
                function.ParseFromString(schema.get_function_with_opset_version(version))
            function.domain = node.domain = _OWN_DOMAIN
            function.name = node.op_type = f"{node.op_type}_{index}"
            written.functions.append(function)
        written.opset_import.append(onnx.helper.make_opsetid(_OWN_DOMAIN, 1))
        return written

    def _with_default_attributes(self, model: onnx.ModelProto, wanted: Collection[_Kind]) -> onnx.ModelProto:
        """Write default values into nodes: a function's body refers to attributes, which the inliner looks up
        there.
        """
        written = onnx.ModelProto()
        written.CopyFrom(model)
        for node in written.graph.node:
            schema = self._schema((node.domain, node.op_type))
            if (node.domain, node.op_type) not in wanted or schema is None:
                continue
            given = {attribute.name for attribute in node.attribute}
            for name, attribute in sorted(schema.attributes.items()):
                if name not in given and attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
                    node.attribute.append(attribute.default_value)
        return written


def _without_large_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy with large initializers as inputs, so that the checker gets no copies of the weights.

    Values without a shape, which the checker refuses and for which ``from_onnx`` has a parameter, get one of rank 0.
    """
    large = [t for t in model.graph.initializer if t.name and _is_large(t)]
    skeleton = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy_field(skeleton, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _copy_field(skeleton.graph, field.name, value)
    names = {t.name for t in large}
    skeleton.graph.initializer.extend(t for t in model.graph.initializer if t.name not in names)
    declared = {value.name for value in model.graph.input}
    seen: set[str] = set()
    for tensor in large:
        if tensor.name in seen:
            raise OnnxImportError(f"the model has two initializers named {tensor.name!r}")
        seen.add(tensor.name)
        if tensor.name not in declared:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            skeleton.graph.input.append(value)
    for value in (*skeleton.graph.input, *skeleton.graph.output):
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.SetInParent()
    return skeleton


def _is_large(tensor: onnx.TensorProto) -> bool:
    # Asking for the length of raw_data would copy it.
    return (tensor.HasField("raw_data") or _is_external(tensor)) and math.prod(tensor.dims) > _CHECKED_ELEMENTS


def _copy_field(message: object, name: str, value: object) -> None:
    target = getattr(message, name)
    if hasattr(target, "extend"):
        target.extend(value)
    elif hasattr(target, "CopyFrom"):
        target.CopyFrom(value)
    else:
        setattr(message, name, value)


def model_opset(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operators that the model uses; raise UnsupportedError if it is too old or
    new.
    """
    found = [o.version for o in model.opset_import if o.domain in DEFAULT_DOMAINS]
    newest = onnx.defs.onnx_opset_version()
    opset = max(found, default=newest if model.opset_import else 1)  # one that uses other domains alone has none
    if not _OLDEST_OPSET <= opset <= newest:
        remedy = f"Install a newer onnx than {onnx.__version__}, or convert it" if opset > newest else "Convert it"
        raise UnsupportedError(
            f"the model uses ONNX opset {opset}; opsets {_OLDEST_OPSET} to {newest} are supported. "
            f"{remedy} with onnx.version_converter"
        )
    return int(opset)
