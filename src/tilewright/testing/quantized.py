"""Quantized networks for tests: ONNX files with QuantizeLinear and DequantizeLinear, made by ONNX Runtime's quantizer.

Weights are int8 with a scale for each output channel, activations uint8 or int8 with one scale, calibrated on random
inputs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tilewright.runtime.partial_files import whole_file
from tilewright.testing.zoo.export import export, reference


@contextmanager
def _errors_only() -> Iterator[None]:
    """Let the root logger, by which ONNX Runtime's quantizer warns, pass errors only."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)


def quantize_model(model: Path, output: Path, inputs: dict[str, np.ndarray], activations: str = "uint8") -> Path:
    """Write the quantized form of the float32 network at ``model`` to ``output``.

    Parameters
    ----------
    inputs : by name; what activations are calibrated with, beside their negatives.
    activations : "uint8", with zero points, or "int8", symmetric.
    """
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.samples: Iterator[dict[str, np.ndarray]] = iter([inputs, {k: -v for k, v in inputs.items()}])

        def get_next(self) -> Any:
            return next(self.samples, None)

    signed = activations == "int8"
    kind = quantization.QuantType.QInt8 if signed else quantization.QuantType.QUInt8
    with _errors_only():  # it advises to simplify the network first
        quantization.quantize_static(
            str(model),
            str(output),
            Reader(),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            activation_type=kind,
            weight_type=quantization.QuantType.QInt8,
            extra_options={"ActivationSymmetric": signed},
        )
    onnx.checker.check_model(str(output))
    return output


def quantized(name: str, activations: str = "uint8", **options: Any) -> Path:
    """Return the quantized form of network ``name`` of the zoo, beside its export; ``options`` as for
    ``zoo.export``.
    """
    model = export(name, **options)
    output = model.with_name(f"quantized-{activations}.onnx")
    if not output.exists():
        inputs, _ = reference(model)
        with whole_file(output) as partial:
            quantize_model(model, partial, inputs, activations)
    return output
