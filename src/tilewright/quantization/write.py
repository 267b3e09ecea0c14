"""The quantized model: QuantizeLinear and DequantizeLinear around tensors, weights and biases as integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.quantization.graph import Array, Graph, Names, replace_initializers, replace_nodes
from tilewright.quantization.plan import Layer, Plan

_LARGEST_WEIGHT = 127
_LARGEST_BIAS = 2.0**30


@dataclass(frozen=True)
class Scale:
    """Integers of ``dtype`` that stand for ``(q - zero) * scale``."""

    scale: np.float32
    zero: int
    dtype: str

    @staticmethod
    def of(low: float, high: float, dtype: str) -> Scale:
        """Return the integers for a range with 0 in it; "int8" is symmetric, "uint8" is not."""
        if dtype == "int8":
            largest = max(-low, high)
            return Scale(_positive(largest / 127), 0, dtype)
        scale = _positive((high - low) / 255)
        return Scale(scale, int(np.clip(np.rint(-low / scale), 0, 255)), dtype)

    def rounded(self, array: Array) -> Array:
        """Return the numbers that stand for ``array``: quantized and dequantized."""
        least, most = (0, 255) if self.dtype == "uint8" else (-128, 127)
        whole = np.clip(np.rint(array / self.scale) + np.float32(self.zero), least, most)
        return (whole - np.float32(self.zero)) * self.scale


def _positive(scale: float) -> np.float32:
    """Return a scale as float32; 1 for tensors of zeros."""
    small = np.float32(scale)
    return small if small >= np.finfo(np.float32).tiny else np.float32(1)


def weight_scales(weight: Array, axis: int, per_channel: bool, bias: Array | None, data: Scale | None) -> Array:
    """Return scales of weights, one or one for each channel, at which the bias fits 32 bits too."""
    across = tuple(i for i in range(weight.ndim) if i != axis)
    largest = np.abs(weight).max(across, initial=0) if per_channel else np.abs(weight).max(initial=0).reshape(1)
    scales = largest.astype("float64") / _LARGEST_WEIGHT
    if bias is not None and data is not None:
        least = np.abs(bias.astype("float64")) / (float(data.scale) * _LARGEST_BIAS)
        scales = np.maximum(scales, least if per_channel else least.max(initial=0))
    return np.array([_positive(scale) for scale in scales], "float32")


def quantized_weight(weight: Array, axis: int, scales: Array) -> Array:
    """Return int8 weights, zero points 0."""
    spread = scales.reshape([-1 if i == axis else 1 for i in range(weight.ndim)])
    return np.clip(np.rint(weight / spread), -_LARGEST_WEIGHT, _LARGEST_WEIGHT).astype("int8")


class QdqWriter:
    """Writes a plan with the scale of each tensor into a copy of the prepared model.

    ``kernels`` maps the name of a layer's node to the names of the nodes by which kernels of the layer are known.
    """

    def __init__(self, model: onnx.ModelProto, plan: Plan, scales: Mapping[str, Scale], per_channel: bool) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.graph, self.plan = Graph(self.model), plan
        self.scales, self.per_channel = scales, per_channel
        self.names = Names(self.model.graph)
        self.tensors = dict(self.graph.initializers)
        self._nodes = {node.name: node for node in self.graph.nodes}
        self.kernels: dict[str, list[str]] = {}
        self._dequantized_constants: dict[tuple[str, bytes], str] = {}

    def write(self) -> onnx.ModelProto:
        """Return the quantized model."""
        made = {node.name: list(node.output) for node in self.graph.nodes}
        before = {layer.node.name: self._weights(layer) for layer in self.plan.layers}
        pairs = {name: self._pair(name) for name in self.plan.tensors}
        for layer in self.plan.layers:
            end = pairs[layer.end][0].name if layer.end in self.plan.integer_ends else layer.node.name
            self.kernels[layer.node.name] = [end, layer.node.name]
        nodes = [node for name in self.graph.inputs for node in pairs.get(name, [])]
        for node in self.graph.nodes:
            nodes += [*before.get(node.name, []), node]
            nodes += [other for name in made[node.name] for other in pairs.get(name, [])]
        replace_nodes(self.model.graph, nodes)
        replace_initializers(self.model.graph, self.tensors)
        del self.model.graph.value_info[:]
        self.model.producer_name = "tilewright"
        return self.model

    def _constant(self, name: str, array: Array) -> str:
        name = self.names.new(name)
        self.tensors[name] = numpy_helper.from_array(array, name)
        return name

    def _pair(self, name: str) -> list[onnx.NodeProto]:
        """Return the nodes that make a tensor's integers and numbers of those, which readers read from now on.

        Everything reads the numbers where a quantized node makes the tensor, else quantized nodes do.
        """
        scale = self.scales[name]
        given = [
            self._constant(f"{name}_scale", np.array(scale.scale, "float32")),
            self._constant(f"{name}_zero_point", np.array(scale.zero, scale.dtype)),
        ]
        whole, number, source = self.names.new(f"{name}_quantized"), self.names.new(f"{name}_dequantized"), name
        made_of_integers = name in self.plan.integer_ends
        if made_of_integers and (name in self.graph.outputs or name in self.graph.captured):
            number, source = name, self.names.new(f"{name}_float")  # the name is known outside
            maker = self.graph.producers[name]
            maker.output[:] = [source if one == name else one for one in maker.output]
        readers = self.plan.quantized_nodes
        for node in self.graph.consumers[name]:
            if made_of_integers or node.name in readers:
                node.input[:] = [number if read == name else read for read in node.input]
        return [
            _node("QuantizeLinear", [source, *given], whole, self.names),
            _node("DequantizeLinear", [whole, *given], number, self.names),
        ]

    def _weights(self, layer: Layer) -> list[onnx.NodeProto]:
        """Let a layer read weights and bias as integers; return the nodes that dequantize them."""
        data = self.scales[layer.data]
        weight = self.graph.constant(layer.weight)
        row = layer.bias or layer.added_row
        bias = self.graph.constant(row) if row else None
        scales = weight_scales(weight, layer.axis, self.per_channel and not layer.one_scale, bias, data)
        whole = quantized_weight(weight, layer.axis, scales)
        added: list[onnx.NodeProto] = []
        inputs = [layer.data, self._dequantized(f"{layer.weight}_quantized", whole, scales, layer.axis, added)]
        if bias is not None:
            unit = (scales.astype("float64") * float(data.scale)).astype("float32")
            in_units = np.rint(bias.astype("float64") / unit).astype("int32")
            made = self._dequantized(f"{row}_quantized", in_units, unit, 0, added)
            if layer.added_bias is None:
                inputs.append(made)
            else:
                adder = self._nodes[layer.added_bias.name]
                adder.input[:] = [made if name == row else name for name in adder.input]
        self._nodes[layer.node.name].input[:] = inputs
        return added

    def _dequantized(self, name: str, array: Array, scales: Array, axis: int, added: list[onnx.NodeProto]) -> str:
        """Return the tensor of constant integers in numbers; append the node that makes it, if there is none yet."""
        key = name, array.tobytes() + scales.tobytes()
        if key in self._dequantized_constants:
            return self._dequantized_constants[key]
        single = len(scales) == 1
        inputs = [
            self._constant(name, array),
            self._constant(f"{name}_scale", scales.reshape(()) if single else scales),
            self._constant(f"{name}_zero_point", np.zeros(() if single else scales.shape, array.dtype)),
        ]
        attrs: dict[str, Any] = {} if single else {"axis": axis}
        node = _node("DequantizeLinear", inputs, self.names.new(f"{name}_dequantized"), self.names, **attrs)
        added.append(node)
        self._dequantized_constants[key] = node.output[0]
        return str(node.output[0])


def _node(kind: str, inputs: list[str], output: str, names: Names, **attrs: Any) -> onnx.NodeProto:
    return onnx.helper.make_node(kind, inputs, [output], names.new(f"{inputs[0]}_{kind}"), **attrs)
