"""The operation counts behind the benchmarks' shares of peak."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks import flops
from tilewright.testing import zoo


def write(path: Path, nodes: list[onnx.NodeProto], inputs: dict[str, list[int | str]], **weights: np.ndarray) -> Path:
    """An ONNX file of `nodes` with output ``y``."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    return path


def zeros(*shape: int) -> np.ndarray:
    """Float32 zeros."""
    return np.zeros(shape, np.float32)


def test_grouped_convolution_counts_two_per_multiply_add(tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=2, strides=[2, 2])
    path = write(tmp_path / "m.onnx", [node], {"x": [1, 6, 9, 9]}, w=zeros(4, 3, 3, 3))
    # 4 channels of 4x4 outputs, each from 3 channels of 3x3 inputs
    assert flops.count(path) == flops.Work(2 * 4 * 4 * 4 * 3 * 9, 4 * 4 * 3 * 9)


def test_transposed_convolution_counts_each_input_with_each_filter(tmp_path: Path) -> None:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])
    path = write(tmp_path / "m.onnx", [node], {"x": [1, 3, 5, 5]}, w=zeros(3, 7, 2, 2))
    assert flops.count(path).flops == 2 * 3 * 25 * 7 * 4


def test_transposed_gemm_and_batched_matmul_count_the_reduced_axis(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["g"], transA=1),
        helper.make_node("MatMul", ["g", "b"], ["y"]),
    ]
    path = write(tmp_path / "m.onnx", nodes, {"x": [11, 5]}, w=zeros(11, 3), b=zeros(2, 3, 7))
    assert flops.count(path).flops == 2 * (5 * 3 * 11) + 2 * (2 * 5 * 7 * 3)


def test_bidirectional_lstm_counts_four_gates_a_step_and_direction(tmp_path: Path) -> None:
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=5, direction="bidirectional")
    path = write(tmp_path / "m.onnx", [node], {"x": [3, 1, 7]}, w=zeros(2, 20, 7), r=zeros(2, 20, 5))
    assert flops.count(path).flops == 2 * 3 * 2 * 20 * (7 + 5)


def test_work_of_unknown_shapes_is_not_known(tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="head")
    path = write(tmp_path / "m.onnx", [node], {"x": ["n", 5]}, w=zeros(5, 3))
    assert flops.count(path) == flops.Work(None, 60)


def test_published_count_of_mobilenet_v2(tmp_path: Path) -> None:
    # torchvision states 0.30 G multiply-adds and 3,504,872 parameters (batch norms, folded here, among them)
    work = flops.count(zoo.export("mobilenet_v2", tmp_path))
    assert work.flops / 2e9 == pytest.approx(0.30, abs=0.005)
    assert 4 * 3_400_000 < work.weight_bytes < 4 * 3_504_872


@pytest.mark.parametrize("name", zoo.names())
def test_every_network_of_the_zoo_can_be_counted(name: str, tmp_path: Path) -> None:
    assert flops.count(zoo.export(name, tmp_path, **zoo.small_options(name))).flops > 0


def test_table_that_gather_picks_from_is_not_counted_as_streamed(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gather", ["t", "i"], ["g"]), helper.make_node("MatMul", ["g", "x"], ["y"])]
    indices = np.zeros(2, np.int64)
    path = write(tmp_path / "m.onnx", nodes, {"x": [5, 3]}, t=zeros(1000, 5), i=indices)
    assert flops.count(path) == flops.Work(2 * 2 * 5 * 3, indices.nbytes)
