"""Schedules for any target, by TVM's names: the fallback of targets that register none.

All are one (``default.py``): loops in declared order, no vectors, no threads, injective computes inlined. It is correct
on every target and fast on none.
"""

from tilewright.topi.generic.default import (
    default_schedule,
    schedule_extern,
    schedule_injective_from_existing,
    schedule_pool,
)  # fmt: skip

schedule_adaptive_pool = schedule_pool
schedule_argsort = schedule_extern
schedule_argwhere = schedule_extern
schedule_batch_matmul = schedule_extern
schedule_binarize_pack = schedule_extern
schedule_binary_dense = schedule_extern
schedule_bitpack = schedule_extern
schedule_bitserial_conv2d_nchw = schedule_extern
schedule_bitserial_conv2d_nhwc = schedule_extern
schedule_bitserial_dense = schedule_extern
schedule_broadcast = schedule_extern
schedule_concatenate = schedule_extern
schedule_conv1d_ncw = schedule_extern
schedule_conv1d_nwc = schedule_extern
schedule_conv1d_transpose_ncw = schedule_extern
schedule_conv2d_hwcn = schedule_extern
schedule_conv2d_nchw = schedule_extern
schedule_conv2d_NCHWc = schedule_extern
schedule_conv2d_nhwc = schedule_extern
schedule_conv2d_transpose_nchw = schedule_extern
schedule_conv2d_winograd_weight_transform = schedule_extern
schedule_conv3d_ncdhw = schedule_extern
schedule_conv3d_ndhwc = schedule_extern
schedule_conv3d_transpose_ncdhw = schedule_extern
schedule_conv_direct = schedule_extern
schedule_correlation_nchw = schedule_extern
schedule_deformable_conv2d_nchw = schedule_extern
schedule_deformable_conv2d_nhwc = schedule_extern
schedule_dense = schedule_extern
schedule_depthwise_conv2d_nchw = schedule_extern
schedule_depthwise_conv2d_NCHWc = schedule_extern
schedule_depthwise_conv2d_nhwc = schedule_extern
schedule_einsum = schedule_extern
schedule_elemwise = schedule_extern
schedule_fast_softmax = schedule_extern
schedule_get_valid_counts = schedule_extern
schedule_group_conv2d_nchw = schedule_extern
schedule_group_conv2d_nhwc = schedule_extern
schedule_group_conv2d_transpose_nchw = schedule_extern
schedule_injective = schedule_extern
schedule_l2_normalize = schedule_extern
schedule_layer_norm = schedule_extern
schedule_lrn = schedule_extern
schedule_matmul = schedule_extern
schedule_multibox_detection = schedule_extern
schedule_multibox_prior = schedule_extern
schedule_multibox_transform_loc = schedule_extern
schedule_nms = schedule_extern
schedule_pool_grad = schedule_extern
schedule_proposal = schedule_extern
schedule_reduce = schedule_extern
schedule_reorg = schedule_extern
schedule_roi_align = schedule_extern
schedule_roi_pool = schedule_extern
schedule_scan = schedule_extern
schedule_scatter = schedule_extern
schedule_scatter_add = schedule_extern
schedule_softmax = schedule_extern
schedule_sort = schedule_extern
schedule_sparse_dense = schedule_extern
schedule_sparse_conv2d = schedule_extern
schedule_sparse_transpose = schedule_extern
schedule_topk = schedule_extern
schedule_transpose = schedule_extern
schedule_unique = schedule_extern
schedule_conv2d_nhwc_pack = schedule_extern
schedule_conv2d_NCHWc_int8 = schedule_extern
schedule_conv2d_gemm_weight_transform = schedule_extern
schedule_conv3d_winograd_weight_transform = schedule_extern
schedule_conv2d_winograd_without_weight_transform = schedule_extern
schedule_conv2d_winograd_nnpack_weight_transform = schedule_extern
schedule_dilation2d_nchw = schedule_extern
schedule_dilation2d_nhwc = schedule_extern

__all__ = [
    "default_schedule", "schedule_adaptive_pool", "schedule_argsort", "schedule_argwhere", "schedule_batch_matmul",
    "schedule_binarize_pack", "schedule_binary_dense", "schedule_bitpack", "schedule_bitserial_conv2d_nchw",
    "schedule_bitserial_conv2d_nhwc", "schedule_bitserial_dense", "schedule_broadcast", "schedule_concatenate",
    "schedule_conv1d_ncw", "schedule_conv1d_nwc", "schedule_conv1d_transpose_ncw", "schedule_conv2d_NCHWc",
    "schedule_conv2d_NCHWc_int8", "schedule_conv2d_gemm_weight_transform", "schedule_conv2d_hwcn",
    "schedule_conv2d_nchw", "schedule_conv2d_nhwc", "schedule_conv2d_nhwc_pack", "schedule_conv2d_transpose_nchw",
    "schedule_conv2d_winograd_nnpack_weight_transform", "schedule_conv2d_winograd_weight_transform",
    "schedule_conv2d_winograd_without_weight_transform", "schedule_conv3d_ncdhw", "schedule_conv3d_ndhwc",
    "schedule_conv3d_transpose_ncdhw", "schedule_conv3d_winograd_weight_transform", "schedule_conv_direct",
    "schedule_correlation_nchw", "schedule_deformable_conv2d_nchw", "schedule_deformable_conv2d_nhwc",
    "schedule_dense", "schedule_depthwise_conv2d_NCHWc", "schedule_depthwise_conv2d_nchw",
    "schedule_depthwise_conv2d_nhwc", "schedule_dilation2d_nchw", "schedule_dilation2d_nhwc", "schedule_einsum",
    "schedule_elemwise", "schedule_extern", "schedule_fast_softmax", "schedule_get_valid_counts",
    "schedule_group_conv2d_nchw", "schedule_group_conv2d_nhwc", "schedule_group_conv2d_transpose_nchw",
    "schedule_injective", "schedule_injective_from_existing", "schedule_l2_normalize", "schedule_layer_norm",
    "schedule_lrn", "schedule_matmul", "schedule_multibox_detection", "schedule_multibox_prior",
    "schedule_multibox_transform_loc", "schedule_nms", "schedule_pool", "schedule_pool_grad", "schedule_proposal",
    "schedule_reduce", "schedule_reorg", "schedule_roi_align", "schedule_roi_pool", "schedule_scan",
    "schedule_scatter", "schedule_scatter_add", "schedule_softmax", "schedule_sort", "schedule_sparse_conv2d",
    "schedule_sparse_dense", "schedule_sparse_transpose", "schedule_topk", "schedule_transpose", "schedule_unique",
]  # fmt: skip
