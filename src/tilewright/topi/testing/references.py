"""TVM's numpy references of operators: what Relay's operators mean (their ``evaluate``), under topi's names.

Sums are made in float64 or int64 and then rounded to the dtype of the data, so that they are more exact than kernels.
Strides, dilations and output paddings are an int or one for each dimension; paddings are an int, one or two for each
dimension, "VALID" or "SAME". Raises ValueError for methods and modes that are not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import relay
from tilewright.ir.op import Op
from tilewright.relay.expr import Call
from tilewright.topi.utils import get_pad_tuple, get_pad_tuple1d, get_pad_tuple3d

Array = np.ndarray[Any, Any]
_PADS = {1: get_pad_tuple1d, 2: get_pad_tuple, 3: get_pad_tuple3d}
_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
_KINDS = {b"avg": "avg", "avg": "avg", 0: "avg", b"max": "max", "max": "max", 1: "max"}


def _meaning(call: Call, *arrays: Array) -> Array:
    """Evaluate the operator of ``call``, a call of placeholders, on arrays."""
    assert isinstance(call.op, Op)
    found: Array = call.op.get_attr("FEvaluate")(call.attrs, list(arrays))[0]
    return found


def _exact(call: Call, *arrays: Array) -> Array:
    """Evaluate in float64 or int64, and round to the dtype of the first array."""
    return _meaning(call, *map(_wide, arrays)).astype(arrays[0].dtype)


def _wide(array: Array) -> Array:
    return array.astype("float64" if array.dtype.kind == "f" else "int64")


_x, _y, _z = relay.var("x"), relay.var("y"), relay.var("z")


def _each(value: Any, rank: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return tuple(int(v) for v in (values * rank if len(values) == 1 else values))


def _known(what: str, value: Any, choices: Any) -> None:
    if value not in choices:
        raise ValueError(f"{what} is one of {', '.join(map(str, choices))}, found {value!r}")


def _pads(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    return tuple(int(p) for p in _PADS[len(reach)](padding, reach))


def _convolve(
    data: Array, weight: Array, stride: Any, padding: Any, groups: int = 1, dilation: Any = 1, layouts: str = ""
) -> Array:
    """Convolve data in the first of ``layouts``, channels first by default, with a weight in the second."""
    rank = data.ndim - 2
    spatial, apart = _SPATIAL[rank], _each(dilation, rank)
    data_layout, kernel_layout = layouts.split() or (f"NC{spatial}", f"OI{spatial}")
    pads = _pads(padding, [weight.shape[kernel_layout.index(letter)] for letter in spatial], apart)
    return _exact(
        getattr(relay.nn, f"conv{rank}d")(
            _x, _y, _each(stride, rank), pads, apart, groups, data_layout=data_layout, kernel_layout=kernel_layout
        ),
        data,
        weight,
    )


def _convolve_transposed(
    data: Array, weight: Array, stride: Any, padding: Any, more: Any, groups: int = 1, layouts: str = ""
) -> Array:
    rank = data.ndim - 2
    spatial = _SPATIAL[rank]
    data_layout, kernel_layout = layouts.split() or (f"NC{spatial}", f"IO{spatial}")
    pads = _pads(padding, [weight.shape[kernel_layout.index(letter)] for letter in spatial], (1,) * rank)
    named = {"data_layout": data_layout, "kernel_layout": kernel_layout, "output_padding": _each(more, rank)}
    call = getattr(relay.nn, f"conv{rank}d_transpose")(_x, _y, _each(stride, rank), pads, groups=groups, **named)
    return _exact(call, data, weight)


def dilate_python(input_np: Array, strides: Any, dilation_value: float = 0.0, out_dtype: str | None = None) -> Array:
    """Insert ``dilation_value`` between elements: a dimension n becomes (n - 1) * stride + 1.

    Raises ValueError unless there is a stride for each dimension.
    """
    if len(strides) != input_np.ndim:
        raise ValueError(f"dilate wants a stride for each of {input_np.ndim} dimensions, found {len(strides)}")
    return _meaning(relay.nn.dilate(_x, strides, dilation_value), input_np.astype(out_dtype or input_np.dtype))


def conv1d_ncw_python(a_np: Array, w_np: Array, stride: Any, padding: Any, dilation: Any) -> Array:
    """Convolve a_np (n, c, w) with w_np (o, c, kw), to (n, o, ow)."""
    return _convolve(a_np, w_np, stride, padding, dilation=dilation)


def conv2d_nchw_python(a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1) -> Array:
    """Convolve a_np (n, c, h, w) with w_np (o, c / groups, kh, kw), to (n, o, oh, ow)."""
    return _convolve(a_np, w_np, stride, padding, groups)


def conv2d_nhwc_python(a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1) -> Array:
    """Convolve a_np (n, h, w, c) with w_np (kh, kw, c / groups, o), to (n, oh, ow, o)."""
    return _convolve(a_np, w_np, stride, padding, groups, layouts="NHWC HWIO")


def conv2d_hwcn_python(a_np: Array, w_np: Array, stride: Any, padding: Any) -> Array:
    """Convolve a_np (h, w, c, n) with w_np (kh, kw, c, o), to (oh, ow, o, n)."""
    return _convolve(a_np, w_np, stride, padding, layouts="HWCN HWIO")


def conv3d_ncdhw_python(a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1) -> Array:
    """Convolve a_np (n, c, d, h, w) with w_np (o, c / groups, kd, kh, kw), to (n, o, od, oh, ow)."""
    return _convolve(a_np, w_np, stride, padding, groups)


def conv3d_ndhwc_python(a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1) -> Array:
    """Convolve a_np (n, d, h, w, c) with w_np (kd, kh, kw, c / groups, o), to (n, od, oh, ow, o)."""
    return _convolve(a_np, w_np, stride, padding, groups, layouts="NDHWC DHWIO")


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
    return _convolve_transposed(a_nhwc, weight, stride, padding, output_padding, layouts=f"NHWC {weight_format}")


def conv3d_transpose_ncdhw_python(a_np: Array, w_np: Array, stride: Any, padding: Any, output_padding: Any) -> Array:
    """Convolve transposed: a_np (n, c, d, h, w) with w_np (c, o, kd, kh, kw), to (n, o, od, oh, ow)."""
    return _convolve_transposed(a_np, w_np, stride, padding, output_padding)


def depthwise_conv2d_python_nchw(input_np: Array, filter_np: Array, stride: Any, padding: Any) -> Array:
    """Convolve each channel of input_np (n, c, h, w) with filter_np (c, m, kh, kw), to (n, c * m, oh, ow)."""
    return _convolve(input_np, filter_np.reshape(-1, 1, *filter_np.shape[2:]), stride, padding, filter_np.shape[0])


def depthwise_conv2d_python_nhwc(input_np: Array, filter_np: Array, stride: Any, padding: Any) -> Array:
    """Convolve each channel of input_np (n, h, w, c) with filter_np (kh, kw, c, m), to (n, oh, ow, c * m)."""
    weight = filter_np.reshape(*filter_np.shape[:2], -1, 1)
    return _convolve(input_np, weight, stride, padding, filter_np.shape[2], layouts="NHWC HWOI")


def depthwise_conv2d_python_nchwc(input_np: Array, filter_np: Array, stride: Any, padding: Any) -> Array:
    """Convolve each channel of input_np (n, C, h, w, c) with filter_np (O, M, kh, kw, m, o), to (n, O, oh, ow, o)."""
    n, chunks, height, width, block = input_np.shape
    out_chunks, outer, kh, kw, inner, out_block = filter_np.shape
    data = np.moveaxis(input_np, -1, 2).reshape(n, chunks * block, height, width)
    weight = filter_np.transpose(0, 5, 1, 4, 2, 3).reshape(out_chunks * out_block, outer * inner, kh, kw)
    result = depthwise_conv2d_python_nchw(data, weight, stride, padding)
    return np.moveaxis(result.reshape(n, out_chunks, out_block, *result.shape[2:]), 2, -1)


def _deformable(arrays: Sequence[Array], how: Sequence[Any], layouts: tuple[str, str]) -> Array:
    stride, padding, dilation, deformable_groups, groups = how
    (strides, apart), (data_layout, kernel_layout) = (_each(v, 2) for v in (stride, dilation)), layouts
    pads = _pads(padding, [arrays[2].shape[kernel_layout.index(letter)] for letter in "HW"], apart)
    moved = relay.nn.deformable_conv2d(
        _x, _y, _z, strides, pads, apart, deformable_groups, groups,
        data_layout=data_layout, kernel_layout=kernel_layout,
    )  # fmt: skip
    return _exact(moved, *arrays)


def deformable_conv2d_nchw_python(
    a_np: Array, offset_np: Array, w_np: Array, stride: Any, padding: Any, dilation: Any, deformable_groups: int,
    groups: int,
) -> Array:  # fmt: skip
    """Convolve with moved taps, interpolated bilinearly (Dai et al., Deformable Convolutional Networks, 2017).

    ``a_np`` (n, c, h, w); ``offset_np`` (n, deformable_groups * kh * kw * 2, oh, ow), how far each point moves down and
    to the right; ``w_np`` (o, c / groups, kh, kw). Returns (n, o, oh, ow). Points outside of ``a_np`` are 0.
    """
    how = stride, padding, dilation, deformable_groups, groups
    return _deformable((a_np, offset_np, w_np), how, ("NCHW", "OIHW"))


def deformable_conv2d_nhwc_python(
    a_np: Array, offset_np: Array, w_np: Array, stride: Any, padding: Any, dilation: Any, deformable_groups: int,
    groups: int,
) -> Array:  # fmt: skip
    """Convolve a_np (n, h, w, c) with moved taps, offset_np's channels last, w_np (kh, kw, c, o), to (n, oh, ow, o)."""
    how = stride, padding, dilation, deformable_groups, groups
    return _deformable((a_np, offset_np, w_np), how, ("NHWC", "HWIO"))


def correlation_nchw_python(
    data1: Array, data2: Array, kernel_size: int, max_displacement: int, stride1: int, stride2: int, padding: int,
    is_multiply: bool,
) -> Array:  # fmt: skip
    """Correlate patches of two (n, c, h, w) images for each displacement (Dosovitskiy et al., FlowNet, 2015).

    Returns (n, displacements, oh, ow): means of products, or of absolute differences unless ``is_multiply``.
    """
    sizes = kernel_size, max_displacement, stride1, stride2
    return _exact(relay.nn.correlation(_x, _y, *sizes, padding, is_multiply, "NCHW"), data1, data2)


def dense(
    x: Array, y: Array, bias: Array | None, use_bias: bool = False, use_relu: bool = False, out_dtype: str | None = None
) -> Array:
    """Compute ``x`` (m, k) times the transposed ``y`` (n, k), as (m, n), summed in ``out_dtype``."""
    result = _meaning(relay.nn.dense(_x, _y, out_dtype=out_dtype or ""), x, y)
    if use_bias:
        result = result + bias
    return np.maximum(result, 0) if use_relu else result


def batch_matmul(
    x: Array, y: Array, out_dtype: str | None = None, trans_x: bool = False, trans_y: bool = True
) -> Array:
    """Multiply two batches of matrices, each transposed if its flag is set; a batch of 1 broadcasts."""
    return _meaning(relay.nn.batch_matmul(_x, _y, out_dtype or "", trans_x, trans_y), x, y)


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

    ``np_data`` has batch, channels and one to three more dimensions, as ``layout`` says (default NCW, NCHW or NCDHW).
    With ``count_include_pad``, padding counts as zeros in means, and is the maximum of a window of padding only. With
    ``ceil_mode``, a last window may go past the padding; elements beyond it are ignored.
    """
    _known("pool_type", pool_type, ("max", "avg"))
    rank = np_data.ndim - 2
    counted = {"count_include_pad": count_include_pad} if pool_type == "avg" else {}
    call = getattr(relay.nn, f"{pool_type}_pool{rank}d")(
        _x, kernel, strides, dilation, (*padding_before, *padding_after), layout or f"NC{_SPATIAL[rank]}",
        ceil_mode=ceil_mode, **counted,
    )  # fmt: skip
    data = np_data.astype(dtype)
    result = _exact(call, data)
    if pool_type == "max" and count_include_pad:
        result = np.where(_meaning(call, np.ones_like(data)) == 1, result, np.zeros((), data.dtype))
    return result


def adaptive_pool(np_data: Array, out_size: int | Sequence[int], pool_type: str, layout: str) -> Array:
    """Pool to ``out_size``: position i covers floor(i * n / size) to ceil((i + 1) * n / size).

    ``layout`` is a permutation of NCW, NCHW or NCDHW; ``pool_type`` is "avg" or "max".
    """
    pool = getattr(relay.nn, f"adaptive_{pool_type}_pool{np_data.ndim - 2}d")
    return _exact(pool(_x, _each(out_size, np_data.ndim - 2), layout), np_data)


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
    windows: dict[str, Any] = {"pool_size": pool_size, "strides": strides, "padding": padding, "ceil_mode": ceil_mode}
    if pool_type == "avg":
        windows["count_include_pad"] = count_include_pad
    return _exact(getattr(relay.nn, f"{pool_type}_pool2d_grad")(_x, _y, **windows), out_grad_np, a_np)


def softmax_python(a_np: Array) -> Array:
    """Compute exp divided by its sum over the last dimension."""
    return _exact(relay.nn.softmax(_x), a_np)


def log_softmax_python(a_np: Array) -> Array:
    """Compute the logarithm of ``softmax_python`` without its loss of digits."""
    return _exact(relay.nn.log_softmax(_x), a_np)


def lrn_python(a_np: Array, size: int, axis: int, bias: float, alpha: float, beta: float) -> Array:
    """Divide ``a_np`` by (bias + alpha / size * sum of squares of ``size`` neighbours along ``axis``) ** ``beta``."""
    return _exact(relay.nn.lrn(_x, size, axis, bias, alpha, beta), a_np)


def l2_normalize_python(a_np: Array, eps: float, axis: int | Sequence[int] | None = None) -> Array:
    """Divide ``a_np`` by the root of max(sum of squares along ``axis``, ``eps``)."""
    return _exact(relay.nn.l2_normalize(_x, eps, (axis,) if isinstance(axis, int) else axis), a_np)


def nll_loss(
    predictions: Array, targets: Array, weights: Array, reduction: str = "mean", ignore_index: int = -100
) -> Array:
    """Return the negative log-likelihood of ``targets`` (n, ...) among classes.

    ``predictions`` (n, classes, ...) are logarithms of probabilities, ``weights`` (classes,); a target ``ignore_index``
    counts for nothing. ``reduction`` is "mean" (by weight), "sum", or "none" (a loss for each target).
    """
    return _exact(relay.nn.nll_loss(_x, _y, _z, reduction, ignore_index), predictions, targets, weights)


def _resize(data: Array, scale: Sequence[float], layout: str, method: str, mode: str) -> Array:
    _known("method", method, ("nearest_neighbor", "linear", "cubic"))
    _known("coordinate_transformation_mode", mode, ("half_pixel", "align_corners", "asymmetric"))
    axes = [[c for c in layout if c.isupper()].index(letter) for letter in _SPATIAL[len(scale)]]
    size = [round(data.shape[axis] * factor) for axis, factor in zip(axes, scale, strict=True)]
    return _exact(getattr(relay.image, f"resize{len(scale)}d")(_x, size, layout, method, mode), data)


def resize1d_python(
    data: Array, scale: Sequence[float], layout: str = "NCW", method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
) -> Array:  # fmt: skip
    """Resize the width by ``scale[0]``; ``method`` is nearest_neighbor, linear or cubic."""
    return _resize(data, scale[:1], layout, method, coordinate_transformation_mode)


def resize2d_python(
    data: Array, scale: Sequence[float], layout: str = "NCHW", method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
) -> Array:  # fmt: skip
    """Resize height and width by ``scale``; ``layout`` may have packed channels and batches, such as NCHW4n4c."""
    return _resize(data, scale, layout, method, coordinate_transformation_mode)


def resize3d_python(
    data: Array, scale: Sequence[float], layout: str = "NCDHW", method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
) -> Array:  # fmt: skip
    """Resize depth, height and width by ``scale``."""
    return _resize(data, scale, layout, method, coordinate_transformation_mode)


def crop_and_resize_python(
    image: Array, boxes: Array, box_indices: Array, crop_size: Sequence[int], layout: str, method: str = "bilinear",
    extrapolation_value: Any = 0,
) -> Array:  # fmt: skip
    """Crop parts of images, and resize them to ``crop_size``.

    ``image`` is (n, h, w, c) or (n, c, h, w), as ``layout`` says; ``boxes`` (boxes, 4) are top, left, bottom, right, of
    which 0 is the first pixel and 1 the last, of the images ``box_indices`` (boxes,). ``method`` is bilinear or
    nearest_neighbor; points outside of the image are ``extrapolation_value``. Returns (boxes, ...) in ``layout``.
    """
    _known("method", method, ("bilinear", "nearest_neighbor"))
    call = relay.image.crop_and_resize(_x, _y, _z, crop_size, layout, method, extrapolation_value)
    return _meaning(call, _wide(image), boxes, np.asarray(box_indices, "int64"))


def affine_grid_python(data: Array, target_shape: Sequence[int]) -> Array:
    """Return source coordinates (n, 2, h, w): ``data`` (n, 2, 3) times (x, y, 1), x and y from -1 to 1."""
    return _exact(relay.image.affine_grid(_x, target_shape), data)


def grid_sample_nchw_python(data: Array, grid: Array, method: str = "bilinear") -> Array:
    """Sample ``data`` (n, c, h, w) at the points of ``grid`` (n, 2, oh, ow), x and y from -1 to 1; 0 outside."""
    return _exact(relay.image.grid_sample(_x, _y, method), data, grid)


def roi_align_nchw_python(
    a_np: Array, rois_np: Array, pooled_size: Any, spatial_scale: float, sample_ratio: int, mode: Any = b"avg"
) -> Array:
    """Pool regions from interpolated points (He et al., Mask R-CNN, 2017).

    ``a_np`` (n, c, h, w); ``rois_np`` (regions, 5): which image, left, top, right, bottom, to be multiplied by
    ``spatial_scale``; ``pooled_size``: rows and columns of bins; ``sample_ratio``: points of a bin in each dimension (0
    or less: as many as it covers pixels); ``mode``: "avg" or "max". Returns (regions, c, rows, columns).
    """
    _known("mode", mode, _KINDS)
    how = _each(pooled_size, 2), spatial_scale, int(sample_ratio), "NCHW", _KINDS[mode]
    return _exact(relay.vision.roi_align(_x, _y, *how), a_np, rois_np)


def roi_align_nhwc_python(
    a_np: Array, rois_np: Array, pooled_size: Any, spatial_scale: float, sample_ratio: int, mode: Any = b"avg"
) -> Array:
    """Pool regions of (n, h, w, c) as ``roi_align_nchw_python`` does, to (regions, rows, columns, c)."""
    data = np.moveaxis(a_np, -1, 1)
    return np.moveaxis(roi_align_nchw_python(data, rois_np, pooled_size, spatial_scale, sample_ratio, mode), 1, -1)


def roi_pool_nchw_python(a_np: Array, rois_np: Array, pooled_size: Any, spatial_scale: float) -> Array:
    """Return the maximum in each bin of regions (Girshick, Fast R-CNN, 2015); 0 for empty bins.

    ``a_np`` (n, c, h, w) and ``rois_np`` (regions, 5) as for ``roi_align_nchw_python``, edges rounded to pixels.
    """
    return _meaning(relay.vision.roi_pool(_x, _y, _each(pooled_size, 2), spatial_scale), a_np, rois_np)


def reorg_python(a_np: Array, stride: int) -> Array:
    """Compute Darknet's reorg layer of (n, c, h, w), as (n, c * stride**2, h / stride, w / stride).

    It reads the image's memory as an image of c / stride**2 channels, stride times as high and as wide.
    """
    return _meaning(relay.vision.yolo_reorg(_x, stride), a_np)


def gather_python(data: Array, axis: int, indices: Array) -> Array:
    """Gather elements of ``data`` along ``axis`` at ``indices``."""
    return _meaning(relay.gather(_x, axis, _y), data, indices)


def gather_nd_python(a_np: Array, indices_np: Array) -> Array:
    """Gather slices of ``a_np`` at the coordinates in the first dimension of ``indices_np`` (coordinates, ...)."""
    return _meaning(relay.gather_nd(_x, _y), a_np, indices_np)


def _slices(begin: Sequence[Any], end: Sequence[Any], strides: Sequence[Any] | None) -> tuple[slice, ...]:
    parts = (begin, end, () if strides is None else strides)
    longest = max(map(len, parts))
    padded = ([*part, *[None] * (longest - len(part))] for part in parts)
    return tuple(slice(*each) for each in zip(*padded, strict=True))


def strided_slice_python(
    data: Array,
    begin: Sequence[Any],
    end: Sequence[Any],
    strides: Sequence[Any] | None,
    slice_mode: str = "end",
    axes: Sequence[int] | None = None,
) -> Array:
    """Slice ``data[begin:end:strides]`` in each of ``axes``, or in the leading dimensions.

    With ``slice_mode`` "size", ``end`` is the number of elements, -1 being all, and ``strides`` are ignored.
    """
    if slice_mode == "size":
        end = [None if n < 0 else b + n for b, n in zip(begin, end, strict=True)]
        strides = None
    slices = _slices(begin, end, strides)
    if axes is not None:
        chosen = {axis % data.ndim: part for axis, part in zip(axes, slices, strict=False)}
        slices = tuple(chosen.get(i, slice(None)) for i in range(data.ndim))
    return data[slices]


def strided_set_python(
    data: Array, v: Array, begin: Sequence[Any], end: Sequence[Any], strides: Sequence[Any] | None
) -> Array:
    """Replace ``data[begin:end:strides]`` by ``v``."""
    result = data.copy()
    result[_slices(begin, end, strides)] = v
    return result


def slice_axis_python(data: Array, axis: int, begin: int, end: int | None = None) -> Array:
    """Slice ``data`` from ``begin`` to ``end`` along ``axis``; an ``end`` of 0 or less counts from the end."""
    stop = data.shape[axis] + end if end is not None and end <= 0 else end
    return data[(*(slice(None),) * (axis % data.ndim), slice(begin, stop))]


def sequence_mask(data: Array, valid_length: Array, mask_value: float, axis: int) -> Array:
    """Write ``mask_value`` from ``valid_length`` on along ``axis``; of axes 0 and 1, the other is the batch."""
    return _meaning(relay.sequence_mask(_x, _y, mask_value, axis), data, valid_length)


def one_hot(indices: Array, on_value: Any, off_value: Any, depth: int, axis: int, dtype: str) -> Array:
    """Return ``on_value`` where the position along the new ``axis`` of ``depth`` is the index, else ``off_value``."""
    marks = np.asarray(on_value, dtype), np.asarray(off_value, dtype)
    return _meaning(relay.one_hot(_x, _y, _z, depth, axis, dtype), indices, *marks)


def matrix_set_diag(input_np: Array, diagonal: Array, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT") -> Array:
    """Replace diagonals of ``input_np`` (..., rows, columns).

    ``diagonal`` is (..., length), or (..., diagonals, length) of several, the highest first. ``k`` is which diagonal,
    or (lowest, highest); 0 is the main one, positive ones are above it. ``align`` is the side to which shorter
    diagonals are put: those above the main one, and those below it.
    """
    return _meaning(relay.matrix_set_diag(_x, _y, k, align), input_np, diagonal)


def searchsorted_ref(sorted_sequence: Array, values: Array, right: bool, out_dtype: str) -> Array:
    """Return insertion positions of ``values`` (..., n) in ``sorted_sequence`` (m) or (..., m); after equals if
    ``right``.
    """
    return _meaning(relay.searchsorted(_x, _y, right, out_dtype), sorted_sequence, values)


def space_to_depth_python(data: Array, block_size: int) -> Array:
    """Convert (n, c, h * b, w * b) to (n, b * b * c, h, w)."""
    return _meaning(relay.nn.space_to_depth(_x, block_size), data)


def depth_to_space_python(data: Array, block_size: int, mode: str = "DCR") -> Array:
    """Convert (n, b * b * c, h, w) to (n, c, h * b, w * b); ``mode`` "CRD" has channels before block positions."""
    return _meaning(relay.nn.depth_to_space(_x, block_size, "NCHW", mode), data)


def space_to_batch_nd_python(
    data: Array, block_shape: Sequence[int], pad_before: Sequence[int], pad_after: Sequence[int], pad_value: float = 0
) -> Array:
    """Pad the dimensions after the first, and move positions in blocks of them to the first."""
    pads = list(zip(pad_before, pad_after, strict=True))
    return _meaning(relay.nn.space_to_batch_nd(_x, block_shape, pads, pad_value), data)


def batch_to_space_nd_python(
    data: Array, block_shape: Sequence[int], crop_begin_list: Sequence[int], crop_end_list: Sequence[int]
) -> Array:
    """Invert ``space_to_batch_nd_python``; the padding is cropped."""
    crops = list(zip(crop_begin_list, crop_end_list, strict=True))
    return _meaning(relay.nn.batch_to_space_nd(_x, block_shape, crops), data)


__all__ = [
    "adaptive_pool", "affine_grid_python", "batch_matmul", "batch_to_space_nd_python", "conv1d_ncw_python",
    "conv1d_transpose_ncw_python", "conv2d_hwcn_python", "conv2d_nchw_python", "conv2d_nhwc_python",
    "conv2d_transpose_nchw_python", "conv2d_transpose_nhwc_python", "conv3d_ncdhw_python", "conv3d_ndhwc_python",
    "conv3d_transpose_ncdhw_python", "correlation_nchw_python", "crop_and_resize_python",
    "deformable_conv2d_nchw_python", "deformable_conv2d_nhwc_python", "dense", "depth_to_space_python",
    "depthwise_conv2d_python_nchw", "depthwise_conv2d_python_nchwc", "depthwise_conv2d_python_nhwc", "dilate_python",
    "gather_nd_python", "gather_python", "grid_sample_nchw_python", "l2_normalize_python", "log_softmax_python",
    "lrn_python", "matrix_set_diag", "nll_loss", "one_hot", "pool_grad_nchw", "poolnd_python", "reorg_python",
    "resize1d_python", "resize2d_python", "resize3d_python", "roi_align_nchw_python", "roi_align_nhwc_python",
    "roi_pool_nchw_python", "searchsorted_ref", "sequence_mask", "slice_axis_python", "softmax_python",
    "space_to_batch_nd_python", "space_to_depth_python", "strided_set_python", "strided_slice_python",
]  # fmt: skip
