"""image.resize1d, resize2d and resize3d: interpolation to a new size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call, const
from tilewright.relay.op import layout_rules, relations
from tilewright.relay.op.attributes import Extents, ints
from tilewright.relay.op.builder import Builder, builder, ops
from tilewright.relay.op.definition import OpPattern, TypeSolver, declare
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients, require_shape, tensor_type
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.tir.layout import layout as parse_layout

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
_EPSILON = np.float32(1e-5)


class ResizeAttrs(Attrs):
    """Size, layout and method of the interpolation."""

    size: Extents
    layout: str
    method: str = "linear"
    coordinate_transformation_mode: str = "half_pixel"
    rounding_method: str = "round"
    cubic_alpha: float = -0.5
    cubic_exclude: int = 0
    out_dtype: str = ""

    rank = 2


class Resize1DAttrs(ResizeAttrs):
    """Attributes of image.resize1d."""

    layout: str = "NCW"

    rank = 1


class Resize2DAttrs(ResizeAttrs):
    """Attributes of image.resize2d."""

    layout: str = "NCHW"


class Resize3DAttrs(ResizeAttrs):
    """Attributes of image.resize3d."""

    layout: str = "NCDHW"

    rank = 3


def _coordinates(extent: int, size: int, mode: str) -> Array:
    """Return the input coordinates (float32) of the output positions, as ONNX's Resize defines them."""
    at, source, target = np.arange(size, dtype=np.float32), np.float32(extent), np.float32(size)
    scale, half = source / target, np.float32(0.5)
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and size > 1):
        return (at + half) * scale - half
    if mode in ("align_corners", "pytorch_half_pixel"):
        return at * ((source - 1) / (target - 1)) if size > 1 else np.zeros(1, np.float32)
    if mode == "asymmetric":
        return at * scale
    if mode == "tf_half_pixel_for_nn":
        return (at + half) * scale
    raise TypeInferenceError(f"coordinate_transformation_mode {mode!r} is not known")


def _nearest(x: Array, rounding: str, mode: str) -> Array:
    rounding = rounding or ("round" if mode == "align_corners" else "floor")
    half = np.float32(0.5)
    rules = {
        "round": lambda: np.trunc(x + np.copysign(half, x)),
        "round_prefer_floor": lambda: np.ceil(x - half),
        "round_prefer_ceil": lambda: np.floor(x + half),
        "floor": lambda: np.floor(x + _EPSILON),
        "ceil": lambda: np.ceil(x - _EPSILON),
    }
    if rounding not in rules:
        raise TypeInferenceError(f"rounding_method {rounding!r} is not known; there are {', '.join(rules)}")
    return np.asarray(rules[rounding]())


def _interpolation_matrix(
    extent: int, size: int, method: str, mode: str, rounding: str, alpha: float, exclude: bool
) -> Array:
    """Return the matrix (size, extent) that resizes one dimension."""
    x = _coordinates(extent, size, mode)
    base = np.floor(x) if method != "nearest_neighbor" else _nearest(x, rounding, mode)
    t = x - base
    if method == "nearest_neighbor":
        taps = [(0, np.ones_like(x))]
    elif method == "linear":
        taps = [(0, 1 - t), (1, t)]
    elif method == "cubic":
        near = lambda d: ((alpha + 2) * d - (alpha + 3)) * d * d + 1  # noqa: E731
        far = lambda d: ((alpha * d - 5 * alpha) * d + 8 * alpha) * d - 4 * alpha  # noqa: E731
        taps = [(-1, far(t + 1)), (0, near(t)), (1, near(1 - t)), (2, far(2 - t))]
    else:
        raise TypeInferenceError(f"method {method!r} is not known; there are nearest_neighbor, linear, cubic")
    matrix = np.zeros((size, extent), np.float64)
    for offset, weight in taps:
        position = (base + offset).astype(int)
        if exclude and method == "cubic":
            weight = np.where((position >= 0) & (position < extent), weight, 0)
        np.add.at(matrix, (np.arange(size), np.clip(position, 0, extent - 1)), weight)
    return matrix / matrix.sum(axis=1, keepdims=True) if exclude and method == "cubic" else matrix


def resize_array(
    x: Array,
    axes: Sequence[int],
    size: Sequence[int],
    method: str,
    mode: str,
    rounding: str,
    alpha: float,
    exclude: bool,
    dtype: Any = None,
) -> Array:
    """Resize ``x`` along ``axes``, one dimension after another."""
    result = x if method == "nearest_neighbor" else x.astype(np.float64)
    for axis, wanted in zip(axes, size, strict=True):
        if int(wanted) == 0:
            result = np.take(result, [], axis)
            continue
        matrix = _interpolation_matrix(x.shape[axis], int(wanted), method, mode, rounding, alpha, exclude)
        if method == "nearest_neighbor":
            result = np.take(result, matrix.argmax(axis=1), axis)
        else:
            result = np.moveaxis(np.tensordot(result, matrix, (axis, 1)), -1, axis)
    target = np.dtype(dtype or x.dtype)
    if target.kind in "iu" and method != "nearest_neighbor":
        result = np.trunc(result + np.copysign(0.5, result))
    return np.ascontiguousarray(result.astype(target))


def _axes(layout: str, rank: int) -> list[int]:
    parsed = parse_layout(layout)
    return [parsed.index_of(axis) for axis in _SPATIAL[rank]]


def _resized_type(types: Sequence[Type], attrs: ResizeAttrs, solver: TypeSolver, rank: int) -> Type | None:
    data = relations.tensor(types[0])
    relations.require_rank(data, len(parse_layout(attrs.layout)), f"data in layout {attrs.layout}")
    relations.require(len(attrs.size) == rank, f"size should have {rank} values, found {tuple(attrs.size)}")
    shape = list(data.shape)
    for axis, size in zip(_axes(attrs.layout, rank), attrs.size, strict=True):
        shape[axis] = as_expr(size)
    return TensorType(shape, attrs.out_dtype or data.dtype)


def _matrix(attrs: Any, op: Op, axes: Sequence[int], k: int, extent: int) -> Array:
    """The matrix (extent, size) of dimension ``k``: what the operator makes of each unit vector, one an image."""
    layout = attrs.layout
    if hasattr(attrs, "size"):
        attrs = attrs.replace(size=tuple(s if i == k else 1 for i, s in enumerate(ints(attrs.size))), out_dtype="")
    shape = [1] * len(layout)
    shape[layout.index("N")] = shape[axes[k]] = extent
    units = np.zeros(shape, np.float64)
    index: list[Any] = [0] * len(layout)
    index[layout.index("N")] = index[axes[k]] = np.arange(extent)
    units[tuple(index)] = 1
    (result,) = op.get_attr("FEvaluate")(attrs, [units])
    kept: list[Any] = [0] * len(layout)
    kept[layout.index("N")] = kept[axes[k]] = slice(None)
    found: Array = result[tuple(kept)]
    return found if layout.index("N") < axes[k] else found.T


def _multiplied(grad: RelayExpr, shape: list[int], axis: int, matrix: Array, dtype: str) -> RelayExpr:
    """``grad``, of ``shape``, with the matrix (extent, size) applied along ``axis``; ``shape`` changes with it."""
    order = [*(i for i in range(len(shape)) if i != axis), axis]
    rows = ops.reshape(ops.transpose(grad, order), (-1, shape[axis]))
    shape[axis] = matrix.shape[0]
    found = ops.reshape(ops.nn.dense(rows, const(matrix, dtype)), [shape[i] for i in order])
    return ops.transpose(found, [order.index(i) for i in range(len(shape))])


def resize_gradient(attrs: Any, orig: Call, grad: RelayExpr, rank: int) -> Gradients:
    """Resizing multiplies each dimension by a matrix, and its gradient by the transposed one."""
    x, name = orig.args[0], str(orig.op)
    before, shape = require_shape(x, name), list(require_shape(orig, name))
    axes, dtype = _axes(attrs.layout, rank), tensor_type(x).dtype
    assert isinstance(orig.op, Op)
    if tensor_type(orig).dtype != dtype:
        grad = ops.cast(grad, dtype)
    for k, axis in enumerate(axes):
        grad = _multiplied(grad, shape, axis, _matrix(attrs, orig.op, axes, k, before[axis]), dtype)
    return [grad]


def _resize(attrs_class: type[ResizeAttrs], doc: str, computed: str = "") -> Builder:
    rank = attrs_class.rank

    def compute(attrs: ResizeAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        resize = getattr(topi.image, f"resize{rank}d")
        how = attrs.method, attrs.coordinate_transformation_mode, attrs.rounding_method
        cubic = attrs.cubic_alpha, attrs.cubic_exclude
        return [resize(inputs[0], list(attrs.size), attrs.layout, *how, *cubic, attrs.out_dtype or None)]

    def evaluate(attrs: ResizeAttrs, inputs: Sequence[Array]) -> list[Array]:
        dtype = numpy_dtype(attrs.out_dtype) if attrs.out_dtype else None
        how = attrs.method, attrs.coordinate_transformation_mode, attrs.rounding_method, attrs.cubic_alpha
        return [resize_array(inputs[0], _axes(attrs.layout, rank), attrs.size, *how, bool(attrs.cubic_exclude), dtype)]

    made = declare(
        f"image.resize{rank}d",
        doc,
        inputs=("data",),
        attrs_type=attrs_class,
        support_level=5,
        pattern=OpPattern.INJECTIVE,
        infer_type=lambda types, attrs, solver: _resized_type(types, attrs, solver, rank),
        compute=compute,
        evaluate=evaluate,
        gradient=lambda attrs, orig, grad: resize_gradient(attrs, orig, grad, rank),
        infer_correct_layout=layout_rules.with_layout_attr("layout", _SPATIAL[rank]),
        convert_op_layout=layout_rules.convert_layout_attr(f"image.resize{rank}d"),
    )
    return builder(made, computed=computed, module=__name__, rounding_method="", out_dtype=None)


resize1d = _resize(Resize1DAttrs, "``data`` resized to ``size``; parameters as in ``resize2d``.")
resize2d = _resize(
    Resize2DAttrs,
    """``data`` resized to ``size`` (height, width).

    ``method`` is nearest_neighbor, linear or cubic; ``coordinate_transformation_mode`` and ``rounding_method`` are
    those of ONNX's Resize (half_pixel, align_corners, asymmetric, ...; round, floor, ceil, ...).
    """,
    computed="size",
)
resize3d = _resize(Resize3DAttrs, "``data`` resized to ``size`` (depth, height, width); parameters as in ``resize2d``.")
