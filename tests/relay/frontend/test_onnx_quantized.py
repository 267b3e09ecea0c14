"""Operators on tensors of integers give ONNX Runtime's integers, exactly or within a step; damage is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.saturating import narrowed

from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.relay.frontend.onnx import backend

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)
MICROSOFT = "com.microsoft"


def integers(dtype: str, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, endpoint=True, dtype=dtype)


def scale(*values: float) -> Array:
    return np.array(values if len(values) > 1 else values[0], "float32")


def zero(dtype: str, value: int | None = None) -> Array:
    return np.array((3 if dtype == "int8" else 131) if value is None else value, dtype)


def model_of(
    operator: str, inputs: list[Array | None], fed: tuple[int, ...] = (0,), domain: str = MICROSOFT, **attributes: Any
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one node named ``layer``; and the inputs that are fed, all others being weights."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    given = {n: v for n, v in zip(names, inputs, strict=True) if v is not None}
    feeds = {n: v for n, v in given.items() if int(n[1:]) in fed}
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], name="layer", domain=domain, **attributes)],
        "graph",
        [helper.make_tensor_value_info(n, kind(v.dtype), v.shape) for n, v in feeds.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, n) for n, v in given.items() if n not in feeds],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds


def compare(operator: str, inputs: list[Array | None], steps: int = 0, **options: Any) -> None:
    """Run one node here and in ONNX Runtime: integers differ by ``steps`` at most, floats by 1e-5 of the largest."""
    model, feeds = model_of(operator, [v if v is None else narrowed(v) for v in inputs], **options)
    model.graph.output[0].CopyFrom(helper.make_empty_tensor_value_info("y"))
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    settings.intra_op_num_threads = 1  # with more, an LSTM quantizes the share of each apart
    settings.add_session_config_entry("session.x64quantprecision", "1")  # or sums of products saturate on some
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, feeds)
    model.graph.output[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(want.dtype)
    (have,) = backend.prepare(model).run(feeds)
    assert have.shape == want.shape and have.dtype == want.dtype
    if want.dtype.kind == "f":
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-5 * max(1, np.abs(want).max(initial=0)))
    else:
        assert np.abs(have.astype(int) - want.astype(int)).max(initial=0) <= steps


def convolution(data: str, weight: str, shape: tuple[int, ...], kernel: tuple[int, ...], each: bool) -> list[Any]:
    steps = RNG.uniform(0.001, 0.02, kernel[0] if each else 1).astype("float32")
    point = np.zeros(len(steps), weight) if weight == "int8" else np.full(len(steps), 120, weight)
    bias = RNG.integers(-9000, 9000, kernel[0], dtype="int32")
    given = [integers(data, *shape), scale(0.02), zero(data), integers(weight, *kernel), steps, point]
    return [*given, scale(0.4), zero(data, 20), bias]


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize(("data", "weight"), [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_convolutions_are_exact(data: str, weight: str, each: bool) -> None:
    inputs = convolution(data, weight, (2, 5, 7, 6), (9, 5, 3, 3), each)
    compare("QLinearConv", inputs, domain="", pads=[1, 1, 1, 1], strides=[2, 1])


def test_convolutions_without_bias_in_groups_and_of_one_dimension() -> None:
    grouped = convolution("uint8", "int8", (1, 4, 6, 5), (4, 1, 3, 3), True)
    compare("QLinearConv", grouped[:8], domain="", group=4, auto_pad="SAME_UPPER")
    compare("QLinearConv", convolution("uint8", "int8", (1, 3, 9), (5, 3, 2), False), domain="", dilations=[2])


def test_convolutions_whose_channels_are_last() -> None:
    compare("QLinearConv", convolution("uint8", "int8", (1, 6, 5, 3), (4, 3, 3, 3), True), channels_last=1)


def test_weights_and_scales_that_are_fed() -> None:
    inputs = convolution("uint8", "int8", (1, 3, 6, 5), (4, 3, 3, 3), False)
    inputs[4], inputs[5] = inputs[4].reshape(()), inputs[5].reshape(())
    compare("QLinearConv", inputs, domain="", fed=(0, 1, 3))


@pytest.mark.parametrize("weight", ["int8", "uint8"])
@pytest.mark.parametrize("data", ["int8", "uint8"])
@pytest.mark.parametrize(("inner", "outer", "group"), [(64, 64, 1), (3, 5, 1), (6, 6, 6)])
def test_convolutions_of_integers(data: str, weight: str, inner: int, outer: int, group: int) -> None:
    torch = pytest.importorskip("torch")
    x, w = integers(data, 2, inner, 5, 7), integers(weight, outer, inner // group, 3, 3)
    points = zero(data), integers(weight, outer) if group == 1 else zero(weight)
    model, feeds = model_of("ConvInteger", [x, w, *points], fed=(0, 2), domain="", pads=[1, 0, 1, 2], group=group)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    (have,) = backend.prepare(model).run(feeds)
    wide = torch.tensor(x.astype("float64") - points[0]), torch.tensor(w - points[1].reshape(-1, 1, 1, 1) * 1.0)
    want = torch.nn.functional.conv2d(torch.nn.functional.pad(wide[0], (0, 2, 1, 1)), wide[1], groups=group)
    np.testing.assert_array_equal(have, want.numpy().astype("int32"))


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6)])
@pytest.mark.parametrize("constant", [False, True])
def test_matrix_products_are_exact(shape: tuple[int, ...], constant: bool) -> None:
    inputs = [
        integers("uint8", *shape),
        scale(0.02),
        zero("uint8"),
        integers("int8", 6, 5),
        scale(0.01),
        zero("int8", 0),
    ]
    compare("QLinearMatMul", [*inputs, scale(0.3), zero("uint8", 255)], domain="", fed=(0,) if constant else (0, 3))


def test_matrix_products_with_a_scale_for_each_column() -> None:
    steps = RNG.uniform(0.001, 0.02, 5).astype("float32")
    inputs = [integers("uint8", 4, 6), scale(0.02), zero("uint8"), integers("int8", 6, 5), steps, np.zeros(5, "int8")]
    compare("QLinearMatMul", [*inputs, scale(0.3), zero("uint8", 0)], domain="")


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("quantized", [False, True])
def test_gemm(turned: int, quantized: bool) -> None:
    weight = integers("int8", 5, 6) if turned else integers("int8", 6, 5)
    steps = RNG.uniform(0.001, 0.02, 5).astype("float32")
    inputs = [integers("uint8", 4, 6), scale(0.02), zero("uint8"), weight, steps, np.zeros(5, "int8")]
    inputs.append(RNG.integers(-9000, 9000, 5, dtype="int32"))
    compare("QGemm", [*inputs, *([scale(0.3), zero("uint8", 9)] if quantized else [])], transB=turned)
    compare("QGemm", [*inputs[:4], scale(0.01), zero("int8", 0)], transB=turned, alpha=0.5)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
def test_operators_of_two_tensors_are_within_a_step(operator: str, dtype: str) -> None:
    result = scale(0.2 if operator == "QLinearAdd" else 1.3)
    for shapes in (((2, 3, 5), (2, 3, 5)), ((2, 3, 5), (5,)), ((2, 1, 5), (3, 1)), ((), (4,))):
        a, b = (integers(dtype, *s) for s in shapes)
        compare(
            operator,
            [a, scale(0.1), zero(dtype), b, scale(0.05), zero(dtype, 7), result, zero(dtype, 3)],
            1,
            fed=(0, 3),
        )


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("point", [2, 3])
def test_halves_round_with_the_zero_point(operator: str, dtype: str, point: int) -> None:
    a, b = integers(dtype, 200), np.full(1, 2, dtype)
    step = scale(0.5 if operator == "QLinearAdd" else 0.25)
    compare(operator, [a, step, zero(dtype, 0), b, scale(1), zero(dtype, 0), scale(1), zero(dtype, point)])


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_operators_of_one_tensor_are_within_a_step(dtype: str) -> None:
    every = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, dtype=dtype)
    given = [every, scale(0.05), zero(dtype)]
    compare("QLinearSigmoid", [*given, scale(1 / 256), zero(dtype, np.iinfo(dtype).min)], 1)
    compare("QLinearLeakyRelu", [*given, scale(0.04), zero(dtype, 0)], 1, alpha=0.1)
    table = [integers(dtype, 3, 10), scale(0.1), zero(dtype), scale(1 / 256), zero(dtype, np.iinfo(dtype).min)]
    compare("QLinearSoftmax", table, 1, axis=-1, opset=13)
    compare("QLinearSoftmax", [integers(dtype, 3, 2, 5), *table[1:]], 1, axis=1, opset=12)


@pytest.mark.parametrize("last", [0, 1])
def test_means_of_windows_are_within_a_step(last: int) -> None:
    shape = (2, 7, 6, 3) if last else (2, 3, 7, 6)
    given = [integers("uint8", *shape), scale(0.05), zero("uint8"), scale(0.03), zero("uint8", 12)]
    compare("QLinearGlobalAveragePool", given, 1, channels_last=last)
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0], "channels_last": last}
    compare("QLinearAveragePool", given, 1, **window)
    compare("QLinearAveragePool", given, 1, count_include_pad=1, **window)


@pytest.mark.parametrize("keepdims", [0, 1])
def test_means_of_axes_are_those_of_whole_numbers(keepdims: int) -> None:
    """Against numpy: ONNX Runtime has the operator's definition, and no kernel for it."""
    data = integers("uint8", 2, 4, 5)
    inputs = [data, scale(0.5), zero("uint8", 10), scale(0.25), zero("uint8", 3)]
    model, feeds = model_of("QLinearReduceMean", inputs, axes=[1], keepdims=keepdims)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT8
    (found,) = backend.prepare(model).run(feeds)
    sums = (data.astype(int) - 10).sum(axis=1, keepdims=bool(keepdims))
    np.testing.assert_array_equal(found, np.clip(np.rint(sums * 0.5) + 3, 0, 255))


def test_joined_and_chosen_tensors_are_within_a_step() -> None:
    parts = [integers("uint8", 2, n, 3) for n in (1, 4)]
    given = [
        scale(0.06),
        zero("uint8", 100),
        parts[0],
        scale(0.06),
        zero("uint8", 100),
        parts[1],
        scale(0.1),
        zero("uint8"),
    ]
    compare("QLinearConcat", given, 1, fed=(2, 5), axis=1)
    where = [RNG.integers(0, 2, (2, 4, 1)).astype(bool), parts[1], scale(0.05), zero("uint8"), integers("uint8", 3)]
    compare("QLinearWhere", [*where, scale(0.1), zero("uint8", 0), scale(0.09), zero("uint8", 50)], 1, fed=(0, 1, 4))


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lstm_of_quantized_weights(direction: str, each: bool) -> None:
    steps, batch, inner, hidden, ways = 3, 2, 6, 5, 2 if direction == "bidirectional" else 1
    weights = [integers("int8", ways, n, 4 * hidden) for n in (inner, hidden)]
    sizes = (ways, 4 * hidden) if each else (ways,)
    parameters = [
        p for _ in weights for p in (RNG.uniform(0.005, 0.01, sizes).astype("float32"), np.zeros(sizes, "int8"))
    ]
    data, bias = (RNG.standard_normal(shape).astype("float32") for shape in ((steps, batch, inner), (ways, 8 * hidden)))
    inputs = [data, *weights, bias, None, None, None, None, *parameters]
    compare("DynamicQuantizeLSTM", inputs, hidden_size=hidden, direction=direction)


def test_largest_bytes_of_windows_with_channels_last() -> None:
    for dtype in ("int8", "uint8"):
        compare("NhwcMaxPool", [integers(dtype, 2, 7, 6, 3)], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])


def test_products_of_integers_of_16_bits() -> None:
    compare("MatMulInteger16", [RNG.integers(-3000, 3000, s).astype("int16") for s in ((2, 3, 5), (5, 4))], fed=(0, 1))


def run(operator: str, inputs: list[Array | None], kind: int, **options: Any) -> Array:
    """Run a node that ONNX Runtime has no kernel for."""
    model, feeds = model_of(operator, inputs, **options)
    model.graph.output[0].type.tensor_type.elem_type = kind
    return np.asarray(backend.prepare(model).run(feeds)[0])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_products_and_sums_of_bytes(dtype: str) -> None:
    a, b = integers(dtype, 3, 5), integers(dtype, 5)
    product = run("MulInteger", [a, zero(dtype), b, zero(dtype, 7)], TensorProto.INT32, fed=(0, 2))
    np.testing.assert_array_equal(product, (a.astype("int32") - zero(dtype)) * (b.astype("int32") - 7))
    kind, wide = (TensorProto.INT32, "int32") if dtype == "int8" else (TensorProto.UINT32, "uint32")
    total = run("ReduceSumInteger", [a], kind, axes=[1], keepdims=1)
    np.testing.assert_array_equal(total, a.astype(wide).sum(1, keepdims=True, dtype=wide))


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
def test_rows_of_a_table_of_int4(kind: int) -> None:
    table, scales = RNG.integers(0, 8, (6, 32)), RNG.uniform(0.01, 0.1, (6, 2)).astype("float32")
    inputs = [table.astype("int8"), np.array([[0, 5, 2]]), scales]
    places = {"gather_axis": 0, "quantize_axis": 1, "block_size": 16}
    model, feeds = model_of("GatherBlockQuantized", inputs, fed=(1,), **places)
    model.graph.initializer[0].CopyFrom(helper.make_tensor("x0", kind, table.shape, table.reshape(-1)))
    (found,) = backend.prepare(model).run(feeds)
    np.testing.assert_allclose(found, (table * np.repeat(scales, 16, 1))[feeds["x1"]], rtol=1e-6)


# ------------------------------------------------------------------------------------------------------------- refused


def message_of(model: onnx.ModelProto) -> str:
    with pytest.raises(TilewrightError) as caught:
        relay.frontend.from_onnx(model)
    assert "'layer'" in str(caught.value)
    return str(caught.value)


DATA, NUMBERS = np.zeros((2, 6), "uint8"), np.zeros((2, 6), "float32")


@pytest.mark.parametrize("operator", ["QuantizeLinear", "DequantizeLinear"])
@pytest.mark.parametrize(
    ("scales", "point", "attributes", "message"),
    [
        (0.0, np.uint8(3), {}, "a scale is 0.0; scales are finite and greater than 0"),
        (-0.5, np.uint8(3), {}, "a scale is -0.5"),
        (np.nan, np.uint8(3), {}, "a scale is nan"),
        (np.inf, np.uint8(3), {}, "a scale is inf"),
        ([1.0] * 5, np.zeros(5, "uint8"), {"axis": 1}, "scales of shape (5,) do not fit axis 1 of a tensor of [2, 6]"),
        ([1.0] * 6, np.zeros(5, "uint8"), {"axis": 1}, "zero points of shape (5,) do not fit scales of shape (6,)"),
        ([1.0] * 6, np.zeros(6, "uint8"), {"axis": 2}, "axis 2 is out of range for a tensor of rank 2"),
        ([[1.0] * 2] * 2, None, {"axis": 1, "block_size": 4}, None),
        ([[1.0] * 3] * 2, None, {"axis": 1, "block_size": 4}, "scales of shape (2, 3) do not fit blocks of 4"),
        ([[1.0] * 2], None, {"axis": 1, "block_size": 4}, "scales of shape (1, 2) do not fit blocks of 4"),
    ],
)  # fmt: skip
def test_parameters_that_do_not_fit(
    operator: str, scales: Any, point: Array | None, attributes: dict[str, int], message: str | None
) -> None:
    data = NUMBERS if operator == "QuantizeLinear" else DATA
    model, _ = model_of(operator, [data, np.array(scales, "float32"), point], domain="", **attributes)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT8 if data is NUMBERS else TensorProto.FLOAT
    if message is None:
        relay.frontend.from_onnx(model)
    else:
        assert message in message_of(model)


def test_a_zero_point_of_another_type_than_the_data() -> None:
    model, _ = model_of("QLinearAdd", [DATA, scale(1), np.int8(0), DATA, scale(1), np.uint8(0), scale(1), np.uint8(0)])
    assert "input 2, 'x2': the zero point is int8, what it belongs to is uint8" in message_of(model)


def test_a_zero_point_outside_its_type() -> None:
    model, _ = model_of("DequantizeLinear", [DATA, scale(1), np.uint8(0)], domain="")
    model.graph.initializer[1].CopyFrom(onnx.TensorProto(name="x2", data_type=TensorProto.UINT8, int32_data=[300]))
    with pytest.raises(TilewrightError, match=r"'x2'.*it holds 300; uint8 has 0 to 255"):
        relay.frontend.from_onnx(model)


def test_a_bias_of_another_type_than_int32() -> None:
    inputs = convolution("uint8", "int8", (1, 3, 6, 5), (4, 3, 3, 3), True)
    model, _ = model_of("QLinearConv", [*inputs[:8], inputs[8].astype("float32")], domain=MICROSOFT)
    assert "input 8, 'x8': the bias is float32, expected int32" in message_of(model)
