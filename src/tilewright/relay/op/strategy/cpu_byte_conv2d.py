"""How AlterOpLayout packs convolutions of bytes (uint8 data, int8 weights, int32 sums) for CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call
from tilewright.relay.op.attributes import call
from tilewright.relay.op.conv_attrs import ConvAttrs
from tilewright.relay.op.relations import known
from tilewright.topi.cpu.conv2d_int8 import (
    conv2d_byte_layouts,
    conv2d_byte_product,
    depthwise_byte_layouts,
)


def of_bytes(tensors: Sequence[Any]) -> bool:
    """Return whether these are data and weights of a convolution of bytes, or of a depthwise one that reads bytes."""
    return (tensors[0].dtype, tensors[1].dtype) in (("uint8", "int8"), ("uint8", "float32"))


def is_packed_for_bytes(data: Any, kernel: Any) -> bool:
    """Return whether packed data and weights fill the words and vectors of the target's products of bytes."""
    form = conv2d_byte_product()
    if form is None or not of_bytes((data, kernel)) or len(kernel.shape) != 7:
        return False
    lanes, group = (int(known(extent) or 0) for extent in kernel.shape[-2:])
    return group == form.group and lanes % form.lanes == 0


def pack_conv2d_of_bytes(attrs: ConvAttrs, inputs: Sequence[RelayExpr], tinfos: Sequence[Any]) -> Call | None:
    """The packed form of an NCHW convolution of bytes; None where there is none."""
    data, weight = (t.shape for t in tinfos[:2])
    form = conv2d_byte_product()
    plain = (attrs.data_layout, attrs.kernel_layout) == ("NCHW", "OIHW")
    if not plain or form is None or any(known(d) is None for d in (data[1], *weight)):
        return None
    channels_in, channels_out, *size = (int(known(d) or 0) for d in (data[1], weight[0], *weight[2:]))
    groups, depthwise = int(attrs.groups), tinfos[1].dtype == "float32"
    if depthwise:
        if not 1 < groups == channels_in == channels_out or attrs.out_dtype != "float32":
            return None
        chosen = depthwise_byte_layouts(channels_in, form)
    else:
        chosen = conv2d_byte_layouts(channels_in, channels_out, groups, form) if attrs.out_dtype == "int32" else None
    if chosen is None:
        return None
    packed = attrs.replace(
        channels=channels_out,
        kernel_size=tuple(size),
        data_layout=chosen.data_layout,
        kernel_layout=chosen.kernel_layout,
        out_layout=chosen.out_layout,
    )
    return call(f"nn.contrib_{'depthwise_' * depthwise}conv2d_NCHWc", inputs, packed)
