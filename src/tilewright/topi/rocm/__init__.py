"""TVM's names for AMD GPUs: ``topi.gpu``, whose tiles follow from the target's limits."""

from tilewright.topi.gpu import batch_matmul, conv2d_nchw, schedule_batch_matmul, schedule_conv2d_nchw
from tilewright.topi.gpu import dense_large_batch as dense
from tilewright.topi.gpu import schedule_dense_large_batch as schedule_dense

__all__ = [
    "batch_matmul", "conv2d_nchw", "dense", "schedule_batch_matmul", "schedule_conv2d_nchw", "schedule_dense",
]  # fmt: skip
