"""Softmax, normalizations and losses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray


def softmax_python(a_np: Array) -> Array:
    """Compute exp divided by its sum over the last dimension."""
    grown = np.exp(a_np - a_np.max(axis=-1, keepdims=True))
    return grown / grown.sum(axis=-1, keepdims=True)


def log_softmax_python(a_np: Array) -> Array:
    """Compute the logarithm of ``softmax_python`` without its loss of digits."""
    below = a_np - a_np.max(axis=-1, keepdims=True)
    return below - np.log(np.exp(below).sum(axis=-1, keepdims=True))


def lrn_python(a_np: Array, size: int, axis: int, bias: float, alpha: float, beta: float) -> Array:
    """Divide ``a_np`` by (bias + alpha / size * sum of squares of ``size`` neighbours along ``axis``) ** ``beta``."""
    around = [(0, 0)] * a_np.ndim
    around[axis] = (size // 2, size // 2)
    squares = np.pad(a_np * a_np, around)
    sums = np.lib.stride_tricks.sliding_window_view(squares, 2 * (size // 2) + 1, axis=axis).sum(axis=-1)
    return a_np / (bias + alpha * sums / size) ** beta


def l2_normalize_python(a_np: Array, eps: float, axis: int | Sequence[int] | None = None) -> Array:
    """Divide ``a_np`` by the root of max(sum of squares along ``axis``, ``eps``)."""
    axes = tuple(axis) if isinstance(axis, (list, tuple)) else axis
    return a_np / np.sqrt(np.maximum((a_np * a_np).sum(axis=axes, keepdims=True), eps))


def nll_loss(
    predictions: Array, targets: Array, weights: Array, reduction: str = "mean", ignore_index: int = -100
) -> Array:
    """Return the negative log-likelihood of classes.

    Parameters
    ----------
    predictions : (n, classes, ...), logarithms of probabilities
    targets : (n, ...), classes, or ``ignore_index``, which counts for nothing
    weights : (classes,)
    reduction : "mean" (by weight), "sum", or "none" (a loss for each target)
    """
    counted = targets != ignore_index
    classes = np.where(counted, targets, 0)
    weight = np.where(counted, weights[classes], 0)
    loss = -np.take_along_axis(predictions, classes[:, None], axis=1)[:, 0] * weight
    if reduction == "none":
        return loss
    return np.asarray(loss.sum() / weight.sum() if reduction == "mean" else loss.sum())
