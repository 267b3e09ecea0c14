"""nn.conv1d: 1-D convolution."""

from __future__ import annotations

from functools import partial

from tilewright.relay.op.attributes import Padding, PerAxis
from tilewright.relay.op.builder import builder
from tilewright.relay.op.conv_attrs import ConvAttrs
from tilewright.relay.op.nn.conv_common import Conv
from tilewright.relay.op.nn.conv_gradients import convolution_gradient
from tilewright.relay.op.strategy import generic as strategies


class Conv1DAttrs(ConvAttrs):
    """Strides, padding, dilation, groups and layouts."""

    strides: PerAxis = (1,)
    padding: Padding = (0,)
    dilation: PerAxis = (1,)
    groups: int = 1
    channels: int | None = None
    kernel_size: PerAxis | None = None
    data_layout: str = "NCW"
    kernel_layout: str = "OIW"
    out_layout: str = ""
    out_dtype: str = ""

    rank = 1


class Conv1D(Conv[Conv1DAttrs]):
    """1-D convolution of ``data`` with ``weight``."""

    name = "nn.conv1d"
    support_level = 2
    rank = 1

    gradient = staticmethod(partial(convolution_gradient, rank=1))
    strategy = strategies.conv1d_strategy


conv1d = builder(Conv1D, strides=1, padding=0, dilation=1)
