"""Bytes whose products other engines sum without saturating, on this processor."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


@cache
def saturates() -> bool:
    """Return whether ONNX Runtime's products of uint8 and int8 do, as ``vpmaddubsw`` does (AVX2 without VNNI).

    Its option ``session.x64quantprecision`` helps constant weights alone; PyTorch's kernels use the same instruction.
    """
    shape, kinds = (4, 4), {"a": TensorProto.UINT8, "b": TensorProto.INT8}
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        "product",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind in kinds.items()],
        [helper.make_tensor_value_info("y", TensorProto.INT32, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"a": np.full(shape, 255, "uint8"), "b": np.full(shape, 127, "int8")})
    return bool((found != 4 * 255 * 127).any())


def narrowed(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return tensors of int8 halved where sums of two products would saturate, and others as they are.

    Of seven bits the largest sum is 255 * 64 * 2, which fits into 16.
    """
    return values // np.int8(2) if values.dtype == np.int8 and values.size > 1 and saturates() else values


def narrowed_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model whose weights are ``narrowed``."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for weight in copy.graph.initializer:
        weight.CopyFrom(numpy_helper.from_array(narrowed(numpy_helper.to_array(weight)), weight.name))
    return copy
