"""Convolutions of any rank by sums over the kernel's taps; every layout is converted to channels first.

Strides, dilations and output paddings are an int or one for each dimension; paddings are an int, one or two for each
dimension, "VALID" or "SAME".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.topi.utils import get_pad_tuple, get_pad_tuple1d, get_pad_tuple3d

Array = np.ndarray
_PADS = {1: get_pad_tuple1d, 2: get_pad_tuple, 3: get_pad_tuple3d}


def per_dimension(value: Any, rank: int) -> tuple[int, ...]:
    """Return an int, or a sequence of one or ``rank`` ints, as ``rank`` ints."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return tuple(int(v) for v in (values * rank if len(values) == 1 else values))


def wide(array: Array) -> Array:
    """Convert to the widest dtype of the kind, in which the sums of a test are as good as exact."""
    return array.astype("float64" if array.dtype.kind == "f" else "int64")


def _pads(padding: Any, kernel: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return the padding before and after each dimension."""
    rank = len(kernel)
    found = tuple(int(p) for p in _PADS[rank](padding, kernel))
    return tuple(zip(found[:rank], found[rank:], strict=True))


def windows_of(data: Array, kernel: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """Return the windows of the last dimensions: (..., *outputs, *kernel)."""
    rank = len(kernel)
    views = np.lib.stride_tricks.sliding_window_view(data, kernel, axis=tuple(range(-rank, 0)))
    steps: tuple[Any, ...] = (..., *(slice(None, None, s) for s in strides), *(slice(None),) * rank)
    return views[steps]


def _at(tap: tuple[int, ...]) -> Any:
    """Return the index of one position in the last dimensions."""
    return (..., *tap)


def _every(first: tuple[int, ...], counts: Any, strides: tuple[int, ...]) -> Any:
    """Return the index of ``counts`` positions in the last dimensions, from ``first`` on, ``strides`` apart."""
    return (..., *(slice(t, t + (n - 1) * s + 1, s) for t, n, s in zip(first, counts, strides, strict=True)))


def _convolve(data: Array, weight: Array, stride: Any, padding: Any, groups: int = 1, dilation: Any = 1) -> Array:
    """Convolve data (n, c, ...) with weight (o, c / groups, ...), to (n, o, ...) of the dtype of ``data``."""
    rank = data.ndim - 2
    weight = dilate_python(weight, (1, 1, *per_dimension(dilation, rank)))
    kernel = weight.shape[2:]
    padded = np.pad(wide(data), ((0, 0), (0, 0), *_pads(padding, kernel)))
    strides = per_dimension(stride, rank)
    extents = [(n - k) // s + 1 for n, k, s in zip(padded.shape[2:], kernel, strides, strict=True)]
    parts = wide(weight).reshape(groups, len(weight) // groups, *weight.shape[1:])
    result: Any = 0
    for tap in np.ndindex(*kernel):  # one at a time: all windows at once can be more than memory holds
        view = padded[_every(tap, extents, strides)]
        columns = view.reshape(len(data), groups, weight.shape[1], int(np.prod(extents)))
        result = result + parts[_at(tap)] @ columns
    return np.asarray(result).reshape(len(data), len(weight), *extents).astype(data.dtype)


def _convolve_transposed(
    data: Array, weight: Array, stride: Any, padding: Any, output_padding: Any, groups: int = 1
) -> Array:
    """Convolve transposed: data (n, c, ...), weight (c, o / groups, ...), to (n, o, ...)."""
    rank = data.ndim - 2
    strides, kernel, size = per_dimension(stride, rank), weight.shape[2:], data.shape[2:]
    whole = [
        (n - 1) * s + k + more
        for n, s, k, more in zip(size, strides, kernel, per_dimension(output_padding, rank), strict=True)
    ]
    parts = np.moveaxis(wide(weight).reshape(groups, -1, *weight.shape[1:]), 1, 2)  # (groups, o, c, ...)
    columns = wide(data).reshape(len(data), groups, parts.shape[2], int(np.prod(size)))
    result = np.zeros((len(data), groups * parts.shape[1], *whole), columns.dtype)
    for tap in np.ndindex(*kernel):
        added = (parts[_at(tap)] @ columns).reshape(*result.shape[:2], *size)
        result[_every(tap, size, strides)] += added
    ends = zip(_pads(padding, kernel), whole, strict=True)
    cut: tuple[Any, ...] = (..., *(slice(before, n - after) for (before, after), n in ends))
    return result[cut].astype(data.dtype)


def dilate_python(input_np: Array, strides: Any, dilation_value: float = 0.0, out_dtype: str | None = None) -> Array:
    """Insert ``dilation_value`` between elements: a dimension n becomes (n - 1) * stride + 1.

    Raises ValueError unless there is a stride for each dimension.
    """
    if len(strides) != input_np.ndim:
        raise ValueError(f"dilate wants a stride for each of {input_np.ndim} dimensions, found {len(strides)}")
    shape = [max((n - 1) * int(s) + 1, 0) for n, s in zip(input_np.shape, strides, strict=True)]
    result = np.full(shape, dilation_value, out_dtype or input_np.dtype)
    result[tuple(slice(None, None, int(s)) for s in strides)] = input_np
    return result


def conv1d_ncw_python(a_np: Array, w_np: Array, stride: Any, padding: Any, dilation: Any) -> Array:
    """Convolve a_np (n, c, w) with w_np (o, c, kw), to (n, o, ow)."""
    return _convolve(a_np, w_np, stride, padding, dilation=dilation)


def conv2d_nchw_python(a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1) -> Array:
    """Convolve a_np (n, c, h, w) with w_np (o, c / groups, kh, kw), to (n, o, oh, ow)."""
    return _convolve(a_np, w_np, stride, padding, groups)


def conv2d_nhwc_python(a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1) -> Array:
    """Convolve a_np (n, h, w, c) with w_np (kh, kw, c / groups, o), to (n, oh, ow, o)."""
    return np.moveaxis(_convolve(np.moveaxis(a_np, -1, 1), w_np.transpose(3, 2, 0, 1), stride, padding, groups), 1, -1)


def conv2d_hwcn_python(a_np: Array, w_np: Array, stride: Any, padding: Any) -> Array:
    """Convolve a_np (h, w, c, n) with w_np (kh, kw, c, o), to (oh, ow, o, n)."""
    result = _convolve(a_np.transpose(3, 2, 0, 1), w_np.transpose(3, 2, 0, 1), stride, padding)
    return result.transpose(2, 3, 1, 0)


def conv3d_ncdhw_python(a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1) -> Array:
    """Convolve a_np (n, c, d, h, w) with w_np (o, c / groups, kd, kh, kw), to (n, o, od, oh, ow)."""
    return _convolve(a_np, w_np, stride, padding, groups)


def conv3d_ndhwc_python(a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1) -> Array:
    """Convolve a_np (n, d, h, w, c) with w_np (kd, kh, kw, c / groups, o), to (n, od, oh, ow, o)."""
    weight = w_np.transpose(4, 3, 0, 1, 2)
    return np.moveaxis(_convolve(np.moveaxis(a_np, -1, 1), weight, stride, padding, groups), 1, -1)


def conv1d_transpose_ncw_python(a_np: Array, w_np: Array, stride: Any, padding: Any, output_padding: Any) -> Array:
    """Convolve transposed: a_np (n, c, w) with w_np (c, o, kw), to (n, o, ow)."""
    return _convolve_transposed(a_np, w_np, stride, padding, output_padding)


def conv2d_transpose_nchw_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, output_padding: Any, groups: int = 1
) -> Array:
    """Convolve transposed: a_np (n, c, h, w) with w_np (c, o / groups, kh, kw), to (n, o, oh, ow)."""
    return _convolve_transposed(a_np, w_np, stride, padding, output_padding, groups)


def conv2d_transpose_nhwc_python(
    a_nhwc: Array, weight: Array, weight_format: str, stride: Any, padding: Any, output_padding: Any = (0, 0)
) -> Array:
    """Convolve transposed: a_nhwc (n, h, w, c), to (n, oh, ow, o); ``weight_format`` permutes "IOHW", O being c."""
    if sorted(weight_format) != sorted("IOHW"):
        raise ValueError(f"weight_format is a permutation of IOHW, found {weight_format!r}")
    kernel = weight.transpose([weight_format.index(letter) for letter in "IOHW"])
    result = _convolve_transposed(np.moveaxis(a_nhwc, -1, 1), kernel, stride, padding, output_padding)
    return np.moveaxis(result, 1, -1)


def conv3d_transpose_ncdhw_python(a_np: Array, w_np: Array, stride: Any, padding: Any, output_padding: Any) -> Array:
    """Convolve transposed: a_np (n, c, d, h, w) with w_np (c, o, kd, kh, kw), to (n, o, od, oh, ow)."""
    return _convolve_transposed(a_np, w_np, stride, padding, output_padding)


def depthwise_conv2d_python_nchw(input_np: Array, filter_np: Array, stride: Any, padding: Any) -> Array:
    """Convolve each channel of input_np (n, c, h, w) with filter_np (c, m, kh, kw), to (n, c * m, oh, ow)."""
    channels, multiplier = filter_np.shape[:2]
    weight = filter_np.reshape(channels * multiplier, 1, *filter_np.shape[2:])
    return _convolve(input_np, weight, stride, padding, channels)


def depthwise_conv2d_python_nhwc(input_np: Array, filter_np: Array, stride: Any, padding: Any) -> Array:
    """Convolve each channel of input_np (n, h, w, c) with filter_np (kh, kw, c, m), to (n, oh, ow, c * m)."""
    result = depthwise_conv2d_python_nchw(
        np.moveaxis(input_np, -1, 1), filter_np.transpose(2, 3, 0, 1), stride, padding
    )
    return np.moveaxis(result, 1, -1)


def depthwise_conv2d_python_nchwc(input_np: Array, filter_np: Array, stride: Any, padding: Any) -> Array:
    """Convolve each channel of input_np (n, C, h, w, c) with filter_np (O, M, kh, kw, m, o), to (n, O, oh, ow, o)."""
    n, chunks, height, width, block = input_np.shape
    out_chunks, outer, kh, kw, inner, out_block = filter_np.shape
    data = np.moveaxis(input_np, -1, 2).reshape(n, chunks * block, height, width)
    weight = filter_np.transpose(0, 5, 1, 4, 2, 3).reshape(out_chunks * out_block, outer * inner, kh, kw)
    result = depthwise_conv2d_python_nchw(data, weight, stride, padding)
    return np.moveaxis(result.reshape(n, out_chunks, out_block, *result.shape[2:]), 2, -1)


def deformable_conv2d_nchw_python(
    a_np: Array, offset_np: Array, w_np: Array, stride: Any, padding: Any, dilation: Any, deformable_groups: int,
    groups: int,
) -> Array:  # fmt: skip
    """Convolve with moved taps, interpolated bilinearly (Dai et al., Deformable Convolutional Networks, 2017).

    Parameters
    ----------
    a_np : (n, c, h, w)
    offset_np : (n, deformable_groups * kh * kw * 2, oh, ow), how far each point moves down and to the right
    w_np : (o, c, kh, kw)

    Returns (n, o, oh, ow). Points outside of ``a_np`` are 0. Raises ValueError for ``groups`` other than 1.
    """
    if groups != 1:
        raise ValueError(f"this reference of deformable convolutions has one group, found {groups}")
    n, channels, height, width = a_np.shape
    kh, kw = w_np.shape[2:]
    rows, columns = offset_np.shape[-2:]
    (sh, sw), (dh, dw) = per_dimension(stride, 2), per_dimension(dilation, 2)
    (top, _), (left, _) = _pads(padding, (kh, kw))
    moved = wide(offset_np).reshape(n, deformable_groups, kh, kw, 2, rows, columns)
    grid = np.meshgrid(np.arange(kh) * dh, np.arange(kw) * dw, np.arange(rows) * sh - top,
                       np.arange(columns) * sw - left, indexing="ij")  # fmt: skip
    y, x = grid[0] + grid[2] + moved[..., 0, :, :], grid[1] + grid[3] + moved[..., 1, :, :]
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    images = wide(a_np).reshape(n, deformable_groups, channels // deformable_groups, height, width)
    sampled = np.where(inside[:, :, None], sample_bilinear(images, y, x), 0.0)
    sampled = sampled.reshape(n, channels, kh, kw, rows, columns)
    return np.einsum("ncijyx,ocij->noyx", sampled, wide(w_np), optimize=True).astype(a_np.dtype)


def sample_bilinear(images: Array, y: Array, x: Array) -> Array:
    """Sample ``images`` (*batch, c, h, w) at points (*batch, ...), to (*batch, c, ...); 0 outside."""
    height, width = images.shape[-2:]
    batch = images.ndim - 3
    index = np.ix_(*(np.arange(d) for d in images.shape[:batch]), *(np.arange(1) for _ in y.shape[batch:]))[:batch]
    result: Any = 0.0
    low_y, low_x = np.floor(y).astype("int64"), np.floor(x).astype("int64")
    for row, weight_y in ((low_y, 1 - (y - low_y)), (low_y + 1, y - low_y)):
        for column, weight_x in ((low_x, 1 - (x - low_x)), (low_x + 1, x - low_x)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            at = (*index, slice(None), np.clip(row, 0, height - 1), np.clip(column, 0, width - 1))
            pixels = np.moveaxis(images[at], -1, batch)  # the channels of each point come last
            result = result + pixels * np.expand_dims(np.where(inside, weight_y * weight_x, 0.0), batch)
    return np.asarray(result)


def deformable_conv2d_nhwc_python(
    a_np: Array, offset_np: Array, w_np: Array, stride: Any, padding: Any, dilation: Any, deformable_groups: int,
    groups: int,
) -> Array:  # fmt: skip
    """Convolve a_np (n, h, w, c) with moved taps, offset_np's channels last, w_np (kh, kw, c, o), to (n, oh, ow, o)."""
    data, offset = np.moveaxis(a_np, -1, 1), np.moveaxis(offset_np, -1, 1)
    result = deformable_conv2d_nchw_python(
        data, offset, w_np.transpose(3, 2, 0, 1), stride, padding, dilation, deformable_groups, groups
    )
    return np.moveaxis(result, 1, -1)


def correlation_nchw_python(
    data1: Array, data2: Array, kernel_size: int, max_displacement: int, stride1: int, stride2: int, padding: int,
    is_multiply: bool,
) -> Array:  # fmt: skip
    """Correlate patches of two (n, c, h, w) images for each displacement (Dosovitskiy et al., FlowNet, 2015).

    Returns (n, displacements, oh, ow): means of products, or of absolute differences unless ``is_multiply``.
    """
    around = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    first, second = np.pad(wide(data1), around), np.pad(wide(data2), around)
    border = max_displacement + (kernel_size - 1) // 2
    rows, columns = ((n - 2 * border) // stride1 for n in first.shape[2:])
    steps = range(-(max_displacement // stride2), max_displacement // stride2 + 1)

    def patches(image: Array, down: int, right: int) -> Array:
        begin = max_displacement + down, max_displacement + right
        windows = windows_of(image[:, :, begin[0] :, begin[1] :], (kernel_size, kernel_size), (stride1, stride1))
        return windows[:, :, :rows, :columns]

    still = patches(first, 0, 0)
    result = []
    for down in steps:
        for right in steps:
            other = patches(second, down * stride2, right * stride2)
            agreed = still * other if is_multiply else np.abs(still - other)
            result.append(agreed.mean(axis=(1, 4, 5)))
    return np.stack(result, 1).astype(data1.dtype)
