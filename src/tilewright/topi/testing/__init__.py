"""``tvm.topi.testing``: numpy references of operators, and schedules by target.

The references define operators element by element, and share no code with the kernels. Sums are made in float64 or
int64 and then rounded to the dtype of the data, so that they are more exact than the kernels.

common.py        schedules by target, and a comparison
convolution.py   convolutions, plain, grouped, transposed, deformable; correlation, dilation
products.py      dense layers and batched products
pooling.py       pools and their gradients
norm.py          softmax, local response and L2 normalisation; losses
image.py         resizing, crops, sampling at grids
vision.py        regions of interest, reorg
indexing.py      gathering, slicing, masks, diagonals, one-hot, search
blocks.py        depth and space, batch and space
"""

from .blocks import batch_to_space_nd_python, depth_to_space_python, space_to_batch_nd_python, space_to_depth_python
from .common import (
    compare_numpy_tvm,
    dispatch,
    get_broadcast_schedule,
    get_conv2d_nchw_implement,
    get_elemwise_schedule,
    get_injective_schedule,
    get_reduce_schedule,
)
from .convolution import (
    conv1d_ncw_python,
    conv1d_transpose_ncw_python,
    conv2d_hwcn_python,
    conv2d_nchw_python,
    conv2d_nhwc_python,
    conv2d_transpose_nchw_python,
    conv2d_transpose_nhwc_python,
    conv3d_ncdhw_python,
    conv3d_ndhwc_python,
    conv3d_transpose_ncdhw_python,
    correlation_nchw_python,
    deformable_conv2d_nchw_python,
    deformable_conv2d_nhwc_python,
    depthwise_conv2d_python_nchw,
    depthwise_conv2d_python_nchwc,
    depthwise_conv2d_python_nhwc,
    dilate_python,
)
from .image import (
    affine_grid_python,
    crop_and_resize_python,
    grid_sample_nchw_python,
    resize1d_python,
    resize2d_python,
    resize3d_python,
)
from .indexing import (
    gather_nd_python,
    gather_python,
    matrix_set_diag,
    one_hot,
    searchsorted_ref,
    sequence_mask,
    slice_axis_python,
    strided_set_python,
    strided_slice_python,
)
from .norm import l2_normalize_python, log_softmax_python, lrn_python, nll_loss, softmax_python
from .pooling import adaptive_pool, pool_grad_nchw, poolnd_python
from .products import batch_matmul, dense
from .vision import reorg_python, roi_align_nchw_python, roi_align_nhwc_python, roi_pool_nchw_python

__all__ = [
    "adaptive_pool",
    "affine_grid_python",
    "batch_matmul",
    "batch_to_space_nd_python",
    "compare_numpy_tvm",
    "conv1d_ncw_python",
    "conv1d_transpose_ncw_python",
    "conv2d_hwcn_python",
    "conv2d_nchw_python",
    "conv2d_nhwc_python",
    "conv2d_transpose_nchw_python",
    "conv2d_transpose_nhwc_python",
    "conv3d_ncdhw_python",
    "conv3d_ndhwc_python",
    "conv3d_transpose_ncdhw_python",
    "correlation_nchw_python",
    "crop_and_resize_python",
    "deformable_conv2d_nchw_python",
    "deformable_conv2d_nhwc_python",
    "dense",
    "depth_to_space_python",
    "depthwise_conv2d_python_nchw",
    "depthwise_conv2d_python_nchwc",
    "depthwise_conv2d_python_nhwc",
    "dilate_python",
    "dispatch",
    "gather_nd_python",
    "gather_python",
    "get_broadcast_schedule",
    "get_conv2d_nchw_implement",
    "get_elemwise_schedule",
    "get_injective_schedule",
    "get_reduce_schedule",
    "grid_sample_nchw_python",
    "l2_normalize_python",
    "log_softmax_python",
    "lrn_python",
    "matrix_set_diag",
    "nll_loss",
    "one_hot",
    "pool_grad_nchw",
    "poolnd_python",
    "reorg_python",
    "resize1d_python",
    "resize2d_python",
    "resize3d_python",
    "roi_align_nchw_python",
    "roi_align_nhwc_python",
    "roi_pool_nchw_python",
    "searchsorted_ref",
    "sequence_mask",
    "slice_axis_python",
    "softmax_python",
    "space_to_batch_nd_python",
    "space_to_depth_python",
    "strided_set_python",
    "strided_slice_python",
]
