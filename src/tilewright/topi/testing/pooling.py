"""Pools and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .convolution import per_dimension, wide, windows_of

Array = np.ndarray


def poolnd_python(
    np_data: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    padding_before: Sequence[int],
    padding_after: Sequence[int],
    pool_type: str,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
    dtype: str = "float32",
    layout: str | None = None,
) -> Array:
    """Return the maximum or the mean of each window, in ``dtype``.

    Parameters
    ----------
    np_data : batch, channels and one to three more dimensions, as ``layout`` says; default NCW, NCHW or NCDHW
    kernel, strides, dilation, padding_before, padding_after : one for each of the others
    pool_type : "max" or "avg"
    count_include_pad : whether padding counts as zeros in means, and is the maximum of a window of padding only
    ceil_mode : whether a last window may go past the padding; elements beyond it are ignored
    """
    if pool_type not in ("max", "avg"):
        raise ValueError(f'pool_type is "max" or "avg", found {pool_type!r}')
    rank = np_data.ndim - 2
    plain = "NC" + "DHW"[3 - rank :]
    data = wide(np_data.astype(dtype).transpose([(layout or plain).index(letter) for letter in plain]))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    pads, beyond = list(zip(padding_before, padding_after, strict=True)), []
    for n, (before, after), span, stride in zip(data.shape[2:], pads, spans, strides, strict=True):
        beyond.append((0, -(n + before + after - span) % stride if ceil_mode else 0))

    def windows(array: Array, fill: Any, past: Any) -> Array:
        around = [(0, 0), (0, 0)]
        padded = np.pad(np.pad(array, around + pads, constant_values=fill), around + beyond, constant_values=past)
        views = windows_of(padded, tuple(spans), per_dimension(tuple(strides), rank))
        steps: tuple[Any, ...] = (..., *(slice(None, None, d) for d in dilation))
        return views[steps]

    axes = tuple(range(-rank, 0))
    if pool_type == "max":
        lowest = -np.inf if data.dtype.kind == "f" else np.iinfo(data.dtype).min
        result = windows(data, lowest, lowest).max(axis=axes)
        if count_include_pad:
            result = np.where(windows(np.ones_like(data), 0, 0).any(axis=axes), result, 0)
    else:
        counted = windows(np.ones_like(data), int(count_include_pad), 0).sum(axis=axes)
        result = windows(data, 0, 0).sum(axis=axes) / np.maximum(counted, 1)
    return result.astype(dtype).transpose([plain.index(letter) for letter in layout or plain])


def adaptive_pool(np_data: Array, out_size: int | Sequence[int], pool_type: str, layout: str) -> Array:
    """Pool to ``out_size``: position i covers floor(i * n / size) to ceil((i + 1) * n / size).

    ``layout`` is a permutation of NCW, NCHW or NCDHW; ``pool_type`` is "avg" or "max".
    """
    sizes = (out_size,) if isinstance(out_size, int) else tuple(out_size)
    kinds: dict[str, Callable[..., Array]] = {"avg": np.mean, "max": np.max}
    combine = kinds[pool_type]
    result = wide(np_data)
    for letter, size in zip("DHW"[3 - len(sizes) :], sizes, strict=True):
        axis = layout.index(letter)
        n = result.shape[axis]
        ends = [(i * n // size, -(-(i + 1) * n // size)) for i in range(size)]
        parts = [combine(np.take(result, range(*end), axis), axis=axis) for end in ends]  # a box is pooled by its sides
        result = np.stack(parts, axis)
    return result.astype(np_data.dtype)


def pool_grad_nchw(
    a_np: Array,
    out_grad_np: Array,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    pool_type: str,
    ceil_mode: bool,
    count_include_pad: bool = True,
) -> Array:
    """Return the gradient of pooling ``a_np`` (n, c, h, w), from ``out_grad_np`` (n, c, oh, ow) of its result.

    ``padding`` is top, left, bottom, right. Among equal maxima, the first in the window takes the gradient.
    """
    top, left, bottom, right = padding
    around = ((0, 0), (0, 0), (top, bottom), (left, right))
    data = np.pad(wide(a_np), around, constant_values=-np.inf)
    counts = np.pad(np.ones(a_np.shape[2:]), around[2:], constant_values=float(count_include_pad))
    result = np.zeros(data.shape)
    for (i, j), _ in np.ndenumerate(out_grad_np[0, 0]):
        window = tuple(slice(p * s, p * s + k) for p, s, k in zip((i, j), strides, pool_size, strict=True))
        grad = out_grad_np[:, :, i, j, None, None]
        if pool_type == "avg":
            result[:, :, *window] += grad / max(counts[window].sum(), 1)
        else:
            part = data[:, :, *window]
            first = part.reshape(*part.shape[:2], -1).argmax(axis=-1)[..., None]
            place = np.arange(part.shape[2] * part.shape[3]).reshape(part.shape[2:])
            result[:, :, *window] += grad * (place == first[..., None])
    return result[:, :, top : top + a_np.shape[2], left : left + a_np.shape[3]].astype(a_np.dtype)
