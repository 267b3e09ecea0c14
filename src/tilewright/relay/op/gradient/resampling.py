"""Gradients of resizing. Resizing multiplies each dimension by a matrix, its gradient by the transposed matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.relay.expr import Call, const
from tilewright.relay.op.attributes import ints
from tilewright.relay.op.gradient.rule import Gradients, require_shape, rule, tensor_type
from tilewright.relay.op.nn.dense import dense
from tilewright.relay.op.nn.pooling import spatial_axes
from tilewright.relay.op.nn.resample import depth_to_space, space_to_depth
from tilewright.relay.op.tensor.unary import cast
from tilewright.relay.op.transform.axes import transpose
from tilewright.relay.op.transform.layout import layout_transform
from tilewright.relay.op.transform.reshape import reshape

_RANKS = {
    "image.resize1d": 1, "image.resize2d": 2, "image.resize3d": 3, "nn.upsampling": 2, "nn.upsampling3d": 3,
}  # fmt: skip


def _matrix(orig: Call, axes: Sequence[int], k: int, extent: int) -> np.ndarray[Any, Any]:
    """Return the matrix (extent, size) of dimension ``k``: the operator's results for each unit vector as an image."""
    assert isinstance(orig.op, Op)
    attrs: Any = orig.attrs
    layout = attrs.layout
    if hasattr(attrs, "size"):
        attrs = attrs.replace(size=tuple(s if i == k else 1 for i, s in enumerate(ints(attrs.size))), out_dtype="")
    shape = [1] * len(layout)
    shape[layout.index("N")] = shape[axes[k]] = extent
    units = np.zeros(shape, np.float64)
    index: list[Any] = [0] * len(layout)
    index[layout.index("N")] = index[axes[k]] = np.arange(extent)
    units[tuple(index)] = 1
    (result,) = orig.op.get_attr("FEvaluate")(attrs, [units])
    kept: list[Any] = [0] * len(layout)
    kept[layout.index("N")] = kept[axes[k]] = slice(None)
    found: np.ndarray[Any, Any] = result[tuple(kept)]
    return found if layout.index("N") < axes[k] else found.T


def _multiplied(grad: RelayExpr, shape: list[int], axis: int, matrix: np.ndarray[Any, Any], dtype: str) -> RelayExpr:
    """Apply the matrix (extent, size) to ``grad`` of ``shape`` along ``axis``; updates ``shape`` in place."""
    order = [*(i for i in range(len(shape)) if i != axis), axis]
    rows = reshape(transpose(grad, order), (-1, shape[axis]))
    shape[axis] = matrix.shape[0]
    found = reshape(dense(rows, const(matrix, dtype)), [shape[i] for i in order])
    return transpose(found, [order.index(i) for i in range(len(shape))])


@rule(*_RANKS)
def _resize(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    x, name = orig.args[0], str(orig.op)
    before, shape = require_shape(x, name), list(require_shape(orig, name))
    axes = spatial_axes(attrs.layout, _RANKS[name])
    dtype = tensor_type(x).dtype
    if tensor_type(orig).dtype != dtype:
        grad = cast(grad, dtype)
    for k, axis in enumerate(axes):
        grad = _multiplied(grad, shape, axis, _matrix(orig, axes, k, before[axis]), dtype)
    return [grad, *[None] * (len(orig.args) - 1)]


@rule("nn.space_to_depth")
def _space_to_depth(orig: Call, grad: RelayExpr) -> Gradients:
    attrs: Any = orig.attrs
    return [depth_to_space(grad, attrs.block_size, attrs.layout, "DCR")]


@rule("nn.depth_to_space")
def _depth_to_space(orig: Call, grad: RelayExpr) -> Gradients:
    """The place in a block is the outer part of the channel in mode DCR, the inner one in CRD."""
    attrs: Any = orig.attrs
    plain = grad if attrs.layout == "NCHW" else layout_transform(grad, attrs.layout, "NCHW")
    found: RelayExpr = space_to_depth(plain, attrs.block_size, "NCHW")
    if attrs.mode == "CRD":
        n, c, h, w = require_shape(orig.args[0], "nn.depth_to_space")
        if attrs.layout != "NCHW":
            n, h, w, c = require_shape(orig.args[0], "nn.depth_to_space")
        block = attrs.block_size**2
        apart = transpose(reshape(found, (n, block, c // block, h, w)), (0, 2, 1, 3, 4))
        found = reshape(apart, (n, c, h, w))
    return [found if attrs.layout == "NCHW" else layout_transform(found, "NCHW", attrs.layout)]
