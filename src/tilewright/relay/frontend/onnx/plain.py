"""Canonicalization of models: equivalent forms become one form for the importer.

Sparse tensors become dense ones; ONNX's own operators lose the name "ai.onnx" of their domain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.relay.frontend.onnx.context import MAX_CONSTANT_BYTES, OnnxImportError

_NAME_OF_OWN = "ai.onnx"


def parts_of(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """Yield the model's graph and functions, and the graphs in attributes of their nodes."""
    pending: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while pending:
        part = pending.pop()
        yield part
        for node in part.node:
            for attribute in node.attribute:
                pending.extend([attribute.g] if attribute.HasField("g") else attribute.graphs)


def plain_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model itself where it is in plain form, else a copy that is."""
    sparse = any(_has_sparse_tensors(part) for part in parts_of(model))
    named = any(_names_own_domain(part) for part in (model, *parts_of(model)))
    if not sparse and not named:
        return model
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    _unname_domain(plain)
    for part in parts_of(plain):
        _unname_domain(part)
        _make_dense(part)
    return plain


def _has_sparse_tensors(part: Any) -> bool:
    if isinstance(part, onnx.GraphProto) and part.sparse_initializer:
        return True
    return any(attribute.HasField("sparse_tensor") for node in part.node for attribute in node.attribute)


def _names_own_domain(part: Any) -> bool:
    imports, nodes = getattr(part, "opset_import", ()), getattr(part, "node", ())
    return any(o.domain == _NAME_OF_OWN for o in imports) or any(n.domain == _NAME_OF_OWN for n in nodes)


def _unname_domain(part: Any) -> None:
    for node in getattr(part, "node", ()):
        if node.domain == _NAME_OF_OWN:
            node.domain = ""
    imports: Any = getattr(part, "opset_import", ())
    own = [o for o in imports if o.domain in ("", _NAME_OF_OWN)]
    if own:
        newest = max(o.version for o in own)
        others = [o for o in imports if o.domain not in ("", _NAME_OF_OWN)]
        del imports[:]
        imports.extend([onnx.helper.make_opsetid("", newest), *others])


def _make_dense(part: Any) -> None:
    if isinstance(part, onnx.GraphProto):
        for sparse in part.sparse_initializer:
            name = sparse.values.name
            part.initializer.append(numpy_helper.from_array(dense(sparse, f"sparse initializer {name!r}"), name))
        del part.sparse_initializer[:]
    for node in part.node:
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor"):
                where = f"attribute {attribute.name!r} of the {node.op_type} giving {next(iter(node.output), '')!r}"
                whole = numpy_helper.from_array(dense(attribute.sparse_tensor, where))
                name = "value" if attribute.name == "sparse_value" else attribute.name
                attribute.CopyFrom(onnx.helper.make_attribute(name, whole))


def dense(sparse: onnx.SparseTensorProto, where: str) -> np.ndarray[Any, Any]:
    """Return all elements of a sparse tensor, whose indices count its elements or are rows of coordinates.

    Raises ``OnnxImportError`` that begins with ``where`` for indices out of range and for sizes that no model needs.
    """
    shape = tuple(sparse.dims)
    try:
        values = numpy_helper.to_array(sparse.values).reshape(-1)
        given = numpy_helper.to_array(sparse.indices)
    except Exception as error:
        raise OnnxImportError(f"{where}: {error}") from None
    size = math.prod(shape) * values.dtype.itemsize
    if min(shape, default=0) < 0 or size > MAX_CONSTANT_BYTES:
        raise OnnxImportError(f"{where} of shape {shape} has {size / 2**30:.3g} GiB; refusing")
    counted = given.ndim != 2
    rows, limits = (given.reshape(-1, 1), [math.prod(shape)]) if counted else (given, list(shape))
    if rows.shape != (len(values), len(limits)):
        raise OnnxImportError(f"{where} of shape {shape} has {len(values)} values and indices of shape {given.shape}")
    if np.any((rows < 0) | (rows >= np.array(limits))):
        raise OnnxImportError(f"{where} of shape {shape} has an index out of range")
    whole = np.zeros(shape, values.dtype)
    whole.reshape(-1)[rows[:, 0] if counted else np.ravel_multi_index(tuple(rows.T), shape)] = values
    return whole
