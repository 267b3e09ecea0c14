"""Computes of neural networks; the names are TVM's.

conv.py conv1d.py conv2d.py conv3d.py depthwise_conv2d.py conv2d_transpose.py deformable_conv2d.py   convolutions
dense.py      matrix products          pooling.py   pooling          softmax.py norm.py   softmax, normalisations
elemwise.py   activations, bias        pad.py       padding          mapping.py   moves between space, depth and batch
upsampling.py flatten.py attention.py loss.py pool_grad.py depthwise_conv2d_grad.py
correlation.py fifo_buffer.py   images compared, queues
bitserial.py sparse.py          products of numbers of few bits, and of matrices of mostly 0
winograd.py strassen.py float_parts.py   fast products, with their forms in winograd_forms.py and linear_forms.py
nbits.py      products with weights of few bits, quantized by block
qnn.py        quantization that keeps floats
conv2d_patches.py   windows copied side by side       utils.py winograd_util.py   TVM's helpers
graph.py      what a target may say about operators of the graph
"""

from tilewright.topi.nn import utils as utils
from tilewright.topi.nn.attention import attention
from tilewright.topi.nn.bitserial import (
    binarize_pack,
    binary_dense,
    bitpack,
    bitserial_conv2d_nchw,
    bitserial_conv2d_nhwc,
    bitserial_dense,
)  # fmt: skip
from tilewright.topi.nn.conv1d import conv1d, conv1d_ncw, conv1d_nwc, group_conv1d_ncw, group_conv1d_nwc
from tilewright.topi.nn.conv2d import (
    conv2d,
    conv2d_hwcn,
    conv2d_nchw,
    conv2d_NCHWc,
    conv2d_NCHWc_int8,
    conv2d_nhwc,
    group_conv2d_nchw,
    group_conv2d_nhwc,
)  # fmt: skip
from tilewright.topi.nn.conv2d_patches import conv2d_patches
from tilewright.topi.nn.conv2d_transpose import (
    conv1d_transpose_ncw,
    conv2d_transpose_nchw,
    conv3d_transpose_ncdhw,
    group_conv2d_transpose_nchw,
)  # fmt: skip
from tilewright.topi.nn.conv3d import conv3d_ncdhw, conv3d_ndhwc
from tilewright.topi.nn.correlation import correlation_nchw
from tilewright.topi.nn.deformable_conv2d import deformable_conv2d_nchw, deformable_conv2d_nhwc
from tilewright.topi.nn.dense import batch_matmul, dense, dense_pack, matmul
from tilewright.topi.nn.depthwise_conv2d import depthwise_conv2d_nchw, depthwise_conv2d_NCHWc, depthwise_conv2d_nhwc
from tilewright.topi.nn.depthwise_conv2d_grad import (
    depthwise_conv2d_backward_input_nhwc,
    depthwise_conv2d_backward_weight_nhwc,
)
from tilewright.topi.nn.elemwise import (
    bias_add,
    fast_sigmoid,
    gelu,
    leaky_relu,
    prelu,
    relu,
    scale_shift_nchw,
    scale_shift_nchwc,
    scale_shift_nhwc,
    softplus,
    swish,
)  # fmt: skip
from tilewright.topi.nn.fifo_buffer import fifo_buffer
from tilewright.topi.nn.flatten import flatten
from tilewright.topi.nn.graph import (
    attention_takes_halves,
    batch_matmul_alter_layout,
    batch_matmul_legalize,
    batch_matmul_takes_halves,
    conv1d_transpose_legalize,
    conv2d_alter_layout,
    conv2d_byte_channels,
    conv2d_channel_lanes,
    conv2d_channel_time,
    conv2d_infer_layout,
    conv2d_legalize,
    conv2d_of_integers,
    conv2d_rows_to_merge,
    conv2d_takes_halves,
    conv2d_transpose_legalize,
    conv3d_alter_layout,
    conv3d_transpose_legalize,
    dense_alter_layout,
    dense_legalize,
    dense_takes_bytes,
    dense_takes_halves,
    depthwise_conv2d_infer_layout,
    matmul_legalize,
    matmul_nbits_legalize,
    matrix_tile_times,
    tensor_cores_attend,
    tensor_cores_take,
)  # fmt: skip
from tilewright.topi.nn.loss import nll_loss
from tilewright.topi.nn.mapping import batch_to_space_nd, depth_to_space, space_to_batch_nd, space_to_depth
from tilewright.topi.nn.nbits import dequantize_nbits, matmul_nbits, matmul_nbits_pack
from tilewright.topi.nn.norm import batch_norm, instance_norm, l2_normalize, layer_norm, lrn
from tilewright.topi.nn.pad import dilate, edge_pad, mirror_pad, pad
from tilewright.topi.nn.pool_grad import pool_grad, pool_grad_nd
from tilewright.topi.nn.pooling import (
    adaptive_pool,
    adaptive_pool1d,
    adaptive_pool3d,
    global_pool,
    pool,
    pool1d,
    pool2d,
    pool3d,
)  # fmt: skip
from tilewright.topi.nn.qnn import (
    SQNN_CODE_TO_DTYPE,
    SQNN_DISABLE,
    SQNN_DTYPE_TO_CODE,
    SQNN_INT8,
    SQNN_INT32,
    SQNN_UINT8,
    simulated_dequantize,
    simulated_quantize,
)
from tilewright.topi.nn.softmax import fast_softmax, log_softmax, softmax
from tilewright.topi.nn.sparse import (
    sparse_add,
    sparse_conv2d,
    sparse_dense,
    sparse_dense_sp_lhs,
    sparse_dense_sp_rhs,
    sparse_transpose,
)  # fmt: skip
from tilewright.topi.nn.upsampling import upsampling, upsampling3d
from tilewright.topi.utils import get_pad_tuple

__all__ = [
    "SQNN_CODE_TO_DTYPE",
    "SQNN_DISABLE",
    "SQNN_DTYPE_TO_CODE",
    "SQNN_INT8",
    "SQNN_INT32",
    "SQNN_UINT8",
    "adaptive_pool",
    "adaptive_pool1d",
    "adaptive_pool3d",
    "attention",
    "attention_takes_halves",
    "batch_matmul",
    "batch_matmul_alter_layout",
    "batch_matmul_legalize",
    "batch_matmul_takes_halves",
    "batch_norm",
    "batch_to_space_nd",
    "bias_add",
    "binarize_pack",
    "binary_dense",
    "bitpack",
    "bitserial_conv2d_nchw",
    "bitserial_conv2d_nhwc",
    "bitserial_dense",
    "conv1d",
    "conv1d_ncw",
    "conv1d_nwc",
    "conv1d_transpose_legalize",
    "conv1d_transpose_ncw",
    "conv2d",
    "conv2d_NCHWc",
    "conv2d_NCHWc_int8",
    "conv2d_alter_layout",
    "conv2d_byte_channels",
    "conv2d_channel_lanes",
    "conv2d_channel_time",
    "conv2d_hwcn",
    "conv2d_infer_layout",
    "conv2d_legalize",
    "conv2d_nchw",
    "conv2d_nhwc",
    "conv2d_of_integers",
    "conv2d_patches",
    "conv2d_rows_to_merge",
    "conv2d_takes_halves",
    "conv2d_transpose_legalize",
    "conv2d_transpose_nchw",
    "conv3d_alter_layout",
    "conv3d_ncdhw",
    "conv3d_ndhwc",
    "conv3d_transpose_legalize",
    "conv3d_transpose_ncdhw",
    "correlation_nchw",
    "deformable_conv2d_nchw",
    "deformable_conv2d_nhwc",
    "dense",
    "dense_alter_layout",
    "dense_legalize",
    "dense_pack",
    "dense_takes_bytes",
    "dense_takes_halves",
    "depth_to_space",
    "depthwise_conv2d_NCHWc",
    "depthwise_conv2d_backward_input_nhwc",
    "depthwise_conv2d_backward_weight_nhwc",
    "depthwise_conv2d_infer_layout",
    "depthwise_conv2d_nchw",
    "depthwise_conv2d_nhwc",
    "dequantize_nbits",
    "dilate",
    "edge_pad",
    "fast_sigmoid",
    "fast_softmax",
    "fifo_buffer",
    "flatten",
    "gelu",
    "get_pad_tuple",
    "global_pool",
    "group_conv1d_ncw",
    "group_conv1d_nwc",
    "group_conv2d_nchw",
    "group_conv2d_nhwc",
    "group_conv2d_transpose_nchw",
    "instance_norm",
    "l2_normalize",
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "lrn",
    "matmul",
    "matmul_legalize",
    "matmul_nbits",
    "matmul_nbits_legalize",
    "matmul_nbits_pack",
    "matrix_tile_times",
    "mirror_pad",
    "nll_loss",
    "pad",
    "pool",
    "pool1d",
    "pool2d",
    "pool3d",
    "pool_grad",
    "pool_grad_nd",
    "prelu",
    "relu",
    "scale_shift_nchw",
    "scale_shift_nchwc",
    "scale_shift_nhwc",
    "simulated_dequantize",
    "simulated_quantize",
    "softmax",
    "softplus",
    "space_to_batch_nd",
    "space_to_depth",
    "sparse_add",
    "sparse_conv2d",
    "sparse_dense",
    "sparse_dense_sp_lhs",
    "sparse_dense_sp_rhs",
    "sparse_transpose",
    "swish",
    "tensor_cores_attend",
    "tensor_cores_take",
    "upsampling",
    "upsampling3d",
]  # fmt: skip
