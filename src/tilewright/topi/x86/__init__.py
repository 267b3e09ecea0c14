"""TVM's names for what ``topi.cpu`` has for x86-64 processors; the target's features say which of them."""

from tilewright.topi.cpu import (
    batch_matmul,
    conv2d_nchw,
    conv2d_NCHWc,
    conv2d_transpose_nchw,
    dense_nopack,
    dense_pack,
    depthwise_conv2d_NCHWc,
    schedule_adaptive_pool,
    schedule_batch_matmul,
    schedule_binarize_pack,
    schedule_binary_dense,
    schedule_bitserial_conv2d_nchw,
    schedule_bitserial_conv2d_nhwc,
    schedule_bitserial_dense,
    schedule_broadcast,
    schedule_concatenate,
    schedule_conv1d_ncw,
    schedule_conv2d_hwcn,
    schedule_conv2d_nchw,
    schedule_conv2d_NCHWc,
    schedule_conv2d_nhwc,
    schedule_conv2d_transpose_nchw,
    schedule_conv3d_ncdhw,
    schedule_conv_direct,
    schedule_dense_nopack,
    schedule_dense_pack,
    schedule_depthwise_conv2d_nchw,
    schedule_depthwise_conv2d_NCHWc,
    schedule_elemwise,
    schedule_group_conv2d_nchw,
    schedule_injective,
    schedule_injective_from_existing,
    schedule_pool,
    schedule_reduce,
    schedule_softmax,
)  # fmt: skip
from tilewright.topi.nn import (
    bitserial_conv2d_nchw,
    bitserial_conv2d_nhwc,
    bitserial_dense,
    conv1d_ncw,
    conv1d_nwc,
    conv3d_ncdhw,
    conv3d_ndhwc,
    conv3d_transpose_ncdhw,
    depthwise_conv2d_nchw,
)  # fmt: skip
from tilewright.topi.scatter import scatter_nd
from tilewright.topi.vision import roi_align_nchw

schedule_conv1d_nwc = schedule_conv3d_ndhwc = schedule_conv3d_transpose_ncdhw = schedule_conv_direct

__all__ = [
    "batch_matmul", "bitserial_conv2d_nchw", "bitserial_conv2d_nhwc", "bitserial_dense", "conv1d_ncw", "conv1d_nwc",
    "conv2d_NCHWc", "conv2d_nchw", "conv2d_transpose_nchw", "conv3d_ncdhw", "conv3d_ndhwc",
    "conv3d_transpose_ncdhw", "dense_nopack", "dense_pack", "depthwise_conv2d_NCHWc", "depthwise_conv2d_nchw",
    "roi_align_nchw", "scatter_nd", "schedule_adaptive_pool", "schedule_batch_matmul", "schedule_binarize_pack",
    "schedule_binary_dense", "schedule_bitserial_conv2d_nchw", "schedule_bitserial_conv2d_nhwc",
    "schedule_bitserial_dense", "schedule_broadcast", "schedule_concatenate", "schedule_conv1d_ncw",
    "schedule_conv1d_nwc", "schedule_conv2d_NCHWc", "schedule_conv2d_hwcn", "schedule_conv2d_nchw",
    "schedule_conv2d_nhwc", "schedule_conv2d_transpose_nchw", "schedule_conv3d_ncdhw", "schedule_conv3d_ndhwc",
    "schedule_conv3d_transpose_ncdhw", "schedule_conv_direct", "schedule_dense_nopack", "schedule_dense_pack",
    "schedule_depthwise_conv2d_NCHWc", "schedule_depthwise_conv2d_nchw", "schedule_elemwise",
    "schedule_group_conv2d_nchw", "schedule_injective", "schedule_injective_from_existing", "schedule_pool",
    "schedule_reduce", "schedule_softmax",
]  # fmt: skip
