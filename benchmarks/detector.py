"""A detector in the manner of YOLO, as an ONNX file with random weights: what no network of the zoo has at once.

SiLU, blocks that concatenate what their halves compute, pools of one size after another, features enlarged and joined
again, three heads.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class _Layers:
    """The nodes of a graph as they are added; methods give the name of what they compute."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.channels: dict[str, int] = {}
        self.generator = np.random.default_rng(7)

    def _node(self, kind: str, inputs: list[str], channels: int, **attributes: object) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        self.channels[name] = channels
        return name

    def _weight(self, array: np.ndarray) -> str:
        name = f"weight{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def conv(self, x: str, out: int, window: int = 1, stride: int = 1, activation: bool = True) -> str:
        """A convolution with bias, and SiLU."""
        into = self.channels[x]
        drawn = self.generator.standard_normal((out, into, window, window)) * (2 / (into * window * window)) ** 0.5
        weight = self._weight(drawn.astype("float32"))
        bias = self._weight((self.generator.standard_normal(out) * 0.1).astype("float32"))
        pads = [window // 2] * 4
        y = self._node("Conv", [x, weight, bias], out, kernel_shape=[window] * 2, strides=[stride] * 2, pads=pads)
        return self._node("Mul", [y, self._node("Sigmoid", [y], out)], out) if activation else y

    def join(self, *parts: str) -> str:
        """Channels one after another."""
        return self._node("Concat", list(parts), sum(self.channels[p] for p in parts), axis=1)

    def block(self, x: str, out: int, repeats: int, shortcut: bool = True) -> str:
        """Two halves, one through ``repeats`` bottlenecks, joined."""
        half = left = self.conv(x, out // 2)
        for _ in range(repeats):
            inner = self.conv(self.conv(half, out // 2), out // 2, 3)
            half = self._node("Add", [half, inner], out // 2) if shortcut else inner
        return self.conv(self.join(half, self.conv(x, out // 2), left), out)

    def pools(self, x: str, out: int) -> str:
        """Maxima over 5, 9 and 13 pixels, joined with what they are of."""
        parts = [self.conv(x, out // 2)]
        for _ in range(3):
            pool = self._node("MaxPool", [parts[-1]], out // 2, kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4)
            parts.append(pool)
        return self.conv(self.join(*parts), out)

    def enlarge(self, x: str) -> str:
        """Twice the height and width, each pixel four times."""
        scales = self._weight(np.array([1, 1, 2, 2], "float32"))
        return self._node("Resize", [x, "", scales], self.channels[x], mode="nearest", nearest_mode="floor",
                          coordinate_transformation_mode="asymmetric")  # fmt: skip


def write_detector(path: Path, size: int = 320, width: int = 32, outputs: int = 85) -> Path:
    """Write the detector for images of (1, 3, ``size``, ``size``) to ``path``; ``outputs`` numbers for each cell."""
    net = _Layers()
    net.channels["image"] = 3
    x = net.conv(net.conv("image", width, 3, 2), 2 * width, 3, 2)
    fine = net.block(net.conv(net.block(x, 2 * width, 1), 4 * width, 3, 2), 4 * width, 2)
    middle = net.block(net.conv(fine, 8 * width, 3, 2), 8 * width, 2)
    coarse = net.pools(net.block(net.conv(middle, 16 * width, 3, 2), 16 * width, 1), 16 * width)
    top = net.conv(coarse, 8 * width)
    middle = net.conv(net.block(net.join(net.enlarge(top), middle), 8 * width, 1, shortcut=False), 4 * width)
    fine = net.block(net.join(net.enlarge(middle), fine), 4 * width, 1, shortcut=False)
    lower = net.block(net.join(net.conv(fine, 4 * width, 3, 2), middle), 8 * width, 1, shortcut=False)
    last = net.block(net.join(net.conv(lower, 8 * width, 3, 2), top), 16 * width, 1, shortcut=False)
    heads = [net.conv(x, outputs, activation=False) for x in (fine, lower, last)]
    sizes = [size // 8, size // 16, size // 32]
    results = [
        helper.make_tensor_value_info(head, TensorProto.FLOAT, [1, outputs, side, side])
        for head, side in zip(heads, sizes, strict=True)
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])
    graph = helper.make_graph(net.nodes, "detector", [image], results, net.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path
