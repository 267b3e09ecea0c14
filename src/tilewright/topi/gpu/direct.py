"""Convolutions with little reuse between results, such as depthwise ones: one result per thread."""

from __future__ import annotations

from typing import Any

from tilewright import autotvm, te
from tilewright.autotvm.task.space import ConfigSpace
from tilewright.topi import nn
from tilewright.topi.gpu.kernels import schedule_kernels


@autotvm.register_topi_compute("depthwise_conv2d_nchw.cuda")
def depthwise_conv2d_nchw(cfg: ConfigSpace, data: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any,
                          dilation: Any, out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Compute ``topi.nn.depthwise_conv2d_nchw``."""
    return nn.depthwise_conv2d_nchw(data, kernel, strides, padding, dilation, out_dtype)


@autotvm.register_topi_schedule("depthwise_conv2d_nchw.cuda")
def schedule_depthwise_conv2d_nchw(cfg: ConfigSpace, outs: Any) -> te.Schedule:
    """Bind each result to a thread; neighbouring threads read neighbouring windows, which the L1 cache keeps."""
    return schedule_kernels(outs)
