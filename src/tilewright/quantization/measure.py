"""Measures the cost of each layer in accuracy and its gain in time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tilewright.model import compile as compile_model
from tilewright.quantization.calibrate import Progress
from tilewright.quantization.graph import Array, Graph
from tilewright.quantization.plan import Layer, Plan
from tilewright.quantization.probe import Probe
from tilewright.quantization.samples import Sample, SampleError
from tilewright.quantization.static import Quantized
from tilewright.runtime.model import Model

_PROFILES = 5


@dataclass(frozen=True)
class LayerCost:
    """A quantized layer.

    Attributes:
        node, operator: the name and kind of its node.
        decibels: signal to noise of its result, of float input, against the float one; infinite where they are equal.
        error: of the model's outputs when this layer alone is quantized, relative (root of mean squares).
        accuracy_loss: how much the accuracy falls then, from 0 to 1; None without labels.
        float_us, int8_us: microseconds of its kernels in both models; None where no kernel is its own.
    """

    node: str
    operator: str
    decibels: float
    error: float
    accuracy_loss: float | None
    float_us: float | None
    int8_us: float | None

    @property
    def saved_us(self) -> float | None:
        """Microseconds that quantizing saves."""
        return None if self.float_us is None or self.int8_us is None else self.float_us - self.int8_us


@dataclass(frozen=True)
class Costs:
    """The layers, those first that cost most, and both models as a whole.

    ``accuracy`` and ``times`` (microseconds of all kernels) are of the float model and of the quantized one; ``error``
    is of the quantized model's outputs, ``samples`` and ``layer_samples`` how many batches were run.
    """

    layers: list[LayerCost]
    error: float
    accuracy: tuple[float, float] | None
    times: tuple[float, float]
    samples: int
    layer_samples: int


class _Tally:
    """Sums of squares of a signal and its noise, and how many answers were right."""

    def __init__(self) -> None:
        self.signal = self.noise = 0.0
        self.right = self.counted = 0

    def add(self, exact: Sequence[Array], found: Sequence[Array]) -> None:
        for one, other in zip(exact, found, strict=True):
            if one.dtype.kind == "f":
                self.signal += float(np.square(one, dtype="float64").sum())
                self.noise += float(np.square(np.subtract(other, one, dtype="float64")).sum())

    def answer(self, output: Array, labels: Array | None) -> None:
        """Count the right ones among the rows of an output; ``labels`` are those of all samples."""
        if labels is not None:
            answers = output.reshape(len(output) if output.ndim > 1 else 1, -1).argmax(1)
            wanted = labels[self.counted : self.counted + len(answers)]
            self.right += int((answers[: len(wanted)] == wanted).sum())
            self.counted += len(answers)

    @property
    def error(self) -> float:
        return float(np.sqrt(self.noise / self.signal)) if self.signal else float(self.noise > 0)

    @property
    def decibels(self) -> float:
        return float(10 * np.log10(self.signal / self.noise)) if self.noise and self.signal else float("inf")

    @property
    def accuracy(self) -> float:
        return self.right / max(self.counted, 1)


def measure(quantized: Quantized, progress: Progress, seconds: float = 60.0) -> Costs:
    """Measure each layer on the samples, for about ``seconds`` but on one batch at least, and both models on all."""
    target = quantized.options.target
    progress("compile both models", 0, 2)
    exact, whole = (
        compile_model(m, target=target, dims=quantized.samples.dims) for m in (quantized.float_model, quantized.model)
    )
    own, float_tally = _Tally(), _Tally()
    count = 0
    sample: Sample = {}
    labels = quantized.samples.labels
    for count, sample in enumerate(quantized.samples, 1):
        progress("run both models", count, 0)
        one, other = list(exact.run(sample).values()), list(whole.run(sample).values())
        own.add(one, other)
        own.answer(other[0], labels)
        float_tally.answer(one[0], labels)
    if labels is not None and own.counted != len(labels):
        raise SampleError(f"there are {len(labels)} labels, and the model gave {own.counted} answers to the samples")
    tallies, run = _each_layer(quantized, progress, seconds)
    pairs = ((exact, quantized.float_model), (whole, quantized.model))
    times = tuple(_times(_at_sample(model, proto, sample, target), proto, sample) for model, proto in pairs)
    layers = [
        _cost(layer, *tallies[i], tallies[-1][1], times, quantized) for i, layer in enumerate(quantized.plan.layers)
    ]
    layers.sort(key=lambda cost: (-(cost.accuracy_loss or 0), -cost.error))
    accuracy = (float_tally.accuracy, own.accuracy) if own.counted else None
    totals = [sum(by_node.values()) for by_node in times]
    return Costs(layers, own.error, accuracy, (totals[0], totals[1]), count, run)


def _each_layer(quantized: Quantized, progress: Progress, seconds: float) -> tuple[list[tuple[_Tally, _Tally]], int]:
    """Return tallies of each layer's result and of the outputs with it quantized, then those in float."""
    layers, labels = quantized.plan.layers, quantized.samples.labels
    progress("compile a model to quantize single layers in", 0, 1)
    probe = Probe(quantized, quantized.options.target)
    tallies = [(_Tally(), _Tally()) for _ in (*layers, None)]
    deadline, count = time.monotonic() + seconds, 0
    for sample in quantized.samples:
        count += 1
        exact = probe.run(sample)
        tallies[-1][1].answer(exact[probe.outputs[0]], labels)
        for index, layer in enumerate(layers):
            progress("quantize single layers", index, len(layers))
            found = probe.run(sample, index)
            tallies[index][0].add([exact[layer.end]], [found[layer.end]])
            tallies[index][1].add([exact[o] for o in probe.outputs], [found[o] for o in probe.outputs])
            tallies[index][1].answer(found[probe.outputs[0]], labels)
        if time.monotonic() > deadline:
            break
    return tallies, count


def _cost(
    layer: Layer, result: _Tally, outputs: _Tally, exact: _Tally, times: Sequence[Mapping[str, float]], q: Quantized
) -> LayerCost:
    loss = exact.accuracy - outputs.accuracy if exact.counted else None
    kernels = [times[1][name] for name in dict.fromkeys(q.kernels[layer.node.name]) if name in times[1]]
    own = times[0].get(layer.node.name), sum(kernels) if kernels else None
    return LayerCost(layer.node.name, layer.node.op_type, result.decibels, outputs.error, loss, *own)


def _at_sample(model: Model, proto: onnx.ModelProto, sample: Sample, target: Any) -> Model:
    """Return the model, or with named dimensions the same for the sample's: profiles tell its kernels' nodes then."""
    if not model.dimensions:
        return model
    return compile_model(proto, target=target, input_shapes={name: array.shape for name, array in sample.items()})


def _times(model: Model, proto: onnx.ModelProto, sample: Sample) -> dict[str, float]:
    """Return the microseconds of kernels by the first of the nodes that a kernel computes; the least of some runs."""
    best: list[float] = []
    calls: Sequence[Mapping[str, Any]] = ()
    for _ in range(_PROFILES):
        calls = model.profile(**sample).calls
        taken = [float(call["Duration (us)"]) for call in calls]
        best = [min(pair) for pair in zip(best, taken, strict=True)] if len(best) == len(taken) else taken
    names = sorted((node.name for node in proto.graph.node), key=len, reverse=True)
    found: dict[str, float] = {}
    for call, duration in zip(calls, best, strict=True):
        sources = str(call.get("Sources", ""))
        owner = next((n for n in names if sources == n or sources.startswith(f"{n}, ")), "")
        found[owner] = found.get(owner, 0.0) + duration
    return found


def float_reasons(plan: Plan, graph: Graph) -> list[tuple[str, str, str]]:
    """Return name, kind and reason of each node that could be quantized and is not."""
    kinds = {node.name: node.op_type for node in graph.nodes}
    return [(name, kinds[name], why) for name, why in plan.float_nodes.items()]
