"""Pooling over windows of any layout: local, adaptive and global."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm, PrimExpr
from tilewright.topi import tag
from tilewright.topi.kinds import POOL_COLUMNS, POOL_ROWS, POOLS
from tilewright.topi.loops import on_gpu
from tilewright.topi.nn.conv import inside
from tilewright.topi.nn.pad import pad
from tilewright.topi.reduction import greatest, greatest_number, lowest
from tilewright.topi.utils import InvalidShapeError, as_list, simplify

_SMALL_WINDOW = 4  # elements of unpacked data: to share columns then costs as much as it saves (measured)
_MOST_PASSES = 4  # over rows of windows that are read one after another


def spatial_axes(layout: str, names: str) -> list[int]:
    """Return the positions of the dimensions ``names`` (such as "HW") in a layout; they must not be packed."""
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
    """Return the number of windows; with ``ceil``, one more when elements are left over."""
    span = (kernel - 1) * dilation + 1
    slack = extent + before + after - span
    count = tir.indexdiv(ops.as_expr(slack + (stride - 1 if ceil else 0)), stride) + 1
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

    With ``packed`` channels, windows skip the padding instead of reading a padded copy. If windows overlap along a row,
    each of their columns is reduced first: 3x3 windows of stride 1 then take 4 additions an element instead of 8.
    Packed windows of stride 2 and more are reduced in several passes (``_passes``), each starting from the one before.
    """
    if pool_type not in ("max", "avg"):
        raise InvalidShapeError(f"pool_type is 'max' or 'avg', found {pool_type!r}")
    windows = _Windows.of(data, kernel, stride, dilation, padding, ceil_mode, axes, packed)
    if pool_type == "max":
        return windows.reduce(_Reducer("pool_max", greatest_number, lowest(data.dtype)))
    return windows.average(windows.reduce(_Reducer("pool_sum", te.sum, 0)), count_include_pad)


@dataclass(frozen=True)
class _Reducer:
    """The reduction of windows: ``name`` of the compute, ``combine`` of two elements, and the value ``outside``."""

    name: str
    combine: Callable[..., Any]
    outside: Any


@dataclass(frozen=True)
class _Windows:
    """Windows of ``data`` along ``axes``: sizes, strides and dilations, and the amounts of padding.

    ``shape`` is the result's; ``pad_before`` and ``pad_after`` are the extents that windows cover outside of each data
    axis, while ``padding`` is the requested padding along ``axes``: before each, then after each.
    """

    data: te.Tensor
    kernel: Sequence[Any]
    stride: Sequence[Any]
    dilation: Sequence[Any]
    padding: Sequence[Any]
    axes: Sequence[int]
    shape: Sequence[Any]
    pad_before: Sequence[PrimExpr]
    pad_after: Sequence[PrimExpr]
    packed: bool

    @staticmethod
    def of(
        data: te.Tensor,
        kernel: Sequence[Any],
        stride: Sequence[Any],
        dilation: Sequence[Any],
        padding: Sequence[Any],
        ceil_mode: bool,
        axes: Sequence[int],
        packed: bool,
    ) -> _Windows:
        """Return the windows that fit; with ``ceil_mode`` the last one may reach beyond the padding."""
        before, after = padding[: len(axes)], padding[len(axes) :]
        pad_before, pad_after, shape = [ops.as_expr(0)] * data.ndim, [ops.as_expr(0)] * data.ndim, list(data.shape)
        for k, axis in enumerate(axes):
            out = _output_extent(data.shape[axis], kernel[k], stride[k], dilation[k], before[k], after[k], ceil_mode)
            shape[axis] = out
            # what a window covers beyond the padding is padding too
            needed = (out - 1) * stride[k] + (kernel[k] - 1) * dilation[k] + 1 - data.shape[axis] - before[k]
            pad_before[axis] = ops.as_expr(before[k])
            pad_after[axis] = simplify(ops.maximum(ops.as_expr(needed), 0))
        return _Windows(data, kernel, stride, dilation, padding, axes, shape, pad_before, pad_after, packed)

    def reduce(self, reducer: _Reducer) -> te.Tensor:
        """Reduce all windows, shared columns first, in the passes that suit them."""
        data, whole = self.data, {k: (0, extent) for k, extent in enumerate(self.kernel)}
        padded = not all(ops.is_const_int(simplify(p), 0) for p in (*self.pad_before, *self.pad_after))
        if padded and not self.packed:
            data = pad(data, self.pad_before, self.pad_after, reducer.outside, "pad_temp")
        passes = [whole[0]]
        if self.packed and len(self.axes) == 2:
            passes = _passes(self.kernel[0], self.stride[0], self.dilation[0])
        total = None
        for taken in passes:
            values, spans = data, {**whole, 0: taken}
            if self._share_columns(taken):
                values, spans = self._reduced(reducer, data, {0: taken}, POOL_COLUMNS), {1: whole[1]}
            total = self._reduced(reducer, values, spans, reducer.name if taken is passes[-1] else POOL_ROWS, total)
        assert total is not None
        return total

    def _share_columns(self, rows: tuple[Any, Any]) -> bool:
        """Return whether windows, reduced over ``rows`` of their rows, share columns that are worth reducing once."""
        if len(self.axes) != 2 or not (self.packed or self.axes[-1] == self.data.ndim - 1):
            return False
        if on_gpu():  # neighbouring threads find the columns in their cache
            return False
        return _overlap(rows[1] - rows[0], self.kernel[1], self.stride[1], 0 if self.packed else _SMALL_WINDOW)

    def _reduced(
        self,
        reducer: _Reducer,
        values: te.Tensor,
        spans: dict[int, tuple[Any, Any]],
        name: str,
        start: te.Tensor | None = None,
    ) -> te.Tensor:
        """Reduce the elements ``spans[k]`` of the windows of ``values`` along ``axes[k]``, except those outside the
        data.
        """
        along = [self.axes[k] for k in spans]
        steps = {k: te.reduce_axis(span, name=f"rv{k}") for k, span in spans.items()}
        image, low, high = ([v[a] for a in along] for v in (self.data.shape, self.pad_before, self.pad_after))

        def body(*i: PrimExpr) -> Any:
            at = list(i)
            for k in spans:
                axis = self.axes[k]
                at[axis] = steps[k] * self.dilation[k]
                if not ops.is_const_int(ops.as_expr(self.shape[axis]), 1):
                    at[axis] += i[axis] * self.stride[k]
                if self.packed:
                    at[axis] -= self.pad_before[axis]
            where = inside([at[a] for a in along], image, low, high) if self.packed else None
            init = None if start is None else start(*i)
            return reducer.combine(values(*at), axis=list(steps.values()), where=where, init=init)

        return te.compute([self.shape[a] if a in along else d for a, d in enumerate(values.shape)], body, name, name)

    def average(self, total: te.Tensor, count_include_pad: bool) -> te.Tensor:
        """Divide the sums of windows by their element counts, in the data or also in the padding."""

        def elements(*at: PrimExpr) -> PrimExpr:
            count: Any = 1
            for k, axis in enumerate(self.axes):
                before, after = self.padding[k], self.padding[len(self.axes) + k]
                low, high = -before, self.data.shape[axis] + after
                if not count_include_pad:
                    low, high = 0, self.data.shape[axis]
                count = count * _covered(at[k] * self.stride[k] - before, self.kernel[k], self.dilation[k], low, high)
            return ops.cast(self.data.dtype, ops.maximum(simplify(ops.as_expr(count)), 1))

        def quotient(*i: PrimExpr) -> PrimExpr:
            return ops.truncdiv(total(*i), elements(*[i[a] for a in self.axes]))

        if not dt.is_float(self.data.dtype):
            return te.compute(self.shape, quotient, name="pool_avg", tag=tag.ELEMWISE)
        one, extents = ops.const(1, self.data.dtype), [self.shape[a] for a in self.axes]
        weights = te.compute(extents, lambda *at: one / elements(*at), "pool_weights", tag.INJECTIVE)

        def weighted(*i: PrimExpr) -> PrimExpr:
            return total(*i) * weights(*[i[a] for a in self.axes])

        return te.compute(self.shape, weighted, "pool_avg", tag.ELEMWISE)


def _passes(rows: Any, step: Any, dilation: Any) -> list[tuple[Any, Any]]:
    """Split the rows of windows ``step`` apart into passes, each of which reads one row that no window above has read.

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
    """Return whether windows of several rows and more than ``small`` elements share columns with the next window."""
    rows, columns, step = (simplify(ops.as_expr(v)) for v in (rows, columns, step))
    known = isinstance(rows, IntImm) and isinstance(columns, IntImm) and isinstance(step, IntImm)
    return known and rows.value > 1 and columns.value > step.value and rows.value * columns.value > small


def _covered(start: PrimExpr, kernel: Any, dilation: Any, low: Any, high: Any) -> Any:
    """Return how many of the ``kernel`` positions start, start + dilation, ... lie in [low, high)."""
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
    """Pool by ``pool2d`` without dilation."""
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
    """Pool adaptively: window k of n along an extent d covers floor(k d / n) up to ceil((k + 1) d / n)."""
    shape = list(data.shape)
    sizes = {a: ops.cast(ops.as_expr(data.shape[a]).dtype, s) for a, s in zip(axes, output_size, strict=True)}
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

        return te.compute(shape, body, name=name, tag=POOLS[name])

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
