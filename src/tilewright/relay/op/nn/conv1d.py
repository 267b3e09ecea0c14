"""nn.conv1d: 1-D convolution."""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call
from tilewright.relay.op.attributes import call
from tilewright.relay.op.conv_attrs import ConvAttrs
from tilewright.relay.op.nn.conv_common import Conv, conv_attrs
from tilewright.relay.op.strategy import generic as strategies


class Conv1DAttrs(ConvAttrs):
    """Strides, padding, dilation, groups and layouts."""

    strides: tuple[int, ...] = (1,)
    padding: tuple[int, ...] = (0,)
    dilation: tuple[int, ...] = (1,)
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    data_layout: str = "NCW"
    kernel_layout: str = "OIW"
    out_layout: str = ""
    out_dtype: str = ""


class Conv1D(Conv[Conv1DAttrs]):
    """1-D convolution."""

    name = "nn.conv1d"
    rank = 1

    strategy = strategies.conv1d_strategy


def conv1d(
    data: RelayExpr,
    weight: RelayExpr,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCW",
    kernel_layout: str = "OIW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """1-D convolution of ``data`` with ``weight``."""
    values = conv_attrs(1, strides, padding, dilation, groups, channels, kernel_size, data_layout, kernel_layout,
                        out_layout, out_dtype)  # fmt: skip
    return call("nn.conv1d", [data, weight], Conv1DAttrs(**values))
