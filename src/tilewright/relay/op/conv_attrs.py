"""The fields that the attributes of all convolutions have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.attrs import Attrs


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


class ConvTransposeAttrs(ConvAttrs):
    """Attributes of a transposed convolution."""

    if TYPE_CHECKING:
        output_padding: tuple[int, ...]
