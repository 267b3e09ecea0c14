"""image.affine_grid, grid_sample, crop_and_resize and dilation2d."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import Padding, PerAxis
from tilewright.relay.op.bilinear import bilinear, sampled
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.nn.conv_common import canonical_shape, conv_extent, shape_in_layout
from tilewright.relay.op.strategy.generic import schedule_injective
from tilewright.relay.op.transform.checks import checked_from_front
from tilewright.relay.op.transform.layout import transform_array
from tilewright.runtime.ndarray import numpy_dtype


class AffineGridAttrs(Attrs):
    """Height and width of the grid."""

    target_shape: PerAxis


class AffineGrid(OpDef[AffineGridAttrs]):
    """The points of a grid over [-1, 1] x [-1, 1], mapped by affine transformations."""

    name = "image.affine_grid"
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: AffineGridAttrs, solver: TypeSolver) -> Type | None:
        """(batch, 2, height, width)"""
        data = relations.tensor(types[0], "data")
        relations.require_rank(data, 3, "data")
        for at, extent in ((1, 2), (2, 3)):
            solver.assert_equal(as_expr(extent), data.shape[at], "dimensions of the affine matrix")
        relations.require(min(attrs.target_shape) > 1, f"target_shape {attrs.target_shape} has to be at least 2 x 2")
        return TensorType((data.shape[0], 2, *attrs.target_shape), data.dtype)

    @staticmethod
    def compute(attrs: AffineGridAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.image.affine_grid(inputs[0], attrs.target_shape)]

    @staticmethod
    def evaluate(attrs: AffineGridAttrs, inputs: Sequence[Array]) -> list[Array]:
        y, x = np.meshgrid(*(np.linspace(-1, 1, extent) for extent in attrs.target_shape), indexing="ij")
        points = np.stack([x, y, np.ones_like(x)])
        return [np.einsum("nij,jhw->nihw", inputs[0], points).astype(inputs[0].dtype)]


affine_grid = builder(AffineGrid, target_shape=None)


class GridSampleAttrs(Attrs):
    """Interpolation method, layout, padding mode, and whether -1 and 1 are the corner pixels' centres."""

    method: str = "bilinear"
    layout: str = "NCHW"
    padding_mode: str = "zeros"
    align_corners: bool = True


class GridSample(OpDef[GridSampleAttrs]):
    """Values of ``data`` (batch, channels, height, width) at the points of ``grid`` (batch, 2, ...), x before y."""

    name = "image.grid_sample"
    inputs = ("data", "grid")
    pattern = OpPattern.INJECTIVE
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: GridSampleAttrs, solver: TypeSolver) -> Type | None:
        data, grid = relations.tensors(types, GridSample.inputs)
        relations.require(
            attrs.layout in ("NCHW", "NCDHW")
            and attrs.method in topi.image.GRID_METHODS
            and attrs.padding_mode in topi.image.GRID_PADDING,
            f"method should be {', '.join(topi.image.GRID_METHODS)}, padding_mode {', '.join(topi.image.GRID_PADDING)} "
            f"and layout NCHW or NCDHW, found {attrs.method!r}, {attrs.padding_mode!r} and {attrs.layout!r}",
        )
        rank = len(attrs.layout)
        relations.require_rank(data, rank, "data")
        relations.require_rank(grid, rank, "grid")
        solver.assert_equal(data.shape[0], grid.shape[0], "batch of the grid")
        solver.assert_equal(as_expr(rank - 2), grid.shape[1], "coordinates of a point")
        return TensorType((*data.shape[:2], *grid.shape[2:]), data.dtype)

    @staticmethod
    def compute(attrs: GridSampleAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        how = (attrs.method, attrs.layout, attrs.padding_mode, attrs.align_corners)
        return [topi.image.grid_sample(inputs[0], inputs[1], *how)]

    @staticmethod
    def evaluate(attrs: GridSampleAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, grid = inputs
        made = np.zeros((*data.shape[:2], *grid.shape[2:]))
        for n, points in enumerate(grid):
            made[n] = sampled(data[n], points[::-1], attrs.method, attrs.padding_mode, attrs.align_corners)
        return [made.astype(data.dtype)]


grid_sample = builder(GridSample)


class CropAndResizeAttrs(Attrs):
    """Size of the crops, layout, method, value outside the image, and dtype of the result."""

    crop_size: PerAxis
    layout: str = "NCHW"
    method: str = "bilinear"
    extrapolation_value: float = 0.0
    out_dtype: str = ""


class CropAndResize(OpDef[CropAndResizeAttrs]):
    """The parts ``boxes`` of images ``data``, each resized to ``crop_size``.

    ``boxes`` (count, 4) has rows (y1, x1, y2, x2), where 0 and 1 are the centres of the first and last pixel;
    ``box_indices`` (count,) says which image each is of. ``method`` is bilinear or nearest_neighbor. A side of one
    element has the middle of the box, as in TensorFlow.
    """

    name = "image.crop_and_resize"
    support_level = 5
    inputs = ("data", "boxes", "box_indices")
    pattern = OpPattern.INJECTIVE
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: CropAndResizeAttrs, solver: TypeSolver) -> Type | None:
        found = relations.tensors(types, CropAndResize.inputs)
        data, boxes, indices = found
        for type_, rank, what in zip(found, (4, 2, 1), CropAndResize.inputs, strict=True):
            relations.require_rank(type_, rank, what)
        relations.require(attrs.layout in ("NCHW", "NHWC"), f"layout should be NCHW or NHWC, found {attrs.layout!r}")
        relations.require(
            attrs.method in ("bilinear", "nearest_neighbor"),
            f"method should be bilinear or nearest_neighbor, found {attrs.method!r}",
        )
        solver.assert_equal(as_expr(4), boxes.shape[1], "coordinates of a box")
        solver.assert_equal(boxes.shape[0], indices.shape[0], "number of box_indices")
        channels = data.shape[attrs.layout.index("C")]
        shape = (boxes.shape[0], channels, *(as_expr(v) for v in attrs.crop_size))
        return TensorType(shape_in_layout(shape, "NCHW", attrs.layout, "output"), attrs.out_dtype or data.dtype)

    @staticmethod
    def check_indices(attrs: CropAndResizeAttrs, args: Sequence[RelayExpr]) -> list[RelayExpr]:
        """The image index of each box must lie within the batch."""
        data, boxes, indices = args
        return [data, boxes, checked_from_front("image.crop_and_resize: box index", indices, data)]

    @staticmethod
    def compute(attrs: CropAndResizeAttrs, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        return [
            topi.image.crop_and_resize(
                inputs[0],
                inputs[1],
                inputs[2],
                attrs.crop_size,
                attrs.layout,
                attrs.method,
                attrs.extrapolation_value,
                out_type.dtype,
            )
        ]

    @staticmethod
    def evaluate(attrs: CropAndResizeAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, boxes, indices = inputs
        images = transform_array(data, attrs.layout, "NCHW")
        height, width = images.shape[2:]
        made = np.zeros((len(boxes), images.shape[1], *attrs.crop_size))
        for b, (y1, x1, y2, x2) in enumerate(boxes.astype(np.float64)):
            y, x = (
                np.linspace(first, last, size) * (extent - 1)
                if size > 1
                else np.array([(first + last) * (extent - 1) / 2])
                for first, last, extent, size in zip((y1, x1), (y2, x2), (height, width), attrs.crop_size, strict=True)
            )
            rows, columns = np.meshgrid(y, x, indexing="ij")
            if attrs.method == "nearest_neighbor":
                rows, columns = np.floor(rows + 0.5), np.floor(columns + 0.5)
            inside = ((y >= 0) & (y <= height - 1))[:, None] & ((x >= 0) & (x <= width - 1))
            values = bilinear(images[indices[b]], rows, columns)
            made[b] = np.where(inside, values, attrs.extrapolation_value)
        dtype = numpy_dtype(attrs.out_dtype) if attrs.out_dtype else data.dtype
        return [transform_array(made, "NCHW", attrs.layout).astype(dtype)]


crop_and_resize = builder(CropAndResize, layout=..., out_dtype=None)


class Dilation2DAttrs(Attrs):
    """Strides, padding, dilations, layouts and dtype of the result."""

    strides: PerAxis = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    dilations: PerAxis = (1, 1)
    data_layout: str = "NCHW"
    kernel_layout: str = "IHW"
    out_dtype: str = ""


class Dilation2D(OpDef[Dilation2DAttrs]):
    """Morphological dilation: the greatest of ``data`` + ``weight`` over each window, channel by channel."""

    name = "image.dilation2d"
    support_level = 5
    inputs = ("data", "weight")
    pattern = OpPattern.OPAQUE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: Dilation2DAttrs, solver: TypeSolver) -> Type | None:
        """The extents of a convolution."""
        data, weight = relations.tensors(types, Dilation2D.inputs)
        relations.require(
            (attrs.data_layout, attrs.kernel_layout) in (("NCHW", "IHW"), ("NHWC", "HWI")),
            f"the layouts should be NCHW and IHW or NHWC and HWI, found {attrs.data_layout!r}, {attrs.kernel_layout!r}",
        )
        n, channels, *extents = canonical_shape(data.shape, attrs.data_layout, "NCHW", "data")
        weight_channels, *kernel = canonical_shape(weight.shape, attrs.kernel_layout, "IHW", "weight")
        solver.assert_equal(channels, weight_channels, "channels of the weight")
        out = [
            conv_extent(x, k, attrs.strides[i], attrs.dilations[i], attrs.padding[i], attrs.padding[i + 2])
            for i, (x, k) in enumerate(zip(extents, kernel, strict=True))
        ]
        shape = shape_in_layout((n, channels, *out), "NCHW", attrs.data_layout, "output")
        return TensorType(shape, attrs.out_dtype or data.dtype)

    @staticmethod
    def compute(attrs: Dilation2DAttrs, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        kernel = topi.image.dilation2d_nchw if attrs.data_layout == "NCHW" else topi.image.dilation2d_nhwc
        return [kernel(inputs[0], inputs[1], attrs.strides, attrs.padding, attrs.dilations, out_type.dtype)]

    @staticmethod
    def evaluate(attrs: Dilation2DAttrs, inputs: Sequence[Array]) -> list[Array]:
        dtype = numpy_dtype(attrs.out_dtype) if attrs.out_dtype else inputs[0].dtype
        data = transform_array(inputs[0], attrs.data_layout, "NCHW").astype(dtype)
        weight = transform_array(inputs[1], attrs.kernel_layout, "IHW").astype(dtype)
        top, left, bottom, right = attrs.padding
        lowest = -np.inf if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).min
        padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=lowest)
        steps, apart = attrs.strides, attrs.dilations
        out = [(padded.shape[2 + k] - (weight.shape[1 + k] - 1) * apart[k] - 1) // steps[k] + 1 for k in range(2)]
        result = np.full((*data.shape[:2], *out), lowest, dtype)
        for dy, dx in np.ndindex(*weight.shape[1:]):
            rows, columns = (d * apart[k] + np.arange(out[k]) * steps[k] for k, d in enumerate((dy, dx)))
            taken = padded[:, :, rows[:, None], columns]
            raised = np.where(taken == lowest, lowest, taken + weight[:, dy, dx].reshape(1, -1, 1, 1))
            result = np.maximum(result, raised.astype(dtype))
        return [transform_array(result, "NCHW", attrs.data_layout)]


dilation2d = builder(Dilation2D, padding=(0, 0))


for _sampler in (AffineGrid, GridSample, CropAndResize):
    _sampler.op.set_attr("FTVMSchedule", schedule_injective)
