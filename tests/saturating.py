"""Whether other engines' products of bytes saturate on this processor, where they are no oracle."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper


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


def skip_where_oracles_saturate() -> None:
    """Skip a test that compares sums of products of bytes with ONNX Runtime or PyTorch, where theirs are wrong."""
    if saturates():
        pytest.skip("ONNX Runtime and PyTorch saturate products of bytes on this processor, which has no VNNI")
