"""A table of few bits that is looked up, and that a product multiplies with, is stored once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(4)


def tied(
    rows: int, columns: int, bits: int, block: int, zeros: bool = False, other: str = "", level: int = 1,
    scale: str = "float16",
) -> onnx.ModelProto:  # fmt: skip
    """GatherBlockQuantized and MatMulNBits of one table, but for a constant that is the product's ``other``."""
    blocks, each = -(-columns // block), 8 // bits
    codes = RNG.integers(0, 256, (rows, blocks, block // each), "uint8")
    scales = RNG.uniform(0.01, 0.02, (rows, blocks)).astype(scale).astype("float32")
    tensors = {"codes": codes.reshape(rows, -1), "scales": scales}
    if zeros:
        tensors["points"] = RNG.integers(0, 256, (rows, -(-blocks * bits // 8)), "uint8")
    given = {name: name for name in tensors}
    if other:
        tensors["different"] = tensors[other].copy()
        tensors["different"][rows - 1, -1] += 1
        given[other] = "different"
    form = {"bits": bits, "block_size": block}
    nodes = [
        helper.make_node("GatherBlockQuantized", ["codes", "ids", "scales", *tensors.keys() & {"points"}], ["embedded"],
                         domain="com.microsoft", gather_axis=0, quantize_axis=1, **form),
        helper.make_node("Reshape", [given["codes"], "shape"], ["matrix"]),
        helper.make_node("MatMulNBits", ["x", "matrix", given["scales"], *tensors.keys() & {"points"}], ["logits"],
                         domain="com.microsoft", K=columns, N=rows, accuracy_level=level, **form),
    ]  # fmt: skip
    value = helper.make_tensor_value_info
    inputs = [value("ids", TensorProto.INT64, (2, "n")), value("x", TensorProto.FLOAT, (3, columns))]
    outputs = [helper.make_empty_tensor_value_info(name) for name in ("embedded", "logits")]
    constants = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    constants.append(numpy_helper.from_array(np.array([rows, blocks, block // each]), "shape"))
    graph = helper.make_graph(nodes, "tied", inputs, outputs, constants)
    for output in graph.output:
        output.type.tensor_type.elem_type = TensorProto.FLOAT
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def feeds(rows: int, columns: int) -> dict[str, Array]:
    ids = np.array([[0, rows - 1, rows // 2, 1, rows - 1], [3, 2, -1, 4, 0]])
    return {"ids": ids, "x": RNG.standard_normal((3, columns)).astype("float32")}


def check(model: onnx.ModelProto, given: dict[str, Array]) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, given)
    found = tilewright.compile(model).run(given)
    np.testing.assert_array_equal(found["embedded"], wanted[0])
    np.testing.assert_allclose(found["logits"], wanted[1], rtol=0, atol=3e-6 * np.abs(wanted[1]).max())


def library_bytes(model: onnx.ModelProto, path: Path) -> int:
    tilewright.compile(model).save(path)
    return path.stat().st_size


@pytest.mark.parametrize(
    ("rows", "columns", "bits", "block", "zeros"),
    [
        (64, 64, 4, 16, False),
        (97, 96, 4, 32, True),
        (33, 64, 8, 32, False),
        (50, 32, 4, 32, False),
        (70, 128, 8, 64, True),
    ],
)
def test_rows_are_those_of_onnx_runtime(rows: int, columns: int, bits: int, block: int, zeros: bool) -> None:
    check(tied(rows, columns, bits, block, zeros), feeds(rows, columns))


@pytest.mark.parametrize("other", ["codes", "scales"])
def test_a_table_that_differs_in_one_number_is_another(other: str) -> None:
    check(tied(97, 64, 4, 16, other=other), feeds(97, 64))


@pytest.mark.parametrize("scale", ["float16", "float32"])
def test_the_library_has_the_table_once(scale: str, tmp_path: Path) -> None:
    once = library_bytes(tied(8192, 256, 4, 32, scale=scale), tmp_path / "once.so")
    twice = library_bytes(tied(8192, 256, 4, 32, scale=scale, other="codes"), tmp_path / "twice.so")
    assert once < twice - 0.98 * 8192 * 256 // 2
