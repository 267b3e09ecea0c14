"""Pools by the specification's text, in numpy.

ONNX's reference evaluator counts windows that start in the padding at the end (``ceil_mode``), forgets dilations where
it pads by itself (``auto_pad``), and does not run every element type. With ``auto_pad`` VALID, ``ceil_mode`` adds a
window here as without it: ONNX's shape inference has it so, the formula in the text does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]


class _Axis:
    """Where the windows of one axis lie: rows of positions, negative and beyond the extent in the padding."""

    def __init__(
        self, extent: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int], auto_pad: str, ceil: bool
    ) -> None:
        reach = (kernel - 1) * dilation + 1
        before, after = pads if auto_pad == "NOTSET" else (0, 0)
        if auto_pad.startswith("SAME"):
            count = math.ceil(extent / stride)
            total = max((count - 1) * stride + reach - extent, 0)
            before = (total + (auto_pad == "SAME_LOWER")) // 2
            after = total - before
        elif not ceil:
            count = (extent + before + after - reach) // stride + 1
        else:
            count = math.ceil((extent + before + after - reach) / stride) + 1
            count = min(count, math.ceil((extent + before) / stride))
        starts = np.arange(count) * stride - before
        self.positions = starts[:, None] + np.arange(kernel) * dilation
        self.within = (self.positions >= 0) & (self.positions < extent)
        self.padded = (self.positions >= -before) & (self.positions < extent + after)
        self.clipped = np.clip(self.positions, 0, max(extent - 1, 0))


class _Pool(OpRun):
    """Takes the windows' elements, so that the last axis runs over a window."""

    def _windows(self, x: Array, kernel_shape: Sequence[int], auto_pad: str | None, ceil_mode: int | None,
                 dilations: Any, pads: Any, strides: Any) -> tuple[Array, Array, Array]:  # fmt: skip
        rank = x.ndim - 2
        pads = pads or [0] * (2 * rank)
        axes = [
            _Axis(x.shape[i + 2], kernel_shape[i], (strides or [1] * rank)[i], (dilations or [1] * rank)[i],
                  (pads[i], pads[i + rank]), auto_pad or "NOTSET", bool(ceil_mode))
            for i in range(rank)
        ]  # fmt: skip
        within, padded = np.ones((), bool), np.ones((), bool)
        for i, axis in enumerate(axes):
            x = np.take(x, axis.clipped, axis=2 + 2 * i)
            within = np.multiply.outer(within, axis.within)
            padded = np.multiply.outer(padded, axis.padded)
        order = [*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]
        x = x.transpose(0, 1, *(2 + i for i in order))
        flat = (*x.shape[: 2 + rank], math.prod(kernel_shape))
        return x.reshape(flat), within.transpose(order).reshape(flat[2:]), padded.transpose(order).reshape(flat[2:])


class MaxPool(_Pool):
    """The greatest number of each window, and the least value of the type where there is none."""

    def _run(self, x, auto_pad=None, ceil_mode=None, dilations=None, kernel_shape=None, pads=None, storage_order=None,
             strides=None):  # fmt: skip
        windows, within, _ = self._windows(x, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
        least = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
        return (np.fmax.reduce(np.where(within, windows, np.asarray(least, x.dtype)), axis=-1, initial=least),)


class AveragePool(_Pool):
    """The mean of each window, with its padding or without; 0 where there is nothing, which the text leaves open."""

    def _run(self, x, auto_pad=None, ceil_mode=None, count_include_pad=None, dilations=None, kernel_shape=None,
             pads=None, strides=None):  # fmt: skip
        windows, within, padded = self._windows(x, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
        count = np.maximum((padded if count_include_pad else within).sum(axis=-1), 1)
        return (np.asarray(np.where(within, windows, 0).sum(axis=-1) / count, dtype=x.dtype),)


class LpPool(_Pool):
    """The p-norm of each window."""

    def _run(self, x, auto_pad=None, ceil_mode=None, dilations=None, kernel_shape=None, p=2, pads=None, strides=None):
        windows, within, _ = self._windows(x, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
        powers = np.where(within, np.abs(windows) ** (p or 2), 0)
        return (np.asarray(powers.sum(axis=-1) ** (1 / (p or 2)), dtype=x.dtype),)


POOLS = [AveragePool, LpPool, MaxPool]
