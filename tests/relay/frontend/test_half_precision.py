"""ONNX operators that become several of Relay's compute float16 and bfloat16 in float32, and round once."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

HALVES = {
    TensorProto.FLOAT16: (np.dtype(np.float16), 11),
    TensorProto.BFLOAT16: (np.dtype(ml_dtypes.bfloat16), 8),
}
Shapes = tuple[tuple[int, ...], ...]

# Operator, shapes of its inputs, attributes; numbers are in [-2, 2), so that sums do not only grow.
NODES: list[tuple[str, Shapes, dict[str, Any]]] = [
    ("Conv", ((1, 32, 9, 7), (24, 32, 3, 3), (24,)), {"pads": [1, 1, 1, 1]}),
    ("ConvTranspose", ((1, 32, 5, 7), (32, 24, 3, 3), (24,)), {"strides": [2, 2]}),
    ("Gemm", ((5, 301), (17, 301), (17,)), {"transB": 1, "alpha": 0.3, "beta": 1.7}),
    ("MatMul", ((5, 301), (301, 17)), {}),
    ("Einsum", ((3, 5, 301), (3, 301, 7)), {"equation": "bij,bjk->ki"}),
    ("ReduceSumSquare", ((5, 1301),), {"axes": [1]}),
    ("ReduceL1", ((5, 1301),), {"axes": [1]}),
    ("ReduceL2", ((5, 1301),), {"axes": [1]}),
    ("ReduceLogSumExp", ((5, 1301),), {"axes": [1]}),
    ("LpNormalization", ((3, 701),), {"axis": 1}),
    ("LpPool", ((1, 3, 21, 23),), {"kernel_shape": [9, 11]}),
    ("LayerNormalization", ((3, 11, 13), (11, 13), (11, 13)), {"axis": 1}),
    ("LayerNormalization", ((3, 301), (301,), (301,)), {}),
    ("InstanceNormalization", ((2, 3, 11, 13), (3,), (3,)), {}),
    ("LSTM", ((6, 2, 19), (1, 28, 19), (1, 28, 7), (1, 56)), {"hidden_size": 7}),
    ("GRU", ((6, 2, 19), (1, 21, 19), (1, 21, 7), (1, 42)), {"hidden_size": 7}),
    ("RNN", ((6, 2, 19), (1, 7, 19), (1, 7, 7), (1, 14)), {"hidden_size": 7}),
    ("Sum", ((3, 17),) * 9, {}),
    ("Mean", ((3, 17),) * 9, {}),
    *((name, ((7, 301),), {}) for name in
      ("Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "Softplus", "Softsign", "Mish", "Softmax")),
]  # fmt: skip


def model(name: str, shapes: Shapes, attributes: dict[str, Any], element: int, weights: list[Any]) -> ModelProto:
    """A model of one operator; but for its first, its inputs are initializers."""
    names = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node(name, names, ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x0", element, shapes[0])],
        [helper.make_tensor_value_info("y", element, None)],
        [numpy_helper.from_array(w, n) for n, w in zip(names[1:], weights, strict=True)],
    )
    opset = 17 if name.startswith("Reduce") else 18
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("element", HALVES, ids=["float16", "bfloat16"])
@pytest.mark.parametrize("node", NODES, ids=lambda n: f"{n[0]}{len(n[1][0])}d")
def test_the_result_is_that_of_float64_rounded(node: tuple[str, Shapes, dict[str, Any]], element: int) -> None:
    name, shapes, attributes = node
    dtype, digits = HALVES[element]
    rng = np.random.default_rng(0)
    data, *weights = (rng.uniform(-2, 2, shape).astype(dtype) for shape in shapes)
    wide = model(name, shapes, attributes, TensorProto.DOUBLE, [w.astype("float64") for w in weights])
    (exact,) = ReferenceEvaluator(wide).run(None, {"x0": data.astype("float64")})

    module, params = relay.frontend.from_onnx(model(name, shapes, attributes, element, weights))
    run = graph_executor.GraphModule(relay.build(module, "llvm", params=params)["default"](tvm.cpu()))
    run.set_input("x0", data)
    run.run()
    found = run.get_output(0).numpy()
    assert found.dtype == dtype
    exponent = np.maximum(np.floor(np.log2(np.maximum(np.abs(exact), 1e-45))), -14)
    error = np.abs(found.astype("float64") - exact)
    scale = np.sqrt(np.prod(shapes[0])) * 2.0**-24 * max(np.abs(exact).max(), 1)  # what sums in float32 err by
    assert (error <= 1.001 * np.exp2(exponent - digits) + 4 * scale).all(), (error / np.exp2(exponent - digits)).max()


def test_results_between_operators_that_compute_in_float32_are_not_rounded() -> None:
    rng = np.random.default_rng(38)
    kernels = [rng.standard_normal((8, 8, 3, 3)).astype("float16") for _ in range(2)]
    nodes = [
        helper.make_node("Conv", ["x", "k0"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Add", ["b", "b"], ["c"]),
        helper.make_node("Conv", ["c", "k1"], ["y"], pads=[1, 1, 1, 1]),
    ]
    x = rng.standard_normal((1, 8, 6, 6)).astype("float16")
    kind = TensorProto.FLOAT16
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, x.shape)],
        [numpy_helper.from_array(k, f"k{i}") for i, k in enumerate(kernels)],
    )  # fmt: skip
    narrow = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    wide = ModelProto()
    wide.CopyFrom(narrow)
    for tensor in wide.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype("float32"), tensor.name))
    for value in (*wide.graph.input, *wide.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT
    exact = tvm.compile(wide)(x=x.astype("float32"))
    found = tvm.compile(narrow)(x=x)
    assert found.dtype == np.float16
    assert np.abs(found - exact).max() <= np.abs(exact).max() * 2.0**-11
    assert (found == exact.astype("float16")).mean() > 0.97  # but for sums in another order, which round otherwise


def test_normalized_sums_are_rounded_once_at_their_end() -> None:
    rng = np.random.default_rng(3)
    table, other = (rng.standard_normal((19, 48)).astype("float16") for _ in range(2))
    scale, shift = (rng.standard_normal(48).astype("float16") for _ in range(2))
    weight = rng.standard_normal((48, 33)).astype("float16")
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["a"]),
        helper.make_node("Gather", ["other", "ids"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("LayerNormalization", ["c", "scale", "shift"], ["d"]),
        helper.make_node("Slice", ["d", "first", "last", "axis"], ["e"]),
        helper.make_node("Pow", ["e", "three"], ["f"]),
        helper.make_node("ReduceMean", ["f", "axis"], ["g"]),
        helper.make_node("Sub", ["f", "g"], ["h"]),
        helper.make_node("MatMul", ["h", "weight"], ["y"]),
    ]
    values = {"table": table, "other": other, "scale": scale, "shift": shift, "weight": weight,
              "first": np.array([2]), "last": np.array([9]), "axis": np.array([0]), "three": np.float32(3)}  # fmt: skip

    def built(kind: int, dtype: str) -> ModelProto:
        wide = {n: v.astype(dtype) if v.dtype == np.float16 else v for n, v in values.items()}
        graph = helper.make_graph(
            nodes, "g", [helper.make_tensor_value_info("ids", TensorProto.INT64, (11,))],
            [helper.make_tensor_value_info("y", kind, (7, 33))],
            [numpy_helper.from_array(np.asarray(v), n) for n, v in wide.items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)

    ids = rng.integers(0, 19, 11)
    (exact,) = ReferenceEvaluator(built(TensorProto.DOUBLE, "float64")).run(None, {"ids": ids})
    found = tvm.compile(built(TensorProto.FLOAT16, "float16"))(ids=ids)
    assert found.dtype == np.float16
    assert np.abs(found - exact).max() <= np.abs(exact).max() * 2.0**-11 * 1.01


@pytest.mark.parametrize(("base", "exponent"), [("float16", "int32"), ("int32", "float16"), ("float32", "float16")])
def test_powers_have_the_type_of_their_base(base: str, exponent: str) -> None:
    kinds = {"float16": TensorProto.FLOAT16, "int32": TensorProto.INT32, "float32": TensorProto.FLOAT}
    inputs = [helper.make_tensor_value_info(n, kinds[kind], (5,)) for n, kind in (("x", base), ("p", exponent))]
    graph = helper.make_graph(
        [helper.make_node("Pow", ["x", "p"], ["y"])], "g", inputs,
        [helper.make_tensor_value_info("y", kinds[base], (5,))],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    x, p = np.arange(1, 6).astype(base), np.array([2, 3, 1, 0, 2]).astype(exponent)
    found = tvm.compile(model)(x=x, p=p)
    assert found.dtype == base
    np.testing.assert_allclose(found, np.arange(1.0, 6) ** p.astype("float64"), rtol=1e-3)
