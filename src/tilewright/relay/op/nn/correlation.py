"""nn.correlation: comparison of patches of one image with displaced patches of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.type import TensorType, Type
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import Padding
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.relations import dim_map
from tilewright.relay.op.strategy import generic as strategies


class CorrelationAttrs(Attrs):
    """Side of a patch, range and stride of the displacements, padding, and whether patches are multiplied."""

    kernel_size: int = 1
    max_displacement: int = 1
    stride1: int = 1
    stride2: int = 1
    padding: Padding = (0, 0, 0, 0)
    is_multiply: bool = True
    layout: str = "NCHW"


class Correlation(OpDef[CorrelationAttrs]):
    """Mean product of patches of one image and displaced patches of another."""

    name = "nn.correlation"
    support_level = 2
    inputs = ("data1", "data2")
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    in_float32 = True
    schedule = strategies.schedule_reduce

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: CorrelationAttrs, solver: TypeSolver) -> Type | None:
        """(n, displacements, rows, columns)"""
        found = relations.tensors(types, Correlation.inputs)
        relations.require(attrs.layout == "NCHW", f"layout should be NCHW, found {attrs.layout!r}")
        relations.require(attrs.kernel_size % 2 == 1, f"kernel_size should be odd, found {attrs.kernel_size}")
        one, other = found
        relations.require_same_dtype(found, "data1 and data2")
        for tensor, what in zip(found, Correlation.inputs, strict=True):
            relations.require_rank(tensor, 4, what)
        for k, (a, b) in enumerate(zip(one.shape, other.shape, strict=True)):
            solver.assert_equal(a, b, f"dimension {k} of data2")
        border = attrs.max_displacement + attrs.kernel_size // 2
        top, left, bottom, right = padding_of(attrs.padding)
        extents = [
            dim_map(lambda d, p: -(-(d + p - 2 * border) // attrs.stride1), d, pads)
            for d, pads in ((one.shape[2], top + bottom), (one.shape[3], left + right))
        ]
        for dim in extents:
            value = relations.known(dim)
            relations.require(value is None or value >= 0, "patches and displacements reach beyond the padded data")
        side = 2 * (attrs.max_displacement // attrs.stride2) + 1
        return TensorType((one.shape[0], side * side, *extents), one.dtype)

    @staticmethod
    def compute(attrs: CorrelationAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        one, other = inputs
        sizes = attrs.kernel_size, attrs.max_displacement, attrs.stride1, attrs.stride2
        return [topi.nn.correlation_nchw(one, other, *sizes, padding_of(attrs.padding), attrs.is_multiply)]

    @staticmethod
    def evaluate(attrs: CorrelationAttrs, inputs: Sequence[Array]) -> list[Array]:
        top, left, bottom, right = padding_of(attrs.padding)
        one, other = (np.pad(a.astype("float64"), ((0, 0), (0, 0), (top, bottom), (left, right))) for a in inputs)
        size, reach = attrs.kernel_size, attrs.max_displacement
        radius = reach // attrs.stride2
        height, width = (n - 2 * reach for n in one.shape[2:])
        planes = []
        for q in np.ndindex(2 * radius + 1, 2 * radius + 1):
            y, x = (reach + (v - radius) * attrs.stride2 for v in q)
            a = one[:, :, reach : reach + height, reach : reach + width]
            b = other[:, :, y : y + height, x : x + width]
            each = a * b if attrs.is_multiply else np.abs(a - b)
            windows = np.lib.stride_tricks.sliding_window_view(each, (size, size), axis=(2, 3))
            planes.append(windows[:, :, :: attrs.stride1, :: attrs.stride1].mean((1, 4, 5)))
        return [np.stack(planes, 1).astype(inputs[0].dtype)]


correlation = builder(Correlation, required=True)
