"""A float model in which each layer can be quantized by itself: one compilation for all layers.

``Where(switch, fake, x)`` stands before a layer's data and after its end, where ``fake`` is quantized and dequantized
``x``, computed in float32; weights are inputs, so that a run is given those that a layer has in integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.model import compile as compile_model
from tilewright.quantization.graph import Array, Graph, Names, replace_initializers, replace_nodes
from tilewright.quantization.plan import Layer
from tilewright.quantization.samples import Sample
from tilewright.quantization.static import Quantized
from tilewright.quantization.write import quantized_weight, weight_scales


class Probe:
    """Runs a float model with none or one of its layers quantized."""

    def __init__(self, quantized: Quantized, target: Any) -> None:
        self._layers, self._scales = quantized.plan.layers, quantized.scales
        self._ends = quantized.plan.integer_ends
        builder = _Builder(quantized)
        self._switches = builder.switches
        graph = Graph(quantized.float_model)
        self._weights = {layer.weight: graph.constant(layer.weight) for layer in self._layers}
        self._rounded = [_rounded_weight(graph, layer, quantized) for layer in self._layers]
        self._model = compile_model(builder.model, target=target, dims=quantized.samples.dims)
        self.outputs = builder.outputs

    def run(self, sample: Sample, layer: int | None = None) -> Mapping[str, Array]:
        """Return the model's outputs and the layers' ends with layer number ``layer`` quantized."""
        switches = {name: np.array(index == layer) for index, name in enumerate(self._switches)}
        weights = dict(self._weights)
        if layer is not None:
            weights[self._layers[layer].weight] = self._rounded[layer]
        found: Mapping[str, Array] = self._model.run({**sample, **switches, **weights})
        return found


def _rounded_weight(graph: Graph, layer: Layer, quantized: Quantized) -> Array:
    weight = graph.constant(layer.weight)
    row = layer.bias or layer.added_row
    bias = graph.constant(row) if row else None
    data = quantized.scales.get(layer.data)
    per_channel = quantized.options.per_channel and not layer.one_scale
    scales = weight_scales(weight, layer.axis, per_channel, bias, data)
    whole = quantized_weight(weight, layer.axis, scales)
    return whole * scales.reshape([-1 if i == layer.axis else 1 for i in range(weight.ndim)])


class _Builder:
    """Builds the probed model: ``switches`` are its inputs that choose a layer."""

    def __init__(self, quantized: Quantized) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(quantized.float_model)
        self.outputs = [v.name for v in self.model.graph.output]
        self._graph, self._names = Graph(self.model), Names(self.model.graph)
        self._tensors, self._scales = dict(self._graph.initializers), quantized.scales
        self._before: dict[str, list[onnx.NodeProto]] = {}
        self._after: dict[str, list[onnx.NodeProto]] = {}
        self.switches = [self._layer(layer, quantized) for layer in quantized.plan.layers]
        self._finish(quantized)

    def _layer(self, layer: Layer, quantized: Quantized) -> str:
        switch = self._names.new(f"quantize {layer.node.name}")
        node = next(n for n in self._graph.nodes if n.name == layer.node.name)
        made, nodes = self._faked(node.input[0], layer.data, switch)
        self._before.setdefault(node.name, []).extend(nodes)
        node.input[0] = made
        if layer.end in quantized.plan.integer_ends:
            self._fake_end(layer.end, switch)
        return switch

    def _fake_end(self, end: str, switch: str) -> None:
        """Let all that read a layer's end read what the switch chooses, under the end's name."""
        maker = self._graph.producers[end]
        inner = self._names.new(f"{end} in float")
        maker.output[:] = [inner if name == end else name for name in maker.output]
        _, nodes = self._faked(inner, end, switch)
        nodes[-1].output[0] = end
        self._after[maker.name] = nodes

    def _faked(self, source: str, tensor: str, switch: str) -> tuple[str, list[onnx.NodeProto]]:
        """Return the nodes that choose between ``source`` and its quantized form, and what they give."""
        nodes: list[onnx.NodeProto] = []

        def then(kind: str, *inputs: str, **attrs: int) -> str:
            name = self._names.new(f"{tensor} {kind}")
            nodes.append(onnx.helper.make_node(kind, inputs, [name], self._names.new(f"{tensor} by {kind}"), **attrs))
            return name

        scale = self._scales.get(tensor)
        signed = scale is not None and scale.dtype == "int8"
        low, high = self._number(-128.0 if signed else 0.0), self._number(127.0 if signed else 255.0)
        if scale is not None:
            step, zero = self._number(scale.scale), self._number(scale.zero)
        else:  # found while it runs, as DynamicQuantizeLinear does
            none = self._number(0.0)
            least = then("Min", then("ReduceMin", source, keepdims=0), none)
            most = then("Max", then("ReduceMax", source, keepdims=0), none)
            step = then("Max", then("Div", then("Sub", most, least), high), self._number(np.finfo("float32").tiny))
            zero = then("Clip", then("Round", then("Div", then("Sub", none, least), step)), low, high)
        whole = then("Clip", then("Add", then("Round", then("Div", source, step)), zero), low, high)
        return then("Where", switch, then("Mul", then("Sub", whole, zero), step), source), nodes

    def _number(self, value: float | np.float32) -> str:
        return self._constant(np.array(value, "float32"))

    def _constant(self, array: Array) -> str:
        name = self._names.new("constant of a probe")
        self._tensors[name] = numpy_helper.from_array(array, name)
        return name

    def _finish(self, quantized: Quantized) -> None:
        graph, layers = self.model.graph, quantized.plan.layers
        nodes = [
            other
            for n in self._graph.nodes
            for other in (*self._before.get(n.name, []), n, *self._after.get(n.name, []))
        ]
        replace_nodes(graph, nodes)
        weights = list(dict.fromkeys(layer.weight for layer in layers))
        known = {v.name for v in graph.input}
        shapes = {name: self._tensors.pop(name) for name in weights}
        replace_initializers(graph, self._tensors)
        value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto
        graph.input.extend(value(name, kind.BOOL, []) for name in self.switches)
        graph.input.extend(value(n, kind.FLOAT, list(t.dims)) for n, t in shapes.items() if n not in known)
        ends = dict.fromkeys(layer.end for layer in layers)
        graph.output.extend(value(name, kind.FLOAT, None) for name in ends if name not in self.outputs)
