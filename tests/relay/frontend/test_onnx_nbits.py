"""MatMulNBits from ONNX files: what ONNX Runtime and numpy compute, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tests.relay.op.test_nbits import matrix, rounded

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.relay.frontend.onnx import backend
from tilewright.topi.nn import nbits

Array = np.ndarray[Any, Any]
DOMAIN = "com.microsoft"
COLUMNS = 13


class Weights:
    """Random weights of a product, as the operator's inputs have them."""

    def __init__(
        self, size: int, bits: int, block: int, zeros: str = "none", groups: bool = False, seed: int = 0
    ) -> None:
        rng = np.random.default_rng([seed, size, bits, block])
        self.size, self.bits, self.block = size, bits, block
        blocks = -(-size // block)
        self.codes = rng.integers(0, 256, (COLUMNS, blocks, -(-block * bits // 8)), dtype="uint8")
        self.scales = rng.uniform(0.01, 0.1, (COLUMNS, blocks)).astype("float32")
        self.points = None
        if zeros != "none":
            self.points = rng.integers(0, 1 << bits, (COLUMNS, blocks)).astype(
                "uint8" if zeros == "packed" else "float32"
            )
        self.groups = rng.permutation(np.arange(size) // block).astype("int32") if groups else None

    def inputs(self) -> list[Array | None]:
        """Packed weights, scales, zero points, group indices."""
        points = self.points
        if points is not None and points.dtype == np.uint8:
            points = nbits.bytes_of_codes(points, self.bits).reshape(-1)
        return [self.codes, self.scales.reshape(-1), points, self.groups]

    def matrix(self) -> Array:
        """The weight (columns, size) in float64."""
        plain = matrix(
            self.codes, np.ones_like(self.scales), np.zeros_like(self.scales), self.bits, self.block, self.size
        )
        groups = np.arange(self.size) // self.block if self.groups is None else self.groups
        zero = 1 << (self.bits - 1) if self.points is None else self.points.astype("float64")[:, groups]
        return (plain - zero) * self.scales.astype("float64")[:, groups]


def model_of(shape: tuple[int, ...], inputs: list[Array | None], dtype: str = "float32", **attributes: Any) -> Any:
    """A product of ``x``, of this shape, with constant inputs."""
    names = ["x", *("" if value is None else f"w{i}" for i, value in enumerate(inputs))]
    while not names[-1]:
        names.pop()
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("MatMulNBits", names, ["y"], domain=DOMAIN, name="product", **attributes)],
        "graph",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, (*shape[:-1], attributes["N"]))],
        [numpy_helper.from_array(value, f"w{i}") for i, value in enumerate(inputs) if value is not None],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def of(weights: Weights, shape: tuple[int, ...], level: int = 0, dtype: str = "float32") -> Any:
    form = {"K": weights.size, "N": COLUMNS, "bits": weights.bits, "block_size": weights.block}
    return model_of(shape, weights.inputs(), dtype, accuracy_level=level, **form)


def onnxruntimes(model: onnx.ModelProto, data: Array) -> Array:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": data})[0]


def numbers(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed", "floats"])
@pytest.mark.parametrize(("size", "block"), [(96, 32), (101, 16), (37, 64), (256, 128)])
def test_a_product_is_what_numpy_gives(bits: int, zeros: str, size: int, block: int) -> None:
    weights = Weights(size, bits, block, zeros)
    data = numbers(2, 3, size)
    found = backend.prepare(of(weights, data.shape)).run({"x": data})[0]
    expected = data @ weights.matrix().T
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed"])
@pytest.mark.parametrize(("size", "block"), [(96, 32), (101, 16), (256, 256)])
def test_a_product_is_as_close_to_float64_as_onnx_runtimes(bits: int, zeros: str, size: int, block: int) -> None:
    weights = Weights(size, bits, block, zeros)
    data = numbers(5, size)
    model = of(weights, data.shape)
    exact = data @ weights.matrix().T
    ours, theirs = (
        np.abs(y - exact).max() for y in (backend.prepare(model).run({"x": data})[0], onnxruntimes(model, data))
    )
    assert ours <= max(1.5 * theirs, 1e-6 * np.abs(exact).max())


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed"])
@pytest.mark.parametrize(("size", "block"), [(96, 32), (101, 16)])
def test_level_4_rounds_data_as_onnx_runtime_does(bits: int, zeros: str, size: int, block: int) -> None:
    weights = Weights(size, bits, block, zeros)
    data = numbers(3, size)
    found = backend.prepare(of(weights, data.shape, level=4)).run({"x": data})[0]
    expected = rounded(data, block) @ weights.matrix().T
    exact = data @ weights.matrix().T
    closest = min(np.abs(found - y).max() for y in (expected, exact))  # without a kernel, nothing is rounded
    assert closest < 5e-6 * np.abs(exact).max()


@pytest.mark.parametrize("level", range(5))
def test_every_accuracy_level(level: int) -> None:
    weights = Weights(64, 4, 32)
    data = numbers(1, 64)
    found = backend.prepare(of(weights, data.shape, level)).run({"x": data})[0]
    exact = data @ weights.matrix().T
    np.testing.assert_allclose(found, exact, rtol=0, atol=(0.02 if level == 4 else 2e-6) * np.abs(exact).max())


@pytest.mark.parametrize("zeros", ["none", "packed"])
@pytest.mark.parametrize(("size", "block"), [(64, 16), (53, 16)])
def test_columns_in_groups(zeros: str, size: int, block: int) -> None:
    weights = Weights(size, 4, block, zeros, groups=True)
    data = numbers(2, size)
    model = of(weights, data.shape)
    found = backend.prepare(model).run({"x": data})[0]
    expected = data @ weights.matrix().T
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())
    if zeros == "none":  # ONNX Runtime 1.2x ignores packed zero points beside group indices
        np.testing.assert_allclose(onnxruntimes(model, data), expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def test_a_bias() -> None:
    weights, bias = Weights(48, 4, 16), numbers(COLUMNS)
    data = numbers(2, 48)
    model = model_of(data.shape, [*weights.inputs(), bias], K=48, N=COLUMNS, bits=4, block_size=16)
    expected = data @ weights.matrix().T + bias
    np.testing.assert_allclose(backend.prepare(model).run({"x": data})[0], expected, rtol=0, atol=1e-4)


def test_half_precision() -> None:
    weights = Weights(48, 4, 16)
    weights.scales = weights.scales.astype("float16")
    data = numbers(2, 48).astype("float16")
    found = backend.prepare(of(weights, data.shape, dtype="float16")).run({"x": data})[0]
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, data.astype("float64") @ weights.matrix().T, rtol=1e-3, atol=1e-3)


def blocks_model(
    kind: int, axis: int, zeros: bool, half: bool, product: str, seed: int = 0
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model that dequantizes a matrix in blocks, and multiplies with it or looks up its rows; values of its input."""
    rng = np.random.default_rng([seed, kind, axis])
    size, columns, block = 130, 40, 16
    shape = (size, columns) if axis == 0 else (columns, size)
    low, high = {onnx.TensorProto.INT4: (-8, 8), onnx.TensorProto.UINT4: (0, 16), onnx.TensorProto.INT8: (-128, 128)}[
        kind
    ]
    of_blocks = tuple(-(-n // block) if i == axis else n for i, n in enumerate(shape))
    signs = rng.choice([-1, 1, 0], of_blocks, p=[0.4, 0.5, 0.1])  # as quantizers write them whose last code is -8
    scales = (rng.uniform(0.01, 0.1, of_blocks) * signs).astype("float16" if half else "float32")
    tensors = [
        helper.make_tensor("q", kind, shape, rng.integers(low, high, shape).ravel().tolist()),
        numpy_helper.from_array(scales, "s"),
    ]
    if zeros:
        tensors.append(helper.make_tensor("z", kind, of_blocks, rng.integers(low, high, of_blocks).ravel().tolist()))
    inputs = ["q", "s", *(["z"] if zeros else [])]
    nodes = [helper.make_node("DequantizeLinear", inputs, ["w"], axis=axis, block_size=block)]
    if product == "Gather":
        nodes.append(helper.make_node("Gather", ["w", "x"], ["y"]))
        value = rng.integers(-shape[0], shape[0], (2, 3))
    else:
        turned = {"transB": 1} if product == "Gemm" else {}
        nodes.append(helper.make_node(product, ["x", "w"], ["y"], **turned))
        value = rng.standard_normal((3, size)).astype(scales.dtype)
    kinds = [helper.np_dtype_to_tensor_dtype(d) for d in (value.dtype, scales.dtype)]
    graph = helper.make_graph(
        nodes, "graph", [helper.make_tensor_value_info("x", kinds[0], value.shape)],
        [helper.make_tensor_value_info("y", kinds[1], None)], tensors,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), {"x": value}


@pytest.mark.parametrize("kind", [onnx.TensorProto.INT4, onnx.TensorProto.UINT4, onnx.TensorProto.INT8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("product", "axis"), [("MatMul", 0), ("Gemm", 1), ("Gather", 1), ("Gather", 0)])
def test_a_matrix_that_is_dequantized_in_blocks(kind: int, zeros: bool, product: str, axis: int) -> None:
    model, values = blocks_model(kind, axis, zeros, False, product)
    wanted = ReferenceEvaluator(model).run(None, values)[0]
    found = backend.prepare(model).run(values)[0]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


def test_a_product_with_a_matrix_in_blocks_reads_its_codes() -> None:
    for half in (False, True):
        model, _ = blocks_model(onnx.TensorProto.INT4, 0, True, half, "MatMul")
        mod, params = relay.frontend.from_onnx(model)
        with tvm.transform.PassContext(opt_level=3):
            names = relay.build(mod, "llvm", params=params).build_report.implementations.values()
        assert "matmul_nbits_pack.cpu" in names


@pytest.mark.parametrize("kind", [onnx.TensorProto.INT4, onnx.TensorProto.UINT4])
@pytest.mark.parametrize(
    ("gathered", "blocked", "shape"),
    [(1, 0, (40, 6)), (0, 1, (6, 40, 3)), (2, 1, (3, 40, 6)), (1, 1, (40, 6)), (0, 0, (6, 5))],
)
def test_a_table_in_blocks_of_any_axis(kind: int, gathered: int, blocked: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng([kind, gathered, blocked])
    low, high = (-8, 8) if kind == onnx.TensorProto.INT4 else (0, 16)
    of_blocks = tuple(-(-n // 16) if i == blocked else n for i, n in enumerate(shape))
    codes, points = (rng.integers(low, high, s) for s in (shape, of_blocks))
    scales, places = rng.uniform(0.01, 0.1, of_blocks).astype("float32"), np.array([[0, 5, 2], [1, 4, -1]])
    tensors = [helper.make_tensor(n, kind, v.shape, v.ravel().tolist()) for n, v in (("q", codes), ("z", points))]
    tensors.append(numpy_helper.from_array(scales, "s"))
    axes = {"gather_axis": gathered, "quantize_axis": blocked, "block_size": 16}
    node = helper.make_node("GatherBlockQuantized", ["q", "x", "s", "z"], ["y"], domain=DOMAIN, **axes)
    infos = [helper.make_tensor_value_info("x", onnx.TensorProto.INT64, places.shape)]
    result = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    graph = helper.make_graph([node], "graph", infos, result, tensors)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    by_number = [np.repeat(v, 16, blocked).take(np.arange(shape[blocked]), blocked) for v in (points, scales)]
    expected = ((codes - by_number[0]) * by_number[1]).take(places, gathered)
    np.testing.assert_allclose(backend.prepare(model).run({"x": places})[0], expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(onnxruntimes(model, places), expected, rtol=1e-6, atol=1e-6)


FORM = {"K": 64, "N": COLUMNS, "bits": 4, "block_size": 32}


@pytest.mark.parametrize(
    ("change", "inputs", "message"),
    [
        ({"bits": 3}, {}, "weights of 3 bits; 2, 4 and 8 are supported"),
        ({"accuracy_level": 7}, {}, "attribute 'accuracy_level' is 7; it is 0 .* to 4"),
        ({"block_size": 24}, {}, "attribute 'block_size' is 24; it is a multiple of 16, or at least K, 64"),
        ({"block_size": 0}, {}, "attribute 'block_size' is 0"),
        ({"K": 128}, {}, r"data of shape \(2, 64\) does not have K = 128 columns|the packed weights"),
        ({}, {0: np.zeros((COLUMNS, 2, 15), "uint8")}, "the packed weights .* have 390 elements; .* take 416"),
        ({}, {0: np.zeros((COLUMNS, 2, 16), "int8")}, "the packed weights are int8; they are uint8"),
        ({}, {1: np.ones(COLUMNS, "float32")}, "the scales .* have 13 elements; .* take 26"),
        ({}, {2: np.zeros(5, "uint8")}, "the zero points .* have 5 elements; .* take 13"),
        ({}, {2: np.zeros(5, "float32")}, "the zero points .* have 5 elements; .* take 26"),
        ({}, {3: np.zeros(63, "int32")}, "the group indices .* have 63 elements; .* take 64"),
        ({}, {3: np.full(64, 2, "int32")}, "group indices are 2 to 2; there are groups 0 to 1"),
        ({}, {3: np.zeros(64, "int32")}, "groups of other sizes than block_size, 32"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], inputs: dict[int, Array], message: str) -> None:
    given = Weights(64, 4, 32).inputs()
    for index, value in inputs.items():
        given[index] = value
    with pytest.raises(TilewrightError, match=f"'product' .*{message}"):
        relay.frontend.from_onnx(model_of((2, 64), given, **{**FORM, **change}))
