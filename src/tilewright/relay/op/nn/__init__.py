"""``relay.nn``: operators of neural networks, one file for each family."""

from tilewright.relay.op.builder import exports as _exports
from tilewright.relay.op.nn import (  # noqa: F401
    activation,
    attention,
    bias_add,
    bitserial,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose,
    correlation,
    deformable_conv2d,
    dense,
    fifo_buffer,
    integer_conv2d,
    integer_softmax,
    loss,
    nbits,
    norm,
    pad,
    pool_grad,
    pooling,
    resample,
    sparse,
    strassen,
    tensor_core_legalize,
    widen,
    winograd,
)
from tilewright.relay.op.tensor.unary import fast_erf, fast_exp, fast_tanh

__all__ = [*_exports(globals()), "fast_erf", "fast_exp", "fast_tanh"]
