"""Normalization: batch_norm, layer_norm, instance_norm, group_norm, l2_normalize, lrn.

All but lrn become basic operators before lowering (SimplifyInference), so that they fuse with their neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Var, const
from tilewright.relay.op import layout_rules, relations, slice_rules
from tilewright.relay.op.builder import builder, ops, tuple_builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.nn.bias_add import expand_bias_to_match_axis, shape_along
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy import generic as strategies
from tilewright.relay.type_infer.dimensions import note_equal


class BatchNormAttrs(Attrs):
    """Channel dimension, epsilon, and whether beta (center) and gamma (scale) are used."""

    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


class InstanceNormAttrs(Attrs):
    """As BatchNormAttrs."""

    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


class LayerNormAttrs(Attrs):
    """As BatchNormAttrs; the moments are taken over ``axis``."""

    axis: int = -1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


class GroupNormAttrs(Attrs):
    """As BatchNormAttrs; the channels form ``num_groups`` groups."""

    num_groups: int = 0
    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


class L2NormalizeAttrs(Attrs):
    """Epsilon and the dimensions of the norm."""

    eps: float
    axis: tuple[int, ...] | None = None


class LRNAttrs(Attrs):
    """Window, dimension and constants of local response normalization."""

    size: int = 5
    axis: int = 1
    bias: float = 2.0
    alpha: float = 0.0001
    beta: float = 0.75


def _fill_channel_vectors(
    types: Sequence[Type], names: Sequence[str], extent: PrimExpr, dtype: str, solver: TypeSolver
) -> None:
    for type_, name in zip(types, names, strict=True):
        vector = relations.tensor_or_none(type_, name)
        if vector is None:
            solver.assign(type_, TensorType((extent,), dtype))
            continue
        relations.require_rank(vector, 1, name)
        note_equal(extent, vector.shape[0])
        have, want = known(vector.shape[0]), known(extent)
        if have is not None and want is not None and have != want:
            raise TypeInferenceError(f"{name} has {have} elements, but the data has {want} channels")


def _channel_norm_type(
    types: Sequence[Type], attrs: GroupNormAttrs | InstanceNormAttrs | LayerNormAttrs, solver: TypeSolver
) -> TensorType | None:
    data = relations.tensor(types[0], "data")
    axis = relations.normalize_axis(attrs.axis, len(data.shape))
    _fill_channel_vectors(types[1:3], ("gamma", "beta"), data.shape[axis], data.dtype, solver)
    return data


def _rank(typed: Call) -> int:
    return len(typed.args[0].checked_type.shape)  # type: ignore[attr-defined]


def _scalar(value: float, typed: Call) -> RelayExpr:
    return const(value, typed.args[0].checked_type.dtype)  # type: ignore[attr-defined]


def _normalize(data: RelayExpr, axes: tuple[int, ...], epsilon: float, typed: Call) -> RelayExpr:
    center = ops.mean(data, axes, True, False)
    spread = ops.variance(data, axes, True, False, False, center)
    return ops.divide(ops.subtract(data, center), ops.sqrt(ops.add(spread, _scalar(epsilon, typed))))


def _scale_and_shift(
    out: RelayExpr,
    gamma: RelayExpr,
    beta: RelayExpr,
    attrs: GroupNormAttrs | InstanceNormAttrs | LayerNormAttrs,
    rank: int,
) -> RelayExpr:
    if attrs.scale:
        out = ops.multiply(out, expand_bias_to_match_axis(gamma, rank, attrs.axis))
    if attrs.center:
        out = ops.add(out, expand_bias_to_match_axis(beta, rank, attrs.axis))
    return out


def _affine(
    x: Array, gamma: Array, beta: Array, attrs: BatchNormAttrs | GroupNormAttrs | InstanceNormAttrs | LayerNormAttrs
) -> Array:
    if attrs.scale:
        x = x * shape_along(gamma, x.ndim, attrs.axis)
    return x + shape_along(beta, x.ndim, attrs.axis) if attrs.center else x


def _standardize(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    center = x.mean(axis=axes, keepdims=True)
    return np.asarray((x - center) / np.sqrt(x.var(axis=axes, keepdims=True) + np.asarray(epsilon, x.dtype)), x.dtype)


class BatchNorm(OpDef[BatchNormAttrs]):
    """(data - moving_mean) / sqrt(moving_var + epsilon) * gamma + beta, and the two moments."""

    name = "nn.batch_norm"
    support_level = 1
    inputs = ("data", "gamma", "beta", "moving_mean", "moving_var")
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    kind = "norm"
    in_float32 = True

    infer_correct_layout = staticmethod(layout_rules.axis_attr(lambda rank: 3))

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: BatchNormAttrs, solver: TypeSolver) -> Type | None:
        """(data, moving_mean, moving_var); infer missing types of the vectors."""
        data = relations.tensor(types[0], "data")
        extent = data.shape[relations.normalize_axis(attrs.axis, len(data.shape))]
        _fill_channel_vectors(types[1:], BatchNorm.inputs[1:], extent, data.dtype, solver)
        moment = TensorType((extent,), data.dtype)
        return TupleType((data, moment, moment))

    @staticmethod
    def evaluate(attrs: BatchNormAttrs, inputs: Sequence[Array]) -> list[Array]:
        """Normalize by the moving mean and variance."""
        data, gamma, beta, moving_mean, moving_var = inputs
        scale = 1 / np.sqrt(moving_var + np.asarray(attrs.epsilon, data.dtype))
        x = (data - shape_along(moving_mean, data.ndim, attrs.axis)) * shape_along(scale, data.ndim, attrs.axis)
        return [_affine(x, gamma, beta, attrs).astype(data.dtype), moving_mean.copy(), moving_var.copy()]

    @staticmethod
    def simplify_inference(attrs: BatchNormAttrs, args: Sequence[RelayExpr], typed: Call) -> RelayExpr:
        """Multiply and add once; both vectors fold where the moments are constants."""
        data, gamma, beta, moving_mean, moving_var = args
        rank = _rank(typed)
        scale = ops.divide(_scalar(1.0, typed), ops.sqrt(ops.add(moving_var, _scalar(attrs.epsilon, typed))))
        if attrs.scale:
            scale = ops.multiply(scale, gamma)
        shift = ops.multiply(ops.negative(moving_mean), scale)
        if attrs.center:
            shift = ops.add(shift, beta)
        out = ops.multiply(data, expand_bias_to_match_axis(scale, rank, attrs.axis))
        return ops.add(out, expand_bias_to_match_axis(shift, rank, attrs.axis))


batch_norm = tuple_builder(BatchNorm, results=3)


BatchNorm.op.set_attr("TSimplifiesFirstField", True)


class LayerNorm(OpDef[LayerNormAttrs]):
    """``data`` normalized over ``axis``, times gamma plus beta."""

    name = "nn.layer_norm"
    inputs = ("data", "gamma", "beta")
    pattern = OpPattern.COMM_REDUCE
    kind = "norm"
    in_float32 = True

    infer_type = staticmethod(_channel_norm_type)
    slice_operands = staticmethod(slice_rules.along_others)

    @staticmethod
    def evaluate(attrs: LayerNormAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [_affine(_standardize(inputs[0], (attrs.axis,), attrs.epsilon), inputs[1], inputs[2], attrs)]

    @staticmethod
    def simplify_inference(attrs: LayerNormAttrs, args: Sequence[RelayExpr], typed: Call) -> RelayExpr:
        out = _normalize(args[0], (attrs.axis,), attrs.epsilon, typed)
        return _scale_and_shift(out, args[1], args[2], attrs, _rank(typed))

    strategy = strategies.layer_norm_strategy


layer_norm = builder(LayerNorm)


class InstanceNorm(OpDef[InstanceNormAttrs]):
    """Each channel of each batch item normalized, times gamma plus beta."""

    name = "nn.instance_norm"
    inputs = ("data", "gamma", "beta")
    pattern = OpPattern.OPAQUE
    kind = "norm"
    in_float32 = True

    infer_type = staticmethod(_channel_norm_type)

    @staticmethod
    def _axes(attrs: InstanceNormAttrs, rank: int) -> tuple[int, ...]:
        return tuple(i for i in range(1, rank) if i != attrs.axis % rank)

    @staticmethod
    def evaluate(attrs: InstanceNormAttrs, inputs: Sequence[Array]) -> list[Array]:
        axes = InstanceNorm._axes(attrs, inputs[0].ndim)
        return [_affine(_standardize(inputs[0], axes, attrs.epsilon), inputs[1], inputs[2], attrs)]

    @staticmethod
    def simplify_inference(attrs: InstanceNormAttrs, args: Sequence[RelayExpr], typed: Call) -> RelayExpr:
        rank = _rank(typed)
        out = _normalize(args[0], InstanceNorm._axes(attrs, rank), attrs.epsilon, typed)
        return _scale_and_shift(out, args[1], args[2], attrs, rank)


instance_norm = builder(InstanceNorm)


def _grouped(shape: Sequence[int], attrs: GroupNormAttrs) -> tuple[list[int], tuple[int, ...]]:
    """Return the shape with channels split into groups, and the dimensions to normalize over."""
    axis = attrs.axis % len(shape)
    grouped = [*shape[:axis], attrs.num_groups, shape[axis] // attrs.num_groups, *shape[axis + 1 :]]
    return grouped, tuple(i for i in range(1, len(grouped)) if i != axis)


def _of_groups(means: RelayExpr, shape: Sequence[int], attrs: GroupNormAttrs) -> RelayExpr:
    """Return the mean of its group for each channel, from the ``means`` of the channels of data of ``shape``."""
    axis = attrs.axis % len(shape)
    each = [extent if i in (0, axis) else 1 for i, extent in enumerate(shape)]
    grouped, _ = _grouped(each, attrs)
    found = ops.mean(ops.reshape(means, grouped), (axis + 1,), True)
    return ops.reshape(ops.broadcast_to(found, grouped), each)


class GroupNorm(OpDef[GroupNormAttrs]):
    """Each group of channels of each batch item normalized, times gamma plus beta."""

    name = "nn.group_norm"
    inputs = ("data", "gamma", "beta")
    pattern = OpPattern.OPAQUE
    kind = "norm"
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: GroupNormAttrs, solver: TypeSolver) -> Type | None:
        data = _channel_norm_type(types, attrs, solver)
        if data is not None:
            channels = known(data.shape[attrs.axis % len(data.shape)])
            if attrs.num_groups <= 0 or (channels is not None and channels % attrs.num_groups):
                raise TypeInferenceError(f"{channels} channels do not divide into {attrs.num_groups} groups")
        return data

    @staticmethod
    def evaluate(attrs: GroupNormAttrs, inputs: Sequence[Array]) -> list[Array]:
        data = inputs[0]
        shape, axes = _grouped(data.shape, attrs)
        x = _standardize(data.reshape(shape), axes, attrs.epsilon).reshape(data.shape)
        return [_affine(x, inputs[1], inputs[2], attrs)]

    @staticmethod
    def simplify_inference(attrs: GroupNormAttrs, args: Sequence[RelayExpr], typed: Call) -> RelayExpr:
        """Normalize the data with channels split into groups.

        A reshape of a parameter would copy it, since its memory is the caller's: there the channels are reduced first,
        then groups of them.
        """
        shape = typed.args[0].checked_type.concrete_shape  # type: ignore[attr-defined]
        grouped, axes = _grouped(shape, attrs)
        inner = tuple(i for i in range(1, len(shape)) if i != attrs.axis % len(shape))
        if isinstance(args[0], Var) and inner:
            center = _of_groups(ops.mean(args[0], inner, True), shape, attrs)
            spread = _of_groups(ops.variance(args[0], inner, True, with_mean=center), shape, attrs)
            out = ops.divide(ops.subtract(args[0], center), ops.sqrt(ops.add(spread, _scalar(attrs.epsilon, typed))))
            return _scale_and_shift(out, args[1], args[2], attrs, len(shape))
        out = ops.reshape(_normalize(ops.reshape(args[0], grouped), axes, attrs.epsilon, typed), shape)
        return _scale_and_shift(out, args[1], args[2], attrs, len(shape))


group_norm = builder(GroupNorm, num_groups=...)


class L2Normalize(OpDef[L2NormalizeAttrs]):
    """``data`` divided by its Euclidean norm over ``axis`` (at least sqrt(eps))."""

    name = "nn.l2_normalize"
    support_level = 2
    inputs = ("data",)
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    kind = "norm"
    in_float32 = True

    infer_type = staticmethod(relations.identity)

    @staticmethod
    def evaluate(attrs: L2NormalizeAttrs, inputs: Sequence[Array]) -> list[Array]:
        x = inputs[0]
        total = np.sum(np.square(x), axis=attrs.axis, keepdims=True)
        return [np.asarray(x / np.sqrt(np.maximum(total, np.asarray(attrs.eps, x.dtype))), x.dtype)]

    @staticmethod
    def simplify_inference(attrs: L2NormalizeAttrs, args: Sequence[RelayExpr], typed: Call) -> RelayExpr:
        total = ops.sum(ops.multiply(args[0], args[0]), attrs.axis, True)
        return ops.divide(args[0], ops.sqrt(ops.maximum(total, _scalar(attrs.eps, typed))))


l2_normalize = builder(L2Normalize)


class LRN(OpDef[LRNAttrs]):
    """data / (bias + alpha / size * sum of squares of the neighbours along ``axis``) ** beta"""

    name = "nn.lrn"
    support_level = 2
    inputs = ("data",)
    pattern = OpPattern.OPAQUE
    in_float32 = True

    infer_type = staticmethod(relations.identity)
    schedule = strategies.schedule_lrn

    @staticmethod
    def compute(attrs: LRNAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.nn.lrn(inputs[0], attrs.size, attrs.axis, attrs.alpha, attrs.beta, attrs.bias)]

    @staticmethod
    def evaluate(attrs: LRNAttrs, inputs: Sequence[Array]) -> list[Array]:
        x = np.moveaxis(inputs[0], attrs.axis, 0)
        half = attrs.size // 2
        padded = np.pad(np.square(x), [(half, half), *[(0, 0)] * (x.ndim - 1)])
        total = np.zeros_like(x)
        for shift in range(attrs.size):
            total += padded[shift : shift + x.shape[0]]
        result = x / (attrs.bias + attrs.alpha / attrs.size * total) ** attrs.beta
        return [np.ascontiguousarray(np.moveaxis(result, 0, attrs.axis)).astype(inputs[0].dtype)]


lrn = builder(LRN, alpha=1e-05)
