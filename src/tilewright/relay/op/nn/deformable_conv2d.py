"""nn.deformable_conv2d: a convolution whose taps are moved by another tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import IncompleteType, TensorType, Type
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import Padding, PerAxis, call
from tilewright.relay.op.bilinear import bilinear
from tilewright.relay.op.builder import builder
from tilewright.relay.op.conv_attrs import ConvAttrs
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.layout_rules import InferCorrectLayoutOutput
from tilewright.relay.op.nn.conv_common import (
    accumulation_dtype,
    canonical_shape,
    infer_conv,
    kernel_layout_for,
    result_dtype,
    shape_in_layout,
)
from tilewright.relay.op.relations import dim_mul
from tilewright.relay.op.strategy import generic as strategies
from tilewright.relay.op.transform.layout import transform_array
from tilewright.tir.layout import Layout
from tilewright.tir.layout import layout as parse_layout


class DeformableConv2DAttrs(ConvAttrs):
    """Attributes of nn.conv2d, and the number of channel groups with their own offsets."""

    strides: PerAxis = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    dilation: PerAxis = (1, 1)
    deformable_groups: int = 1
    groups: int = 1
    channels: int | None = None
    kernel_size: PerAxis | None = None
    data_layout: str = "NCHW"
    kernel_layout: str = "OIHW"
    out_layout: str = ""
    out_dtype: str = ""


class DeformableConv2D(OpDef[DeformableConv2DAttrs]):
    """A convolution whose taps are moved by ``offset``; Dai et al., Deformable Convolutional Networks, 2017."""

    name = "nn.deformable_conv2d"
    inputs = ("data", "offset", "weight")
    pattern = OpPattern.OPAQUE
    kind = "conv"
    in_float32 = True
    strategy = strategies.deformable_conv2d_strategy

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: DeformableConv2DAttrs, solver: TypeSolver) -> Type | None:
        """The type of a convolution; infer missing types of weight and offsets."""
        result = infer_conv([types[0], types[2]], attrs, solver, 2)
        data = relations.tensor(types[0], "data")
        kernel: Sequence[PrimExpr | int] | None = attrs.kernel_size
        if kernel is None:
            weight = relations.tensor(types[2], "weight")
            kernel = canonical_shape(weight.shape, attrs.kernel_layout, "OIHW", "weight")[2:]
        if result is None:
            return None
        assert isinstance(result, TensorType)
        n, _, *extents = canonical_shape(result.shape, attrs.out_layout or attrs.data_layout, "NCHW", "output")
        places = dim_mul(*(as_expr(k) for k in kernel), as_expr(2 * attrs.deformable_groups))
        shape = shape_in_layout((n, places, *extents), "NCHW", attrs.data_layout, "offset")
        if isinstance(types[1], IncompleteType):
            solver.assign(types[1], TensorType(shape, data.dtype))
        else:
            offset = relations.tensor(types[1], "offset")
            relations.require_rank(offset, 4, "offset")
            for expected, found in zip(shape, offset.shape, strict=True):
                solver.assert_equal(expected, found, "shape of the offset")
        return result

    @staticmethod
    def evaluate(attrs: DeformableConv2DAttrs, inputs: Sequence[Array]) -> list[Array]:
        dtype = accumulation_dtype(inputs[0], attrs.out_dtype)
        data, offset = (transform_array(a, attrs.data_layout, "NCHW").astype(dtype) for a in inputs[:2])
        weight = transform_array(inputs[2], attrs.kernel_layout, "OIHW").astype(dtype)
        batch, channels, height, width = data.shape
        outputs, per_group, rows, columns = weight.shape
        out = offset.shape[2:]
        moves = offset.reshape(batch, attrs.deformable_groups, rows, columns, 2, *out)
        base = [np.arange(out[k]) * attrs.strides[k] - attrs.padding[k] for k in range(2)]
        taken = np.zeros((batch, channels, rows, columns, *out))
        each = channels // attrs.deformable_groups
        for n, g, dy, dx in np.ndindex(batch, attrs.deformable_groups, rows, columns):
            y = base[0][:, None] + dy * attrs.dilation[0] + moves[n, g, dy, dx, 0]
            x = base[1] + dx * attrs.dilation[1] + moves[n, g, dy, dx, 1]
            inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
            part = slice(g * each, (g + 1) * each)
            taken[n, part, dy, dx] = np.where(inside, bilinear(data[n, part], y, x), 0)
        grouped = taken.reshape(batch, attrs.groups, per_group, rows, columns, *out)
        kernels = weight.reshape(attrs.groups, outputs // attrs.groups, per_group, rows, columns)
        result = np.einsum("ngcyxhw,gocyx->ngohw", grouped, kernels).reshape(batch, outputs, *out)
        result = transform_array(result, "NCHW", attrs.out_layout or attrs.data_layout)
        return [result.astype(result_dtype(inputs[0], attrs.out_dtype))]

    @staticmethod
    def infer_correct_layout(
        attrs: DeformableConv2DAttrs,
        new_in_layouts: Sequence[Layout],
        old_in_layouts: Sequence[Layout],
        old_in_types: Sequence[Type],
    ) -> InferCorrectLayoutOutput:
        """Keep the layouts of the attributes; the offsets have that of the data."""
        data, kernel = parse_layout(attrs.data_layout), parse_layout(attrs.kernel_layout)
        out = parse_layout(attrs.out_layout or attrs.data_layout)
        return InferCorrectLayoutOutput([data, data, kernel], [out], attrs)

    @staticmethod
    def convert_op_layout(
        attrs: DeformableConv2DAttrs, inputs: Sequence[RelayExpr], tinfos: Sequence[Any], desired_layouts: Sequence[str]
    ) -> RelayExpr:
        """Return the convolution in the desired (data, kernel) layouts; kernel "default" selects the one for the
        data's.
        """
        data, kernel = (*desired_layouts, "default")[:2]
        kernel = kernel_layout_for(data) if kernel == "default" else kernel
        changed = attrs.replace(data_layout=data, kernel_layout=kernel, out_layout="")
        return call("nn.deformable_conv2d", inputs, changed)


deformable_conv2d = builder(DeformableConv2D, padding=(0, 0))
