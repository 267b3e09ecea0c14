"""Pooling: windows (max, avg, in 1 to 3 dimensions), global, and adaptive."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TilewrightError, TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import layout_rules, relations
from tilewright.relay.op.attributes import call, ints, pair
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.definition import Homogeneous, OpDef, OpPattern, TypeSolver, declare
from tilewright.relay.op.families import Array
from tilewright.relay.op.nn.conv_common import SPATIAL, added_padding
from tilewright.relay.op.relations import dim_map, known
from tilewright.relay.op.strategy import generic as strategies
from tilewright.relay.type_infer.describe import describe_dim
from tilewright.tir.layout import layout as parse_layout

_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _pool_attrs(rank: int, average: bool) -> Any:
    ones, zeros = (1,) * rank, (0,) * rank
    fields: dict[str, Any] = {
        "strides": ones, "dilation": ones, "padding": zeros, "layout": _LAYOUT[rank], "out_layout": "",
        "ceil_mode": False,
    }  # fmt: skip
    if average:
        fields["count_include_pad"] = False
    annotations = {"pool_size": "tuple[int, ...]", **{name: "Any" for name in fields}}
    kind = "Avg" if average else "Max"
    doc = f"Window, strides, dilation, padding and layout of {kind.lower()}_pool{rank}d."
    namespace = {"__annotations__": annotations, "__doc__": doc, "__module__": __name__, **fields}
    metaclass: Any = type(Attrs)
    return metaclass(f"{kind}Pool{rank}DAttrs", (Attrs,), namespace)


POOL_ATTRS: dict[tuple[str, int], Any] = {
    (kind, rank): _pool_attrs(rank, kind == "avg") for kind in ("max", "avg") for rank in (1, 2, 3)
}


class GlobalPool2DAttrs(Attrs):
    """Layout of the data."""

    layout: str = "NCHW"
    out_layout: str = ""


class AdaptivePool2DAttrs(Attrs):
    """Output size (empty: the input's) and layout."""

    output_size: tuple[int, ...] = ()
    layout: str = "NCHW"
    out_layout: str = ""


class AdaptivePool1DAttrs(Attrs):
    """Output size and layout."""

    output_size: tuple[int, ...] = ()
    layout: str = "NCW"
    out_layout: str = ""


class AdaptivePool3DAttrs(Attrs):
    """Output size and layout."""

    output_size: tuple[int, ...] = ()
    layout: str = "NCDHW"
    out_layout: str = ""


def spatial_axes(layout: str, rank: int, data: TensorType | None = None) -> list[int]:
    """Positions of the spatial dimensions in ``layout``; raises TypeInferenceError when it splits or lacks one."""
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
    """Output extent of pooling along one dimension; with ``ceil``, a window that starts in the data counts."""
    reach = (kernel - 1) * dilation + 1
    if not ceil:
        return dim_map(lambda x: (x + before + after - reach) // stride + 1, extent)
    return dim_map(lambda x: (x + before + after - reach + stride - 1) // stride + 1, extent)


def _pool_type(types: Sequence[Type], attrs: Any, solver: TypeSolver, rank: int) -> Type | None:
    data = relations.tensor(types[0])
    if data is None:
        return None
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


def _windows(x: Array, axes: Sequence[int], attrs: Any, fill: Any) -> Array:
    """All windows, their positions in the last dimensions; outside the data is ``fill``."""
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


def evaluate_pool(attrs: Any, inputs: Sequence[Array], rank: int, average: bool) -> list[Array]:
    """Pooling over windows in numpy."""
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
    if attrs.count_include_pad:  # explicit padding counts, what ceil_mode adds beyond it does not
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


def _declare_pool(kind: str, rank: int) -> type[OpDef[Any]]:
    name = f"nn.{kind}_pool{rank}d"

    def compute(attrs: Any, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        pool = getattr(topi.nn, f"pool{rank}d")
        include = bool(attrs.count_include_pad) if kind == "avg" else True
        return [pool(inputs[0], ints(attrs.pool_size), ints(attrs.strides), ints(attrs.dilation),
                     padding_of(attrs.padding, rank), kind, bool(attrs.ceil_mode), attrs.layout, include)]  # fmt: skip

    return declare(
        name,
        f"{kind.title()} pooling over windows of {rank} dimensions.",
        inputs=("data",),
        attrs_type=POOL_ATTRS[kind, rank],
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        in_float32=kind == "avg",
        infer_type=lambda types, attrs, solver: _pool_type(types, attrs, solver, rank),
        compute=compute,
        schedule=strategies.schedule_pool,
        evaluate=lambda attrs, inputs: evaluate_pool(attrs, inputs, rank, kind == "avg"),
        infer_correct_layout=layout_rules.with_layout_attr("layout", SPATIAL[rank]),
        convert_op_layout=layout_rules.convert_layout_attr(name),
        pad_data=lambda attrs, pad_width, value: _padded(attrs, pad_width, value, rank, kind == "avg"),
        **_TRAITS[kind],
    )


def _padded(attrs: Any, pad_width: Sequence[Sequence[int]], value: float, rank: int, average: bool) -> Any:
    """A maximum leaves out the pad value only where it is the lowest of all; a mean counts the padded zeros."""
    if value != (0.0 if average else float("-inf")):
        return None
    if average and any(padding_of(attrs.padding, rank)) and not attrs.count_include_pad:
        return None
    padding = added_padding(attrs.padding, attrs.layout, pad_width, rank)
    if padding is None:
        return None
    return attrs.replace(padding=padding, count_include_pad=True) if average else attrs.replace(padding=padding)


def _adaptive_size(attrs: Any, shape: Sequence[Any], axes: Sequence[int]) -> list[Any]:
    size = getattr(attrs, "output_size", (1,) * len(axes))
    if not size:
        return [shape[a] for a in axes]
    return list(size) * len(axes) if len(size) == 1 else list(size)


def _adaptive_type(types: Sequence[Type], attrs: Any, solver: TypeSolver, rank: int) -> Type | None:
    data = relations.tensor(types[0])
    if data is None:
        return None
    shape = list(data.shape)
    axes = spatial_axes(attrs.layout, rank, data)
    for axis, size in zip(axes, _adaptive_size(attrs, shape, axes), strict=True):
        shape[axis] = as_expr(size)
    return TensorType(shape, data.dtype)


def _evaluate_adaptive(attrs: Any, inputs: Sequence[Array], rank: int, average: bool) -> list[Array]:
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


def _declare_adaptive(name: str, kind: str, rank: int, attrs_class: Any, topi_name: str) -> type[OpDef[Any]]:
    def compute(attrs: Any, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        if topi_name == "global_pool":
            return [topi.nn.global_pool(inputs[0], kind, attrs.layout)]
        size = [int(s) for s in _adaptive_size(attrs, inputs[0].shape, spatial_axes(attrs.layout, rank))]
        return [getattr(topi.nn, topi_name)(inputs[0], size[0] if rank == 1 else tuple(size), kind, attrs.layout)]

    return declare(
        name,
        f"{kind.title()} pooling of {rank} dimensions to a given size.",
        inputs=("data",),
        attrs_type=attrs_class,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        in_float32=kind == "avg",
        infer_type=lambda types, attrs, solver: _adaptive_type(types, attrs, solver, rank),
        compute=compute,
        schedule=strategies.schedule_adaptive_pool,
        evaluate=lambda attrs, inputs: _evaluate_adaptive(attrs, inputs, rank, kind == "avg"),
        infer_correct_layout=layout_rules.with_layout_attr("layout", SPATIAL[rank]),
        convert_op_layout=layout_rules.convert_layout_attr(name),
        **_TRAITS[kind],
    )


MaxPool1D, MaxPool2D, MaxPool3D = (_declare_pool("max", rank) for rank in (1, 2, 3))
AvgPool1D, AvgPool2D, AvgPool3D = (_declare_pool("avg", rank) for rank in (1, 2, 3))
GlobalMaxPool2D, GlobalAvgPool2D = (
    _declare_adaptive(f"nn.global_{kind}_pool2d", kind, 2, GlobalPool2DAttrs, "global_pool") for kind in ("max", "avg")
)
AdaptiveMaxPool1D, AdaptiveAvgPool1D = (
    _declare_adaptive(f"nn.adaptive_{kind}_pool1d", kind, 1, AdaptivePool1DAttrs, "adaptive_pool1d")
    for kind in ("max", "avg")
)
for _kind in ("max", "avg"):
    _declare_adaptive(f"nn.adaptive_{_kind}_pool2d", _kind, 2, AdaptivePool2DAttrs, "adaptive_pool")
    _declare_adaptive(f"nn.adaptive_{_kind}_pool3d", _kind, 3, AdaptivePool3DAttrs, "adaptive_pool3d")


def _pool(
    kind: str, rank: int, data: RelayExpr, pool_size: Any, strides: Any, dilation: Any, padding: Any, *rest: Any
) -> Call:
    attrs = POOL_ATTRS[kind, rank](
        pair(pool_size, rank), pair(strides, rank), pair(dilation, rank), padding_of(padding, rank), *rest
    )
    return call(f"nn.{kind}_pool{rank}d", [data], attrs)


def max_pool1d(
    data: RelayExpr,
    pool_size: Any = (1,),
    strides: Any = (1,),
    dilation: Any = (1,),
    padding: Any = (0,),
    layout: str = "NCW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> Call:
    """Maximum over windows of one dimension."""
    return _pool("max", 1, data, pool_size, strides, dilation, padding, layout, out_layout, bool(ceil_mode))


def max_pool2d(
    data: RelayExpr,
    pool_size: Any = (1, 1),
    strides: Any = (1, 1),
    dilation: Any = (1, 1),
    padding: Any = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> Call:
    """Maximum over windows of height and width."""
    return _pool("max", 2, data, pool_size, strides, dilation, padding, layout, out_layout, bool(ceil_mode))


def max_pool3d(
    data: RelayExpr,
    pool_size: Any = (1, 1, 1),
    strides: Any = (1, 1, 1),
    dilation: Any = (1, 1, 1),
    padding: Any = (0, 0, 0),
    layout: str = "NCDHW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> Call:
    """Maximum over windows of depth, height and width."""
    return _pool("max", 3, data, pool_size, strides, dilation, padding, layout, out_layout, bool(ceil_mode))


def avg_pool1d(
    data: RelayExpr,
    pool_size: Any = (1,),
    strides: Any = (1,),
    dilation: Any = (1,),
    padding: Any = (0,),
    layout: str = "NCW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Call:
    """Mean over windows of one dimension; padding counts only with ``count_include_pad``."""
    return _pool("avg", 1, data, pool_size, strides, dilation, padding, layout, out_layout, bool(ceil_mode),
                 bool(count_include_pad))  # fmt: skip


def avg_pool2d(
    data: RelayExpr,
    pool_size: Any = (1, 1),
    strides: Any = (1, 1),
    dilation: Any = (1, 1),
    padding: Any = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Call:
    """Mean over windows of height and width; padding counts only with ``count_include_pad``."""
    return _pool("avg", 2, data, pool_size, strides, dilation, padding, layout, out_layout, bool(ceil_mode),
                 bool(count_include_pad))  # fmt: skip


def avg_pool3d(
    data: RelayExpr,
    pool_size: Any = (1, 1, 1),
    strides: Any = (1, 1, 1),
    dilation: Any = (1, 1, 1),
    padding: Any = (0, 0, 0),
    layout: str = "NCDHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Call:
    """Mean over windows of depth, height and width; padding counts only with ``count_include_pad``."""
    return _pool("avg", 3, data, pool_size, strides, dilation, padding, layout, out_layout, bool(ceil_mode),
                 bool(count_include_pad))  # fmt: skip


def global_max_pool2d(data: RelayExpr, layout: str = "NCHW", out_layout: str = "") -> Call:
    """Maximum over all of height and width."""
    return call("nn.global_max_pool2d", [data], GlobalPool2DAttrs(layout, out_layout))


def global_avg_pool2d(data: RelayExpr, layout: str = "NCHW", out_layout: str = "") -> Call:
    """Mean over all of height and width."""
    return call("nn.global_avg_pool2d", [data], GlobalPool2DAttrs(layout, out_layout))


def global_max_pool1d(data: RelayExpr, layout: str = "NCW", out_layout: str = "") -> Call:
    """Maximum over all of the width."""
    return adaptive_max_pool1d(data, 1, layout, out_layout)


def global_avg_pool1d(data: RelayExpr, layout: str = "NCW", out_layout: str = "") -> Call:
    """Mean over all of the width."""
    return adaptive_avg_pool1d(data, 1, layout, out_layout)


def global_max_pool3d(data: RelayExpr, layout: str = "NCDHW", out_layout: str = "") -> Call:
    """Maximum over all of depth, height and width."""
    return adaptive_max_pool3d(data, 1, layout, out_layout)


def global_avg_pool3d(data: RelayExpr, layout: str = "NCDHW", out_layout: str = "") -> Call:
    """Mean over all of depth, height and width."""
    return adaptive_avg_pool3d(data, 1, layout, out_layout)


def _adaptive(kind: str, rank: int, attrs_class: Any, data: RelayExpr, size: Any, layout: str, out: str) -> Call:
    values = () if size is None else pair(size, rank) if ints(size) else ()
    return call(f"nn.adaptive_{kind}_pool{rank}d", [data], attrs_class(values, layout, out))


def adaptive_max_pool1d(data: RelayExpr, output_size: Any = None, layout: str = "NCW", out_layout: str = "") -> Call:
    """Maxima over windows that divide the width into ``output_size`` parts."""
    return _adaptive("max", 1, AdaptivePool1DAttrs, data, output_size, layout, out_layout)


def adaptive_avg_pool1d(data: RelayExpr, output_size: Any = None, layout: str = "NCW", out_layout: str = "") -> Call:
    """Means over windows that divide the width into ``output_size`` parts."""
    return _adaptive("avg", 1, AdaptivePool1DAttrs, data, output_size, layout, out_layout)


def adaptive_max_pool2d(data: RelayExpr, output_size: Any = None, layout: str = "NCHW", out_layout: str = "") -> Call:
    """Maxima over windows that divide height and width into ``output_size`` parts."""
    return _adaptive("max", 2, AdaptivePool2DAttrs, data, output_size, layout, out_layout)


def adaptive_avg_pool2d(data: RelayExpr, output_size: Any = None, layout: str = "NCHW", out_layout: str = "") -> Call:
    """Means over windows that divide height and width into ``output_size`` parts."""
    return _adaptive("avg", 2, AdaptivePool2DAttrs, data, output_size, layout, out_layout)


def adaptive_max_pool3d(data: RelayExpr, output_size: Any = None, layout: str = "NCDHW", out_layout: str = "") -> Call:
    """Maxima over windows that divide depth, height and width into ``output_size`` parts."""
    return _adaptive("max", 3, AdaptivePool3DAttrs, data, output_size, layout, out_layout)


def adaptive_avg_pool3d(data: RelayExpr, output_size: Any = None, layout: str = "NCDHW", out_layout: str = "") -> Call:
    """Means over windows that divide depth, height and width into ``output_size`` parts."""
    return _adaptive("avg", 3, AdaptivePool3DAttrs, data, output_size, layout, out_layout)
