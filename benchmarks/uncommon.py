"""A model of layers that our schedules were not written for, to be tuned: one branch each, which share nothing.

python -m benchmarks.uncommon -o uncommon.onnx
tilewright tune uncommon.onnx -o records.jsonl --minutes 20
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class _Model:
    """Nodes, inputs, outputs and weights, as branches add them."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._rng = np.random.default_rng(0)

    def input(self, name: str, *shape: int) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def weight(self, name: str, *shape: int) -> str:
        values = self._rng.standard_normal(shape).astype("float32") / np.float32(np.prod(shape[1:]) ** 0.5)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def constant(self, name: str, values: object, dtype: str) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def node(self, op_type: str, *inputs: str, **attributes: object) -> str:
        name = f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name, **attributes))
        return name

    def output(self, name: str) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))

    def proto(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "uncommon", self.inputs, self.outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def _resize_of_transposed(m: _Model) -> str:
    turned = m.node("Transpose", m.input("image", 1, 64, 64, 32), perm=[0, 3, 1, 2])
    sizes = m.constant("sizes", [1, 32, 128, 128], "int64")
    return m.node("Resize", turned, "", "", sizes, mode="linear")


def _windowed_attention(m: _Model) -> str:
    query, key, value = (m.input(name, 16, 3, 49, 32) for name in ("query", "key", "value"))
    scores = m.node("MatMul", query, m.node("Transpose", key, perm=[0, 1, 3, 2]))
    scaled = m.node("Mul", scores, m.constant("scale", 32**-0.5, "float32"))
    biased = m.node("Add", scaled, m.weight("position_bias", 1, 3, 49, 49))
    return m.node("MatMul", m.node("Softmax", biased, axis=-1), value)


def _convolution_3d(m: _Model) -> str:
    return m.node("Conv", m.input("volume", 1, 16, 16, 28, 28), m.weight("w3d", 32, 16, 3, 3, 3), pads=[1] * 6)


def _deformable(m: _Model) -> str:
    data, offset = m.input("deformed", 1, 32, 28, 28), m.input("offset", 1, 18, 28, 28)
    return m.node("DeformConv", data, m.weight("wdef", 32, 32, 3, 3), offset, pads=[1] * 4, kernel_shape=[3, 3])


def _group_norm(m: _Model) -> str:
    gamma, beta = m.weight("gamma", 64), m.weight("beta", 64)
    return m.node("GroupNormalization", m.input("grouped", 1, 64, 56, 56), gamma, beta, num_groups=8)


def _product_of_67_columns(m: _Model) -> str:
    return m.node("MatMul", m.input("rows", 256, 512), m.weight("w67", 512, 67))


def _depthwise_7x7(m: _Model) -> str:
    return m.node("Conv", m.input("channels", 1, 96, 28, 28), m.weight("w7", 96, 1, 7, 7), pads=[3] * 4, group=96)


def _dilated_1d(m: _Model) -> str:
    return m.node("Conv", m.input("signal", 1, 64, 1000), m.weight("w1d", 64, 64, 3), pads=[8, 8], dilations=[8])


LAYERS = {
    "resize": _resize_of_transposed,
    "attention": _windowed_attention,
    "conv3d": _convolution_3d,
    "deformable": _deformable,
    "group_norm": _group_norm,
    "product67": _product_of_67_columns,
    "depthwise7": _depthwise_7x7,
    "dilated1d": _dilated_1d,
}


def model(layers: list[str] | None = None) -> onnx.ModelProto:
    """The layers of these names, or all, as one model."""
    made = _Model()
    for name in layers or LAYERS:
        made.output(LAYERS[name](made))
    return made.proto()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("uncommon.onnx"))
    parser.add_argument("--layers", nargs="*", choices=LAYERS, help="by default all")
    options = parser.parse_args()
    onnx.save(model(options.layers), options.output)
    print(f"{len(options.layers or LAYERS)} layers in {options.output}")


if __name__ == "__main__":
    main()
