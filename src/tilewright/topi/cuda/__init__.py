"""TVM's CUDA names for ``topi.gpu``, whose schedules serve every graphics processor.

Most of TVM's schedules map to one of ours, which takes any graph of computes.
"""

from tilewright.topi.argwhere import argwhere
from tilewright.topi.gpu import (
    attention,
    batch_matmul,
    batch_matmul_int8,
    batch_matmul_tensorcore,
    conv1d_ncw,
    conv1d_nwc,
    conv1d_transpose_ncw,
    conv2d_hwcn,
    conv2d_hwnc_tensorcore,
    conv2d_nchw,
    conv2d_nchw_int8,
    conv2d_nchw_winograd,
    conv2d_nchw_winograd_without_weight_transform,
    conv2d_NCHWc_int8,
    conv2d_nhwc,
    conv2d_nhwc_tensorcore,
    conv2d_nhwc_winograd_direct,
    conv2d_nhwc_winograd_direct_without_weight_transform,
    conv2d_transpose_nchw,
    conv3d_ncdhw,
    conv3d_ndhwc,
    conv3d_ndhwc_tensorcore,
    conv3d_transpose_ncdhw,
    deformable_conv2d_nchw,
    deformable_conv2d_nhwc,
    dense_int8,
    dense_large_batch,
    dense_small_batch,
    dense_tensorcore,
    depthwise_conv2d_nchw,
    exclusive_scan,
    get_reduction_from_exclusive_scan,
    group_conv1d_ncw,
    group_conv1d_nwc,
    group_conv2d_nchw,
    group_conv2d_NCHWc_int8,
    group_conv2d_nhwc,
    inclusive_scan,
    matmul,
    schedule_attention,
    schedule_batch_matmul,
    schedule_batch_matmul_int8,
    schedule_batch_matmul_tensorcore,
    schedule_conv1d_ncw,
    schedule_conv1d_nwc,
    schedule_conv1d_transpose_ncw,
    schedule_conv2d_hwcn,
    schedule_conv2d_hwnc_tensorcore,
    schedule_conv2d_nchw,
    schedule_conv2d_nchw_int8,
    schedule_conv2d_nchw_winograd,
    schedule_conv2d_nchw_winograd_without_weight_transform,
    schedule_conv2d_NCHWc_int8,
    schedule_conv2d_nhwc,
    schedule_conv2d_nhwc_tensorcore,
    schedule_conv2d_nhwc_winograd_direct,
    schedule_conv2d_nhwc_winograd_direct_without_weight_transform,
    schedule_conv2d_transpose_nchw,
    schedule_conv3d_ncdhw,
    schedule_conv3d_ndhwc,
    schedule_conv3d_ndhwc_tensorcore,
    schedule_conv3d_transpose_ncdhw,
    schedule_deformable_conv2d_nchw,
    schedule_deformable_conv2d_nhwc,
    schedule_dense_int8,
    schedule_dense_large_batch,
    schedule_dense_small_batch,
    schedule_dense_tensorcore,
    schedule_depthwise_conv2d_nchw,
    schedule_group_conv1d_ncw,
    schedule_group_conv1d_nwc,
    schedule_group_conv2d_nchw,
    schedule_group_conv2d_NCHWc_int8,
    schedule_group_conv2d_nhwc,
    schedule_injective,
    schedule_injective_from_existing,
    schedule_kernels,
    schedule_matmul,
)  # fmt: skip
from tilewright.topi.indexing import invert_permutation
from tilewright.topi.nn import correlation_nchw
from tilewright.topi.nn.sparse import sparse_dense
from tilewright.topi.scan import cumprod, cumsum, scanop
from tilewright.topi.scatter import scatter, scatter_add, scatter_nd
from tilewright.topi.sort import argsort, sort, topk
from tilewright.topi.sparse import searchsorted, sparse_reshape
from tilewright.topi.unique import unique
from tilewright.topi.vision import (
    all_class_non_max_suppression,
    get_valid_counts,
    non_max_suppression,
    proposal,
)  # fmt: skip
from tilewright.topi.vision.ssd import multibox_detection, multibox_prior, multibox_transform_loc

schedule_adaptive_pool = schedule_kernels
schedule_argsort = schedule_kernels
schedule_argwhere = schedule_kernels
schedule_broadcast = schedule_injective
schedule_correlation_nchw = schedule_kernels
schedule_depthwise_conv2d_nhwc = schedule_kernels
schedule_elemwise = schedule_injective
schedule_extern = schedule_kernels
schedule_get_valid_counts = schedule_kernels
schedule_lrn = schedule_kernels
schedule_multibox_detection = schedule_kernels
schedule_multibox_prior = schedule_kernels
schedule_multibox_transform_loc = schedule_kernels
schedule_nms = schedule_kernels
schedule_pool_grad = schedule_kernels
schedule_proposal = schedule_kernels
schedule_reduce = schedule_kernels
schedule_reorg = schedule_kernels
schedule_roi_align = schedule_kernels
schedule_roi_pool = schedule_kernels
schedule_scan = schedule_kernels
schedule_scatter = schedule_kernels
schedule_softmax = schedule_kernels
schedule_sort = schedule_kernels
schedule_sparse_dense = schedule_kernels
schedule_topk = schedule_kernels
schedule_transpose = schedule_kernels


def schedule_pool(outs, layout):  # type: ignore[no-untyped-def]
    """Pooling over windows; ``layout`` makes no difference."""
    return schedule_kernels(outs)


__all__ = [
    "all_class_non_max_suppression",
    "argsort",
    "argwhere",
    "attention",
    "batch_matmul",
    "batch_matmul_int8",
    "batch_matmul_tensorcore",
    "conv1d_ncw",
    "conv1d_nwc",
    "conv1d_transpose_ncw",
    "conv2d_NCHWc_int8",
    "conv2d_hwcn",
    "conv2d_hwnc_tensorcore",
    "conv2d_nchw",
    "conv2d_nchw_int8",
    "conv2d_nchw_winograd",
    "conv2d_nchw_winograd_without_weight_transform",
    "conv2d_nhwc",
    "conv2d_nhwc_tensorcore",
    "conv2d_nhwc_winograd_direct",
    "conv2d_nhwc_winograd_direct_without_weight_transform",
    "conv2d_transpose_nchw",
    "conv3d_ncdhw",
    "conv3d_ndhwc",
    "conv3d_ndhwc_tensorcore",
    "conv3d_transpose_ncdhw",
    "correlation_nchw",
    "cumprod",
    "cumsum",
    "deformable_conv2d_nchw",
    "deformable_conv2d_nhwc",
    "dense_int8",
    "dense_large_batch",
    "dense_small_batch",
    "dense_tensorcore",
    "depthwise_conv2d_nchw",
    "exclusive_scan",
    "get_reduction_from_exclusive_scan",
    "get_valid_counts",
    "group_conv1d_ncw",
    "group_conv1d_nwc",
    "group_conv2d_NCHWc_int8",
    "group_conv2d_nchw",
    "group_conv2d_nhwc",
    "inclusive_scan",
    "invert_permutation",
    "matmul",
    "multibox_detection",
    "multibox_prior",
    "multibox_transform_loc",
    "non_max_suppression",
    "proposal",
    "scanop",
    "scatter",
    "scatter_add",
    "scatter_nd",
    "schedule_adaptive_pool",
    "schedule_argsort",
    "schedule_argwhere",
    "schedule_attention",
    "schedule_batch_matmul",
    "schedule_batch_matmul_int8",
    "schedule_batch_matmul_tensorcore",
    "schedule_broadcast",
    "schedule_conv1d_ncw",
    "schedule_conv1d_nwc",
    "schedule_conv1d_transpose_ncw",
    "schedule_conv2d_NCHWc_int8",
    "schedule_conv2d_hwcn",
    "schedule_conv2d_hwnc_tensorcore",
    "schedule_conv2d_nchw",
    "schedule_conv2d_nchw_int8",
    "schedule_conv2d_nchw_winograd",
    "schedule_conv2d_nchw_winograd_without_weight_transform",
    "schedule_conv2d_nhwc",
    "schedule_conv2d_nhwc_tensorcore",
    "schedule_conv2d_nhwc_winograd_direct",
    "schedule_conv2d_nhwc_winograd_direct_without_weight_transform",
    "schedule_conv2d_transpose_nchw",
    "schedule_conv3d_ncdhw",
    "schedule_conv3d_ndhwc",
    "schedule_conv3d_ndhwc_tensorcore",
    "schedule_conv3d_transpose_ncdhw",
    "schedule_correlation_nchw",
    "schedule_deformable_conv2d_nchw",
    "schedule_deformable_conv2d_nhwc",
    "schedule_dense_int8",
    "schedule_dense_large_batch",
    "schedule_dense_small_batch",
    "schedule_dense_tensorcore",
    "schedule_depthwise_conv2d_nchw",
    "schedule_depthwise_conv2d_nhwc",
    "schedule_elemwise",
    "schedule_extern",
    "schedule_get_valid_counts",
    "schedule_group_conv1d_ncw",
    "schedule_group_conv1d_nwc",
    "schedule_group_conv2d_NCHWc_int8",
    "schedule_group_conv2d_nchw",
    "schedule_group_conv2d_nhwc",
    "schedule_injective",
    "schedule_injective_from_existing",
    "schedule_lrn",
    "schedule_matmul",
    "schedule_multibox_detection",
    "schedule_multibox_prior",
    "schedule_multibox_transform_loc",
    "schedule_nms",
    "schedule_pool",
    "schedule_pool_grad",
    "schedule_proposal",
    "schedule_reduce",
    "schedule_reorg",
    "schedule_roi_align",
    "schedule_roi_pool",
    "schedule_scan",
    "schedule_scatter",
    "schedule_softmax",
    "schedule_sort",
    "schedule_sparse_dense",
    "schedule_topk",
    "schedule_transpose",
    "searchsorted",
    "sort",
    "sparse_dense",
    "sparse_reshape",
    "topk",
    "unique",
]  # fmt: skip
