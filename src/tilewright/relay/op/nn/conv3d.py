"""nn.conv3d: 3-D convolution."""

from __future__ import annotations

from typing import Any

from tilewright import topi
from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call
from tilewright.relay.op.attributes import call
from tilewright.relay.op.conv_attrs import ConvAttrs
from tilewright.relay.op.nn.conv_common import Conv, conv_attrs
from tilewright.relay.op.strategy import generic as strategies


class Conv3DAttrs(ConvAttrs):
    """Strides, padding, dilation, groups and layouts."""

    strides: tuple[int, ...] = (1, 1, 1)
    padding: tuple[int, ...] = (0, 0, 0)
    dilation: tuple[int, ...] = (1, 1, 1)
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    data_layout: str = "NCDHW"
    kernel_layout: str = "OIDHW"
    out_layout: str = ""
    out_dtype: str = ""


class Conv3D(Conv[Conv3DAttrs]):
    """3-D convolution."""

    name = "nn.conv3d"
    rank = 3

    strategy = strategies.conv3d_strategy
    alter_op_layout = topi.nn.conv3d_alter_layout


def conv3d(
    data: RelayExpr,
    weight: RelayExpr,
    strides: Any = (1, 1, 1),
    padding: Any = (0, 0, 0),
    dilation: Any = (1, 1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCDHW",
    kernel_layout: str = "OIDHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """3-D convolution of ``data`` with ``weight``."""
    values = conv_attrs(3, strides, padding, dilation, groups, channels, kernel_size, data_layout, kernel_layout,
                        out_layout, out_dtype)  # fmt: skip
    return call("nn.conv3d", [data, weight], Conv3DAttrs(**values))
