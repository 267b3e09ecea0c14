"""``relay.nn``: operators of neural networks, one file for each family."""

from tilewright.relay.op.nn.activation import (
    dropout,
    dropout_raw,
    fast_softmax,
    gelu,
    leaky_relu,
    log_softmax,
    prelu,
    relu,
    softmax,
    softplus,
    swish,
)  # fmt: skip
from tilewright.relay.op.nn.attention import attention
from tilewright.relay.op.nn.bias_add import bias_add
from tilewright.relay.op.nn.bitserial import bitpack, bitserial_conv2d, bitserial_dense
from tilewright.relay.op.nn.conv1d import conv1d
from tilewright.relay.op.nn.conv2d import contrib_conv2d_nchwc, contrib_depthwise_conv2d_nchwc, conv2d
from tilewright.relay.op.nn.conv3d import conv3d
from tilewright.relay.op.nn.conv_transpose import conv1d_transpose, conv2d_transpose, conv3d_transpose
from tilewright.relay.op.nn.correlation import correlation
from tilewright.relay.op.nn.deformable_conv2d import deformable_conv2d
from tilewright.relay.op.nn.dense import batch_matmul, contrib_dense_pack, dense, matmul
from tilewright.relay.op.nn.fifo_buffer import fifo_buffer
from tilewright.relay.op.nn.loss import cross_entropy, cross_entropy_with_logits, nll_loss
from tilewright.relay.op.nn.norm import batch_norm, group_norm, instance_norm, l2_normalize, layer_norm, lrn
from tilewright.relay.op.nn.pad import dilate, mirror_pad, pad
from tilewright.relay.op.nn.pool_grad import avg_pool2d_grad, max_pool2d_grad
from tilewright.relay.op.nn.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    global_avg_pool1d,
    global_avg_pool2d,
    global_avg_pool3d,
    global_max_pool1d,
    global_max_pool2d,
    global_max_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)  # fmt: skip
from tilewright.relay.op.nn.resample import (
    batch_flatten,
    batch_to_space_nd,
    depth_to_space,
    space_to_batch_nd,
    space_to_depth,
    upsampling,
    upsampling3d,
)  # fmt: skip
from tilewright.relay.op.nn.sparse import sparse_add, sparse_conv2d, sparse_dense, sparse_transpose
from tilewright.relay.op.nn.strassen import (
    contrib_dense_strassen_weight_transform,
    contrib_dense_strassen_without_weight_transform,
)  # fmt: skip
from tilewright.relay.op.nn.tensor_core_legalize import legalize_conv2d as _legalize_conv2d  # noqa: F401  (registers)
from tilewright.relay.op.nn.winograd import (
    contrib_conv2d_winograd_nchwc_without_weight_transform,
    contrib_conv2d_winograd_weight_transform,
)  # fmt: skip
from tilewright.relay.op.tensor.unary import fast_erf, fast_exp, fast_tanh

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "attention", "avg_pool1d", "avg_pool2d", "avg_pool2d_grad",
    "avg_pool3d", "batch_flatten", "batch_matmul", "batch_norm", "batch_to_space_nd", "bias_add", "bitpack",
    "bitserial_conv2d", "bitserial_dense", "contrib_conv2d_nchwc",
    "contrib_conv2d_winograd_nchwc_without_weight_transform", "contrib_conv2d_winograd_weight_transform",
    "contrib_dense_pack", "contrib_dense_strassen_weight_transform",
    "contrib_dense_strassen_without_weight_transform", "contrib_depthwise_conv2d_nchwc", "conv1d",
    "conv1d_transpose", "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose", "correlation", "cross_entropy",
    "cross_entropy_with_logits", "deformable_conv2d", "dense", "depth_to_space", "dilate", "dropout", "dropout_raw",
    "fast_erf", "fast_exp", "fast_softmax", "fast_tanh", "fifo_buffer", "gelu", "global_avg_pool1d",
    "global_avg_pool2d", "global_avg_pool3d", "global_max_pool1d", "global_max_pool2d", "global_max_pool3d",
    "group_norm", "instance_norm", "l2_normalize", "layer_norm", "leaky_relu", "log_softmax",
    "lrn", "matmul", "max_pool1d", "max_pool2d", "max_pool2d_grad", "max_pool3d", "mirror_pad", "nll_loss", "pad",
    "prelu", "relu", "softmax", "softplus", "space_to_batch_nd", "space_to_depth", "sparse_add", "sparse_conv2d",
    "sparse_dense", "sparse_transpose", "swish", "upsampling", "upsampling3d",
]  # fmt: skip
