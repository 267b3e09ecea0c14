"""Random float networks, quantized: ONNX Runtime and Tilewright agree on the file, and both on the float network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tests.quantization.networks import samples

import tilewright

SIDE, CHANNELS = 7, 4


class Maker:
    """Builds a network of (1, channels, 7, 7) tensors, one operator after another."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.tensors = [("x", CHANNELS)]

    def constant(self, array: object, dtype: str = "float32") -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def node(self, kind: str, inputs: list[str], channels: list[int], **attrs: object) -> None:
        outputs = [f"{kind}{len(self.nodes)}_{i}" for i in range(len(channels))]
        self.nodes.append(helper.make_node(kind, inputs, outputs, **attrs))
        self.tensors += zip(outputs, channels, strict=True)

    def convolution(self, name: str, channels: int) -> None:
        depthwise, size = self.rng.random() < 0.3, int(self.rng.choice([1, 3]))
        out = channels if depthwise else int(self.rng.integers(1, 9))
        shape = (out, 1 if depthwise else channels, size, size)
        weight = self.constant(self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:])))
        bias = [self.constant(self.rng.standard_normal(out) * 0.1)] if self.rng.random() < 0.5 else []
        groups = channels if depthwise else 1
        self.node("Conv", [name, weight, *bias], [out], pads=[size // 2] * 4, group=groups)

    def unary(self, name: str, channels: int) -> None:
        kind = str(self.rng.choice(["Relu", "Sigmoid", "LeakyRelu", "Neg", "Identity", "Tanh", "Clip"]))
        bounds = [self.constant(0.0), self.constant(self.rng.choice([0.5, 6.0]))] if kind == "Clip" else []
        self.node(kind, [name, *bounds], [channels])

    def binary(self, name: str, channels: int) -> None:
        alike = [other for other, count in self.tensors if count == channels]
        self.node(str(self.rng.choice(["Add", "Mul"])), [name, str(self.rng.choice(alike))], [channels])

    def row(self, name: str, channels: int) -> None:
        self.node("Add", [name, self.constant(self.rng.standard_normal((1, channels, 1, 1)))], [channels])

    def join(self, name: str, channels: int) -> None:
        other, more = self.tensors[self.rng.integers(len(self.tensors))]
        self.node("Concat", [name, other], [channels + more], axis=1)

    def split(self, name: str, channels: int) -> None:
        if channels > 1:
            parts = [channels // 2, channels - channels // 2]
            self.node("Split", [name, self.constant(parts, "int64")], parts, axis=1)

    def pool(self, name: str, channels: int) -> None:
        kind = str(self.rng.choice(["MaxPool", "AveragePool"]))
        self.node(kind, [name], [channels], kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1])

    def turn(self, name: str, channels: int) -> None:
        self.node("Transpose", [name], [channels], perm=[0, 1, 3, 2])

    def model(self) -> onnx.ModelProto:
        steps: list[Callable[[str, int], None]] = [
            self.convolution, self.convolution, self.unary, self.binary, self.row, self.join, self.split, self.pool,
            self.turn,
        ]  # fmt: skip
        for _ in range(self.rng.integers(3, 10)):
            near = self.tensors[-3:]
            steps[self.rng.integers(len(steps))](*near[self.rng.integers(len(near))])
        self.convolution(*self.tensors[-1])
        given = dict([self.tensors[-1], self.tensors[self.rng.integers(1, len(self.tensors))]])
        values = [helper.make_tensor_value_info(n, 1, [1, c, SIDE, SIDE]) for n, c in {"x": CHANNELS, **given}.items()]
        graph = helper.make_graph(self.nodes, "random", values[:1], values[1:], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def check(seed: int) -> None:
    maker = Maker(seed)
    model, choose = maker.model(), maker.rng.choice
    data = samples(model, 4)
    made = tilewright.quantize(
        model, data, activations=str(choose(["uint8", "int8"])), per_channel=bool(choose([True, False])),
        method=str(choose(["minmax", "mse", "percentile"])),
    )  # fmt: skip
    onnx.checker.check_model(made.model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # or sums of products saturate on some
    session = onnxruntime.InferenceSession(made.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in model.graph.output]
    found, theirs = (
        tilewright.compile(made.model).run(data[0]),
        dict(zip(names, session.run(names, data[0]), strict=True)),
    )
    exact = dict(zip(names, ReferenceEvaluator(model).run(names, data[0]), strict=True))
    for name in names:
        largest = np.abs(theirs[name]).max(initial=1e-6)
        # a step of an early tensor may grow on its way
        assert np.abs(found[name] - theirs[name]).max() <= 0.03 * largest, f"seed {seed}: not as in ONNX Runtime"
        spread = np.sqrt(np.mean(np.square(found[name] - exact[name])))
        assert spread <= 0.1 * np.sqrt(np.mean(np.square(exact[name]))) + 1e-6, f"seed {seed}: far from float"


@pytest.mark.parametrize("seed", range(6))
def test_a_random_network_in_8_bits_is_that_of_onnx_runtime(seed: int) -> None:
    check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_random_networks_in_8_bits_are_those_of_onnx_runtime(seed: int) -> None:
    check(seed)
