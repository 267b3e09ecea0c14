"""ONNX import: one converter for each operator, grouped by family.

loading.py     reads and checks a file; writes functions out      plain.py   one form where ONNX has several
importer.py    walks the graph            context.py    what a converter may ask
registry.py    converters by name, opset  attributes.py node attributes as Python values
backend.py     ONNX's backend interface   early.py      operators before opset 7
conv.py pooling.py linear.py elementwise.py shape.py reduce.py normalization.py recurrent.py creation.py quantization.py
microsoft.py fused.py rotary.py; qlinear.py, microsoft_quantized.py, tensors of integers with scales
ml.py randomness.py strings.py; host.py, what runs on the host, and staging.py, between which parts
control.py placement.py selection.py sequences.py spectral.py training.py vision.py
resize.py, with the arithmetic of resampling.py
"""

from tilewright.relay.frontend.onnx import (
    control,
    conv,
    creation,
    elementwise,
    fused,
    linear,
    microsoft,
    microsoft_quantized,
    ml,
    normalization,
    placement,
    pooling,
    qlinear,
    quantization,
    randomness,
    recurrent,
    reduce,
    resize,
    rotary,
    selection,
    sequences,
    shape,
    spectral,
    training,
    vision,
)
from tilewright.relay.frontend.onnx.importer import from_onnx

__all__ = [
    "control", "conv", "creation", "elementwise", "from_onnx", "fused", "linear", "microsoft",
    "microsoft_quantized", "ml", "normalization",
    "placement", "pooling",
    "qlinear", "quantization", "randomness", "recurrent", "reduce", "resize", "rotary", "selection", "sequences",
    "shape", "spectral", "training", "vision",
]  # fmt: skip
