"""Quantized networks to measure: files of ONNX Runtime's quantizer, each beside the float32 file it was made of.

They are QDQ files of uint8; of names that end in ``-dynamic`` what ``quantize_dynamic`` writes.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

from tilewright.runtime.partial_files import whole_file
from tilewright.testing import zoo
from tilewright.testing.quantized import quantize_model, quantized

from .detector import write_detector

DETECTOR = "detector"
DYNAMIC = "-dynamic"
NETWORKS = (
    *("resnet50", "mobilenet_v2", DETECTOR, "distilbert", "vit_b16"),
    *(f"{name}{DYNAMIC}" for name in ("distilbert", "bert_base", "vit_b16")),
)
ACTIVATIONS = "uint8"


def find_quantized(name: str) -> tuple[Path, dict[str, np.ndarray]]:
    """The quantized file of network ``name`` and inputs for it; ``float32_of`` gives the file it was made of."""
    if name.endswith(DYNAMIC):
        path = _quantized_dynamically(name.removesuffix(DYNAMIC))
        return path, zoo.reference(path)[0]
    if name != DETECTOR:
        path = quantized(name, ACTIVATIONS)
        return path, zoo.reference(path)[0]
    folder = zoo.cache_directory() / DETECTOR
    inputs = {"image": np.random.default_rng(0).standard_normal((1, 3, 320, 320)).astype("float32")}
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch) / DETECTOR
            made.mkdir()
            model = write_detector(made / "model.onnx")
            quantize_model(model, made / f"quantized-{ACTIVATIONS}.onnx", inputs, ACTIVATIONS)
            os.replace(made, folder)
    return folder / f"quantized-{ACTIVATIONS}.onnx", inputs


def _quantized_dynamically(name: str) -> Path:
    """Return the file of network ``name`` whose activations are quantized as it runs, beside its export."""
    from onnxruntime import quantization

    model = zoo.export(name)
    output = model.with_name("quantized-dynamic.onnx")
    if not output.exists():
        with whole_file(output) as partial:
            quantization.quantize_dynamic(str(model), str(partial), weight_type=quantization.QuantType.QInt8)
    return output


def float32_of(path: Path) -> Path:
    """The float32 file that the quantized file at ``path`` was made of."""
    return path.with_name("model.onnx")
