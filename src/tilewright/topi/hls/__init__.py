"""TVM's names for high-level synthesis: loops as declared, which HLS compilers pipeline themselves."""

from tilewright.topi.generic import (
    schedule_adaptive_pool,
    schedule_conv2d_hwcn,
    schedule_conv2d_nchw,
    schedule_conv2d_nhwc,
    schedule_conv2d_transpose_nchw,
    schedule_dense,
    schedule_depthwise_conv2d_nchw,
    schedule_depthwise_conv2d_nhwc,
    schedule_elemwise,
    schedule_injective,
    schedule_pool,
    schedule_reduce,
    schedule_softmax,
)  # fmt: skip

__all__ = [
    "schedule_adaptive_pool", "schedule_conv2d_hwcn", "schedule_conv2d_nchw", "schedule_conv2d_nhwc",
    "schedule_conv2d_transpose_nchw", "schedule_dense", "schedule_depthwise_conv2d_nchw",
    "schedule_depthwise_conv2d_nhwc", "schedule_elemwise", "schedule_injective", "schedule_pool", "schedule_reduce",
    "schedule_softmax",
]  # fmt: skip
