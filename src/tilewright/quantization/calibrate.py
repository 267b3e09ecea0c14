"""Statistics of activations: the float model runs on the samples, compiled by Tilewright, with tensors as outputs.

One sample's activations are in memory at a time. The first run over the samples finds the least and the largest number
of each tensor; methods that look at distributions count in a second one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from tilewright.ir.errors import TilewrightError
from tilewright.model import compile as compile_model
from tilewright.quantization.ranges import BINS, Histogram, choose_range
from tilewright.quantization.samples import Sample, SampleError, Samples

Array = np.ndarray[Any, Any]
Range = tuple[float, float]
Progress = Callable[[str, int, int], None]
"""Told a stage's name, how much of it is done, and how much there is; 0 where that is not known."""


class Activations:
    """Tensors of a float model on samples."""

    def __init__(
        self, model: onnx.ModelProto, tensors: Sequence[str], samples: Samples, target: Any, progress: Progress
    ) -> None:
        progress("compile the float model", 0, 1)
        self.given = {v.name for v in model.graph.input}
        made = with_outputs(model, [t for t in tensors if t not in self.given])
        self._model = compile_model(made, target=target, dims=samples.dims)
        self._tensors, self._samples, self._progress = tensors, samples, progress

    def run(self, stage: str) -> Iterator[tuple[Sample, Mapping[str, Array]]]:
        """Yield each sample with the tensors."""
        sources = len(self._samples.sources)
        total = sources if sources > 1 else 0
        count = 0
        for count, sample in enumerate(self._samples, 1):
            self._progress(stage, count, total)
            found = {**sample, **self._model.run(sample)}
            yield sample, {name: np.asarray(found[name]) for name in self._tensors}
        if not count:
            raise SampleError("there are no samples to calibrate with")


def with_outputs(model: onnx.ModelProto, tensors: Sequence[str]) -> onnx.ModelProto:
    """Return a model whose outputs are these float32 tensors of it, or if there are none its own."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    if not tensors:
        return changed
    known = {v.name: v for v in (*model.graph.output, *model.graph.value_info)}
    kind = onnx.TensorProto.FLOAT
    values = [known.get(name) or onnx.helper.make_tensor_value_info(name, kind, None) for name in tensors]
    del changed.graph.output[:]
    changed.graph.output.extend(values)
    return changed


def find_ranges(activations: Activations, tensors: Sequence[str], method: str, percentile: float) -> dict[str, Range]:
    """Return the range of each tensor, 0 inside it.

    Raises:
        SampleError: there are no samples.
        TilewrightError: a tensor has elements that are not finite.
    """
    limits = {name: (0.0, 0.0) for name in tensors}
    for _, found in activations.run("find ranges"):
        for name in tensors:
            limits[name] = _widened(name, limits[name], found[name])
    if method == "minmax":
        return limits
    counts = {name: np.zeros(BINS, "int64") for name in tensors}
    zeros = dict.fromkeys(tensors, 0)
    for _, found in activations.run("count"):
        for name in tensors:
            there = found[name][found[name] != 0]
            zeros[name] += found[name].size - there.size
            if limits[name][0] < limits[name][1]:
                counts[name] += np.histogram(there, BINS, limits[name])[0]
    return {n: choose_range(Histogram(*limits[n], counts[n], zeros[n]), method, percentile) for n in tensors}


def _widened(name: str, limits: Range, array: Array) -> Range:
    low, high = float(array.min(initial=0)), float(array.max(initial=0))
    if not np.isfinite([low, high]).all():
        raise TilewrightError(
            f"the float model gives numbers that are not finite on a sample, in tensor {name!r}: it has no range"
        )
    return min(limits[0], low), max(limits[1], high)
