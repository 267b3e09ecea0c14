"""Pooling: windows (max, avg, in 1 to 3 dimensions), global, and adaptive."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TilewrightError, TypeInferenceError, UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import layout_rules, relations, slice_rules
from tilewright.relay.op.attributes import OutputSize, Padding, PerAxis, call, ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.builder import builder, ops
from tilewright.relay.op.definition import Homogeneous, OpDef, OpPattern, TypeSolver, declare
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients, number, require_shape, spread, tensor_type
from tilewright.relay.op.nn.conv_common import SPATIAL, added_padding
from tilewright.relay.op.relations import dim_map, known
from tilewright.relay.op.strategy import generic as strategies
from tilewright.relay.type_infer.describe import describe_dim
from tilewright.tir.layout import layout as parse_layout


class PoolAttrs(Attrs):
    """Window, strides, dilation, padding and layout of pooling."""

    pool_size: PerAxis
    strides: PerAxis = (1, 1)
    dilation: PerAxis = (1, 1)
    padding: Padding = (0, 0)
    layout: str = "NCHW"
    out_layout: str = ""
    ceil_mode: bool = False

    rank = 2


class MaxPool1DAttrs(PoolAttrs):
    """Attributes of max_pool1d."""

    strides: PerAxis = (1,)
    dilation: PerAxis = (1,)
    padding: Padding = (0,)
    layout: str = "NCW"

    rank = 1


class MaxPool2DAttrs(PoolAttrs):
    """Attributes of max_pool2d."""


class MaxPool3DAttrs(PoolAttrs):
    """Attributes of max_pool3d."""

    strides: PerAxis = (1, 1, 1)
    dilation: PerAxis = (1, 1, 1)
    padding: Padding = (0, 0, 0)
    layout: str = "NCDHW"

    rank = 3


class AvgPool1DAttrs(MaxPool1DAttrs):
    """Attributes of avg_pool1d."""

    count_include_pad: bool = False


class AvgPool2DAttrs(MaxPool2DAttrs):
    """Attributes of avg_pool2d."""

    count_include_pad: bool = False


class AvgPool3DAttrs(MaxPool3DAttrs):
    """Attributes of avg_pool3d."""

    count_include_pad: bool = False


POOL_ATTRS: dict[tuple[str, int], type[PoolAttrs]] = {
    ("max", 1): MaxPool1DAttrs, ("max", 2): MaxPool2DAttrs, ("max", 3): MaxPool3DAttrs,
    ("avg", 1): AvgPool1DAttrs, ("avg", 2): AvgPool2DAttrs, ("avg", 3): AvgPool3DAttrs,
}  # fmt: skip


class GlobalPool2DAttrs(Attrs):
    """Layout of the data."""

    layout: str = "NCHW"
    out_layout: str = ""

    rank = 2


class AdaptivePoolAttrs(Attrs):
    """Output size (empty: the input's) and layout."""

    output_size: OutputSize = ()
    layout: str = "NCHW"
    out_layout: str = ""

    rank = 2


class AdaptivePool2DAttrs(AdaptivePoolAttrs):
    """Attributes of adaptive pooling of height and width."""


class AdaptivePool1DAttrs(AdaptivePoolAttrs):
    """Attributes of adaptive pooling of the width."""

    layout: str = "NCW"

    rank = 1


class AdaptivePool3DAttrs(AdaptivePoolAttrs):
    """Attributes of adaptive pooling of depth, height and width."""

    layout: str = "NCDHW"

    rank = 3


AnySizeAttrs = AdaptivePoolAttrs | GlobalPool2DAttrs


def counts_padding(attrs: PoolAttrs) -> bool:
    """Return whether means count padding."""
    return bool(getattr(attrs, "count_include_pad", True))


def spatial_axes(layout: str, rank: int, data: TensorType | None = None) -> list[int]:
    """Return the positions of the spatial dimensions in ``layout``; raise TypeInferenceError if it splits or lacks
    one.
    """
    try:
        parsed = parse_layout(layout)
    except TilewrightError as error:
        raise TypeInferenceError(str(error)) from None
    places = [parsed.index_of(axis) for axis in SPATIAL[rank]]
    if min(places) < 0 or any(parsed.factor_of(axis) > 0 for axis in SPATIAL[rank]):
        raise TypeInferenceError(f"layout {layout!r} should have whole dimensions {', '.join(SPATIAL[rank])}")
    if data is not None:
        relations.require_rank(data, len(parsed), f"data in layout {layout}")
    return places


def pooled_extent(extent: Any, kernel: int, stride: int, dilation: int, before: int, after: int, ceil: bool) -> Any:
    """Return the output extent of pooling along one dimension; with ``ceil``, a window that starts in the data
    counts.
    """
    reach = (kernel - 1) * dilation + 1
    if not ceil:
        return dim_map(lambda x: (x + before + after - reach) // stride + 1, extent)
    return dim_map(lambda x: (x + before + after - reach + stride - 1) // stride + 1, extent)


def _pool_type(types: Sequence[Type], attrs: PoolAttrs, solver: TypeSolver, rank: int) -> Type | None:
    data = relations.tensor(types[0])
    shape = list(data.shape)
    pads = padding_of(attrs.padding, rank)
    for i, axis in enumerate(spatial_axes(attrs.layout, rank, data)):
        size, stride, dilation = attrs.pool_size[i], attrs.strides[i], attrs.dilation[i]
        out = pooled_extent(shape[axis], size, stride, dilation, pads[i], pads[i + rank], attrs.ceil_mode)
        value = known(out)
        if value is not None and value <= 0:
            raise TypeInferenceError(
                f"the window of {size} is larger than the padded data, {describe_dim(shape[axis])}"
            )
        shape[axis] = out
    return TensorType(shape, data.dtype)


def _windows(x: Array, axes: Sequence[int], attrs: PoolAttrs, fill: Any) -> Array:
    """Return all windows, their positions in the last dimensions; outside the data is ``fill``."""
    rank = len(axes)
    pads = padding_of(attrs.padding, rank)
    widths = [(0, 0)] * x.ndim
    reach = [(k - 1) * d + 1 for k, d in zip(attrs.pool_size, attrs.dilation, strict=True)]
    outs = []
    for i, axis in enumerate(axes):
        extent = x.shape[axis]
        out = pooled_extent(
            extent, attrs.pool_size[i], attrs.strides[i], attrs.dilation[i], pads[i], pads[i + rank], attrs.ceil_mode
        )
        outs.append(int(out))
        needed = (int(out) - 1) * attrs.strides[i] + reach[i]
        widths[axis] = (pads[i], max(pads[i + rank], needed - extent - pads[i]))
    padded = np.pad(x, widths, constant_values=fill)
    views = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=tuple(axes))
    steps: list[Any] = [slice(None)] * x.ndim
    for i, axis in enumerate(axes):
        steps[axis] = slice(0, (outs[i] - 1) * attrs.strides[i] + 1, attrs.strides[i])
    return views[(*steps, *[slice(None, None, d) for d in attrs.dilation])]


def evaluate_pool(attrs: PoolAttrs, inputs: Sequence[Array], rank: int, average: bool) -> list[Array]:
    """Evaluate pooling over windows in numpy."""
    x = inputs[0]
    axes = spatial_axes(attrs.layout, rank)
    last = tuple(range(-rank, 0))
    if not average:
        lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
        x = x if x.dtype.kind in "iu" else np.where(np.isnan(x), np.asarray(lowest, x.dtype), x)
        return [np.ascontiguousarray(_windows(x, axes, attrs, lowest).max(axis=last))]
    total = _windows(x.astype(np.float64), axes, attrs, 0).sum(axis=last)
    pads = padding_of(attrs.padding, rank)
    inside = np.ones([d if i in axes else 1 for i, d in enumerate(x.shape)])
    if counts_padding(attrs):  # explicit padding counts, that of ceil_mode beyond it does not
        widths = [(pads[axes.index(i)], pads[axes.index(i) + rank]) if i in axes else (0, 0) for i in range(x.ndim)]
        inside = np.pad(inside, widths, constant_values=1)
        count = _windows(inside, axes, attrs.replace(padding=(0,) * 2 * rank), 0).sum(axis=last)
        count = count[tuple(slice(0, total.shape[i]) if i in axes else slice(None) for i in range(x.ndim))]
    else:
        count = _windows(inside, axes, attrs, 0).sum(axis=last)
    return [(total / np.maximum(count, 1)).astype(x.dtype)]


_TRAITS: dict[str, Any] = {
    "max": {"channelwise": True, "homogeneous": Homogeneous.POSITIVE},
    "avg": {"channelwise": True, "homogeneous": Homogeneous.ANY},
}


def _pool(kind: str, rank: int, doc: str) -> type[OpDef[Any]]:
    name = f"nn.{kind}_pool{rank}d"

    def compute(attrs: PoolAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        pool = getattr(topi.nn, f"pool{rank}d")
        include = counts_padding(attrs)
        return [pool(inputs[0], ints(attrs.pool_size), ints(attrs.strides), ints(attrs.dilation),
                     padding_of(attrs.padding, rank), kind, bool(attrs.ceil_mode), attrs.layout, include)]  # fmt: skip

    return declare(
        name,
        doc,
        inputs=("data",),
        attrs_type=POOL_ATTRS[kind, rank],
        support_level=2,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        in_float32=kind == "avg",
        kind="pool",
        infer_type=lambda types, attrs, solver: _pool_type(types, attrs, solver, rank),
        compute=compute,
        schedule=strategies.schedule_pool,
        evaluate=lambda attrs, inputs: evaluate_pool(attrs, inputs, rank, kind == "avg"),
        infer_correct_layout=layout_rules.with_layout_attr("layout", SPATIAL[rank]),
        band_operands=slice_rules.pooling,
        convert_op_layout=layout_rules.convert_layout_attr(name),
        gradient=lambda attrs, orig, grad: [call(f"{name}_grad", [grad, orig.args[0]], attrs)],
        pad_data=lambda attrs, pad_width, value: _padded(attrs, pad_width, value, rank, kind == "avg"),
        **_TRAITS[kind],
    )


def _padded(attrs: PoolAttrs, pad_width: Sequence[Sequence[int]], value: float, rank: int, average: bool) -> Any:
    """Move padding into the pool: zeros into a mean that counts them, -inf into a maximum; None for other pad
    values.
    """
    if value != (0.0 if average else float("-inf")):
        return None
    if average and any(padding_of(attrs.padding, rank)) and not counts_padding(attrs):
        return None
    padding = added_padding(attrs.padding, attrs.layout, pad_width, rank)
    if padding is None:
        return None
    return attrs.replace(padding=padding, count_include_pad=True) if average else attrs.replace(padding=padding)


def _adaptive_size(attrs: AnySizeAttrs, shape: Sequence[Any], axes: Sequence[int]) -> list[Any]:
    size = getattr(attrs, "output_size", (1,) * len(axes))
    if not size:
        return [shape[a] for a in axes]
    return list(size) * len(axes) if len(size) == 1 else list(size)


def _adaptive_type(types: Sequence[Type], attrs: AnySizeAttrs, solver: TypeSolver, rank: int) -> Type | None:
    data = relations.tensor(types[0])
    shape = list(data.shape)
    axes = spatial_axes(attrs.layout, rank, data)
    for axis, size in zip(axes, _adaptive_size(attrs, shape, axes), strict=True):
        shape[axis] = as_expr(size)
    return TensorType(shape, data.dtype)


def _evaluate_adaptive(attrs: AnySizeAttrs, inputs: Sequence[Array], rank: int, average: bool) -> list[Array]:
    x = inputs[0]
    axes = spatial_axes(attrs.layout, rank)
    sizes = [int(s) for s in _adaptive_size(attrs, x.shape, axes)]
    shape = list(x.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    result = np.zeros(shape, x.dtype)
    for position in itertools.product(*[range(s) for s in sizes]):
        source: list[Any] = [slice(None)] * x.ndim
        target: list[Any] = [slice(None)] * x.ndim
        for axis, size, at in zip(axes, sizes, position, strict=True):
            source[axis] = slice(at * x.shape[axis] // size, -(-(at + 1) * x.shape[axis] // size))
            target[axis] = at
        window = x[tuple(source)]
        reduced = window.mean(axis=tuple(axes)) if average else window.max(axis=tuple(axes))
        result[tuple(target)] = reduced
    return [result]


def _adaptive_gradient(attrs: AnySizeAttrs, orig: Call, grad: RelayExpr, kind: str, rank: int) -> Gradients:
    """Return the gradients of windows of one size where the extents divide, or of one window that covers
    everything.
    """
    name, axes = str(orig.op), spatial_axes(attrs.layout, rank)
    if isinstance(attrs, GlobalPool2DAttrs):
        return _of_whole(orig, grad, kind == "avg", axes)
    data, result = require_shape(orig.args[0], name), require_shape(orig, name)
    if all(result[a] == 1 for a in axes):
        return _of_whole(orig, grad, kind == "avg", axes)
    if any(data[a] % result[a] for a in axes):
        raise UnsupportedError(
            f"the gradient of {name} is there for outputs whose size divides the data's; found {data} to {result}"
        )
    size = tuple(data[a] // result[a] for a in axes)
    windows = POOL_ATTRS[kind, rank](size, size, (1,) * rank, (0,) * 2 * rank, attrs.layout)
    return [call(f"nn.{kind}_pool{rank}d_grad", [grad, orig.args[0]], windows)]


def _of_whole(orig: Call, grad: RelayExpr, average: bool, axes: list[int]) -> Gradients:
    """Equal shares to all, or to those that are the greatest."""
    x = orig.args[0]
    if average:
        count = math.prod(require_shape(x, str(orig.op))[axis] for axis in axes)
        return [spread(ops.divide(grad, number(count, x)), x)]
    taken = ops.cast(ops.equal(x, orig), tensor_type(x).dtype)
    return [ops.multiply(taken, ops.divide(grad, ops.sum(taken, axis=axes, keepdims=True)))]


def _adaptive(
    name: str, doc: str, kind: str, attrs_class: type[AnySizeAttrs], topi_name: str, support_level: int = 10
) -> type[OpDef[Any]]:
    rank = attrs_class.rank

    def compute(attrs: AnySizeAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        if topi_name == "global_pool":
            return [topi.nn.global_pool(inputs[0], kind, attrs.layout)]
        size = [int(s) for s in _adaptive_size(attrs, inputs[0].shape, spatial_axes(attrs.layout, rank))]
        return [getattr(topi.nn, topi_name)(inputs[0], size[0] if rank == 1 else tuple(size), kind, attrs.layout)]

    return declare(
        name,
        doc,
        inputs=("data",),
        attrs_type=attrs_class,
        support_level=support_level,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        in_float32=kind == "avg",
        kind="pool",
        infer_type=lambda types, attrs, solver: _adaptive_type(types, attrs, solver, rank),
        compute=compute,
        schedule=strategies.schedule_adaptive_pool,
        gradient=lambda attrs, orig, grad: _adaptive_gradient(attrs, orig, grad, kind, rank),
        evaluate=lambda attrs, inputs: _evaluate_adaptive(attrs, inputs, rank, kind == "avg"),
        infer_correct_layout=layout_rules.with_layout_attr("layout", SPATIAL[rank]),
        convert_op_layout=layout_rules.convert_layout_attr(name),
        **_TRAITS[kind],
    )


MaxPool1D = _pool("max", 1, "Maximum over windows of one dimension.")
MaxPool2D = _pool("max", 2, "Maximum over windows of height and width.")
MaxPool3D = _pool("max", 3, "Maximum over windows of depth, height and width.")
AvgPool1D = _pool("avg", 1, "Mean over windows of one dimension; padding counts only with ``count_include_pad``.")
AvgPool2D = _pool("avg", 2, "Mean over windows of height and width; padding counts only with ``count_include_pad``.")
AvgPool3D = _pool(
    "avg", 3, "Mean over windows of depth, height and width; padding counts only with ``count_include_pad``."
)

GlobalMaxPool2D = _adaptive(
    "nn.global_max_pool2d",
    "Maximum over all of height and width.",
    "max",
    GlobalPool2DAttrs,
    "global_pool",
    support_level=2,
)
GlobalAvgPool2D = _adaptive(
    "nn.global_avg_pool2d",
    "Mean over all of height and width.",
    "avg",
    GlobalPool2DAttrs,
    "global_pool",
    support_level=2,
)
AdaptiveMaxPool1D = _adaptive(
    "nn.adaptive_max_pool1d",
    "Maxima over windows that divide the width into ``output_size`` parts.",
    "max",
    AdaptivePool1DAttrs,
    "adaptive_pool1d",
)
AdaptiveAvgPool1D = _adaptive(
    "nn.adaptive_avg_pool1d",
    "Means over windows that divide the width into ``output_size`` parts.",
    "avg",
    AdaptivePool1DAttrs,
    "adaptive_pool1d",
)
AdaptiveMaxPool2D = _adaptive(
    "nn.adaptive_max_pool2d",
    "Maxima over windows that divide height and width into ``output_size`` parts.",
    "max",
    AdaptivePool2DAttrs,
    "adaptive_pool",
)
AdaptiveAvgPool2D = _adaptive(
    "nn.adaptive_avg_pool2d",
    "Means over windows that divide height and width into ``output_size`` parts.",
    "avg",
    AdaptivePool2DAttrs,
    "adaptive_pool",
)
AdaptiveMaxPool3D = _adaptive(
    "nn.adaptive_max_pool3d",
    "Maxima over windows that divide depth, height and width into ``output_size`` parts.",
    "max",
    AdaptivePool3DAttrs,
    "adaptive_pool3d",
)
AdaptiveAvgPool3D = _adaptive(
    "nn.adaptive_avg_pool3d",
    "Means over windows that divide depth, height and width into ``output_size`` parts.",
    "avg",
    AdaptivePool3DAttrs,
    "adaptive_pool3d",
)

max_pool1d = builder(MaxPool1D, pool_size=(1,))
max_pool2d = builder(MaxPool2D, pool_size=(1, 1))
max_pool3d = builder(MaxPool3D, pool_size=(1, 1, 1))
avg_pool1d = builder(AvgPool1D, pool_size=(1,))
avg_pool2d = builder(AvgPool2D, pool_size=(1, 1))
avg_pool3d = builder(AvgPool3D, pool_size=(1, 1, 1))
global_max_pool2d = builder(GlobalMaxPool2D)
global_avg_pool2d = builder(GlobalAvgPool2D)
global_max_pool1d = builder(AdaptiveMaxPool1D, "global_max_pool1d", order="data layout out_layout", output_size=(1,))
global_avg_pool1d = builder(AdaptiveAvgPool1D, "global_avg_pool1d", order="data layout out_layout", output_size=(1,))
global_max_pool3d = builder(
    AdaptiveMaxPool3D, "global_max_pool3d", order="data layout out_layout", output_size=(1, 1, 1)
)
global_avg_pool3d = builder(
    AdaptiveAvgPool3D, "global_avg_pool3d", order="data layout out_layout", output_size=(1, 1, 1)
)
adaptive_max_pool1d = builder(AdaptiveMaxPool1D, output_size=None)
adaptive_avg_pool1d = builder(AdaptiveAvgPool1D, output_size=None)
adaptive_max_pool2d = builder(AdaptiveMaxPool2D, output_size=None)
adaptive_avg_pool2d = builder(AdaptiveAvgPool2D, output_size=None)
adaptive_max_pool3d = builder(AdaptiveMaxPool3D, output_size=None)
adaptive_avg_pool3d = builder(AdaptiveAvgPool3D, output_size=None)
