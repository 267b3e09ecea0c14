"""nn.upsampling and nn.upsampling3d, and data movement between channels, batch and space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import layout_rules, relations, slice_rules
from tilewright.relay.op.attributes import Pairs
from tilewright.relay.op.builder import builder, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients, require_shape, reshaped_gradient
from tilewright.relay.op.image.resize import resize_array, resize_gradient
from tilewright.relay.op.nn.pooling import spatial_axes
from tilewright.relay.op.relations import known
from tilewright.relay.type_infer.dimensions import note_equal
from tilewright.topi.nn.upsampling import scaled_extent

_METHODS = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


class UpSamplingAttrs(Attrs):
    """Factors, layout and method (nearest_neighbor, bilinear, bicubic)."""

    scale_h: float = 1.0
    scale_w: float = 1.0
    layout: str = "NCHW"
    method: str = "nearest_neighbor"
    align_corners: bool = False


class UpSampling3DAttrs(Attrs):
    """Factors, layout and method (nearest_neighbor, trilinear)."""

    scale_d: float = 1.0
    scale_h: float = 1.0
    scale_w: float = 1.0
    layout: str = "NCDHW"
    method: str = "nearest_neighbor"
    coordinate_transformation_mode: str = "half_pixel"


U = TypeVar("U", bound=UpSamplingAttrs | UpSampling3DAttrs)


def _scales(attrs: UpSamplingAttrs | UpSampling3DAttrs, rank: int) -> list[float]:
    return [getattr(attrs, f"scale_{axis}") for axis in "dhw"[3 - rank :]]


class Enlarge(OpDef[U]):
    """Base of operators that enlarge ``rank`` spatial dimensions by factors."""

    rank: ClassVar[int]
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE

    @classmethod
    def infer_type(cls, types: Sequence[Type], attrs: U, solver: TypeSolver) -> Type | None:
        """The spatial extents times the factors."""
        data = relations.tensor(types[0])
        shape = list(data.shape)
        for axis, scale in zip(spatial_axes(attrs.layout, cls.rank, data), _scales(attrs, cls.rank), strict=True):
            shape[axis] = relations.dim_map(lambda d, s=scale: scaled_extent(d, s), shape[axis])
        return TensorType(shape, data.dtype)

    @classmethod
    def evaluate(cls, attrs: U, inputs: Sequence[Array]) -> list[Array]:
        x, axes = inputs[0], spatial_axes(attrs.layout, cls.rank)
        size = [scaled_extent(x.shape[a], s) for a, s in zip(axes, _scales(attrs, cls.rank), strict=True)]
        if isinstance(attrs, UpSamplingAttrs):
            mode = "align_corners" if attrs.align_corners else "asymmetric"
        else:
            mode = attrs.coordinate_transformation_mode
        return [resize_array(x, axes, size, _METHODS[attrs.method], mode, "", -0.5, False)]

    @classmethod
    def gradient(cls, attrs: U, orig: Call, grad: RelayExpr) -> Gradients:
        """As of resizing."""
        return resize_gradient(attrs, orig, grad, cls.rank)


class UpSampling(Enlarge[UpSamplingAttrs]):
    """Height and width enlarged by factors; ``method`` is nearest_neighbor, bilinear or bicubic."""

    name = "nn.upsampling"
    support_level = 2
    rank = 2

    infer_correct_layout = staticmethod(layout_rules.with_layout_attr("layout", "HW"))
    band_operands = staticmethod(slice_rules.repetition)

    @staticmethod
    def compute(attrs: UpSamplingAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        args = attrs.scale_h, attrs.scale_w, attrs.layout, attrs.method, bool(attrs.align_corners)
        return [topi.nn.upsampling(inputs[0], *args)]


upsampling = builder(UpSampling, computed="scale_h scale_w", scale_h=1, scale_w=1)


class UpSampling3D(Enlarge[UpSampling3DAttrs]):
    """Depth, height and width enlarged by factors; ``method`` is nearest_neighbor or trilinear."""

    name = "nn.upsampling3d"
    support_level = 2
    rank = 3

    infer_correct_layout = staticmethod(layout_rules.with_layout_attr("layout", "DHW"))

    @staticmethod
    def compute(attrs: UpSampling3DAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        args = attrs.scale_d, attrs.scale_h, attrs.scale_w, attrs.layout, attrs.method
        return [topi.nn.upsampling3d(inputs[0], *args, attrs.coordinate_transformation_mode)]


upsampling3d = builder(UpSampling3D, computed="scale_d scale_h scale_w", scale_d=1, scale_h=1, scale_w=1)


class BatchFlatten(OpDef[None]):
    """All dimensions after the batch as one."""

    name = "nn.batch_flatten"
    support_level = 2
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE
    gradient = staticmethod(reshaped_gradient)
    reshapes = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        """(batch, product of the other extents)"""
        data = relations.tensor(types[0])
        relations.require(len(data.shape) >= 1, "data should have a batch dimension")
        return TensorType((data.shape[0], relations.dim_mul(*data.shape[1:])), data.dtype)

    @staticmethod
    def compute(attrs: None, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.nn.flatten(inputs[0])]

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        return [inputs[0].reshape(inputs[0].shape[0], int(np.prod(inputs[0].shape[1:])))]


batch_flatten = builder(BatchFlatten)


class SubPixelAttrs(Attrs):
    """Block size, layout, and DCR or CRD order of the channels."""

    block_size: int
    layout: str = "NCHW"
    mode: str = "DCR"


def _to_nchw(x: Array, layout: str) -> Array:
    return x if layout == "NCHW" else np.moveaxis(x, 3, 1)


def _from_nchw(x: Array, layout: str) -> Array:
    return np.ascontiguousarray(x if layout == "NCHW" else np.moveaxis(x, 1, 3))


def _subpixel_axes(attrs: SubPixelAttrs, data: TensorType) -> tuple[int, list[int]]:
    if attrs.layout not in ("NCHW", "NHWC"):
        raise TypeInferenceError(f"layout should be NCHW or NHWC, found {attrs.layout!r}")
    relations.require(attrs.block_size > 0, f"block_size should be at least 1, found {attrs.block_size}")
    return attrs.layout.index("C"), spatial_axes(attrs.layout, 2, data)


class DepthToSpace(OpDef[SubPixelAttrs]):
    """Move blocks of channels to blocks of pixels; the place in a block is the outer part of the channel in ``mode``
    DCR, the inner part in CRD.
    """

    name = "nn.depth_to_space"
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE
    moves = True

    band_operands = staticmethod(slice_rules.blocks_to_space)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: SubPixelAttrs, solver: TypeSolver) -> Type | None:
        """Channels over block_size**2, extents times block_size."""
        data = relations.tensor(types[0])
        channel, axes = _subpixel_axes(attrs, data)
        shape, block = list(data.shape), int(attrs.block_size)
        count = known(shape[channel])
        relations.require(count is None or count % block**2 == 0, f"{count} channels are no multiple of {block**2}")
        shape[channel] = relations.dim_floordiv(shape[channel], block**2)
        for axis in axes:
            shape[axis] = relations.dim_mul(shape[axis], block)
        return TensorType(shape, data.dtype)

    @staticmethod
    def compute(attrs: SubPixelAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.nn.depth_to_space(inputs[0], attrs.block_size, attrs.layout, attrs.mode)]

    @staticmethod
    def evaluate(attrs: SubPixelAttrs, inputs: Sequence[Array]) -> list[Array]:
        x, b = _to_nchw(inputs[0], attrs.layout), attrs.block_size
        n, c, h, w = x.shape
        if attrs.mode == "DCR":
            moved = x.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            moved = x.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
        return [_from_nchw(moved.reshape(n, c // b**2, h * b, w * b), attrs.layout)]

    @staticmethod
    def gradient(attrs: SubPixelAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """In mode CRD a channel's place in its block comes first among channels, in DCR last."""
        plain = grad if attrs.layout == "NCHW" else ops.layout_transform(grad, attrs.layout, "NCHW")
        found: RelayExpr = space_to_depth(plain, attrs.block_size, "NCHW")
        if attrs.mode == "CRD":
            n, c, h, w = require_shape(orig.args[0], "nn.depth_to_space")
            if attrs.layout != "NCHW":
                n, h, w, c = require_shape(orig.args[0], "nn.depth_to_space")
            block = attrs.block_size**2
            apart = ops.transpose(ops.reshape(found, (n, block, c // block, h, w)), (0, 2, 1, 3, 4))
            found = ops.reshape(apart, (n, c, h, w))
        return [found if attrs.layout == "NCHW" else ops.layout_transform(found, "NCHW", attrs.layout)]


depth_to_space = builder(DepthToSpace)


class SpaceToDepth(OpDef[SubPixelAttrs]):
    """Move blocks of pixels to blocks of channels."""

    name = "nn.space_to_depth"
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE
    moves = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: SubPixelAttrs, solver: TypeSolver) -> Type | None:
        """Channels times block_size**2, extents over block_size."""
        data = relations.tensor(types[0])
        channel, axes = _subpixel_axes(attrs, data)
        shape, block = list(data.shape), int(attrs.block_size)
        for axis in axes:
            extent = known(shape[axis])
            relations.require(extent is None or extent % block == 0, f"{extent} pixels are no multiple of {block}")
            note_equal(relations.dim_map(lambda d: d % block, shape[axis]), 0)
            shape[axis] = relations.dim_floordiv(shape[axis], block)
        shape[channel] = relations.dim_mul(shape[channel], block**2)
        return TensorType(shape, data.dtype)

    @staticmethod
    def compute(attrs: SubPixelAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.nn.space_to_depth(inputs[0], attrs.block_size, attrs.layout)]

    @staticmethod
    def evaluate(attrs: SubPixelAttrs, inputs: Sequence[Array]) -> list[Array]:
        x, b = _to_nchw(inputs[0], attrs.layout), attrs.block_size
        n, c, h, w = x.shape
        moved = x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
        return [_from_nchw(moved.reshape(n, c * b**2, h // b, w // b), attrs.layout)]

    @staticmethod
    def gradient(attrs: SubPixelAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        return [depth_to_space(grad, attrs.block_size, attrs.layout, "DCR")]


space_to_depth = builder(SpaceToDepth, order="data block_size layout")


class SpaceToBatchNDAttrs(Attrs):
    """Blocks of dimensions 1 to M, and (before, after) padding of these."""

    block_shape: tuple[int, ...]
    paddings: Pairs
    pad_value: float = 0.0


class BatchToSpaceNDAttrs(Attrs):
    """Blocks of dimensions 1 to M, and (before, after) cropping of these."""

    block_shape: tuple[int, ...]
    crops: Pairs


class SpaceToBatchND(OpDef[SpaceToBatchNDAttrs]):
    """Dimensions 1 to M padded, and blocks of them moved to the batch."""

    name = "nn.space_to_batch_nd"
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: SpaceToBatchNDAttrs, solver: TypeSolver) -> Type | None:
        """The batch times the product of the blocks; padded extents over their block."""
        data = relations.tensor(types[0])
        shape = list(data.shape)
        for i, (block, (before, after)) in enumerate(zip(attrs.block_shape, attrs.paddings, strict=True), start=1):
            padded = relations.dim_add(shape[i], before + after)
            extent = known(padded)
            relations.require(
                extent is None or extent % block == 0, f"padded extent {extent} is no multiple of {block}"
            )
            shape[i] = relations.dim_floordiv(padded, block)
        shape[0] = relations.dim_mul(shape[0], *attrs.block_shape)
        return TensorType(shape, data.dtype)

    @staticmethod
    def compute(attrs: SpaceToBatchNDAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        before, after = [b for b, _ in attrs.paddings], [a for _, a in attrs.paddings]
        return [topi.nn.space_to_batch_nd(inputs[0], list(attrs.block_shape), before, after, attrs.pad_value)]

    @staticmethod
    def evaluate(attrs: SpaceToBatchNDAttrs, inputs: Sequence[Array]) -> list[Array]:
        blocks, count = list(attrs.block_shape), len(attrs.block_shape)
        widths = [(0, 0), *attrs.paddings, *[(0, 0)] * (inputs[0].ndim - 1 - count)]
        x = np.pad(inputs[0], widths, constant_values=attrs.pad_value)
        batch, dims, rest = x.shape[0], x.shape[1 : 1 + count], x.shape[1 + count :]
        split = [v for d, b in zip(dims, blocks, strict=True) for v in (d // b, b)]
        order = [
            *range(2, 2 * count + 1, 2),
            0,
            *range(1, 2 * count + 1, 2),
            *range(2 * count + 1, 2 * count + 1 + len(rest)),
        ]
        moved = x.reshape(batch, *split, *rest).transpose(order)
        shape = batch * int(np.prod(blocks)), *[d // b for d, b in zip(dims, blocks, strict=True)], *rest
        return [np.ascontiguousarray(moved.reshape(shape))]


space_to_batch_nd = builder(SpaceToBatchND, pad_value=0)


class BatchToSpaceND(OpDef[BatchToSpaceNDAttrs]):
    """Parts of the batch moved to blocks of dimensions 1 to M, and these cropped."""

    name = "nn.batch_to_space_nd"
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: BatchToSpaceNDAttrs, solver: TypeSolver) -> Type | None:
        """The batch over the product of the blocks; extents times their block, less what is cropped."""
        data = relations.tensor(types[0])
        shape = list(data.shape)
        for i, (block, (begin, end)) in enumerate(zip(attrs.block_shape, attrs.crops, strict=True), start=1):
            shape[i] = relations.dim_add(relations.dim_mul(shape[i], block), -(begin + end))
        shape[0] = relations.dim_floordiv(shape[0], as_expr(int(np.prod(attrs.block_shape))))
        return TensorType(shape, data.dtype)

    @staticmethod
    def compute(attrs: BatchToSpaceNDAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        begin, end = [b for b, _ in attrs.crops], [e for _, e in attrs.crops]
        return [topi.nn.batch_to_space_nd(inputs[0], list(attrs.block_shape), begin, end)]

    @staticmethod
    def evaluate(attrs: BatchToSpaceNDAttrs, inputs: Sequence[Array]) -> list[Array]:
        blocks, count = list(attrs.block_shape), len(attrs.block_shape)
        x = inputs[0]
        batch = x.shape[0] // int(np.prod(blocks))
        dims, rest = x.shape[1 : 1 + count], x.shape[1 + count :]
        order = [count, *[v for i in range(count) for v in (count + 1 + i, i)]]
        moved = x.reshape(*blocks, batch, *dims, *rest).transpose(
            [*order, *range(2 * count + 1, 2 * count + 1 + len(rest))]
        )
        whole = moved.reshape(batch, *[d * b for d, b in zip(dims, blocks, strict=True)], *rest)
        cut = [slice(b, whole.shape[1 + i] - e) for i, (b, e) in enumerate(attrs.crops)]
        return [np.ascontiguousarray(whole[(slice(None), *cut)])]


batch_to_space_nd = builder(BatchToSpaceND)
