"""``tilewright.quantize``: an int8 model of a float32 one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from tilewright.ir.errors import TilewrightError, UnsupportedError, did_you_mean
from tilewright.quantization.calibrate import Activations, Progress, Range, find_ranges
from tilewright.quantization.dynamic import DynamicWriter
from tilewright.quantization.graph import Graph
from tilewright.quantization.plan import Plan, make_plan
from tilewright.quantization.prepare import prepared
from tilewright.quantization.ranges import METHODS
from tilewright.quantization.samples import ReadOther, Samples, inputs_of, make_samples
from tilewright.quantization.save import save_model
from tilewright.quantization.tables import find_tables, with_int8_tables
from tilewright.quantization.write import QdqWriter, Scale
from tilewright.relay.frontend.onnx.loading import load_model

ACTIVATION_TYPES = ("uint8", "int8")
_ALIKE = 4.0  # inputs of a concatenation share a scale if the widest is at most so many times as wide as the narrowest


@dataclass(frozen=True)
class Options:
    """Choices of quantizing; ``quantize`` says what they are."""

    method: str = "minmax"
    percentile: float = 99.99
    per_channel: bool = True
    activations: str = "uint8"
    exclude: tuple[str, ...] = ()
    target: Any = "llvm"
    dynamic: bool = False
    computed: bool = False

    def check(self) -> None:
        """Raise a TilewrightError for a choice that there is not."""
        if self.dynamic and self.computed:
            raise TilewrightError("dynamic quantizes products with constant weights only: leave out computed")
        for what, value, known in (
            ("method", self.method, METHODS),
            ("activations", self.activations, ACTIVATION_TYPES),
        ):
            if value not in known:
                hint = did_you_mean(str(value), known)
                raise TilewrightError(f"{what} is one of {', '.join(known)}, not {value!r}{hint}")
        if not 50 < self.percentile <= 100:
            raise TilewrightError(f"percentile is above 50 and at most 100, not {self.percentile:g}")


@dataclass
class Quantized:
    """A quantized model.

    Attributes:
        model: the quantized model.
        float_model: the float model that was quantized, prepared (``prepare.prepared``).
        plan: what is quantized, and why the rest is not.
        ranges: the range of each quantized tensor.
        scales: its integers.
        samples: what it was calibrated with.
        options: the choices.
        kernels: of each layer's node, the nodes of the quantized model by which its kernels are known.
    """

    model: onnx.ModelProto
    float_model: onnx.ModelProto
    plan: Plan
    ranges: dict[str, Range]
    scales: dict[str, Scale]
    samples: Samples
    options: Options = field(default_factory=Options)
    kernels: dict[str, list[str]] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Write the quantized model to an ONNX file; weights of over 1 GiB to a file beside it, ``path.data``."""
        save_model(self.model, Path(path))


def _silent(stage: str, done: int, total: int) -> None:
    """Tell nobody."""


def quantize(
    model: Any,
    data: Any = None,
    *,
    method: str = "minmax",
    percentile: float = 99.99,
    per_channel: bool = True,
    activations: str = "uint8",
    exclude: Collection[str] = (),
    dynamic: bool = False,
    computed: bool = False,
    labels: Any = None,
    target: Any = "llvm",
    progress: Progress = _silent,
    read_other: ReadOther | None = None,
) -> Quantized:
    """Quantize a float32 ONNX model to 8 bits, calibrated on samples; the result has ``save``.

    The result is a model in ONNX's QDQ form: standard operators, int8 weights with zero points 0, int32 biases.

    Args:
        model: the path of an ONNX file or an ``onnx.ModelProto``.
        data: samples of the inputs: arrays by input name (one sample, or many along the first dimension), an
            iterable of such, or the path of an .npz or .npy file or of a folder of them.
        method: how the range of activations is chosen: "minmax", "entropy", "percentile" or "mse".
        percentile: with that method, how many per cent of the numbers are in the range.
        per_channel: whether weights have a scale for each output channel, instead of one.
        activations: "uint8", with zero points, or "int8", symmetric.
        exclude: names of nodes that stay in float.
        dynamic: find the ranges of activations while the model runs, for matrix products only; needs no samples, and
            writes DynamicQuantizeLinear and MatMulInteger.
        computed: whether products of two computed matrices, as attention has, are quantized too.
        labels: the right class of each sample, to tell accuracies by.
        target: where the float model runs to be calibrated.
        progress: is told how far it is.
        read_other: reads a sample from a file of another kind.

    Raises:
        TilewrightError: the model is quantized already, samples do not fit it, or an option is not valid.
    """
    options = Options(method, percentile, per_channel, activations, tuple(exclude), target, dynamic, computed)
    options.check()
    proto = prepared(model if isinstance(model, onnx.ModelProto) else load_model(model))
    inputs = inputs_of(proto)
    samples = Samples([], inputs) if dynamic and data is None else make_samples(data, inputs, labels, read_other)
    plan = make_plan(Graph(proto), options.exclude, dynamic, computed)
    plan.tables = find_tables(Graph(proto), options.exclude)
    if not (plan.layers or plan.computed or plan.tables):
        raise UnsupportedError(_nothing(plan))
    ranges: dict[str, Range] = {}
    if not dynamic:
        running = Activations(proto, plan.tensors, samples, target, progress)
        ranges = shared_ranges(plan, find_ranges(running, plan.tensors, method, percentile))
    scales = {name: Scale.of(*limits, activations) for name, limits in ranges.items()}
    progress("write", 0, 1)
    writer = DynamicWriter(proto, plan, per_channel) if dynamic else QdqWriter(proto, plan, scales, per_channel)
    made = with_int8_tables(writer.write(), {node.name for node in plan.tables})
    return Quantized(made, proto, plan, ranges, scales, samples, options, writer.kernels)


def _nothing(plan: Plan) -> str:
    reasons = "; ".join(f"{name}: {why}" for name, why in list(plan.float_nodes.items())[:5])
    shown = f" ({reasons})" if reasons else ""
    return f"the model has nothing to quantize: no Conv, ConvTranspose, Gemm or MatMul with constant weights{shown}"


def shared_ranges(plan: Plan, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Return ranges with one for tensors that have one scale: those of moves, and of concatenations of like widths."""
    leader = {name: name for name in ranges}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    found = dict(ranges)

    def join(names: tuple[str, ...]) -> None:
        roots = list(dict.fromkeys(find(name) for name in names))
        low, high = min(found[r][0] for r in roots), max(found[r][1] for r in roots)
        for root in roots:
            leader[root] = roots[0]
        found[roots[0]] = low, high

    for pair in plan.shared:
        join(pair)
    for names in plan.concatenations:
        widths = [found[find(name)][1] - found[find(name)][0] for name in names]
        if max(widths) <= _ALIKE * min(widths):
            join(names)
    return {name: found[find(name)] for name in ranges}
