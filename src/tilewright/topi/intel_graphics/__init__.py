"""TVM's names for Intel GPUs: ``topi.gpu``, whose tiles follow from the target's limits."""

from tilewright.topi.gpu import conv2d_nchw, depthwise_conv2d_nchw, schedule_conv2d_nchw, schedule_depthwise_conv2d_nchw

__all__ = ["conv2d_nchw", "depthwise_conv2d_nchw", "schedule_conv2d_nchw", "schedule_depthwise_conv2d_nchw"]
