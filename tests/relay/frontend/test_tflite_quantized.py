"""Quantized TensorFlow Lite files: integers as LiteRT's interpreter computes them by its default kernels (XNNPACK)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.relay.frontend.tflite_files import Array, File, compiled, litert
from tests.relay.frontend.tflite_networks import MobileNet

from tilewright import relay

ZEROS = {"int8": (3, -5, 7), "uint8": (120, 131, 99), "int16": (0, 0, 0)}
LEAST = {"int8": -127, "uint8": 1}


def _whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def _steps(found: list[Array], wanted: list[Array]) -> int:
    """The largest difference, in steps."""
    for got, want in zip(found, wanted, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert len(np.unique(want)) > 1, "an output that is one number compares nothing"
    pairs = zip(found, wanted, strict=True)
    return max(int(np.abs(got.astype("int64") - want.astype("int64")).max()) for got, want in pairs)


def _weighted(name: str, dtype: str, per_axis: bool, **values: Any) -> tuple[File, list[Array]]:
    """A convolution, or a dense layer, of 8 to 16 channels."""
    rng = np.random.default_rng(3)
    shapes = {
        "CONV_2D": ((1, 9, 9, 8), (16, 3, 3, 8), 0, "Conv2DOptions"),
        "DEPTHWISE_CONV_2D": ((1, 9, 9, 8), (1, 3, 3, 16), 3, "DepthwiseConv2DOptions"),
        "FULLY_CONNECTED": ((5, 64), (16, 64), 0, "FullyConnectedOptions"),
    }
    shape, weight_shape, axis, options = shapes[name]
    scale = rng.uniform(0.002, 0.02, 16) if per_axis else 0.011
    file = File()
    x = file.tensor(shape, dtype, scale=0.05, zero=ZEROS[dtype][0])
    weight = np.maximum(_whole(rng, weight_shape, dtype), LEAST[dtype])
    w = file.constant(weight, scale=scale, zero=0 if dtype == "int8" else 120, axis=axis)
    bias_scale = np.float32(0.05) * np.asarray(scale, "float32")
    b = file.constant(rng.integers(-3000, 3000, 16).astype("int32"), scale=bias_scale)
    rank = len(shape)
    y = file.tensor((1,) * (rank - 1) + (16,), dtype, scale=0.21, zero=ZEROS[dtype][1])
    file.op(name, [x, w, b], [y], options, **values)
    return file.ends([x], [y]), [_whole(rng, shape, dtype)]


PLAIN = {"strideW": 1, "strideH": 1}
STRIDED = {"strideW": 2, "strideH": 2, "fusedActivationFunction": 3}


@pytest.mark.parametrize(("dtype", "per_axis"), [("int8", True), ("int8", False), ("uint8", False)])
@pytest.mark.parametrize("options", [PLAIN, STRIDED], ids=["plain", "strided, relu6"])
@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_convolutions_have_litert_s_bits(name: str, options: dict[str, int], dtype: str, per_axis: bool) -> None:
    more = {"depthMultiplier": 2} if name.startswith("DEPTH") else {}
    file, inputs = _weighted(name, dtype, per_axis, **options, **more)
    most = 1 if (name, dtype) == ("DEPTHWISE_CONV_2D", "uint8") else 0  # LiteRT has no XNNPACK kernel for it
    assert _steps(compiled(file.data, inputs), litert(file.data, inputs)) <= most


@pytest.mark.parametrize(("dtype", "per_axis"), [("int8", True), ("int8", False), ("uint8", False)])
def test_dense_layers_have_litert_s_bits(dtype: str, per_axis: bool) -> None:
    file, inputs = _weighted("FULLY_CONNECTED", dtype, per_axis)
    assert _steps(compiled(file.data, inputs), litert(file.data, inputs)) == 0


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("shape", [(1, 5, 6, 8), (8,)], ids=str)
@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL"])
def test_sums_and_products_have_litert_s_bits(name: str, shape: tuple[int, ...], dtype: str) -> None:
    rng, file, zeros = np.random.default_rng(4), File(), ZEROS[dtype]
    whole = (1, 5, 6, 8)
    a = file.tensor(whole, dtype, scale=0.05, zero=zeros[0])
    b = file.tensor(shape, dtype, scale=0.03, zero=zeros[1])
    y = file.tensor(whole, dtype, scale=0.09, zero=zeros[2])
    file.op(name, [a, b], [y], f"{name.capitalize()}Options", fusedActivationFunction=1 if name == "ADD" else 0)
    data, inputs = file.ends([a, b], [y]).data, [_whole(rng, s, dtype) for s in (whole, shape)]
    assert _steps(compiled(data, inputs), litert(data, inputs)) == 0


# Of each operator: the scale of the data and of the result; how many steps it may differ.
ELEMENTWISE: dict[str, tuple[float, float, int, str, dict[str, Any]]] = {
    "LOGISTIC": (0.04, 1 / 256, 0, "", {}),
    "TANH": (0.04, 1 / 128, 0, "", {}),
    "SOFTMAX": (0.04, 1 / 256, 0, "SoftmaxOptions", {"beta": 1.0}),
    "HARD_SWISH": (0.04, 0.03, 0, "", {}),
    "GELU": (0.04, 0.03, 0, "GeluOptions", {}),
    "RELU": (0.04, 0.03, 0, "", {}),
    "QUANTIZE": (0.04, 0.07, 0, "", {}),
    "LEAKY_RELU": (0.04, 0.03, 1, "LeakyReluOptions", {"alpha": 0.2}),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_activations_are_litert_s(name: str, dtype: str) -> None:
    scale, out_scale, most, options, values = ELEMENTWISE[name]
    rng, file = np.random.default_rng(5), File()
    least = np.iinfo(dtype).min
    zero = least if name in ("LOGISTIC", "SOFTMAX") else least + 128 if name == "TANH" else ZEROS[dtype][1]
    x = file.tensor((2, 12, 16), dtype, scale=scale, zero=ZEROS[dtype][0])
    y = file.tensor((2, 12, 16), dtype, scale=out_scale, zero=zero)
    file.op(name, [x], [y], options, **values)
    data, inputs = file.ends([x], [y]).data, [_whole(rng, (2, 12, 16), dtype)]
    assert _steps(compiled(data, inputs), litert(data, inputs)) <= most


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("kind", "kernel", "stride", "activation"), [(0, 3, 2, 0), (1, 2, 2, 3), (1, 9, 1, 0)])
@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_pools_have_litert_s_bits(name: str, kind: int, kernel: int, stride: int, activation: int, dtype: str) -> None:
    rng, file = np.random.default_rng(6), File()
    scales = {"scale": 0.05, "zero": ZEROS[dtype][0]}
    x, y = file.tensor((1, 9, 9, 8), dtype, **scales), file.tensor((1, 1, 1, 8), dtype, **scales)
    values = {"strideW": stride, "strideH": stride, "filterWidth": kernel, "filterHeight": kernel}
    file.op(name, [x], [y], "Pool2DOptions", padding=kind, fusedActivationFunction=activation, **values)
    data, inputs = file.ends([x], [y]).data, [_whole(rng, (1, 9, 9, 8), dtype)]
    assert _steps(compiled(data, inputs), litert(data, inputs)) == 0


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axes", [(1, 2), (3,), (0, -1)], ids=str)
def test_means_are_litert_s_to_a_step(axes: tuple[int, ...], keep: bool, dtype: str) -> None:
    rng, file = np.random.default_rng(7), File()
    x = file.tensor((2, 5, 6, 8), dtype, scale=0.05, zero=ZEROS[dtype][0])
    y = file.tensor((1,), dtype, scale=0.02, zero=ZEROS[dtype][1])
    file.op("MEAN", [x, file.constant(np.array(axes, "int32"))], [y], "ReducerOptions", keepDims=keep)
    data, inputs = file.ends([x], [y]).data, [_whole(rng, (2, 5, 6, 8), dtype)]
    assert _steps(compiled(data, inputs), litert(data, inputs)) <= 1


def test_joined_tensors_of_other_scales_are_rescaled() -> None:
    rng, file = np.random.default_rng(8), File()
    a, b = file.tensor((2, 3), "uint8", scale=0.05, zero=3), file.tensor((2, 3), "uint8", scale=0.02, zero=40)
    y = file.tensor((2, 6), "uint8", scale=0.05, zero=3)
    file.op("CONCATENATION", [a, b], [y], "ConcatenationOptions", axis=1)
    data, inputs = file.ends([a, b], [y]).data, [_whole(rng, (2, 3), "uint8") for _ in range(2)]
    assert _steps(compiled(data, inputs), litert(data, inputs)) == 0


def test_convolutions_of_16_bit_activations_are_litert_s_to_a_step() -> None:
    rng, file = np.random.default_rng(9), File()
    scale = rng.uniform(0.002, 0.02, 6).astype("float32")
    x = file.tensor((1, 6, 7, 8), "int16", scale=2**-10)
    w = file.constant(np.maximum(_whole(rng, (6, 3, 3, 8), "int8"), -127), scale=scale)
    b = file.constant(rng.integers(-3000, 3000, 6).astype("int64"), scale=scale * np.float32(2**-10))
    y = file.tensor((1, 6, 7, 6), "int16", scale=2**-8)
    file.op("CONV_2D", [x, w, b], [y], "Conv2DOptions", strideW=1, strideH=1)
    data, inputs = file.ends([x], [y]).data, [_whole(rng, (1, 6, 7, 8), "int16") // 4]
    assert _steps(compiled(data, inputs), litert(data, inputs)) <= 1


@pytest.mark.parametrize("per_axis", [False, True])
@pytest.mark.parametrize("name", ["CONV_2D", "FULLY_CONNECTED"])
def test_hybrid_layers_round_their_data_as_litert_does(name: str, per_axis: bool) -> None:
    rng, file = np.random.default_rng(10), File()
    shape, weight = {"CONV_2D": ((2, 6, 7, 16), (8, 3, 3, 16)), "FULLY_CONNECTED": ((5, 160), (8, 160))}[name]
    scale = rng.uniform(0.002, 0.02, 8) if per_axis else 0.01
    x, y = file.tensor(shape), file.tensor((*shape[:-1], 8))
    w = file.constant(np.maximum(_whole(rng, weight, "int8"), -127), scale=scale)
    values: dict[str, Any] = PLAIN if name == "CONV_2D" else {}
    options = "Conv2DOptions" if name == "CONV_2D" else "FullyConnectedOptions"
    file.op(name, [x, w, file.constant(rng.normal(size=8).astype("float32"))], [y], options, **values)
    data, inputs = file.ends([x], [y]).data, [rng.normal(size=shape).astype("float32")]
    np.testing.assert_allclose(compiled(data, inputs)[0], litert(data, inputs)[0], rtol=1e-6, atol=1e-6)


def test_half_precision_weights_are_widened() -> None:
    rng, file = np.random.default_rng(11), File()
    x, wide, y = file.tensor((3, 20)), file.tensor((50, 20)), file.tensor((3, 50))
    file.op("DEQUANTIZE", [file.constant(rng.normal(size=(50, 20)).astype("float16"))], [wide])
    file.op("FULLY_CONNECTED", [x, wide, -1], [y], "FullyConnectedOptions")
    data, inputs = file.ends([x], [y]).data, [rng.normal(size=(3, 20)).astype("float32")]
    np.testing.assert_allclose(compiled(data, inputs)[0], litert(data, inputs)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_network_is_litert_s(dtype: str) -> None:
    net = MobileNet(dtype, 32, 8, 4, scores=True)
    inputs = [net.data()]
    found, wanted = compiled(net.file.data, inputs), litert(net.file.data, inputs)
    if dtype == "float32":
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-4)
    else:
        assert _steps(found, wanted) == 0


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_network_is_transposed_at_its_input_alone(dtype: str) -> None:
    mod, _ = relay.frontend.from_tflite(MobileNet(dtype, 32, 8, 4).file.data)
    assert str(mod).count(" transpose(") == 1
