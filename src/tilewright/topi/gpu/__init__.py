"""Schedules for graphics processors: any target with blocks of threads, memory that a block shares, and barriers.

common.py             a target's limits; loops bound to blocks and threads
kernels.py            any graph of computes: which are kernels, which are inlined or attached
injective.py reduction.py normalization.py   by kind of compute
sort.py scan.py scatter.py sparse.py   hand-written loops; those that are the same on every target are in ``topi.loops``

contraction.py           sums of products as (batch, rows, columns, depth)   tiles.py       tile sizes, by a model
stores.py                where their results go
contraction_schedule.py  their one schedule                                  templates.py   as AutoTVM's templates
convolution.py conv.py dense.py int8.py winograd.py   the operators that use it
tensor_tiles.py tensor_intrin.py tensor_schedule.py tensorcore.py   the same on tensor cores
direct.py                one result per thread                               attention.py   scores in shared memory
online_attention.py tensor_attention.py   attention with an online softmax, also on tensor cores
kernel_clocks.py         how long a product takes, by a model
"""

from tilewright.topi.gpu.attention import (
    attention,
    schedule_attention,
)  # fmt: skip
from tilewright.topi.gpu.conv import (
    conv1d_ncw,
    conv1d_nwc,
    conv1d_transpose_ncw,
    conv2d_hwcn,
    conv2d_nchw,
    conv2d_nhwc,
    conv2d_transpose_nchw,
    conv3d_ncdhw,
    conv3d_ndhwc,
    conv3d_transpose_ncdhw,
    deformable_conv2d_nchw,
    deformable_conv2d_nhwc,
    group_conv1d_ncw,
    group_conv1d_nwc,
    group_conv2d_nchw,
    group_conv2d_nhwc,
    schedule_conv1d_ncw,
    schedule_conv1d_nwc,
    schedule_conv1d_transpose_ncw,
    schedule_conv2d_hwcn,
    schedule_conv2d_nchw,
    schedule_conv2d_nhwc,
    schedule_conv2d_transpose_nchw,
    schedule_conv3d_ncdhw,
    schedule_conv3d_ndhwc,
    schedule_conv3d_transpose_ncdhw,
    schedule_deformable_conv2d_nchw,
    schedule_deformable_conv2d_nhwc,
    schedule_group_conv1d_ncw,
    schedule_group_conv1d_nwc,
    schedule_group_conv2d_nchw,
    schedule_group_conv2d_nhwc,
)  # fmt: skip
from tilewright.topi.gpu.dense import (
    batch_matmul,
    dense_large_batch,
    dense_small_batch,
    matmul,
    schedule_batch_matmul,
    schedule_dense_large_batch,
    schedule_dense_small_batch,
    schedule_matmul,
)  # fmt: skip
from tilewright.topi.gpu.direct import (
    depthwise_conv2d_nchw,
    schedule_depthwise_conv2d_nchw,
)  # fmt: skip
from tilewright.topi.gpu.injective import schedule_injective, schedule_injective_from_existing
from tilewright.topi.gpu.int8 import (
    batch_matmul_int8,
    conv2d_nchw_int8,
    conv2d_NCHWc_int8,
    dense_int8,
    group_conv2d_NCHWc_int8,
    schedule_batch_matmul_int8,
    schedule_conv2d_nchw_int8,
    schedule_conv2d_NCHWc_int8,
    schedule_dense_int8,
    schedule_group_conv2d_NCHWc_int8,
)  # fmt: skip
from tilewright.topi.gpu.kernels import schedule_kernels
from tilewright.topi.gpu.scan import exclusive_scan, get_reduction_from_exclusive_scan, inclusive_scan
from tilewright.topi.gpu.scatter import scatter_elements_gpu, scatter_nd_gpu
from tilewright.topi.gpu.sort import sorted_rows_gpu
from tilewright.topi.gpu.sparse import sparse_transpose_gpu
from tilewright.topi.gpu.tensorcore import (
    batch_matmul_tensorcore,
    conv2d_hwnc_tensorcore,
    conv2d_nhwc_tensorcore,
    conv3d_ndhwc_tensorcore,
    dense_tensorcore,
    schedule_batch_matmul_tensorcore,
    schedule_conv2d_hwnc_tensorcore,
    schedule_conv2d_nhwc_tensorcore,
    schedule_conv3d_ndhwc_tensorcore,
    schedule_dense_tensorcore,
)  # fmt: skip
from tilewright.topi.gpu.winograd import (
    conv2d_nchw_winograd,
    conv2d_nchw_winograd_without_weight_transform,
    conv2d_nhwc_winograd_direct,
    conv2d_nhwc_winograd_direct_without_weight_transform,
    schedule_conv2d_nchw_winograd,
    schedule_conv2d_nchw_winograd_without_weight_transform,
    schedule_conv2d_nhwc_winograd_direct,
    schedule_conv2d_nhwc_winograd_direct_without_weight_transform,
)  # fmt: skip

__all__ = [
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
    "deformable_conv2d_nchw",
    "deformable_conv2d_nhwc",
    "dense_int8",
    "dense_large_batch",
    "dense_small_batch",
    "dense_tensorcore",
    "depthwise_conv2d_nchw",
    "exclusive_scan",
    "get_reduction_from_exclusive_scan",
    "group_conv1d_ncw",
    "group_conv1d_nwc",
    "group_conv2d_NCHWc_int8",
    "group_conv2d_nchw",
    "group_conv2d_nhwc",
    "inclusive_scan",
    "matmul",
    "scatter_elements_gpu",
    "scatter_nd_gpu",
    "schedule_attention",
    "schedule_batch_matmul",
    "schedule_batch_matmul_int8",
    "schedule_batch_matmul_tensorcore",
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
    "schedule_deformable_conv2d_nchw",
    "schedule_deformable_conv2d_nhwc",
    "schedule_dense_int8",
    "schedule_dense_large_batch",
    "schedule_dense_small_batch",
    "schedule_dense_tensorcore",
    "schedule_depthwise_conv2d_nchw",
    "schedule_group_conv1d_ncw",
    "schedule_group_conv1d_nwc",
    "schedule_group_conv2d_NCHWc_int8",
    "schedule_group_conv2d_nchw",
    "schedule_group_conv2d_nhwc",
    "schedule_injective",
    "schedule_injective_from_existing",
    "schedule_kernels",
    "schedule_matmul",
    "sorted_rows_gpu",
    "sparse_transpose_gpu",
]  # fmt: skip
