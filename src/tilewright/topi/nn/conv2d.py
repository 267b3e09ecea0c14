"""Two-dimensional convolution in the unpacked layouts."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.topi.nn.conv import conv
from tilewright.topi.utils import InvalidShapeError, get_pad_tuple


def _spatial(kernel: te.Tensor, layout: str) -> tuple[Any, Any]:
    return kernel.shape[layout.index("H")], kernel.shape[layout.index("W")]


def dilated_padding(padding: Any, kernel: te.Tensor, kernel_layout: str, dilation: Any) -> tuple[Any, ...]:
    """Padding (top, left, bottom, right) with "SAME" taken for the dilated kernel."""
    dh, dw = dilation if isinstance(dilation, (list, tuple)) else (dilation, dilation)
    kh, kw = _spatial(kernel, kernel_layout)
    return get_pad_tuple(padding, ((kh - 1) * dh + 1, (kw - 1) * dw + 1))


def conv2d(
    input: te.Tensor,
    filter: te.Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    layout: str = "NCHW",
    out_dtype: str | None = None,
) -> te.Tensor:
    """Convolution by layout: "NCHW" (filter OIHW), "NHWC" or "HWCN" (filter HWIO)."""
    if layout == "NCHW":
        return conv2d_nchw(input, filter, strides, padding, dilation, out_dtype)
    if layout == "NHWC":
        return conv2d_nhwc(input, filter, strides, padding, dilation, out_dtype)
    if layout == "HWCN":
        return conv2d_hwcn(input, filter, strides, padding, dilation, out_dtype)
    raise InvalidShapeError(f"conv2d takes layout NCHW, NHWC or HWCN, found {layout!r}")


def conv2d_nchw(Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any,
                out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Convolution of Input (n, c, h, w) with Filter (o, c, kh, kw)."""
    pads = dilated_padding(padding, Filter, "OIHW", dilation)
    return conv(Input, Filter, stride, pads, dilation, 1, "NCHW", "OIHW", out_dtype or Input.dtype,
                "conv2d_nchw", "conv2d_nchw")  # fmt: skip


def conv2d_nhwc(Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any,
                out_dtype: str | None = "float32", auto_scheduler_rewritten_layout: str = "") -> te.Tensor:  # fmt: skip
    """Convolution of Input (n, h, w, c) with Filter (kh, kw, c, o)."""
    pads = dilated_padding(padding, Filter, "HWIO", dilation)
    return conv(Input, Filter, stride, pads, dilation, 1, "NHWC", "HWIO", out_dtype or Input.dtype,
                "conv2d_nhwc", "conv2d_nhwc")  # fmt: skip


def conv2d_hwcn(Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any,
                out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Convolution of Input (h, w, c, n) with Filter (kh, kw, c, o)."""
    pads = dilated_padding(padding, Filter, "HWIO", dilation)
    return conv(Input, Filter, stride, pads, dilation, 1, "HWCN", "HWIO", out_dtype or Input.dtype,
                "conv2d_hwcn", "conv2d_hwcn")  # fmt: skip


def group_conv2d_nchw(Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any, groups: int,
                      out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Convolution whose output channels, in ``groups`` parts, each see one part of the input channels."""
    pads = dilated_padding(padding, Filter, "OIHW", dilation)
    return conv(Input, Filter, stride, pads, dilation, groups, "NCHW", "OIHW", out_dtype or Input.dtype,
                "group_conv2d_nchw", "group_conv2d_nchw")  # fmt: skip


def group_conv2d_nhwc(Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any, groups: int,
                      out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """``group_conv2d_nchw`` on data (n, h, w, c) with Filter (kh, kw, c / groups, o)."""
    pads = dilated_padding(padding, Filter, "HWIO", dilation)
    return conv(Input, Filter, stride, pads, dilation, groups, "NHWC", "HWIO", out_dtype or Input.dtype,
                "group_conv2d_nhwc", "group_conv2d_nhwc")  # fmt: skip
