"""One-dimensional convolution."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.topi.nn.conv import conv, per_dim
from tilewright.topi.utils import InvalidShapeError, get_pad_tuple1d


def conv1d(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    layout: str = "NCW",
    out_dtype: str | None = None,
    kernel_layout: str = "",
    groups: int = 1,
) -> te.Tensor:
    """Convolution by layout: "NCW" (kernel OIW) or "NWC" (kernel WIO)."""
    if layout not in ("NCW", "NWC"):
        raise InvalidShapeError(f"conv1d takes layout NCW or NWC, found {layout!r}")
    kernel_layout = kernel_layout or ("OIW" if layout == "NCW" else "WIO")
    (step,) = per_dim(dilation, 1)
    extent = (kernel.shape[kernel_layout.index("W")] - 1) * step + 1
    name = f"conv1d_{layout.lower()}" if groups == 1 else f"group_conv1d_{layout.lower()}"
    return conv(
        data, kernel, strides, get_pad_tuple1d(padding, (extent,)), dilation, groups, layout, kernel_layout,
        out_dtype or data.dtype, name,
    )  # fmt: skip


def conv1d_ncw(data: te.Tensor, kernel: te.Tensor, strides: Any = 1, padding: Any = "VALID", dilation: Any = 1,
               out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Convolution of data (n, c, w) with kernel (o, c, kw)."""
    return conv1d(data, kernel, strides, padding, dilation, "NCW", out_dtype, "OIW")


def conv1d_nwc(data: te.Tensor, kernel: te.Tensor, strides: Any = 1, padding: Any = "VALID", dilation: Any = 1,
               out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Convolution of data (n, w, c) with kernel (kw, c, o)."""
    return conv1d(data, kernel, strides, padding, dilation, "NWC", out_dtype, "WIO")


def group_conv1d_ncw(data: te.Tensor, kernel: te.Tensor, strides: Any = 1, padding: Any = "VALID", dilation: Any = 1,
                     groups: int = 1, out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Grouped convolution of data (n, c, w) with kernel (o, c / groups, kw)."""
    return conv1d(data, kernel, strides, padding, dilation, "NCW", out_dtype, "OIW", groups)


def group_conv1d_nwc(data: te.Tensor, kernel: te.Tensor, strides: Any = 1, padding: Any = "VALID", dilation: Any = 1,
                     groups: int = 1, out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Grouped convolution of data (n, w, c) with kernel (kw, c / groups, o)."""
    return conv1d(data, kernel, strides, padding, dilation, "NWC", out_dtype, "WIO", groups)
