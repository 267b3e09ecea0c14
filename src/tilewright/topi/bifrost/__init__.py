"""TVM's names for ARM's Bifrost: ``topi.gpu``, whose tiles follow from the target's limits."""

from tilewright.topi.mali import (
    conv2d_nchw_spatial_pack,
    conv2d_nchw_winograd,
    dense,
    depthwise_conv2d_nchw,
    schedule_conv2d_nchw_spatial_pack,
    schedule_conv2d_nchw_winograd,
    schedule_dense,
    schedule_depthwise_conv2d_nchw,
)  # fmt: skip

__all__ = [
    "conv2d_nchw_spatial_pack", "conv2d_nchw_winograd", "dense", "depthwise_conv2d_nchw",
    "schedule_conv2d_nchw_spatial_pack", "schedule_conv2d_nchw_winograd", "schedule_dense",
    "schedule_depthwise_conv2d_nchw",
]  # fmt: skip
