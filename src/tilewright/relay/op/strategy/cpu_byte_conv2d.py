"""Convolutions of bytes on CPUs: in the types, channels and packing that the processor's instructions take.

Legalize, for a processor that multiplies bytes of uint8 with bytes of int8::

    nn.conv2d(%x, %w, padding=[1, 1], out_dtype="int32")        // both int8, 6 channels to 12; %w constant
    ->
    %0 = bitwise_xor(cast(%x, dtype="uint8"), 128u8);           // 128 more than %x
    %1 = nn.pad(%0, 128f, pad_width=[[0, 0], [0, 2], [1, 1], [1, 1]]);
    %2 = nn.conv2d(%1, meta[relay.Constant][0], out_dtype="int32");
    %3 = subtract(%2, meta[relay.Constant][1]);                 // 128 times the sums of the filters
    strided_slice(%3, begin=[0], end=[12], axes=[1])            // of 16 channels

AlterOpLayout packs them as ``byte_product`` says: data NCHW16c, weights OIHW4i16o4i. Convolutions of bfloat16, which
``NarrowFactors`` makes, are packed alike: data NCHW64c, weights OIHW32i64o2i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call, Constant, const
from tilewright.relay.op.attributes import call
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.conv_attrs import ConvAttrs
from tilewright.relay.op.nn.pad import pad
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy.cpu_byte_dense import as_type
from tilewright.relay.op.tensor.binary import subtract
from tilewright.relay.op.transform.slicing import strided_slice
from tilewright.topi.cpu.byte_products import ByteProduct, are_small
from tilewright.topi.cpu.conv2d_int8 import (
    conv2d_byte_layouts,
    conv2d_byte_product,
    depthwise_byte_layouts,
    filled_channels,
)

Array = np.ndarray[Any, Any]


_SUMS = {("uint8", "int8"): "int32", ("int16", "int8"): "int32", ("bfloat16", "bfloat16"): "float32"}


def of_words(tensors: Sequence[Any]) -> bool:
    """Return whether these are data and weights of a convolution that multiplies words of bytes or of bfloat16.

    A depthwise one reads either as floats.
    """
    types = tensors[0].dtype, tensors[1].dtype
    return types in _SUMS or types in (("uint8", "float32"), ("bfloat16", "float32"))


def is_packed_for_words(data: Any, kernel: Any, small_weights: bool) -> bool:
    """Return whether packed data and weights fill the words and vectors of the target's products of their type."""
    form = conv2d_byte_product(small_weights=small_weights, dtype=_weights(data))
    if form is None or not of_words((data, kernel)) or len(kernel.shape) != 7:
        return False
    lanes, group = (int(known(extent) or 0) for extent in kernel.shape[-2:])
    return (data.dtype, group) == (form.data_dtype, form.group) and lanes % form.lanes == 0


def _weights(data: Any) -> str:
    """Return the type of weights for such data."""
    return "bfloat16" if data.dtype == "bfloat16" else "int8"


def has_small_filters(weight: RelayExpr) -> bool:
    """Return whether OIHW weights are known to be so small that sums of two neighbours' products fit 16 bits."""
    if not isinstance(weight, Constant) or weight.data.dtype != "int8":
        return False
    return are_small(np.moveaxis(weight.data.numpy(), 1, -1))


@topi.nn.conv2d_legalize.provide("cpu")
def conv2d_legalize_cpu(attrs: ConvAttrs, inputs: Sequence[RelayExpr], types: Sequence[Any]) -> RelayExpr | None:
    """Convert bytes to the types that the processor's instructions take, and fill words and vectors with channels."""
    data, weight = types[:2]
    form = conv2d_byte_product(small_weights=has_small_filters(inputs[1]))
    if form is None or not _is_plain(attrs, data, weight) or not isinstance(inputs[1], Constant):
        return None
    channels, units = (int(known(d) or 0) for d in (data.shape[1], weight.shape[0]))
    filled = filled_channels(channels, units, int(attrs.groups), form)
    if filled is None or (attrs.groups > 1 and filled != (channels, units)):
        return None
    if (data.dtype, *filled) == (form.data_dtype, channels, units):
        return None
    rows, columns = filled[1] - units, (filled[0] - channels) if attrs.groups == 1 else 0
    numbers = np.pad(inputs[1].data.numpy(), ((0, rows), (0, columns), (0, 0), (0, 0)))
    sums = _sums(attrs, inputs[0], data.dtype, numbers, columns, form)
    return strided_slice(sums, begin=[0], end=[units], axes=[1]) if rows else sums


def _sums(attrs: ConvAttrs, data: RelayExpr, dtype: str, numbers: Array, columns: int, form: ByteProduct) -> RelayExpr:
    """Return the sums of ``data`` and weights ``numbers``, which take ``columns`` channels more."""
    taken, more = as_type(data, dtype, form.data_dtype)
    top, left, bottom, right = padding_of(attrs.padding, 2) if more else (0, 0, 0, 0)
    if any((columns, top, left, bottom, right)):
        taken = pad(taken, ((0, 0), (0, columns), (top, bottom), (left, right)), float(more))
    changed = attrs.replace(channels=len(numbers), **({"padding": (0, 0)} if more else {}))
    sums: RelayExpr = call("nn.conv2d", [taken, const(numbers)], changed)
    if more:
        filters = more * numbers.astype(np.int64).sum(axis=(1, 2, 3))
        sums = subtract(sums, const(filters.astype(np.int32).reshape(-1, 1, 1)))
    return sums


def _is_plain(attrs: ConvAttrs, data: Any, weight: Any) -> bool:
    """Return whether these are types and attributes of an NCHW convolution of bytes of known channels."""
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or attrs.data_layout)
    types = data.dtype in ("uint8", "int8") and (weight.dtype, attrs.out_dtype) == ("int8", "int32")
    extents = data.shape[1:2] + tuple(weight.shape)
    return types and layouts == ("NCHW", "OIHW", "NCHW") and all(known(d) for d in extents)


def pack_conv2d_of_words(attrs: ConvAttrs, inputs: Sequence[RelayExpr], tinfos: Sequence[Any]) -> Call | None:
    """Return the packed form of an NCHW convolution of bytes, or of bfloat16; None where there is none."""
    data, weight = (t.shape for t in tinfos[:2])
    small = has_small_filters(inputs[1])
    form = conv2d_byte_product(small_weights=small, dtype=_weights(tinfos[0]))
    plain = (attrs.data_layout, attrs.kernel_layout) == ("NCHW", "OIHW")
    if not plain or form is None or tinfos[0].dtype != form.data_dtype:
        return None
    if any(known(d) is None for d in (data[1], *weight)):
        return None
    channels_in, channels_out, *size = (int(known(d) or 0) for d in (data[1], weight[0], *weight[2:]))
    groups, depthwise = int(attrs.groups), tinfos[1].dtype == "float32"
    if depthwise:
        if not 1 < groups == channels_in == channels_out or attrs.out_dtype != "float32":
            return None
        chosen = depthwise_byte_layouts(channels_in, form)
    else:
        summed = attrs.out_dtype == _SUMS[tinfos[0].dtype, tinfos[1].dtype]
        chosen = conv2d_byte_layouts(channels_in, channels_out, groups, form) if summed else None
    if chosen is None:
        return None
    packed = attrs.replace(
        channels=channels_out,
        kernel_size=tuple(size),
        data_layout=chosen.data_layout,
        kernel_layout=chosen.kernel_layout,
        out_layout=chosen.out_layout,
        small_weights=small,
    )
    return call(f"nn.contrib_{'depthwise_' * depthwise}conv2d_NCHWc", inputs, packed)
