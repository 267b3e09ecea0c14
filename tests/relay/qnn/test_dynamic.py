"""Networks quantized as they run: DynamicQuantizeLinear in front of each layer, its scales and zero points computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

Array = np.ndarray[Any, Any]
WEIGHTS = [np.random.default_rng(i).integers(-120, 121, shape, "int8") for i, shape in enumerate([(6, 8), (8, 3)])]
STEP = np.float32(0.01)


def quantized(x: Array) -> tuple[Array, Array, Array]:
    """DynamicQuantizeLinear by its definition; of zeros alone the scale is 1, as in ONNX Runtime."""
    low, high = np.minimum(x.min(initial=0), 0), np.maximum(x.max(initial=0), 0)
    scale = np.float32(1) if low == high else np.float32((high - low) / np.float32(255))
    zero = np.uint8(np.rint(np.clip(-low / scale, 0, 255)))
    return np.uint8(np.clip(np.rint(x / scale) + zero, 0, 255)), scale, zero


def in_numpy(x: Array) -> Array:
    """Two layers."""
    for i, weight in enumerate(WEIGHTS):
        numbers, scale, zero = quantized(x)
        x = np.float32((numbers.astype(int) - zero) @ weight.astype(int)) * (scale * STEP) + np.float32(i + 1)
    return x


def two_layers(rows: int | str) -> onnx.ModelProto:
    """What ``onnxruntime.quantization.quantize_dynamic`` makes of two layers."""
    nodes, name = [], "x"
    weights = [numpy_helper.from_array(STEP, "step")]
    for i, weight in enumerate(WEIGHTS):
        weights += [numpy_helper.from_array(weight, f"w{i}"), numpy_helper.from_array(np.float32(i + 1), f"b{i}")]
        q, s, z, sums, floats, scale, scaled = (f"{part}{i}" for part in ("q", "s", "z", "i", "f", "c", "m"))
        nodes += [
            helper.make_node("DynamicQuantizeLinear", [name], [q, s, z]),
            helper.make_node("MatMulInteger", [q, f"w{i}", z], [sums]),
            helper.make_node("Cast", [sums], [floats], to=TensorProto.FLOAT),
            helper.make_node("Mul", [s, "step"], [scale]),
            helper.make_node("Mul", [floats, scale], [scaled]),
            helper.make_node("Add", [scaled, f"b{i}"], [name := f"y{i}"]),
        ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 6])
    result = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "layers", [given], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def inputs() -> Sequence[Array]:
    """Numbers, zeros, numbers above 0 alone, and one alone."""
    rng = np.random.default_rng(22)
    normal = rng.standard_normal((4, 6)).astype("float32")
    return normal, np.zeros_like(normal), np.abs(normal) + 1, np.full_like(normal, -3)


def test_two_layers_quantized_dynamically_are_those_of_numpy() -> None:
    mod, params = relay.frontend.from_onnx(two_layers(4))
    executor = graph_executor.GraphModule(relay.build(mod, "llvm", params=params)["default"](tvm.cpu()))
    for x in inputs():
        executor.run(x=x)
        np.testing.assert_allclose(executor.get_output(0).numpy(), in_numpy(x), rtol=1e-5, atol=1e-5)


def test_two_layers_of_a_named_number_of_rows_are_those_of_numpy() -> None:
    mod, params = relay.frontend.from_onnx(two_layers("rows"))
    executable = relay.vm.compile(mod, "llvm", params=params)
    machine = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())
    for x in (*inputs(), inputs()[0][:1]):
        np.testing.assert_allclose(machine.run(x).numpy(), in_numpy(x), rtol=1e-5, atol=1e-5)


def integers(dtypes: tuple[str, str], zero: Any, rows: int = 5) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A MatMulInteger with a constant second factor and the zero point ``zero`` for it, a number or one a column."""
    rng = np.random.default_rng(37)
    ends = [np.iinfo(t) for t in dtypes]
    a, b = (
        rng.integers(e.min, e.max, s, t, endpoint=True)
        for e, s, t in zip(ends, [(rows, 7), (7, 9)], dtypes, strict=True)
    )
    weights = [numpy_helper.from_array(b, "b"), numpy_helper.from_array(np.asarray(zero, dtypes[1]), "bz")]
    weights.append(numpy_helper.from_array(np.asarray(ends[0].max, dtypes[0]), "az"))
    node = helper.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])
    given = helper.make_tensor_value_info("a", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
    graph = helper.make_graph(
        [node], "g", [given], [helper.make_tensor_value_info("y", TensorProto.INT32, None)], weights
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), {"a": a}


@pytest.mark.parametrize("zero", [0, 3, list(range(9))], ids=["zero", "number", "columns"])
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8")])
def test_products_of_integers_are_numpys(dtypes: tuple[str, str], zero: Any) -> None:
    model, inputs = integers(dtypes, zero)
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=3):
        executor = graph_executor.GraphModule(relay.build(mod, "llvm", params=params)["default"](tvm.cpu()))
    executor.run(**inputs)
    b = numpy_helper.to_array(model.graph.initializer[0]).astype(int)
    expected = (inputs["a"].astype(int) - np.iinfo(dtypes[0]).max) @ (b - np.asarray(zero))
    np.testing.assert_array_equal(executor.get_output(0).numpy(), expected)


def test_products_of_integers_multiply_bytes() -> None:
    mod, params = relay.frontend.from_onnx(two_layers(4))
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, "llvm -mcpu=cascadelake", params=params)
    assert lib.get_lib().get_source("asm").count("vpdpbusd") >= len(WEIGHTS)
    assert all(p.numpy().nbytes <= 64 * 64 for p in lib.get_params().values())
