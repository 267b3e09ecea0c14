"""Transposed convolutions as convolutions, which have fast kernels.

With stride s, output position ``t = s * u + r`` (0 <= r < s) takes the kernel's elements ``k = s * j + r`` of the
inputs ``u - j``: for each of the s phases r a convolution of the data with a smaller kernel. One convolution computes
all phases as channels, and a transposition puts them beside one another::

    nn.conv2d_transpose(x, w, strides=[2, 2], kernel_size=[2, 2])    w: (I, O, 2, 2)
    ->
    %0 = nn.conv2d(x, v, channels=4 * O, kernel_size=[1, 1])         v: (4 * O, I, 1, 1), from w while compiling
    %1 = reshape(%0, newshape=[n, 2, 2, O, h, w])
    reshape(transpose(%1, axes=[0, 3, 4, 1, 5, 2]), newshape=[n, O, 2 * h, 2 * w])

The phases of a group are channels of that group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.op.attributes import ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.builder import ops
from tilewright.relay.op.conv_attrs import ConvTransposeAttrs
from tilewright.relay.op.nn.conv_common import SPATIAL


def as_convolution(
    rank: int, attrs: ConvTransposeAttrs, args: Sequence[RelayExpr], types: Sequence[Type]
) -> RelayExpr | None:
    """Return ``nn.conv{rank}d_transpose`` as a convolution; None for dilation, other layouts and unknown shapes."""
    data, weight, result = types
    plain = f"NC{SPATIAL[rank]}"
    assert isinstance(data, TensorType) and isinstance(weight, TensorType) and isinstance(result, TensorType)
    if any(t.is_dynamic for t in (data, weight, result)) or {*ints(attrs.dilation)} != {1}:
        return None
    if attrs.data_layout != plain or (attrs.out_layout or plain) != plain or math.prod(result.concrete_shape) == 0:
        return None
    batch, _, *extents = data.concrete_shape
    channels, *outs = result.concrete_shape[1:]
    strides, pads = ints(attrs.strides), padding_of(attrs.padding, rank)
    kernel = [weight.concrete_shape[attrs.kernel_layout.index(letter)] for letter in SPATIAL[rank]]
    taps = [-(-k // s) for k, s in zip(kernel, strides, strict=True)]
    starts = [x + j - 1 for x, j in zip(extents, taps, strict=True)]  # positions u along each dimension
    if any(p + o > s * u for p, o, s, u in zip(pads, outs, strides, starts, strict=False)):
        return None  # output_padding beyond the reach of any input
    phases = _phase_kernels(
        ops.layout_transform(args[1], attrs.kernel_layout, f"IO{SPATIAL[rank]}"), weight, taps, attrs
    )
    convolution = _convolution(rank, args[0], phases, taps, math.prod(strides) * channels, attrs)
    # (n, g, s..., O, u...) to (n, g, O, u, s, ...): each position's phases follow it
    groups = int(attrs.groups)
    split = ops.reshape(convolution, [batch, groups, *strides, channels // groups, *starts])
    order = [0, 1, 2 + rank, *(axis for i in range(rank) for axis in (3 + rank + i, 2 + i))]
    whole = ops.reshape(
        ops.transpose(split, order), [batch, channels, *(s * u for s, u in zip(strides, starts, strict=True))]
    )
    ends = [p + o for p, o in zip(pads, outs, strict=False)]
    if all(p == 0 and e == s * u for p, e, s, u in zip(pads, ends, strides, starts, strict=False)):
        return whole
    return ops.strided_slice(whole, [0, 0, *pads[:rank]], [batch, channels, *ends])


def _phase_kernels(weight: RelayExpr, type_: TensorType, taps: Sequence[int], attrs: ConvTransposeAttrs) -> RelayExpr:
    """Return the kernels of all phases of each group: (I, O / g, k...) to (s... * O, I / g, j...), the j backwards.

    Missing elements are 0.
    """
    rank, strides, groups = len(taps), ints(attrs.strides), int(attrs.groups)
    letters = attrs.kernel_layout
    shape = [type_.concrete_shape[letters.index(letter)] for letter in f"IO{SPATIAL[rank]}"]
    missing = [j * s - k for j, s, k in zip(taps, strides, shape[2:], strict=True)]
    if any(missing):
        weight = ops.nn.pad(weight, [(0, 0), (0, 0), *((0, m) for m in missing)])
    pairs = [extent for pair in zip(taps, strides, strict=True) for extent in pair]
    inputs, outputs = shape[0] // groups, shape[1]
    weight = ops.reshape(weight, [groups, inputs, outputs, *pairs])
    for axis in range(rank):
        weight = ops.reverse(weight, 3 + 2 * axis)
    phases_first = [0, *(4 + 2 * i for i in range(rank)), 2, 1, *(3 + 2 * i for i in range(rank))]
    return ops.reshape(ops.transpose(weight, phases_first), [groups * math.prod(strides) * outputs, inputs, *taps])


def _convolution(
    rank: int, data: RelayExpr, weight: RelayExpr, taps: Sequence[int], channels: int, attrs: ConvTransposeAttrs
) -> RelayExpr:
    make = {1: ops.nn.conv1d, 2: ops.nn.conv2d, 3: ops.nn.conv3d}[rank]
    return make(
        data,
        weight,
        padding=[j - 1 for j in taps],
        channels=channels,
        groups=int(attrs.groups),
        kernel_size=list(taps),
        out_dtype=attrs.out_dtype,
    )
