"""Resizing along one to three spatial dimensions: nearest neighbour, linear and cubic interpolation.

Each output coordinate maps to a real input coordinate; along each dimension a few input elements (taps) are weighted,
and the weights of the dimensions multiply. The modes are those of ONNX's Resize.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, partial
from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm, Mul, PrimExpr
from tilewright.tir.expr import ProducerLoad
from tilewright.topi import tag
from tilewright.topi.utils import InvalidShapeError, as_list

_MOST_INDICES = 4096  # of a dimension: 60 us each are worth it
_EPSILON = 1e-5  # keeps coordinates that are whole but for rounding errors on their element
Tap = tuple[PrimExpr, PrimExpr | None]  # (input index, weight); no weight means 1


def _float(value: Any) -> PrimExpr:
    return ops.cast("float32", ops.as_expr(value))


def _gaps(target: Any) -> PrimExpr:
    """Return the distance of the first and the last element; 1 if they may coincide at 0."""
    wanted = ops.as_expr(target)
    return _float(wanted) - 1.0 if isinstance(wanted, IntImm) else _float(ops.maximum(wanted - 1, 1))


def input_coordinate(x: PrimExpr, extent: Any, target: Any, mode: str, roi: tuple[Any, Any] | None = None) -> PrimExpr:
    """Return the input coordinate (float32) of output index ``x``, for a dimension resized from ``extent`` to
    ``target``.
    """
    source, wanted, at = _float(extent), _float(target), _float(x)
    half = ops.const(0.5, "float32")
    scale = source / wanted
    if mode in ("half_pixel", "pytorch_half_pixel"):
        centred = (at + half) * scale - half
        if mode == "half_pixel":
            return centred
        return tir.if_then_else(ops.as_expr(target) > 1, centred, ops.const(0, "float32"))
    if mode == "align_corners":
        if ops.is_const_int(ops.as_expr(target), 1):
            return ops.const(0, "float32")
        return at * ((source - 1.0) / _gaps(target))
    if mode == "asymmetric":
        return at * scale
    if mode == "tf_half_pixel_for_nn":
        return (at + half) * scale
    if mode == "tf_crop_and_resize" and roi is not None:
        begin, end = _float(roi[0]), _float(roi[1])
        if ops.is_const_int(ops.as_expr(target), 1):
            return (begin + end) * (source - 1.0) * half
        return begin * (source - 1.0) + at * ((end - begin) * (source - 1.0) / _gaps(target))
    raise InvalidShapeError(
        "coordinate_transformation_mode is half_pixel, pytorch_half_pixel, align_corners, asymmetric, "
        f"tf_half_pixel_for_nn or tf_crop_and_resize (with a roi); found {mode!r}"
    )


def _nearest_index(x: PrimExpr, rounding: str, mode: str) -> PrimExpr:
    rounding = rounding or ("round" if mode == "align_corners" else "floor")
    half, epsilon = ops.const(0.5, "float32"), ops.const(_EPSILON, "float32")
    if rounding == "round":
        value = tir.round(x)
    elif rounding == "round_prefer_floor":
        value = tir.ceil(x - half)
    elif rounding == "round_prefer_ceil":
        value = tir.floor(x + half)
    elif rounding == "floor":
        value = tir.floor(x + epsilon)
    elif rounding == "ceil":
        value = tir.ceil(x - epsilon)
    else:
        raise InvalidShapeError(
            f"rounding_method is round, round_prefer_floor, round_prefer_ceil, floor or ceil; found {rounding!r}"
        )
    return ops.cast("int32", value)


def _clamp(index: PrimExpr, extent: Any) -> PrimExpr:
    return ops.maximum(ops.minimum(index, ops.as_expr(extent) - 1), 0)


@cache
def nearest_elements(extent: int, target: int, rounding: str, mode: str) -> list[int] | None:
    """Return the element that each output index copies; None when it is not known at compile time."""
    if not 0 < target <= _MOST_INDICES or mode == "tf_crop_and_resize":
        return None
    coordinates = [input_coordinate(ops.const(x, "int32"), extent, target, mode) for x in range(target)]
    found = [_clamp(_nearest_index(at, rounding, mode), extent) for at in coordinates]
    whole = [index.value for index in found if isinstance(index, IntImm)]
    return whole if len(whole) == target else None


@cache
def _whole_index(extent: int, target: int, rounding: str, mode: str) -> tuple[int, int, int] | None:
    """Return (n, c, d) such that output index x copies element (n * x + c) // d; None if there are none.

    Integer divisions fold at compile time, and a vector of neighbouring indices takes few loads.
    """
    whole = nearest_elements(extent, target, rounding, mode)
    if whole is None:
        return None
    last = 1 if mode == "align_corners" and target > 1 else 0
    ratio = Fraction(extent - last, target - last)
    n, d = ratio.as_integer_ratio()
    least = [d * index - n * x for x, index in enumerate(whole)]  # of c, for each x; the largest is d - 1 more
    low, high = max(least), min(least) + d - 1
    return (n, min(max(0, low), high), d) if low <= high else None


def _times(extent: PrimExpr, target: PrimExpr) -> int | None:
    """Return the number by which ``extent``, an expression, is multiplied in ``target``."""
    if isinstance(target, Mul) and target.a is extent and isinstance(target.b, IntImm):
        return target.b.value if target.b.value > 0 else None
    return 1 if target is extent else None


def _nearest_tap(x: PrimExpr, at: PrimExpr, extent: Any, target: Any, mode: str, rounding: str) -> Tap:
    """Return the input element at output index ``x``, whose coordinate is ``at``."""
    sizes = [ops.as_expr(size) for size in (extent, target)]
    known = [size.value for size in sizes if isinstance(size, IntImm)]
    if len(known) == 2:
        whole = _whole_index(known[0], known[1], rounding, mode)
        if whole is not None:
            return ops.floordiv(x * whole[0] + whole[1], whole[2]), None
    times = _times(*sizes)
    if times is not None and mode != "align_corners" and _whole_index(8, 8 * times, rounding, mode) == (1, 0, times):
        return ops.floordiv(x, times), None
    return _clamp(_nearest_index(at, rounding, mode), extent), None


def _cubic_weights(t: PrimExpr, alpha: float) -> list[PrimExpr]:
    """Return the weights of the four neighbours at fraction ``t`` (Keys, Cubic Convolution Interpolation, 1981)."""
    a = ops.const(alpha, "float32")

    def near(d: PrimExpr) -> PrimExpr:  # 0 <= d <= 1
        return ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0

    def far(d: PrimExpr) -> PrimExpr:  # 1 <= d <= 2
        return ((a * d - a * 5.0) * d + a * 8.0) * d - a * 4.0

    return [far(t + 1.0), near(t), near(ops.const(1, "float32") - t), far(ops.const(2, "float32") - t)]


def _taps(x: PrimExpr, extent: Any, method: str, alpha: float, exclude: bool) -> list[Tap]:
    base = tir.floor(x)
    fraction, first = x - base, ops.cast("int32", base)
    if method == "linear":
        return [(_clamp(first, extent), ops.const(1, "float32") - fraction), (_clamp(first + 1, extent), fraction)]
    if method != "cubic":
        raise InvalidShapeError(f"resize method is nearest_neighbor, linear or cubic; found {method!r}")
    weights = _cubic_weights(fraction, alpha)
    positions = [first + k for k in (-1, 0, 1, 2)]
    if exclude:
        zero = ops.const(0, "float32")
        weights = [tir.Select(tir.all(p >= 0, p < extent), w, zero) for p, w in zip(positions, weights, strict=True)]
        total = weights[0] + weights[1] + weights[2] + weights[3]
        weights = [w / total for w in weights]
    return [(_clamp(p, extent), w) for p, w in zip(positions, weights, strict=True)]


def _resize(data: te.Tensor, size: Any, layout: str, names: str, method: str, mode: str, rounding: str,
            alpha: float, exclude: Any, out_dtype: str | None, output_shape: Any, roi: Any,
            extrapolation_value: float) -> te.Tensor:  # fmt: skip
    letters = [x for x in layout if x.isalpha()]
    axes = [letters.index(n) for n in names]
    n = len(axes)
    shape = list(data.shape)
    for axis, extent in zip(axes, as_list(size), strict=True):
        shape[axis] = extent
    shape = list(output_shape) if output_shape is not None else shape
    crop = mode == "tf_crop_and_resize"

    def place(k: int, x: PrimExpr) -> PrimExpr:
        bounds = (roi[k], roi[k + n]) if roi is not None and crop else None
        return input_coordinate(x, data.shape[axes[k]], shape[axes[k]], mode, bounds)

    def taps(k: int, x: PrimExpr) -> list[Tap]:
        at, extent = place(k, x), data.shape[axes[k]]
        if method == "nearest_neighbor":
            return [_nearest_tap(x, at, extent, shape[axes[k]], mode, rounding)]
        return _taps(at, extent, method, alpha, bool(exclude))

    def finish(i: Sequence[PrimExpr], value: PrimExpr) -> PrimExpr:
        if crop:
            positions = [(place(k, i[axis]), data.shape[axis]) for k, axis in enumerate(axes)]
            inside = [test for at, extent in positions for test in (at >= 0.0, at <= _float(extent) - 1.0)]
            value = tir.if_then_else(tir.all(*inside), value, ops.const(extrapolation_value, value.dtype))
        if method != "nearest_neighbor" and not dt.is_float(wanted):
            value = tir.round(value)
        return ops.cast(wanted, value)

    wanted = out_dtype or data.dtype
    together = n if method == "nearest_neighbor" else 1  # axes of a step
    value = data
    for first in reversed(range(0, n, together)):
        step = range(first, first + together)
        value = _step(value, [(axes[k], shape[axes[k]], partial(taps, k)) for k in step], None if first else finish)
    return value


def _step(
    data: te.Tensor,
    resized: Sequence[tuple[int, Any, Callable[[PrimExpr], list[Tap]]]],
    finish: Callable[[Sequence[PrimExpr], PrimExpr], PrimExpr] | None,
) -> te.Tensor:
    """Resize some axes of ``data``, each by (axis, extent, taps of an output index); the last step has a ``finish``.

    Transposed data is resized before its transpose if its last axis is resized: neighbours along that axis are then
    contiguous, each with taps of its own.
    """
    shape = list(data.shape)
    for axis, extent, _ in resized:
        shape[axis] = extent
    found = _transposed(data)
    axis, extent, taps = resized[-1]
    name = "resize" if finish is not None else "resize_step"
    if found is not None and len(resized) == 1 and axis == len(shape) - 1 != found[1][-1]:
        source, order = found
        before = _step(source, [(order.index(axis), extent, taps)], None)

        def turned(*i: PrimExpr) -> PrimExpr:
            value = before(*(i[k] for k in order))
            return finish(i, value) if finish is not None else value

        return te.compute(shape, turned, name=name, tag=tag.INJECTIVE)

    def body(*i: PrimExpr) -> PrimExpr:
        found = [taps(i[axis]) for axis, _, taps in resized]
        value = _interpolate(data, list(i), [axis for axis, *_ in resized], found)
        return finish(i, value) if finish is not None else value

    return te.compute(shape, body, name=name, tag=tag.INJECTIVE)


def _transposed(data: te.Tensor) -> tuple[te.Tensor, list[int]] | None:
    """Return the tensor that ``data`` transposes, and for each of its axes the axis of ``data``; None for
    other data.
    """
    if not isinstance(data.op, te.ComputeOp) or not isinstance(data.op.body[0], ProducerLoad):
        return None
    places: dict[Any, int] = {axis.var: k for k, axis in enumerate(data.op.axis)}
    load = data.op.body[0]
    order = [places[index] for index in load.indices if index in places]
    return (load.producer, order) if sorted(order) == list(range(len(load.indices))) == [*places.values()] else None


def _interpolate(data: te.Tensor, i: list[Any], axes: Sequence[int], per_axis: Sequence[Sequence[Tap]]) -> PrimExpr:
    """Sum over the taps of the first axis, weighted, the sums over the taps of the others."""
    if not axes:
        return data(*i)
    total: PrimExpr | None = None
    for index, weight in per_axis[0]:
        at = list(i)
        at[axes[0]] = index
        term = _interpolate(data, at, axes[1:], per_axis[1:])
        if weight is not None:
            term = ops.cast("float32", term) * weight
        total = term if total is None else total + term
    assert total is not None
    return total


def resize1d(data: te.Tensor, size: Any, layout: str = "NCW", method: str = "linear",
             coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "",
             bicubic_alpha: float = -0.5, bicubic_exclude: Any = 0, out_dtype: str | None = None,
             output_shape: Any = None, roi: Any = None, extrapolation_value: float = 0.0) -> te.Tensor:  # fmt: skip
    """Resize W to ``size``; ``layout`` is NCW or NWC. Parameters as those of ``resize2d``."""
    return _resize(data, size, layout, "W", method, coordinate_transformation_mode, rounding_method,
                   bicubic_alpha, bicubic_exclude, out_dtype, output_shape, roi, extrapolation_value)  # fmt: skip


def resize2d(data: te.Tensor, size: Any, layout: str = "NCHW", method: str = "linear",
             coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "",
             bicubic_alpha: float = -0.5, bicubic_exclude: Any = 0, out_dtype: str | None = None,
             output_shape: Any = None, roi: Any = None, extrapolation_value: float = 0.0) -> te.Tensor:  # fmt: skip
    """Resize H and W to ``size``.

    Parameters
    ----------
    layout : NCHW, NHWC, or NCHW with packed channels
    method : "nearest_neighbor", "linear" or "cubic"
    coordinate_transformation_mode : how output pixels map to input pixels, the names of ONNX's Resize
    rounding_method : for nearest_neighbor: round, round_prefer_floor, round_prefer_ceil, floor or ceil
    bicubic_alpha, bicubic_exclude : the cubic's coefficient, and whether neighbours outside get weight 0
    roi, extrapolation_value : for tf_crop_and_resize: begins then ends, as parts of the extent, and the value outside
    """
    return _resize(data, size, layout, "HW", method, coordinate_transformation_mode, rounding_method,
                   bicubic_alpha, bicubic_exclude, out_dtype, output_shape, roi, extrapolation_value)  # fmt: skip


def resize3d(data: te.Tensor, size: Any, layout: str = "NCDHW", method: str = "linear",
             coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "",
             bicubic_alpha: float = -0.5, bicubic_exclude: Any = 0, out_dtype: str | None = None,
             output_shape: Any = None, roi: Any = None, extrapolation_value: float = 0.0) -> te.Tensor:  # fmt: skip
    """Resize D, H and W to ``size``. Parameters as those of ``resize2d``."""
    return _resize(data, size, layout, "DHW", method, coordinate_transformation_mode, rounding_method,
                   bicubic_alpha, bicubic_exclude, out_dtype, output_shape, roi, extrapolation_value)  # fmt: skip
