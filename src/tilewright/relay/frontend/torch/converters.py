"""All converters: importing this registers them."""

from tilewright.relay.frontend.torch import (
    conv,
    creation,
    elementwise,
    linear,
    normalization,
    pooling,
    reduce,
    shape,
    sizes,
)

__all__ = ["conv", "creation", "elementwise", "linear", "normalization", "pooling", "reduce", "shape", "sizes"]
