"""Axes along which scales fold into an operator's weight: the hook ``scale_axes``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.type import TensorType, Type
from tilewright.relay.op.conv_attrs import ConvAttrs
from tilewright.tir.layout import Layout, layout


@dataclass(frozen=True)
class ScaleAxes:
    """Axes of equivalent scales: ``data`` with ``weight_in``, and ``out`` with ``weight_out``.

    Each is one axis, or the parts of one that a layout splits, outermost first.
    """

    data: tuple[int, ...]
    weight_in: tuple[int, ...]
    out: tuple[int, ...]
    weight_out: tuple[int, ...]


def _axes_of(found: Layout, letter: str) -> tuple[int, ...]:
    """Return the axes of a dimension in a layout: one, or two where it is split."""
    return tuple(i for i in (found.index_of(letter), found.index_of(letter.lower())) if i >= 0)


def convolution_axes(attrs: ConvAttrs, types: Sequence[Type]) -> ScaleAxes | None:
    """Return the channel axes of a plain or depthwise convolution; None for other groups."""
    data_layout, kernel_layout = layout(attrs.data_layout), layout(attrs.kernel_layout)
    out_layout = layout(attrs.out_layout or attrs.data_layout)
    weight = types[1]
    if not isinstance(weight, TensorType) or weight.is_dynamic:
        return None
    shape = weight.concrete_shape
    o_axes, i_axes = _axes_of(kernel_layout, "O"), _axes_of(kernel_layout, "I")
    groups = int(attrs.groups)
    outputs, inputs = (math.prod(shape[a] for a in axes) for axes in (o_axes, i_axes))
    depthwise = groups > 1 and inputs == 1 and outputs == groups
    if groups > 1 and not depthwise:
        return None
    taken = o_axes if depthwise else i_axes
    found = ScaleAxes(_axes_of(data_layout, "C"), taken, _axes_of(out_layout, "C"), o_axes)
    # a scale of a split axis is reshaped from one side to the other, which takes its parts in order
    in_order = all(list(axes) == sorted(axes) for axes in (found.data, taken, found.out, o_axes))
    same_parts = all(len(a) == len(b) for a, b in ((found.data, taken), (found.out, o_axes)))
    return found if in_order and same_parts else None
