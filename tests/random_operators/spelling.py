"""Other spellings of a model, which exporters use and whose meaning is the same; the compiler is given one at times."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper
from tests.random_operators.draw import Draw


def respelled(draw: Draw, model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model in another spelling; None for its own."""
    kinds = [kind for kind in (_sparse_weights, _named_domain, _output_twice) if draw.chance(12)]
    if not kinds:
        return None
    other = onnx.ModelProto()
    other.CopyFrom(model)
    for kind in kinds:
        kind(other)
    return other


def _sparse_weights(model: onnx.ModelProto) -> None:
    """Initializers become sparse ones: what is not zero, with its places."""
    dense = list(model.graph.initializer)
    del model.graph.initializer[:]
    for tensor in dense:
        array = numpy_helper.to_array(tensor)
        if not array.ndim or array.dtype.name not in ("float32", "float64", "int64", "int32", "int8", "uint8"):
            model.graph.initializer.append(tensor)
            continue
        flat = array.reshape(-1)
        places = np.flatnonzero((flat != 0) | np.signbit(flat))
        values = numpy_helper.from_array(flat[places], tensor.name)
        model.graph.sparse_initializer.append(
            onnx.helper.make_sparse_tensor(values, numpy_helper.from_array(places.astype("int64")), array.shape)
        )


def _named_domain(model: onnx.ModelProto) -> None:
    """ONNX's operators say that they are: ai.onnx."""
    for opset in model.opset_import:
        opset.domain = opset.domain or "ai.onnx"
    for node in model.graph.node:
        node.domain = node.domain or "ai.onnx"


def _output_twice(model: onnx.ModelProto) -> None:
    """The first output is listed once more, behind all others."""
    model.graph.output.append(model.graph.output[0])
