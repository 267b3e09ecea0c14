"""Normalizations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import tag
from tilewright.topi.kinds import L2_NORMALIZE, LAYER_NORM
from tilewright.topi.nn.pad import pad
from tilewright.topi.reduction import get_real_axis
from tilewright.topi.transform import normalize_axis


def moments(x: te.Tensor, axes: Sequence[int]) -> tuple[te.Tensor, te.Tensor]:
    """Return mean and variance over ``axes``, in float32 at least; two passes, which lose no digits to a large mean."""
    dtype = "float64" if x.dtype == "float64" else "float32"
    count: Any = ops.const(1, dtype)
    for k in axes:
        count = count * ops.cast(dtype, x.shape[k])
    keep = [k for k in range(x.ndim) if k not in axes]
    shape = [x.shape[k] for k in keep]

    def reduce(element: Callable[[PrimExpr, Sequence[PrimExpr]], PrimExpr], name: str) -> te.Tensor:
        reduced = [te.reduce_axis((0, x.shape[k]), name=f"k{k}") for k in axes]

        def body(*i: PrimExpr) -> Any:
            at: list[Any] = [0] * x.ndim
            for position, k in enumerate(keep):
                at[k] = i[position]
            for rv, k in zip(reduced, axes, strict=True):
                at[k] = rv.var
            return te.sum(element(ops.cast(dtype, x(*at)), i), axis=reduced)

        total = te.compute(shape, body, name=f"T_{name}_sum", tag=tag.COMM_REDUCE)
        return te.compute(shape, lambda *i: total(*i) / count, name=f"T_{name}", tag=tag.ELEMWISE)

    mean = reduce(lambda value, i: value, "mean")
    variance = reduce(lambda value, i: (value - mean(*i)) * (value - mean(*i)), "variance")
    return mean, variance


@dataclass(frozen=True)
class LayerNormParts(te.ComputeParts):
    """The operands of ``layer_norm`` for its schedule: data, axes, and 1 / sqrt(variance + epsilon)."""

    axes: tuple[int, ...]
    data: te.Tensor
    factor: te.Tensor


def layer_norm(
    data: te.Tensor,
    gamma: te.Tensor | None,
    beta: te.Tensor | None,
    axis: Any = -1,
    epsilon: float = 1e-5,
    take_moments: Callable[[te.Tensor, Sequence[int]], tuple[te.Tensor, te.Tensor]] = moments,
) -> te.Tensor:
    """Compute (x - mean) / sqrt(variance + epsilon) * gamma + beta, with the moments over ``axis``.

    ``take_moments`` computes mean and variance of a tensor over axes.
    """
    axes = get_real_axis(data.ndim, axis)
    mean, variance = take_moments(data, axes)
    one, small = (ops.const(v, mean.dtype) for v in (1, epsilon))
    factor = te.compute(
        mean.shape, lambda *i: one / tir.sqrt(variance(*i) + small), name="T_layer_norm_factor", tag=tag.ELEMWISE
    )

    def body(*i: PrimExpr) -> PrimExpr:
        kept = [v for k, v in enumerate(i) if k not in axes]
        normal = [i[k] for k in axes]
        value = (ops.cast(mean.dtype, data(*i)) - mean(*kept)) * factor(*kept)
        value = ops.cast(data.dtype, value)
        if gamma is not None:
            value = value * gamma(*normal)
        return value + beta(*normal) if beta is not None else value

    parts = LayerNormParts(tuple(axes), data, factor)
    return te.compute(data.shape, body, name="T_layer_norm", tag=LAYER_NORM, parts=parts)


def instance_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, axis: int = 1, epsilon: float = 1e-5
) -> te.Tensor:
    """Normalise each channel (``axis``) of each batch element over all other dimensions; gamma, beta per channel."""
    channel = normalize_axis(axis, data.ndim)
    axes = [k for k in range(1, data.ndim) if k != channel]
    mean, variance = moments(data, axes)

    def body(*i: PrimExpr) -> PrimExpr:
        m = mean(i[0], i[channel])
        deviation = tir.sqrt(variance(i[0], i[channel]) + ops.const(epsilon, m.dtype))
        value = (ops.cast(m.dtype, data(*i)) - m) / deviation
        return ops.cast(data.dtype, value) * gamma(i[channel]) + beta(i[channel])

    return te.compute(data.shape, body, name="T_instance_norm", tag=LAYER_NORM)


def batch_norm(
    data: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    moving_mean: te.Tensor,
    moving_var: te.Tensor,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> list[te.Tensor]:
    """Normalise each channel by its moving moments; return the result and the moments, as in inference."""
    axis = normalize_axis(axis, data.ndim)

    def body(*i: PrimExpr) -> PrimExpr:
        c = i[axis]
        value = (data(*i) - moving_mean(c)) / tir.sqrt(moving_var(c) + ops.const(epsilon, data.dtype))
        if scale:
            value = value * gamma(c)
        return value + beta(c) if center else value

    out = te.compute(data.shape, body, name="T_batch_norm", tag=tag.BROADCAST)
    return [out, moving_mean, moving_var]


def lrn(
    data: te.Tensor, size: int, axis: int = 1, alpha: float = 1e-4, beta: float = 0.75, bias: float = 2.0
) -> te.Tensor:
    """Compute data / (bias + alpha / size * sum of squares over ``size`` neighbours along ``axis``) ** beta.

    Half of the ``size`` neighbours are on each side.
    """
    axis = normalize_axis(axis, data.ndim)
    before = [(size - 1) // 2 if k == axis else 0 for k in range(data.ndim)]
    after = [size // 2 if k == axis else 0 for k in range(data.ndim)]
    padded = pad(data, before, after, 0.0, "pad_data")
    window = te.reduce_axis((0, size), name="rxs")

    def neighbours(*i: PrimExpr) -> Any:
        value = padded(*(v + window if k == axis else v for k, v in enumerate(i)))
        return te.sum(value * value, axis=window)

    squares = te.compute(data.shape, neighbours, name="sqr_sum", tag="sqr_sum")

    def body(*i: PrimExpr) -> PrimExpr:
        base = ops.const(bias, data.dtype) + ops.const(alpha, data.dtype) * squares(*i) / ops.const(size, data.dtype)
        return data(*i) / _power(base, beta)

    return te.compute(data.shape, body, name="T_lrn", tag="lrn")


def _power(base: PrimExpr, exponent: float) -> PrimExpr:
    """Raise ``base`` to a constant power; 0.75 and 0.5 take square roots, which vectorise."""
    if exponent == 0.75:
        root = tir.sqrt(base)
        return root * tir.sqrt(root)
    if exponent == 0.5:
        return tir.sqrt(base)
    return tir.power(base, ops.const(exponent, base.dtype))


def l2_normalize(data: te.Tensor, eps: float, axis: Any = None) -> te.Tensor:
    """Compute data / sqrt(max(sum of squares over ``axis``, eps))."""
    axes = get_real_axis(data.ndim, axis)
    reduced = [te.reduce_axis((0, data.shape[k]), name=f"k{k}") for k in axes]
    keep = [k for k in range(data.ndim) if k not in axes]

    def total(*i: PrimExpr) -> Any:
        at: list[Any] = [0] * data.ndim
        for position, k in enumerate(keep):
            at[k] = i[position]
        for rv, k in zip(reduced, axes, strict=True):
            at[k] = rv.var
        return te.sum(data(*at) * data(*at), axis=reduced)

    squares = te.compute([data.shape[k] for k in keep], total, name="sum_squares", tag=tag.COMM_REDUCE)
    return te.compute(
        data.shape,
        lambda *i: data(*i) / tir.sqrt(ops.maximum(squares(*(i[k] for k in keep)), ops.const(eps, data.dtype))),
        name="l2_normalize",
        tag=L2_NORMALIZE,
    )
