"""TVM's names for the ARM schedules of ``topi.cpu``, which choose by the target's features.

Convolutions whose kernels are packed while they run have TVM's names ``*_spatial_pack``.
"""

from tilewright.topi.arm_cpu import tensor_intrin as tensor_intrin
from tilewright.topi.cpu import (
    conv2d_nchw,
    conv2d_NCHWc,
    conv2d_transpose_nchw,
    dense_pack,
    depthwise_conv2d_NCHWc,
    group_conv2d_nchw,
    schedule_bitserial_conv2d_nhwc,
    schedule_bitserial_dense,
    schedule_concatenate,
    schedule_conv2d_nchw,
    schedule_conv2d_NCHWc,
    schedule_conv2d_nhwc,
    schedule_conv2d_transpose_nchw,
    schedule_dense_pack,
    schedule_depthwise_conv2d_nchw,
    schedule_depthwise_conv2d_NCHWc,
    schedule_depthwise_conv2d_nhwc,
    schedule_group_conv2d_nchw,
    schedule_injective,
    schedule_injective_from_existing,
)  # fmt: skip
from tilewright.topi.nn import bitserial_conv2d_nhwc, bitserial_dense, depthwise_conv2d_nchw
from tilewright.topi.nn import conv2d_nhwc as conv2d_nhwc_spatial_pack
from tilewright.topi.nn import depthwise_conv2d_nhwc as compute_depthwise_conv2d_nhwc

conv2d_nchw_spatial_pack = conv2d_nchw
depthwise_conv2d_nchw_spatial_pack = depthwise_conv2d_nchw
group_conv2d_nchw_spatial_pack = group_conv2d_nchw
schedule_conv2d_nchw_spatial_pack = schedule_conv2d_nchw
schedule_conv2d_nhwc_spatial_pack = schedule_conv2d_nhwc
schedule_depthwise_conv2d_nchw_spatial_pack = schedule_depthwise_conv2d_nchw
schedule_group_conv2d_nchwc = schedule_group_conv2d_nchw

__all__ = [
    "bitserial_conv2d_nhwc",
    "bitserial_dense",
    "compute_depthwise_conv2d_nhwc",
    "conv2d_NCHWc",
    "conv2d_nchw",
    "conv2d_nchw_spatial_pack",
    "conv2d_nhwc_spatial_pack",
    "conv2d_transpose_nchw",
    "dense_pack",
    "depthwise_conv2d_NCHWc",
    "depthwise_conv2d_nchw",
    "depthwise_conv2d_nchw_spatial_pack",
    "group_conv2d_nchw",
    "group_conv2d_nchw_spatial_pack",
    "schedule_bitserial_conv2d_nhwc",
    "schedule_bitserial_dense",
    "schedule_concatenate",
    "schedule_conv2d_NCHWc",
    "schedule_conv2d_nchw",
    "schedule_conv2d_nchw_spatial_pack",
    "schedule_conv2d_nhwc",
    "schedule_conv2d_nhwc_spatial_pack",
    "schedule_conv2d_transpose_nchw",
    "schedule_dense_pack",
    "schedule_depthwise_conv2d_NCHWc",
    "schedule_depthwise_conv2d_nchw",
    "schedule_depthwise_conv2d_nchw_spatial_pack",
    "schedule_depthwise_conv2d_nhwc",
    "schedule_group_conv2d_nchw",
    "schedule_group_conv2d_nchwc",
    "schedule_injective",
    "schedule_injective_from_existing",
]  # fmt: skip
