"""nn.conv1d_transpose, nn.conv2d_transpose and nn.conv3d_transpose: the gradient of a convolution, as a layer.

The letters of a kernel layout: I are the input channels, O the output channels per group. ONNX and
PyTorch keep these kernels as IOHW.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import Padding, PerAxis, call, ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.builder import Builder, builder
from tilewright.relay.op.conv_attrs import ConvTransposeAttrs
from tilewright.relay.op.definition import OpPattern, TypeSolver, declare
from tilewright.relay.op.families import Array
from tilewright.relay.op.nn import kernel_work
from tilewright.relay.op.nn.conv_common import (
    SPATIAL,
    accumulation_dtype,
    canonical_shape,
    conv_layouts,
    convolve,
    result_dtype,
    shape_in_layout,
)
from tilewright.relay.op.nn.conv_gradients import transposed_gradient
from tilewright.relay.op.nn.conv_transpose_legalize import as_convolution
from tilewright.relay.op.relations import dim_map, known
from tilewright.relay.op.strategy import generic as strategies
from tilewright.relay.op.transform.layout import transform_array
from tilewright.relay.type_infer.describe import describe_shape
from tilewright.target.generic_func import GenericFunc


class Conv1DTransposeAttrs(ConvTransposeAttrs):
    """Attributes of nn.conv1d_transpose; TVM 0.8 calls the default layout of kernels (input, output, ...) "OIW"."""

    channels: int | None = None
    kernel_size: PerAxis | None = None
    strides: PerAxis = (1,)
    output_padding: PerAxis = (0,)
    padding: Padding = (0,)
    dilation: PerAxis = (1,)
    groups: int = 1
    data_layout: str = "NCW"
    kernel_layout: str = "IOW"
    out_layout: str = ""
    out_dtype: str = ""

    rank = 1


class Conv2DTransposeAttrs(ConvTransposeAttrs):
    """Attributes of nn.conv2d_transpose; the text form says ``kernel_layout="IOHW"`` for the constructor's default."""

    channels: int | None = None
    kernel_size: PerAxis | None = None
    strides: PerAxis = (1, 1)
    output_padding: PerAxis = (0, 0)
    padding: Padding = (0, 0)
    dilation: PerAxis = (1, 1)
    groups: int = 1
    data_layout: str = "NCHW"
    kernel_layout: str = "OIHW"
    out_layout: str = ""
    out_dtype: str = ""


class Conv3DTransposeAttrs(ConvTransposeAttrs):
    """Attributes of nn.conv3d_transpose; TVM 0.8 calls the default layout of kernels (input, output, ...) "OIDHW"."""

    channels: int | None = None
    kernel_size: PerAxis | None = None
    strides: PerAxis = (1, 1, 1)
    output_padding: PerAxis = (0, 0, 0)
    padding: Padding = (0, 0, 0)
    dilation: PerAxis = (1, 1, 1)
    groups: int = 1
    data_layout: str = "NCDHW"
    kernel_layout: str = "IODHW"
    out_layout: str = ""
    out_dtype: str = ""

    rank = 3


def _infer(types: Sequence[Type], attrs: ConvTransposeAttrs, solver: TypeSolver, rank: int) -> Type | None:
    data, weight = relations.tensor(types[0], "data"), relations.tensor_or_none(types[1], "weight")
    spatial, groups = SPATIAL[rank], int(attrs.groups)
    n, channels_in, *extents = canonical_shape(data.shape, attrs.data_layout, f"NC{spatial}", "data")
    canonical = f"IO{spatial}"
    if weight is not None:
        weight_in, per_group, *kernel = canonical_shape(weight.shape, attrs.kernel_layout, canonical, "weight")
        if known(weight_in) is not None and known(channels_in) is not None and known(weight_in) != known(channels_in):
            raise TypeInferenceError(
                f"the data has {known(channels_in)} channels, but the weight {describe_shape(weight.shape)} in layout "
                f"{attrs.kernel_layout} takes {known(weight_in)}; kernels kept as (input, output, ...) have the "
                f"layout {canonical}"
            )
        channels_out = relations.dim_mul(per_group, groups)
        if attrs.channels is not None:
            solver.assert_equal(as_expr(attrs.channels), channels_out, "output channels of the weight")
        for extent, dim in zip(attrs.kernel_size or (), kernel, strict=False):
            solver.assert_equal(as_expr(extent), dim, "kernel_size")
    elif attrs.kernel_size is None or attrs.channels is None:
        return None
    else:
        kernel = [as_expr(k) for k in attrs.kernel_size]
        channels_out = as_expr(attrs.channels)
        expected = (channels_in, relations.dim_floordiv(channels_out, groups), *kernel)
        shape = shape_in_layout(expected, canonical, attrs.kernel_layout, "weight")
        solver.assign(types[1], TensorType(shape, data.dtype))
    pads = padding_of(attrs.padding, rank)
    outs = [
        dim_map(
            lambda x, k, i=i: attrs.strides[i] * (x - 1) + (k - 1) * attrs.dilation[i] + 1
            - pads[i] - pads[i + rank] + attrs.output_padding[i],
            x, k,
        )
        for i, (x, k) in enumerate(zip(extents, kernel, strict=True))
    ]  # fmt: skip
    out_layout = attrs.out_layout or attrs.data_layout
    return TensorType(
        shape_in_layout((n, channels_out, *outs), f"NC{spatial}", out_layout, "output"), attrs.out_dtype or data.dtype
    )


def _evaluate(attrs: ConvTransposeAttrs, inputs: Sequence[Array], rank: int) -> list[Array]:
    """Convolve the data, spread out by the strides, with the mirrored kernel."""
    spatial, groups = SPATIAL[rank], int(attrs.groups)
    dtype = accumulation_dtype(inputs[0], attrs.out_dtype)
    data = transform_array(inputs[0], attrs.data_layout, f"NC{spatial}").astype(dtype)
    weight = transform_array(inputs[1], attrs.kernel_layout, f"IO{spatial}").astype(dtype)
    strides, dilation = ints(attrs.strides), ints(attrs.dilation)
    spread = np.zeros(
        (*data.shape[:2], *[(x - 1) * s + 1 for x, s in zip(data.shape[2:], strides, strict=True)]), dtype
    )
    spread[(slice(None), slice(None), *[slice(None, None, s) for s in strides])] = data
    mirrored = np.flip(weight, tuple(range(2, 2 + rank)))
    per_in = weight.shape[0] // groups
    by_group = [np.swapaxes(mirrored[g * per_in : (g + 1) * per_in], 0, 1) for g in range(groups)]
    pads, extra = padding_of(attrs.padding, rank), ints(attrs.output_padding)
    reach = [(k - 1) * d for k, d in zip(weight.shape[2:], dilation, strict=True)]
    around = [r - p for r, p in zip(reach, pads[:rank], strict=True)]
    around += [r - p + e for r, p, e in zip(reach, pads[rank:], extra, strict=True)]
    cut = [slice(max(0, -around[i]), spread.shape[2 + i] - max(0, -around[i + rank])) for i in range(rank)]
    spread = spread[(slice(None), slice(None), *cut)]
    around = [max(0, a) for a in around]
    result = convolve(spread, np.concatenate(by_group), (1,) * rank, around, dilation, groups)
    result = transform_array(result, f"NC{spatial}", attrs.out_layout or attrs.data_layout)
    return [result.astype(result_dtype(inputs[0], attrs.out_dtype), copy=False)]


def _transposed(
    rank: int, doc: str, attrs_class: type[ConvTransposeAttrs], strategy: GenericFunc, legalize: GenericFunc
) -> Builder:
    spatial = SPATIAL[rank]
    canonical = f"IO{spatial}"
    legalize.set_default(lambda attrs, args, types: as_convolution(rank, attrs, args, types), allow_override=True)

    def convert(
        attrs: ConvTransposeAttrs, inputs: Sequence[RelayExpr], tinfos: Sequence[Any], desired: Sequence[str]
    ) -> RelayExpr:
        data, kernel = (*desired, "default")[:2]
        if kernel == "default":
            kernel = canonical if data.startswith("NC") else f"{spatial}IO"
        return call(
            f"nn.conv{rank}d_transpose", inputs, attrs.replace(data_layout=data, kernel_layout=kernel, out_layout="")
        )

    made = declare(
        f"nn.conv{rank}d_transpose",
        doc,
        inputs=("data", "weight"),
        attrs_type=attrs_class,
        support_level=2,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        in_float32=True,
        kind="conv",
        multiply_adds=kernel_work.transposed_multiply_adds,
        window=kernel_work.transposed_window,
        infer_type=lambda types, attrs, solver: _infer(types, attrs, solver, rank),
        evaluate=lambda attrs, inputs: _evaluate(attrs, inputs, rank),
        strategy=strategy,
        legalize=legalize,
        infer_correct_layout=conv_layouts,
        convert_op_layout=convert,
        gradient=partial(transposed_gradient, rank=rank),
    )
    order = "data weight strides padding dilation groups channels kernel_size data_layout kernel_layout out_layout"
    return builder(made, order=f"{order} output_padding out_dtype", module=__name__, kernel_layout=canonical)


conv1d_transpose = _transposed(
    1,
    "Transposed 1-D convolution. Kernels are (input, output, width).",
    Conv1DTransposeAttrs,
    strategies.conv1d_transpose_strategy,
    topi.nn.conv1d_transpose_legalize,
)
conv2d_transpose = _transposed(
    2,
    "Transposed 2-D convolution. Kernels are (input, output, height, width), as PyTorch's and ONNX's.",
    Conv2DTransposeAttrs,
    strategies.conv2d_transpose_strategy,
    topi.nn.conv2d_transpose_legalize,
)
conv3d_transpose = _transposed(
    3,
    "Transposed 3-D convolution. Kernels are (input, output, depth, height, width).",
    Conv3DTransposeAttrs,
    strategies.conv3d_transpose_strategy,
    topi.nn.conv3d_transpose_legalize,
)
