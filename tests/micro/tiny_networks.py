"""The structures of MLPerf Tiny's four networks, with random weights, as int8 ONNX files in QDQ form.

Activations are int8 with zero points and weights are int8 with a scale for each channel, as TensorFlow Lite's
converter makes them. Ranges are such that results neither vanish nor saturate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
_STEP = np.float32(0.05)  # of activations before the first Relu, which have the zero point -3
_ZERO = -3
_LOW = -128  # zero point behind a Relu: nothing is below 0


class Network:
    """A network under construction; each method adds a layer behind the tensor ``at``, of the shape ``shape``."""

    def __init__(self, shape: Sequence[int], seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = [helper.make_tensor_value_info("input", TensorProto.INT8, list(shape))]
        self.shape, self.at, self.scale, self.zero = tuple(shape), "input", _STEP, _ZERO

    def _constant(self, value: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def _node(self, kind: str, inputs: Sequence[str], **attrs: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"{kind}_{name}", **attrs))
        return name

    def _numbers(self) -> str:
        """The numbers that the integers at hand stand for."""
        return self._node("DequantizeLinear", [self.at, *self._parameters(self.scale, self.zero)])

    def _parameters(self, scale: Any, zero: int) -> list[str]:
        return [self._constant(np.asarray(scale, np.float32)), self._constant(np.asarray(zero, np.int8))]

    def _quantized(self, value: str, shape: Sequence[int], relu: bool, spread: float = 0.05) -> None:
        """Integers of ``value``, whose standard deviation is 1, in steps of ``spread``."""
        if relu:
            value = self._node("Relu", [value])
        self.scale, self.zero, self.shape = (
            np.float32(spread / (2 if relu else 1)),
            _LOW if relu else _ZERO,
            tuple(shape),
        )
        self.at = self._node("QuantizeLinear", [value, *self._parameters(self.scale, self.zero)])

    def _weights(self, shape: Sequence[int]) -> list[str]:
        """Dequantized weights and bias that give results of standard deviation 1."""
        whole = self.rng.integers(-127, 128, shape).astype(np.int8)
        fan_in = int(np.prod(shape[1:]))
        scale = (self.rng.uniform(0.7, 1.3, shape[0]) / (73 * np.sqrt(fan_in))).astype(np.float32)
        zeros = np.zeros(shape[0], np.int8)
        weight = [self._constant(whole), self._constant(scale), self._constant(zeros)]
        unit = (scale * self.scale).astype(np.float32)
        bias = np.rint(self.rng.normal(0, 0.2, shape[0]) / unit).astype(np.int32)
        numbers = [self._constant(bias), self._constant(unit), self._constant(zeros.astype(np.int32))]
        return [self._node("DequantizeLinear", v, axis=0) for v in (weight, numbers)]

    def conv(
        self, channels: int, kernel: Sequence[int], stride: int = 1, depthwise: bool = False, relu: bool = True
    ) -> None:
        """A convolution with the padding of TensorFlow's SAME."""
        n, c, *image = self.shape
        groups = c if depthwise else 1
        outs = [-(-d // stride) for d in image]
        total = [max(0, (o - 1) * stride + k - d) for o, k, d in zip(outs, kernel, image, strict=True)]
        pads = [t // 2 for t in total] + [t - t // 2 for t in total]
        inputs = [self._numbers(), *self._weights((channels, c // groups, *kernel))]
        value = self._node("Conv", inputs, strides=[stride] * 2, pads=pads, group=groups, kernel_shape=list(kernel))
        self._quantized(value, (n, channels, *outs), relu)

    def dense(self, units: int, relu: bool = False) -> None:
        """A dense layer."""
        value = self._node("Gemm", [self._numbers(), *self._weights((units, self.shape[1]))], transB=1)
        self._quantized(value, (self.shape[0], units), relu)

    def add(self, other: tuple[str, np.float32, int]) -> None:
        """The sum with a tensor of the same shape, and Relu."""
        mine, (self.at, self.scale, self.zero) = self._numbers(), other
        self._quantized(self._node("Add", [mine, self._numbers()]), self.shape, relu=True)

    def state(self) -> tuple[str, np.float32, int]:
        """The tensor at hand, with its scale and zero point."""
        return self.at, self.scale, self.zero

    def pool(self) -> None:
        """Means over the image, as a matrix."""
        value = self._node("GlobalAveragePool", [self._numbers()])
        self._quantized(value, (*self.shape[:2], 1, 1), relu=False, spread=0.02)
        self.at, self.shape = self._node("Flatten", [self.at]), self.shape[:2]

    def classes(self) -> None:
        """Shares of classes."""
        value = self._node("Softmax", [self._numbers()], axis=-1)
        self.at = self._node("QuantizeLinear", [value, *self._parameters(1 / 256, _LOW)])

    def model(self) -> onnx.ModelProto:
        """The network; its result are the integers at hand."""
        output = helper.make_tensor_value_info(self.at, TensorProto.INT8, list(self.shape))
        graph = helper.make_graph(self.nodes, "tiny", self.inputs, [output], self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.checker.check_model(made)
        return made

    def data(self) -> Array:
        """An input."""
        shape = [d.dim_value for d in self.inputs[0].type.tensor_type.shape.dim]
        return self.rng.integers(-128, 128, shape).astype(np.int8)


def autoencoder() -> Network:
    """Anomaly detection: 640, eight layers of 128 around one of 8, 640."""
    net = Network((1, 640))
    for units in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        net.dense(units, relu=True)
    net.dense(640)
    return net


def resnet8() -> Network:
    """Image classification: three residual blocks of 16, 32 and 64 channels over 32 by 32 pixels."""
    net = Network((1, 3, 32, 32))
    net.conv(16, (3, 3))
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        before, shape = net.state(), net.shape
        net.conv(channels, (3, 3), stride)
        net.conv(channels, (3, 3), relu=False)
        if stride > 1:
            main, main_shape = net.state(), net.shape
            (net.at, net.scale, net.zero), net.shape = before, shape
            net.conv(channels, (1, 1), stride, relu=False)
            before, (net.at, net.scale, net.zero), net.shape = net.state(), main, main_shape
        net.add(before)
    net.pool()
    net.dense(10)
    net.classes()
    return net


def ds_cnn() -> Network:
    """Keyword spotting: 49 by 10 coefficients, four separable convolutions of 64 channels."""
    net = Network((1, 1, 49, 10))
    net.conv(64, (10, 4), 2)
    for _ in range(4):
        net.conv(64, (3, 3), depthwise=True)
        net.conv(64, (1, 1))
    net.pool()
    net.dense(12)
    net.classes()
    return net


def mobilenet() -> Network:
    """Visual wake words: MobileNetV1 of a quarter of the channels, 96 by 96 pixels."""
    net = Network((1, 3, 96, 96))
    net.conv(8, (3, 3), 2)
    strides = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
    channels = (16, 32, 32, 64, 64, 128, 128, 128, 128, 128, 128, 256, 256)
    for stride, out in zip(strides, channels, strict=True):
        net.conv(net.shape[1], (3, 3), stride, depthwise=True)
        net.conv(out, (1, 1))
    net.pool()
    net.dense(2)
    net.classes()
    return net


NETWORKS: dict[str, Callable[[], Network]] = {
    "autoencoder": autoencoder, "resnet8": resnet8, "ds_cnn": ds_cnn, "mobilenet": mobilenet,
}  # fmt: skip
