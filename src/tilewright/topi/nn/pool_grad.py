"""Gradients of pooling over windows, of any rank and layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi.nn.pooling import pool_nd, spatial_axes
from tilewright.topi.utils import InvalidShapeError, as_list, simplify

_NOWHERE = 2**31 - 1  # greater than any position in a window


def pool_grad(
    grads: te.Tensor,
    data: te.Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> te.Tensor:
    """Return the gradient of ``pool2d`` with respect to its data, from ``grads`` of its result.

    The gradient of a "max" window goes to the first of its greatest elements, that of an "avg" window to all in equal
    shares.
    """
    axes = spatial_axes(layout, "HW")
    options = (as_list(kernel), as_list(stride), (1, 1), as_list(padding), pool_type)
    return pool_grad_nd(grads, data, *options, ceil_mode, axes, count_include_pad)


def pool_grad_nd(
    grads: te.Tensor,
    data: te.Tensor,
    kernel: Sequence[Any],
    stride: Sequence[Any],
    dilation: Sequence[Any],
    padding: Sequence[Any],
    pool_type: str,
    ceil_mode: bool,
    axes: Sequence[int],
    count_include_pad: bool,
) -> te.Tensor:
    """Return ``pool_grad`` of windows along ``axes``; ``padding`` has the amounts before each, then those
    after each.
    """
    if pool_type not in ("max", "avg"):
        raise InvalidShapeError(f"pool_type is 'max' or 'avg', found {pool_type!r}")
    windows = _Windows(data, grads, kernel, stride, dilation, padding, axes)
    if pool_type == "max":
        largest = pool_nd(data, kernel, stride, dilation, padding, "max", ceil_mode, axes, True)
        return windows.collect(grads, windows.firsts(largest))
    return windows.collect(windows.shares(count_include_pad), None)


class _Windows:
    """Windows of ``data`` along ``axes``, one for each element of ``grads``."""

    def __init__(
        self,
        data: te.Tensor,
        grads: te.Tensor,
        kernel: Sequence[Any],
        stride: Sequence[Any],
        dilation: Sequence[Any],
        padding: Sequence[Any],
        axes: Sequence[int],
    ) -> None:
        self.data, self.grads, self.axes = data, grads, list(axes)
        self.kernel, self.stride, self.dilation, self.padding = kernel, stride, dilation, padding

    def firsts(self, largest: te.Tensor) -> te.Tensor:
        """Return the position of each window's first element that equals ``largest``, in row-major order."""
        position = self._positions("at")

        def find(*i: PrimExpr) -> PrimExpr:
            places, within = list(i), []
            for k, axis in enumerate(self.axes):
                places[axis] = i[axis] * self.stride[k] - self.padding[k] + position[k] * self.dilation[k]
                within += [places[axis] >= 0, places[axis] < self.data.shape[axis]]
            inside = tir.all(*within)
            value = tir.if_then_else(inside, self.data(*places), 0)
            found = tir.if_then_else(tir.all(inside, ops.equal(value, largest(*i))), self._flat(position), _NOWHERE)
            return te.min(found, axis=position)

        return te.compute(self.grads.shape, find, name="pool_first")

    def shares(self, count_include_pad: bool) -> te.Tensor:
        """Divide the gradients by the element counts of their windows."""
        rank = len(self.axes)

        def share(*i: PrimExpr) -> PrimExpr:
            count: Any = ops.as_expr(1)
            for k, axis in enumerate(self.axes):
                before, after = (self.padding[k], self.padding[rank + k]) if count_include_pad else (0, 0)
                start = i[axis] * self.stride[k] - self.padding[k]
                last = ops.floordiv(self.data.shape[axis] + after - start + self.dilation[k] - 1, self.dilation[k])
                first = ops.floordiv(-before - start + self.dilation[k] - 1, self.dilation[k])
                count = count * (ops.minimum(last, self.kernel[k]) - ops.maximum(first, 0))
            elements = ops.cast(self.grads.dtype, ops.maximum(simplify(count), 1))
            value = self.grads(*i)
            return value / elements if dt.is_float(self.grads.dtype) else ops.truncdiv(value, elements)

        return te.compute(self.grads.shape, share, name="pool_share")

    def collect(self, values: te.Tensor, firsts: te.Tensor | None) -> te.Tensor:
        """Sum for each data element the values of its windows, or of those whose first maximum it is (``firsts``)."""
        position = self._positions("of")

        def total(*i: PrimExpr) -> PrimExpr:
            places, within = list(i), []
            for k, axis in enumerate(self.axes):
                start = i[axis] + self.padding[k] - position[k] * self.dilation[k]
                places[axis] = ops.floordiv(start, self.stride[k])
                within += [ops.equal(ops.floormod(start, self.stride[k]), 0), start >= 0]
                within.append(places[axis] < values.shape[axis])
            counts = tir.all(*within)
            if firsts is not None:
                first = tir.if_then_else(counts, firsts(*places), _NOWHERE)
                counts = tir.all(counts, ops.equal(first, self._flat(position)))
            return te.sum(tir.if_then_else(counts, values(*places), ops.const(0, values.dtype)), axis=position)

        return te.compute(self.data.shape, total, name="pool_grad")

    def _positions(self, name: str) -> list[Any]:
        return [te.reduce_axis((0, extent), f"{name}{k}") for k, extent in enumerate(self.kernel)]

    def _flat(self, position: Sequence[Any]) -> PrimExpr:
        result: Any = ops.as_expr(0)
        for at, extent in zip(position, self.kernel, strict=True):
            result = result * extent + at
        return ops.as_expr(result)
