"""Three-dimensional convolution."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.topi.nn.conv import conv, per_dim
from tilewright.topi.utils import get_pad_tuple3d


def _conv3d(data: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any, dilation: Any, groups: int,
            layout: str, kernel_layout: str, out_dtype: str | None) -> te.Tensor:  # fmt: skip
    steps = per_dim(dilation, 3)
    extents = [(kernel.shape[kernel_layout.index(s)] - 1) * d + 1 for s, d in zip("DHW", steps, strict=True)]
    name = f"conv3d_{layout.lower()}"
    return conv(
        data, kernel, strides, get_pad_tuple3d(padding, extents), steps, groups, layout, kernel_layout,
        out_dtype or data.dtype, name,
    )  # fmt: skip


def conv3d_ncdhw(Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any,
                 out_dtype: str | None = None, groups: int = 1) -> te.Tensor:  # fmt: skip
    """Convolution of Input (n, c, d, h, w) with Filter (o, c / groups, kd, kh, kw)."""
    return _conv3d(Input, Filter, stride, padding, dilation, groups, "NCDHW", "OIDHW", out_dtype)


def conv3d_ndhwc(Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any,
                 out_dtype: str | None = None, auto_scheduler_rewritten_layout: str = "",
                 groups: int = 1) -> te.Tensor:  # fmt: skip
    """Convolution of Input (n, d, h, w, c) with Filter (kd, kh, kw, c / groups, o)."""
    return _conv3d(Input, Filter, stride, padding, dilation, groups, "NDHWC", "DHWIO", out_dtype)
