"""The dynamically quantized model: the range of activations is found while it runs, for each product anew.

A matrix product becomes, as in ``onnxruntime.quantization``::

    q, scale, zero = DynamicQuantizeLinear(x)
    sum = MatMulInteger(q, weight, zero, 0)
    y = Cast(sum) * (scale * weight_scale) + bias
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tilewright.quantization.graph import Array, Graph, Names, replace_initializers, replace_nodes
from tilewright.quantization.plan import Layer, Plan
from tilewright.quantization.write import quantized_weight, weight_scales


class DynamicWriter:
    """Writes a plan of matrix products into a copy of the prepared model.

    ``kernels`` maps the name of a layer's node to the names of the nodes that it becomes.
    """

    def __init__(self, model: onnx.ModelProto, plan: Plan, per_channel: bool) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.kernels: dict[str, list[str]] = {}
        self._graph, self._plan, self._per_channel = Graph(self.model), plan, per_channel
        self._names = Names(self.model.graph)
        self._tensors = dict(self._graph.initializers)
        self._quantized: dict[str, list[str]] = {}  # from a tensor to its integers, their scale and zero point
        self._weights: dict[tuple[str, int], tuple[str, str]] = {}

    def write(self) -> onnx.ModelProto:
        """Return the quantized model."""
        layers = {layer.node.name: layer for layer in self._plan.layers}
        nodes: list[onnx.NodeProto] = []
        for node in self._graph.nodes:
            layer = layers.get(node.name)
            made = [node] if layer is None else self._product(layer)
            nodes += made
            if layer is not None:
                self.kernels[layer.node.name] = [one.name for one in made]
        replace_nodes(self.model.graph, nodes)
        replace_initializers(self.model.graph, self._tensors)
        del self.model.graph.value_info[:]
        self.model.producer_name = "tilewright"
        return self.model

    def _constant(self, name: str, array: Array) -> str:
        name = self._names.new(name)
        self._tensors[name] = numpy_helper.from_array(array, name)
        return name

    def _weight(self, layer: Layer) -> tuple[str, str]:
        """Return the names of a layer's int8 weights, (inner, outer), and of their scales."""
        key = layer.weight, layer.axis
        if key not in self._weights:
            weight = self._graph.constant(layer.weight)
            weight = weight if layer.axis == 1 else np.ascontiguousarray(weight.T)
            scales = weight_scales(weight, 1, self._per_channel, None, None)
            whole = quantized_weight(weight, 1, scales)
            scale = self._constant(f"{layer.weight}_scale", scales if self._per_channel else scales.reshape(()))
            self._weights[key] = self._constant(f"{layer.weight}_quantized", whole), scale
        return self._weights[key]

    def _product(self, layer: Layer) -> list[onnx.NodeProto]:
        name, nodes = layer.node.name, []
        end = layer.node.output[0]

        def then(kind: str, inputs: list[str], outputs: list[str], what: str = "", **attrs: int) -> str:
            label = f"{name}_{what}" if what else name
            nodes.append(onnx.helper.make_node(kind, inputs, outputs, label, **attrs))
            return outputs[0]

        if layer.data not in self._quantized:
            given = [self._names.new(f"{layer.data}_{what}") for what in ("quantized", "scale", "zero_point")]
            then("DynamicQuantizeLinear", [layer.data], given, "quantize")
            self._quantized[layer.data] = given
        whole, scale, zero = self._quantized[layer.data]
        weight, weight_scale = self._weight(layer)
        no_zero = self._constant(f"{weight}_zero_point", np.array(0, "int8"))
        total = then("MatMulInteger", [whole, weight, zero, no_zero], [self._names.new(f"{end}_sum")])
        number = then("Cast", [total], [self._names.new(f"{end}_number")], "cast", to=TensorProto.FLOAT)
        unit = then("Mul", [scale, weight_scale], [self._names.new(f"{end}_scale")], "scales")
        product = self._names.new(f"{end}_product") if layer.bias else end
        then("Mul", [number, unit], [product], "scale")
        if layer.bias:
            then("Add", [product, layer.bias], [end], "bias")
        return nodes
