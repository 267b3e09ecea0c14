"""Pooling over windows of any layout: local, adaptive and global."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm, PrimExpr
from tilewright.topi import tag
from tilewright.topi.nn.conv import inside
from tilewright.topi.nn.pad import pad
from tilewright.topi.reduction import greatest, greatest_number, lowest
from tilewright.topi.utils import InvalidShapeError, as_list, simplify

_SMALL_WINDOW = 4  # elements of unpacked data: to share columns then costs as much as it saves (measured)
_MOST_PASSES = 4  # over rows of windows that are read one after another


def spatial_axes(layout: str, names: str) -> list[int]:
    """Positions of the dimensions ``names`` (such as "HW") in a layout such as NCHW16c; they must not be packed."""
    dims = []
    for letter in layout:
        if letter.isalpha():
            dims.append(letter)
    positions = []
    for name in names:
        if dims.count(name) != 1 or name.lower() in dims:
            raise InvalidShapeError(
                f"pooling needs a layout with unpacked dimensions {', '.join(names)}; found {layout}"
            )
        positions.append(dims.index(name))
    return positions


def _output_extent(extent: Any, kernel: Any, stride: Any, dilation: Any, before: Any, after: Any, ceil: bool) -> Any:
    """Number of windows; with ``ceil``, one more where elements are left over."""
    span = (kernel - 1) * dilation + 1
    room = extent + before + after - span
    count = tir.indexdiv(ops.as_expr(room + (stride - 1 if ceil else 0)), stride) + 1
    return simplify(count)


def pool_nd(
    data: te.Tensor,
    kernel: Sequence[Any],
    stride: Sequence[Any],
    dilation: Sequence[Any],
    padding: Sequence[Any],
    pool_type: str,
    ceil_mode: bool,
    axes: Sequence[int],
    count_include_pad: bool,
    packed: bool = False,
) -> te.Tensor:
    """Pool over windows along ``axes``. ``padding`` has the amounts before each axis, then those after each.

    With ``packed`` channels, windows leave padding out instead of reading a padded copy. Where windows overlap along a
    row each of their columns is reduced first: 3x3 windows one apart then take 4 additions an element instead of 8.
    Packed windows two apart and more are reduced in several passes (``_passes``), each starting from the one before.
    """
    n = len(axes)
    before, after = list(padding[:n]), list(padding[n:])
    pad_before, pad_after, shape = [ops.as_expr(0)] * data.ndim, [ops.as_expr(0)] * data.ndim, list(data.shape)
    for k, axis in enumerate(axes):
        out = _output_extent(data.shape[axis], kernel[k], stride[k], dilation[k], before[k], after[k], ceil_mode)
        shape[axis] = out
        # With ceil_mode the last window may reach beyond the padding: what it covers there is padding too.
        needed = (out - 1) * stride[k] + (kernel[k] - 1) * dilation[k] + 1 - data.shape[axis] - before[k]
        pad_before[axis] = ops.as_expr(before[k])
        pad_after[axis] = simplify(ops.maximum(ops.as_expr(needed), 0))
    padded = not all(ops.is_const_int(simplify(p), 0) for p in (*pad_before, *pad_after))

    if pool_type not in ("max", "avg"):
        raise InvalidShapeError(f"pool_type is 'max' or 'avg', found {pool_type!r}")
    reducer, outside, name = (
        (greatest_number, lowest(data.dtype), "pool_max") if pool_type == "max" else (te.sum, 0, "pool_sum")
    )

    def reduced(
        values: te.Tensor, spans: dict[int, tuple[Any, Any]], name: str, start: te.Tensor | None = None
    ) -> te.Tensor:
        """Elements ``spans[k]`` of the windows of ``values`` along ``axes[k]``, without what lies outside the data."""
        along = [axes[k] for k in spans]
        windows = {k: te.reduce_axis(span, name=f"rv{k}") for k, span in spans.items()}
        image, low, high = ([v[a] for a in along] for v in (data.shape, pad_before, pad_after))

        def body(*i: PrimExpr) -> Any:
            at = list(i)
            for k in spans:
                at[axes[k]] = windows[k] * dilation[k]
                if not ops.is_const_int(ops.as_expr(shape[axes[k]]), 1):
                    at[axes[k]] += i[axes[k]] * stride[k]
                if packed:
                    at[axes[k]] -= pad_before[axes[k]]
            where = inside([at[a] for a in along], image, low, high) if packed else None
            init = None if start is None else start(*i)
            return reducer(values(*at), axis=list(windows.values()), where=where, init=init)

        return te.compute([shape[a] if a in along else d for a, d in enumerate(values.shape)], body, name, name)

    temp = pad(data, pad_before, pad_after, outside, "pad_temp") if padded and not packed else data
    rows = packed or axes[-1] == data.ndim - 1
    whole = {k: (0, extent) for k, extent in enumerate(kernel)}
    passes = _passes(kernel[0], stride[0], dilation[0]) if packed and n == 2 else [whole[0]]
    total = None
    for taken in passes:
        values, spans = temp, {**whole, 0: taken}
        if n == 2 and rows and _overlap(taken[1] - taken[0], kernel[1], stride[1], 0 if packed else _SMALL_WINDOW):
            values, spans = reduced(temp, {0: taken}, "pool_columns"), {1: whole[1]}
        total = reduced(values, spans, name if taken is passes[-1] else "pool_rows", total)
    assert total is not None
    if pool_type == "max":
        return total

    def elements(*at: PrimExpr) -> PrimExpr:
        count: Any = 1
        for k, axis in enumerate(axes):
            low, high = -before[k], data.shape[axis] + after[k]
            if not count_include_pad:
                low, high = 0, data.shape[axis]
            count = count * _covered(at[k] * stride[k] - before[k], kernel[k], dilation[k], low, high)
        return ops.cast(data.dtype, ops.maximum(simplify(ops.as_expr(count)), 1))

    if dt.is_float(data.dtype):
        one = ops.const(1, data.dtype)
        weights = te.compute([shape[a] for a in axes], lambda *at: one / elements(*at), "pool_weights", tag.INJECTIVE)
        return te.compute(shape, lambda *i: total(*i) * weights(*[i[a] for a in axes]), "pool_avg", tag.ELEMWISE)

    def average(*i: PrimExpr) -> PrimExpr:
        return ops.truncdiv(total(*i), elements(*[i[a] for a in axes]))

    return te.compute(shape, average, name="pool_avg", tag=tag.ELEMWISE)


def _passes(rows: Any, step: Any, dilation: Any) -> list[tuple[Any, Any]]:
    """Rows of windows ``step`` apart to reduce together: each pass over a row of windows has one that is new to it.

    The other rows are in a cache, since the windows above have read them. Several new rows at a time are streams that
    alternate, which processors hardly fetch ahead: of a copy's bandwidth 2x2 windows two apart reach 40 to 60 % in one
    pass and 80 to 90 % in two, 3x3 windows 60 to 70 and 85 to 95 % (Zen 4, one thread, nothing in a cache).
    """
    rows, step = simplify(ops.as_expr(rows)), simplify(ops.as_expr(step))
    if not (isinstance(rows, IntImm) and isinstance(step, IntImm) and ops.is_const_int(ops.as_expr(dilation), 1)):
        return [(0, rows)]
    first = max(rows.value - step.value, 0) + 1
    ends = [*range(first, rows.value), rows.value]
    return list(zip([0, *ends], ends, strict=False)) if len(ends) <= _MOST_PASSES else [(0, rows.value)]


def _overlap(rows: Any, columns: Any, step: Any, small: int) -> bool:
    """Whether windows of several rows and more than ``small`` elements have columns in common with the next."""
    rows, columns, step = (simplify(ops.as_expr(v)) for v in (rows, columns, step))
    known = isinstance(rows, IntImm) and isinstance(columns, IntImm) and isinstance(step, IntImm)
    return known and rows.value > 1 and columns.value > step.value and rows.value * columns.value > small


def _covered(start: PrimExpr, kernel: Any, dilation: Any, low: Any, high: Any) -> Any:
    """How many of the ``kernel`` positions start, start + dilation, ... lie in [low, high)."""
    if ops.is_const_int(ops.as_expr(dilation), 1):
        end = ops.minimum(start + kernel, high)
        return end - ops.maximum(start, low)
    # Positions below ``low`` are skipped, those from ``high`` on are cut off.
    skipped = tir.floordiv(ops.maximum(low - start, 0) + (dilation - 1), dilation)
    inside = tir.floordiv(high - 1 - start, dilation) + 1
    return ops.minimum(inside, kernel) - skipped


def _pool(data: te.Tensor, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: str, ceil_mode: bool,
          layout: str, count_include_pad: bool, names: str) -> te.Tensor:  # fmt: skip
    n = len(names)
    kernel, stride, dilation = (as_list(v) * (n if len(as_list(v)) == 1 else 1) for v in (kernel, stride, dilation))
    padding = as_list(padding)
    if len(padding) == 1:
        padding = padding * (2 * n)
    elif len(padding) == n:
        padding = padding * 2
    axes = spatial_axes(layout, names)
    packed = layout[-1].islower()
    return pool_nd(data, kernel, stride, dilation, padding, pool_type, ceil_mode, axes, count_include_pad, packed)


def pool1d(data: te.Tensor, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: str,
           ceil_mode: bool = False, layout: str = "NCW", count_include_pad: bool = True) -> te.Tensor:  # fmt: skip
    """Pool ("max" or "avg") along W; ``padding`` is (left, right)."""
    return _pool(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad, "W")


def pool2d(data: te.Tensor, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: str,
           ceil_mode: bool = False, layout: str = "NCHW", count_include_pad: bool = True) -> te.Tensor:  # fmt: skip
    """Pool ("max" or "avg") along H and W; ``padding`` is (top, left, bottom, right)."""
    return _pool(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad, "HW")


def pool3d(data: te.Tensor, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: str,
           ceil_mode: bool = False, layout: str = "NCDHW", count_include_pad: bool = True) -> te.Tensor:  # fmt: skip
    """Pool ("max" or "avg") along D, H and W; ``padding`` is (front, top, left, back, bottom, right)."""
    return _pool(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad, "DHW")


def pool(data: te.Tensor, kernel: Any, stride: Any, padding: Any, pool_type: str, ceil_mode: bool = False,
         layout: str = "NCHW", count_include_pad: bool = True) -> te.Tensor:  # fmt: skip
    """``pool2d`` without dilation."""
    return pool2d(data, kernel, stride, (1, 1), padding, pool_type, ceil_mode, layout, count_include_pad)


def _longest_window(extent: PrimExpr, size: PrimExpr) -> PrimExpr:
    extent, size = simplify(extent), simplify(size)
    if ops.is_const_int(size, 1):
        return extent
    if isinstance(extent, IntImm) and isinstance(size, IntImm):
        d, n = int(extent), int(size)
        return ops.as_expr(max((((k + 1) * d + n - 1) // n - k * d // n for k in range(n)), default=1))
    return simplify(tir.indexdiv(extent + size - 1, size) + 1)


def _adaptive(data: te.Tensor, output_size: Sequence[Any], pool_type: str, axes: Sequence[int]) -> te.Tensor:
    """Window k of n along a dimension of extent d covers floor(k d / n) up to ceil((k + 1) d / n)."""
    shape = list(data.shape)
    sizes = dict(zip(axes, (ops.as_expr(s) for s in output_size), strict=True))
    for axis, size in sizes.items():
        shape[axis] = size
    uniform = all(ops.is_const_int(simplify(tir.indexmod(data.shape[axis], size)), 0) for axis, size in sizes.items())
    longest = {axis: _longest_window(data.shape[axis], size) for axis, size in sizes.items()}

    def begin(axis: int, k: PrimExpr) -> PrimExpr:
        return tir.indexdiv(k * data.shape[axis], sizes[axis])

    def length(axis: int, k: PrimExpr) -> PrimExpr:
        if uniform:
            return simplify(tir.indexdiv(data.shape[axis], sizes[axis]))
        end = tir.indexdiv((k + 1) * data.shape[axis] + sizes[axis] - 1, sizes[axis])
        return end - begin(axis, k)

    def reduce(reducer: Any, identity: PrimExpr, name: str) -> te.Tensor:
        windows = {axis: te.reduce_axis((0, longest[axis]), name=f"rv{k}") for k, axis in enumerate(axes)}

        def body(*i: PrimExpr) -> Any:
            at, inside = list(i), []
            for axis, rv in windows.items():
                if ops.is_const_int(sizes[axis], 1):
                    at[axis] = rv.var
                    continue
                at[axis] = i[axis] * longest[axis] + rv if uniform else begin(axis, i[axis]) + rv
                if not uniform:  # windows differ in length: the shorter ones stop early
                    at[axis] = ops.minimum(at[axis], data.shape[axis] - 1)
                    inside.append(rv < length(axis, i[axis]))
            value = data(*at)
            return reducer(tir.if_then_else(tir.all(*inside), value, identity) if inside else value,
                           axis=list(windows.values()))  # fmt: skip

        return te.compute(shape, body, name=name, tag=name)

    if pool_type == "max":
        return reduce(greatest, lowest(data.dtype), "adaptive_pool_max")
    if pool_type != "avg":
        raise InvalidShapeError(f"pool_type is 'max' or 'avg', found {pool_type!r}")
    total = reduce(te.sum, ops.const(0, data.dtype), "adaptive_pool_sum")

    def average(*i: PrimExpr) -> PrimExpr:
        count = ops.as_expr(1)
        for axis in axes:
            count = count * length(axis, i[axis])
        if dt.is_float(data.dtype):
            return total(*i) / ops.cast(data.dtype, count)
        return ops.truncdiv(total(*i), ops.cast(data.dtype, count))

    return te.compute(shape, average, name="adaptive_pool_avg", tag=tag.ELEMWISE)


def adaptive_pool1d(data: te.Tensor, output_size: Any, pool_type: str, layout: str = "NCW") -> te.Tensor:
    """Pool to ``output_size`` windows along W."""
    return _adaptive(data, as_list(output_size), pool_type, spatial_axes(layout, "W"))


def adaptive_pool(data: te.Tensor, output_size: Any, pool_type: str, layout: str = "NCHW") -> te.Tensor:
    """Pool to ``output_size`` windows along H and W."""
    size = as_list(output_size)
    return _adaptive(data, size * (2 // len(size)), pool_type, spatial_axes(layout, "HW"))


def adaptive_pool3d(data: te.Tensor, output_size: Any, pool_type: str, layout: str = "NCDHW") -> te.Tensor:
    """Pool to ``output_size`` windows along D, H and W."""
    size = as_list(output_size)
    return _adaptive(data, size * (3 // len(size)), pool_type, spatial_axes(layout, "DHW"))


def global_pool(data: te.Tensor, pool_type: str, layout: str = "NCHW") -> te.Tensor:
    """Pool each whole plane to one element."""
    return adaptive_pool(data, (1, 1), pool_type, layout)
