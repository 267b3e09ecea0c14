"""``tilewright.quantization.quantize_weights``: a model whose matrices alone are of few bits, quantized by block.

MatMul and Gemm with constant weights become ``com.microsoft.MatMulNBits``, which ONNX Runtime and Tilewright run::

    y = MatMulNBits<K, N, bits, block_size, accuracy_level>(x, codes, scales, zero_points, , bias)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.ir.errors import TilewrightError, UnsupportedError, did_you_mean
from tilewright.quantization.block_codes import BITS, METHODS, Codes, Form, quantized
from tilewright.quantization.calibrate import Activations, Progress
from tilewright.quantization.channel_scales import scale_channels
from tilewright.quantization.graph import Array, Graph, Names, replace_initializers, replace_nodes
from tilewright.quantization.plan import Layer, Plan, make_plan
from tilewright.quantization.prepare import prepared
from tilewright.quantization.samples import ReadOther, Samples, inputs_of, make_samples
from tilewright.quantization.save import save_model
from tilewright.relay.frontend.onnx.loading import load_model
from tilewright.topi.nn.nbits import bytes_of_codes

DOMAIN = "com.microsoft"
LEAST_BLOCK = 16
_LEVELS = range(5)


@dataclass
class QuantizedWeights:
    """A model whose matrices are of few bits.

    Attributes:
        model: the quantized model.
        plan: what is quantized, and why the rest is not.
        errors: of each layer's weights, by its node: the root of the mean square, relative to the weights'.
    """

    model: onnx.ModelProto
    float_model: onnx.ModelProto
    plan: Plan
    errors: dict[str, float] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Write the quantized model to an ONNX file; weights of over 1 GiB to a file beside it, ``path.data``."""
        save_model(self.model, Path(path))


def _silent(stage: str, done: int, total: int) -> None:
    """Tell nobody."""


def quantize_weights(
    model: Any,
    weights: str = "int4",
    data: Any = None,
    *,
    block: int = 32,
    method: str = "rtn",
    zero_points: bool = False,
    accuracy_level: int = 4,
    exclude: Collection[str] = (),
    target: Any = "llvm",
    progress: Progress = _silent,
    read_other: ReadOther | None = None,
) -> QuantizedWeights:
    """Quantize the constant matrices of a float32 ONNX model by block; activations stay in float32.

    Args:
        model: the path of an ONNX file or an ``onnx.ModelProto``.
        weights: "int4" or "int8" ("int2" makes a small model, which is seldom of use).
        data: samples of the inputs, as for ``quantize``; ``awq`` and ``gptq`` need some.
        block: numbers of a row that share a scale: a power of 2 from 16 on.
        method: "rtn", "awq" or "gptq" (``block_codes``).
        zero_points: whether blocks have zero points of their own, which cost as many bits as a weight has.
        accuracy_level: how products may be computed: 4 rounds activations to int8 by block, 1 is float32.
        exclude: names of nodes that stay in float.
        target: where the float model runs on the samples.

    Raises:
        TilewrightError: the model is quantized already, nothing in it can be, samples do not fit it, or an option is
            not valid.
    """
    _check(weights, block, method, accuracy_level, data)
    form = Form(BITS[weights], block, zero_points)
    proto = prepared(model if isinstance(model, onnx.ModelProto) else load_model(model))
    plan = make_plan(Graph(proto), exclude, dynamic=True)
    if not plan.layers:
        raise UnsupportedError("the model has no MatMul and no Gemm with constant float32 weights to quantize")
    inputs = inputs_of(proto)
    products: dict[str, Array] = {}
    if method != "rtn":
        products = _products(proto, plan, make_samples(data, inputs, None, read_other), target, progress)
    if method == "awq":
        progress("scale channels", 0, 1)
        scale_channels(proto, plan, form, products)
    writer = _Writer(proto, plan, form, accuracy_level)
    return writer.write(method, products, progress)


def _check(weights: str, block: int, method: str, level: int, data: Any) -> None:
    for what, value, known in (("weights", weights, tuple(BITS)), ("method", method, METHODS)):
        if value not in known:
            raise TilewrightError(
                f"{what} is one of {', '.join(known)}, not {value!r}{did_you_mean(str(value), known)}"
            )
    if block < LEAST_BLOCK or block & (block - 1):
        raise TilewrightError(f"block is a power of 2 from {LEAST_BLOCK} on, not {block}")
    if level not in _LEVELS:
        raise TilewrightError(f"accuracy level is 0 to 4, not {level}")
    if method != "rtn" and data is None:
        raise TilewrightError(f"method {method} needs data: samples of the inputs; rtn needs none")


def _products(
    model: onnx.ModelProto, plan: Plan, samples: Samples, target: Any, progress: Progress
) -> dict[str, Array]:
    """Return x' x of the data of each layer, by the tensor's name."""
    names = list(dict.fromkeys(layer.data for layer in plan.layers))
    running, found = Activations(model, names, samples, target, progress), dict[str, Array]()
    for _, tensors in running.run("run the float model"):
        for name in names:
            rows = tensors[name].reshape(-1, tensors[name].shape[-1]).astype("float64")
            if not np.isfinite(rows).all():
                raise TilewrightError(f"the tensor {name!r} has elements that are no finite numbers on the samples")
            found[name] = found.get(name, 0) + rows.T @ rows
    return found


class _Writer:
    """Writes a plan of matrix products into a copy of the prepared model."""

    def __init__(self, model: onnx.ModelProto, plan: Plan, form: Form, level: int) -> None:
        self._float, self.model = model, onnx.ModelProto()
        self.model.CopyFrom(model)
        self._graph, self._plan, self._form, self._level = Graph(self.model), plan, form, level
        self._names = Names(self.model.graph)
        self._tensors = dict(self._graph.initializers)
        self._done: dict[tuple[str, int, str], tuple[list[str], float]] = {}

    def write(self, method: str, products: dict[str, Array], progress: Progress) -> QuantizedWeights:
        """Return the quantized model."""
        layers = {layer.node.name: layer for layer in self._plan.layers}
        errors: dict[str, float] = {}
        nodes: list[onnx.NodeProto] = []
        for node in self._graph.nodes:
            layer = layers.get(node.name)
            if layer is None:
                nodes.append(node)
                continue
            progress("quantize weights", len(errors) + 1, len(layers))
            made, errors[node.name] = self._product(layer, method, products.get(layer.data))
            nodes.append(made)
        replace_nodes(self.model.graph, nodes)
        replace_initializers(self.model.graph, self._tensors)
        del self.model.graph.value_info[:]
        if not any(opset.domain == DOMAIN for opset in self.model.opset_import):
            self.model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
        self.model.producer_name = "tilewright"
        return QuantizedWeights(self.model, self._float, self._plan, errors)

    def _constant(self, name: str, array: Array) -> str:
        name = self._names.new(name)
        self._tensors[name] = numpy_helper.from_array(array, name)
        return name

    def _weight(self, layer: Layer, method: str, products: Array | None) -> tuple[list[str], float]:
        """Return the names of a layer's codes, scales and zero points, and the weights' relative error."""
        key = layer.weight, layer.axis, layer.data if products is not None else ""
        if key not in self._done:
            weight = self._matrix(layer)
            made = quantized(weight, self._form, method, products)
            size = max(float(np.square(weight, dtype="float64").mean()), np.finfo("float32").tiny)
            difference = np.square(made.matrix(weight.shape[1]) - weight, dtype="float64").mean()
            self._done[key] = self._constants(layer.weight, made), float(difference / size) ** 0.5
        return self._done[key]

    def _matrix(self, layer: Layer) -> Array:
        """Return a layer's weights (outer, inner)."""
        weight = self._graph.constant(layer.weight)
        return weight if layer.axis == 0 else np.ascontiguousarray(weight.T)

    def _constants(self, name: str, made: Codes) -> list[str]:
        arrays = {"codes": bytes_of_codes(made.codes, self._form.bits), "scales": made.scales.reshape(-1)}
        if self._form.zero_points:
            arrays["zero_points"] = bytes_of_codes(made.zeros, self._form.bits).reshape(-1)
        return [self._constant(f"{name}_{what}", array) for what, array in arrays.items()]

    def _product(self, layer: Layer, method: str, products: Array | None) -> tuple[onnx.NodeProto, float]:
        operands, error = self._weight(layer, method, products)
        inputs = [layer.data, *operands]
        if layer.bias:
            inputs += [""] * (5 - len(inputs)) + [layer.bias]
        outer, inner = self._matrix(layer).shape
        form = {"K": inner, "N": outer, "bits": self._form.bits, "block_size": self._form.block}
        node = onnx.helper.make_node(
            "MatMulNBits", inputs, [layer.node.output[0]], layer.node.name, domain=DOMAIN,
            accuracy_level=self._level, **form,
        )  # fmt: skip
        return node, error
