"""ONNX import: one converter for each operator, grouped by family.

loading.py     reads and checks a file; expands functions       plain.py   canonical forms of a model
importer.py    walks the graph            context.py    the interface of converters
registry.py    converters by name, opset  attributes.py node attributes as Python values
backend.py     ONNX's backend interface   legacy_opsets.py  operators before opset 7
conv.py padding.py pooling.py linear.py elementwise.py shape.py reduce.py normalization.py recurrent.py creation.py
quantization.py
microsoft.py microsoft_attention.py microsoft_decoding.py microsoft_packed.py microsoft_experts.py fused.py rotary.py
qlinear.py, microsoft_quantized.py, microsoft_ordered.py: integers with scales
microsoft_nbits.py: products with weights of few bits; products_of_rows.py: of which one row is read
ml.py ml_scores.py ml_linear.py ml_features.py ml_trees.py, ai.onnx.ml
randomness.py strings.py; host.py, operators on the host, and host_stages.py, the cuts around them
control.py unpooling.py selection.py sequences.py spectral.py losses.py training.py vision.py
resize.py, with the arithmetic of resampling.py; resize_at_run_time.py
inputs.py ranks.py elements.py indices.py   shapes of inputs; integers over named dimensions; checks of positions
data_dependent.py run_time_control.py       sizes and branches that are decided at run time
functions.py parts.py   functions of a model; converters as parts of other formats' operators
inline_weights.py matrix_blocks.py          weights inside a file, and quantized in blocks
"""

from tilewright.relay.frontend.onnx import (
    control,
    conv,
    creation,
    elementwise,
    fused,
    linear,
    losses,
    microsoft,
    microsoft_attention,
    microsoft_decoding,
    microsoft_experts,
    microsoft_nbits,
    microsoft_ordered,
    microsoft_packed,
    microsoft_quantized,
    ml,
    ml_features,
    ml_linear,
    ml_trees,
    normalization,
    padding,
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
    unpooling,
    vision,
)
from tilewright.relay.frontend.onnx.importer import from_onnx

__all__ = [
    "control", "conv", "creation", "elementwise", "from_onnx", "fused", "linear", "losses", "microsoft",
    "microsoft_attention", "microsoft_decoding", "microsoft_experts", "microsoft_nbits", "microsoft_ordered",
    "microsoft_packed", "microsoft_quantized",
    "ml", "ml_features", "ml_linear", "ml_trees", "normalization", "padding", "pooling",
    "qlinear", "quantization", "randomness", "recurrent", "reduce", "resize", "rotary", "selection", "sequences",
    "shape", "spectral", "training", "unpooling", "vision",
]  # fmt: skip
