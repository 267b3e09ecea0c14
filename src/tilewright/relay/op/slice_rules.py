"""Slices of results as slices of the operands: the hooks ``slice_operands`` and ``band_operands`` of operators.

A rule takes a call, a cut of its result, and the known shapes of result and operands; a tuple counts as its fields. It
returns the part of each operand that the cut depends on, or None where it depends on all of them. Element-wise
operators need no rule.

Rules of ``band_operands`` are of operators whose windows overlap, so that neighbouring cuts both need what lies between
them, and of those that no slice need move through: they serve passes that compute a tensor band by band.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.ir.op import Op
from tilewright.relay.expr import Call
from tilewright.relay.op.attributes import ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.definition import OpPattern
from tilewright.tir.layout import layout

Shape = tuple[int, ...]
_PLACED = ("axis", "axes", "shape", "newshape")  # attributes that speak of dimensions


@dataclass(frozen=True)
class Cut:
    """The elements ``begin`` to ``end`` of one dimension and all elements of the others."""

    axis: int
    begin: int
    end: int

    @property
    def extent(self) -> int:
        """Return how many elements it has along its dimension."""
        return self.end - self.begin

    def on(self, axis: int) -> Cut:
        """Return the cut of the same elements along another dimension."""
        return Cut(axis, self.begin, self.end)

    def of(self, shape: Shape) -> Shape:
        """Return the shape of the cut of a tensor of ``shape``."""
        return (*shape[: self.axis], self.end - self.begin, *shape[self.axis + 1 :])


@dataclass(frozen=True)
class Part:
    """The computation of a part of a call's result: parts of its operands (None: the whole operand), and its
    attributes.
    """

    operands: list[Cut | None]
    attrs: Any


Rule = Callable[[Call, Cut, Shape, list[Shape]], Part | None]


def is_element_wise(call: Call) -> bool:
    """Return whether an operator that has no rule computes each element of its operands' elements in that place."""
    pattern = call.op.get_attr("TOpPattern", OpPattern.OPAQUE) if isinstance(call.op, Op) else OpPattern.OPAQUE
    return pattern <= OpPattern.BROADCAST and not any(hasattr(call.attrs, name) for name in _PLACED)


def element_wise(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut each operand that is not broadcast along the dimension."""
    parts: list[Cut | None] = []
    for operand in operands:
        axis = cut.axis - len(shape) + len(operand)
        extent = operand[axis] if axis >= 0 else 1
        if extent not in (1, shape[cut.axis]):
            return None
        parts.append(cut.on(axis) if extent != 1 else None)
    return Part(parts, call.attrs) if any(parts) else None


def bias_add(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut the vector, of biases or slopes, where the slice is along its dimension."""
    attrs: Any = call.attrs
    return Part([cut, cut.on(0) if attrs.axis % len(shape) == cut.axis else None], attrs)


def along_others(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut any dimension but the reduced one."""
    attrs: Any = call.attrs
    if attrs.axis % len(shape) == cut.axis:
        return None
    return Part([cut, *(None for _ in operands[1:])], attrs)


def dense(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut rows of the data, which the other operands are multiplied with."""
    return Part([cut, *(None for _ in operands[1:])], call.attrs) if cut.axis < len(shape) - 1 else None


def batch_matmul(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut the batch, rows of the first operand or columns of the second."""
    attrs: Any = call.attrs
    if cut.axis == 1:
        return Part([cut.on(2 if attrs.transpose_a else 1), None], attrs)
    if cut.axis == 2:
        return Part([None, cut.on(1 if attrs.transpose_b else 2)], attrs)
    return Part([cut if operand[0] != 1 else None for operand in operands], attrs)


def attention(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut batch, heads or rows of (batch, rows, heads, width); rows do not depend on one another."""
    if cut.axis != 1:
        return None
    masks = [cut.on(2) if mask[2] != 1 else None for mask in operands[3:]]
    return Part([cut.on(2), None, None, *masks], call.attrs)


def transpose(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut the permuted dimension of the operand."""
    attrs: Any = call.attrs
    axes = attrs.axes or tuple(range(len(shape) - 1, -1, -1))
    return Part([cut.on(int(axes[cut.axis]) % len(shape))], attrs)


def reshape(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut the operand's dimension that has as many elements before it, where the cut is of whole elements of it."""
    attrs: Any = call.attrs
    (source,) = operands
    before, step = math.prod(shape[: cut.axis]), math.prod(shape[cut.axis + 1 :])
    for axis, extent in enumerate(source):
        inner = math.prod(source[axis + 1 :])
        if extent == 1 or math.prod(source[:axis]) != before or not inner or not step:
            continue
        if cut.begin * step % inner or cut.end * step % inner:
            return None
        part = Cut(axis, cut.begin * step // inner, cut.end * step // inner)
        return Part([part], attrs.replace(newshape=cut.of(shape), allowzero=False))
    return None


def convolution(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut the rows, or columns, that the windows of the cut read; what they read outside of the image is padding."""
    attrs: Any = call.attrs
    image, kernel = layout(attrs.data_layout), layout(attrs.kernel_layout)
    if attrs.out_layout not in ("", attrs.data_layout) or len(shape) != len(image.axes):
        return None
    axis = cut.axis - len(shape) + len(image.axes)
    letter = image.axes[axis][0]
    if letter not in "DHW" or kernel.index_of(letter) < 0:
        return None
    size = operands[1][kernel.index_of(letter)]
    found = _windows(attrs, [a for a, _ in image.axes if a in "DHW"].index(letter), size, cut, operands[0])
    return None if found is None else Part([found[0], *(None for _ in operands[1:])], attrs.replace(padding=found[1]))


def pooling(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut what the windows of the cut read; means of windows that ``ceil_mode`` adds count in a way of their own."""
    attrs: Any = call.attrs
    image = layout(attrs.layout)
    spatial = [i for i, (letter, _) in enumerate(image.axes) if letter in "DHW"]
    mean = hasattr(attrs, "count_include_pad")
    if cut.axis not in spatial or attrs.out_layout not in ("", attrs.layout) or (mean and attrs.ceil_mode):
        return None
    place, size, rank = spatial.index(cut.axis), ints(attrs.pool_size), len(spatial)
    found = _windows(attrs, place, size[place], cut, operands[0])
    if found is None:
        return None
    around = list(found[1])
    for i, axis in enumerate(spatial if attrs.ceil_mode else []):
        reach = (shape[axis] - 1) * ints(attrs.strides)[i] + (size[i] - 1) * ints(attrs.dilation)[i] + 1
        if i != place:
            around[i + rank] = max(around[i + rank], reach - around[i] - operands[0][axis])
    return Part([found[0]], attrs.replace(padding=tuple(around), ceil_mode=False))


def _windows(attrs: Any, place: int, size: int, cut: Cut, image: Shape) -> tuple[Cut, tuple[int, ...]] | None:
    """Return what windows read along the spatial dimension ``place``, and the padding of all; None of padding alone."""
    stride, dilation, pads = ints(attrs.strides)[place], ints(attrs.dilation)[place], attrs.padding
    rank = len(ints(attrs.strides))
    around = list(padding_of(pads, rank))
    begin = cut.begin * stride - around[place]
    end = (cut.end - 1) * stride - around[place] + (size - 1) * dilation + 1
    inside = Cut(cut.axis, max(begin, 0), min(end, image[cut.axis]))
    if inside.begin >= inside.end:
        return None
    around[place], around[place + rank] = max(-begin, 0), max(end - image[cut.axis], 0)
    return inside, tuple(around)


def concatenation(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut every field alike, along another dimension than that of the concatenation."""
    attrs: Any = call.attrs
    return Part([cut for _ in operands], attrs) if attrs.axis % len(shape) != cut.axis else None


def blocks_to_space(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut the rows, or columns, of pixels whose blocks the cut has whole."""
    attrs: Any = call.attrs
    return _enlarged(call, cut, int(attrs.block_size)) if attrs.layout[cut.axis] in "HW" else None


def repetition(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut the rows, or columns, that are repeated, where the cut has all repetitions of each."""
    attrs: Any = call.attrs
    times = {"H": attrs.scale_h, "W": attrs.scale_w}.get(attrs.layout[cut.axis])
    plain = attrs.method == "nearest_neighbor" and not attrs.align_corners and len(attrs.layout) == len(shape)
    return _enlarged(call, cut, int(times)) if plain and times is not None and times == int(times) else None


def _enlarged(call: Call, cut: Cut, times: int) -> Part | None:
    """Return the part of data each row of which becomes several of the result."""
    if cut.begin % times or cut.end % times:
        return None
    return Part([Cut(cut.axis, cut.begin // times, cut.end // times)], call.attrs)


def layout_change(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut the dimension of the same letter, which neither layout splits."""
    attrs: Any = call.attrs
    source, result = layout(attrs.src_layout), layout(attrs.dst_layout)
    letter = result.axes[cut.axis][0]
    whole = all(item.factor_of(letter) <= 0 for item in (source, result)) and letter.isupper()
    return Part([cut.on(source.index_of(letter))], attrs) if whole else None
