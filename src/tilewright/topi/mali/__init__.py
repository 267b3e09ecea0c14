"""TVM's names for ARM's Mali: ``topi.gpu``, whose tiles follow from the target's limits."""

from tilewright.topi.gpu import (
    conv2d_nchw as conv2d_nchw_spatial_pack,
)  # fmt: skip
from tilewright.topi.gpu import (
    conv2d_nchw_winograd,
    depthwise_conv2d_nchw,
    schedule_conv2d_nchw_winograd,
    schedule_depthwise_conv2d_nchw,
)
from tilewright.topi.gpu import (
    conv2d_nhwc as conv2d_nhwc_spatial_pack,
)
from tilewright.topi.gpu import (
    dense_large_batch as dense,
)
from tilewright.topi.gpu import (
    schedule_conv2d_nchw as schedule_conv2d_nchw_spatial_pack,
)
from tilewright.topi.gpu import (
    schedule_conv2d_nhwc as schedule_conv2d_nhwc_spatial_pack,
)
from tilewright.topi.gpu import (
    schedule_dense_large_batch as schedule_dense,
)
from tilewright.topi.gpu import (
    schedule_kernels as schedule_depthwise_conv2d_nhwc,
)
from tilewright.topi.nn import depthwise_conv2d_nhwc

__all__ = [
    "conv2d_nchw_spatial_pack", "conv2d_nchw_winograd", "conv2d_nhwc_spatial_pack", "dense", "depthwise_conv2d_nchw",
    "depthwise_conv2d_nhwc", "schedule_conv2d_nchw_spatial_pack", "schedule_conv2d_nchw_winograd",
    "schedule_conv2d_nhwc_spatial_pack", "schedule_dense", "schedule_depthwise_conv2d_nchw",
    "schedule_depthwise_conv2d_nhwc",
]  # fmt: skip
