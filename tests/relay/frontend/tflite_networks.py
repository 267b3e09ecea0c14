"""Networks of the kind that are deployed as TensorFlow Lite files, with random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.relay.frontend.tflite_files import Array, File

_STEP = 0.05  # of every quantized activation


class MobileNet:
    """A network of separable convolutions with residual sums, of ``dtype`` float32, int8 or uint8; its output are
    shares of classes, or their scores.
    """

    def __init__(self, dtype: str, size: int, width: int, blocks: int, classes: int = 10, scores: bool = False) -> None:
        self.rng = np.random.default_rng(0)
        self.dtype, self.file = dtype, File()
        self.zero = {"float32": 0, "int8": -5, "uint8": 123}[dtype]
        channels = width
        x = self._activation((1, size, size, 3))
        y, size = self._conv(x, (1, size, size, 3), channels, 3, 2), -(-size // 2)
        for i in range(blocks):
            stride = 2 if i % 3 == 2 else 1
            shape = (1, size, size, channels)
            wide = self._conv(y, shape, channels, 3, stride, depthwise=True)
            size = -(-size // stride)
            out = channels * stride
            made = self._conv(wide, (1, size, size, channels), out, 1, 1, activation=0)
            if stride == 1:
                made = self._sum(y, made, (1, size, size, out))
            y, channels = made, out
        self.inputs, self.shape = [x], (1, *self.file.graph.tensors[x].shape[1:])
        pooled = self._activation((1, channels))
        axes = self.file.constant(np.array([1, 2], "int32"))
        self.file.op("MEAN", [y, axes], [pooled], "ReducerOptions")
        found = self._activation((1, classes))
        self.file.op(
            "FULLY_CONNECTED", [pooled, *self._weights((classes, channels), 0)], [found], "FullyConnectedOptions"
        )
        shares = self._activation((1, classes), softmax=True)
        self.file.op("SOFTMAX", [found], [shares], "SoftmaxOptions", beta=1.0)
        self.file.ends([x], [found if scores else shares])

    def data(self) -> Array:
        """An input."""
        if self.dtype == "float32":
            return self.rng.normal(size=self.shape).astype("float32")
        low, high = np.iinfo(self.dtype).min, np.iinfo(self.dtype).max
        return self.rng.integers(low, high + 1, self.shape).astype(self.dtype)

    def _activation(self, shape: tuple[int, ...], softmax: bool = False) -> int:
        if self.dtype == "float32":
            return self.file.tensor(shape)
        if softmax:
            return self.file.tensor(shape, self.dtype, scale=1 / 256, zero=np.iinfo(self.dtype).min)
        return self.file.tensor(shape, self.dtype, scale=_STEP, zero=self.zero)

    def _weights(self, shape: tuple[int, ...], axis: int) -> tuple[int, int]:
        fan_in = np.prod(shape) / shape[axis]
        if self.dtype == "float32":
            return self.file.constant(
                (self.rng.normal(size=shape) * np.sqrt(2 / fan_in)).astype("float32")
            ), self.file.constant(self.rng.normal(size=shape[axis]).astype("float32"))
        step = np.sqrt(2 / fan_in) / 40
        scale: Any = self.rng.uniform(0.5, 1.5, shape[axis]) * step if self.dtype == "int8" else step
        if self.dtype == "int8":
            whole = self.rng.integers(-127, 128, shape).astype("int8")
        else:
            whole = self.rng.integers(1, 256, shape).astype("uint8")
        zero = 0 if self.dtype == "int8" else 128
        bias = self.rng.integers(-500, 500, shape[axis]).astype("int32")
        bias_scale = np.float32(_STEP) * np.asarray(scale, "float32")
        return self.file.constant(whole, scale=scale, zero=zero, axis=axis), self.file.constant(bias, scale=bias_scale)

    def _conv(
        self,
        x: int,
        shape: tuple[int, ...],
        out: int,
        kernel: int,
        stride: int,
        depthwise: bool = False,
        activation: int = 3,
    ) -> int:
        size = -(-shape[1] // stride)
        y = self._activation((1, size, size, out))
        options = {"strideW": stride, "strideH": stride, "fusedActivationFunction": activation}
        if depthwise:
            inputs = [x, *self._weights((1, kernel, kernel, out), 3)]
            self.file.op("DEPTHWISE_CONV_2D", inputs, [y], "DepthwiseConv2DOptions", depthMultiplier=1, **options)
        else:
            inputs = [x, *self._weights((out, kernel, kernel, shape[3]), 0)]
            self.file.op("CONV_2D", inputs, [y], "Conv2DOptions", **options)
        return y

    def _sum(self, a: int, b: int, shape: tuple[int, ...]) -> int:
        y = self._activation(shape)
        self.file.op("ADD", [a, b], [y], "AddOptions")
        return y
