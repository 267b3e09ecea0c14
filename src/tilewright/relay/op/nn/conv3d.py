"""nn.conv3d: 3-D convolution."""

from __future__ import annotations

from functools import partial

from tilewright import topi
from tilewright.relay.op.attributes import Padding, PerAxis
from tilewright.relay.op.builder import builder
from tilewright.relay.op.conv_attrs import ConvAttrs
from tilewright.relay.op.nn.conv_common import Conv
from tilewright.relay.op.nn.conv_gradients import convolution_gradient
from tilewright.relay.op.strategy import generic as strategies


class Conv3DAttrs(ConvAttrs):
    """Strides, padding, dilation, groups and layouts."""

    strides: PerAxis = (1, 1, 1)
    padding: Padding = (0, 0, 0)
    dilation: PerAxis = (1, 1, 1)
    groups: int = 1
    channels: int | None = None
    kernel_size: PerAxis | None = None
    data_layout: str = "NCDHW"
    kernel_layout: str = "OIDHW"
    out_layout: str = ""
    out_dtype: str = ""

    rank = 3


class Conv3D(Conv[Conv3DAttrs]):
    """3-D convolution of ``data`` with ``weight``."""

    name = "nn.conv3d"
    support_level = 2
    rank = 3

    gradient = staticmethod(partial(convolution_gradient, rank=3))
    strategy = strategies.conv3d_strategy
    alter_op_layout = topi.nn.conv3d_alter_layout


conv3d = builder(Conv3D)
