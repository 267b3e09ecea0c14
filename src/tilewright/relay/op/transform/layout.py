"""layout_transform: conversion between layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TilewrightError, TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations, slice_rules
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients
from tilewright.tir.layout import Layout, layout, layout_conversion


class LayoutTransformAttrs(Attrs):
    """Source and destination layout."""

    src_layout: str
    dst_layout: str


def _by_letter(item: Layout) -> tuple[list[str], dict[str, list[int]]]:
    letters = [letter for letter, factor in item.axes if not factor]
    places = {letter: [item.index_of(letter)] for letter in letters}
    for position, (letter, factor) in enumerate(item.axes):
        if factor:
            places[letter.upper()].append(position)
    return letters, places


def transform_array(data: Array, src_layout: str, dst_layout: str) -> Array:
    """Convert ``data`` between layouts, as a view if possible; pad with zeros where a factor does not divide."""
    src, dst = layout(src_layout), layout(dst_layout)
    letters, places = _by_letter(src)
    whole = np.transpose(data, [p for letter in letters for p in places[letter]])
    whole = whole.reshape([int(np.prod([data.shape[p] for p in places[letter]])) for letter in letters])
    _, targets = _by_letter(dst)
    pads, split, order = [], [], []
    for letter, extent in zip(letters, whole.shape, strict=True):
        factors = [dst.axes[p][1] for p in targets[letter][1:]]
        inner = int(np.prod(factors)) if factors else 1
        outer = -(-extent // inner)
        pads.append((0, outer * inner - extent))
        split += [outer, *factors]
        order += targets[letter]
    if any(after for _, after in pads):  # a copy of a large weight costs memory
        whole = np.pad(whole, pads)
    result = whole.reshape(split)
    return np.transpose(result, np.argsort(order))


class LayoutTransform(OpDef[LayoutTransformAttrs]):
    """Rearrange a tensor from one layout to another, such as NCHW to NCHW16c."""

    name = "layout_transform"
    reorders = True
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE

    band_operands = staticmethod(slice_rules.layout_change)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: LayoutTransformAttrs, solver: TypeSolver) -> Type | None:
        """The shape in the new layout."""
        data = relations.tensor(types[0])
        try:
            return TensorType(
                layout_conversion(attrs.src_layout, attrs.dst_layout).forward_shape(data.shape), data.dtype
            )
        except TilewrightError as error:
            raise TypeInferenceError(str(error)) from None

    @staticmethod
    def compute(attrs: LayoutTransformAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.layout_transform(inputs[0], attrs.src_layout, attrs.dst_layout)]

    @staticmethod
    def evaluate(attrs: LayoutTransformAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [transform_array(inputs[0], attrs.src_layout, attrs.dst_layout)]

    @staticmethod
    def gradient(attrs: LayoutTransformAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        return [layout_transform(grad, attrs.dst_layout, attrs.src_layout)]


layout_transform = builder(LayoutTransform)
