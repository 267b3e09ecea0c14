"""Networks that ONNX Runtime quantizes for the tests."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.testing.quantized import quantize_model


def test_the_quantizers_advice_is_silenced_and_later_warnings_are_not(tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.ones((4, 3), "float32"), "w")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, m]) for n, m in (("x", 4), ("y", 3)))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "f.onnx")
    level = logging.getLogger().level
    quantize_model(tmp_path / "f.onnx", tmp_path / "q.onnx", {"x": np.ones((2, 4), "float32")})
    kinds = {node.op_type for node in onnx.load(tmp_path / "q.onnx").graph.node}
    assert kinds == {"QuantizeLinear", "DequantizeLinear", "MatMul"}
    assert logging.getLogger().level == level
