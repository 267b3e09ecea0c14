"""The fields that the attributes of all convolutions have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.attrs import Attrs
from tilewright.relay.op.attributes import Padding, PerAxis


class ConvAttrs(Attrs):
    """Attributes of a convolution; each class of them states the fields' order and defaults."""

    if TYPE_CHECKING:
        strides: tuple[int, ...]
        padding: tuple[int, ...]
        dilation: tuple[int, ...]
        groups: int
        channels: int | None
        kernel_size: tuple[int, ...] | None
        data_layout: str
        kernel_layout: str
        out_layout: str
        out_dtype: str


class PlainConv2DAttrs(ConvAttrs):
    """Strides, padding, dilation, groups, and the layouts of data, kernel and output of a 2-D convolution."""

    strides: PerAxis = (1, 1)
    padding: Padding = (0, 0)
    dilation: PerAxis = (1, 1)
    groups: int = 1
    channels: int | None = None
    kernel_size: PerAxis | None = None
    data_layout: str = "NCHW"
    kernel_layout: str = "OIHW"
    out_layout: str = ""
    out_dtype: str = ""


class ConvTransposeAttrs(ConvAttrs):
    """Attributes of a transposed convolution."""

    if TYPE_CHECKING:
        output_padding: tuple[int, ...]
