"""All converters: importing this registers them."""

from tilewright.relay.frontend.torch import (
    attention,
    complex_numbers,
    control,
    conv,
    creation,
    elementwise,
    experts,
    gradients,
    indexing,
    linear,
    norm_gradients,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduce,
    resize,
    shape,
    sizes,
    sorting,
    strides,
    vision,
)

__all__ = [
    "attention", "complex_numbers", "control", "conv", "creation", "elementwise", "experts", "gradients", "indexing",
    "linear", "norm_gradients", "normalization", "pooling", "quantization", "recurrent", "reduce", "resize", "shape",
    "sizes", "sorting", "strides", "vision",
]  # fmt: skip
