"""Activations: relu, leaky_relu, prelu, softmax, log_softmax, fast_softmax, dropout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call, TupleGetItem, TupleWrapper
from tilewright.relay.op import relations, slice_rules
from tilewright.relay.op.builder import builder, exported, ops
from tilewright.relay.op.definition import Homogeneous, OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array, Elementwise, unary
from tilewright.relay.op.gradients import Gradients, derivative, number, tensor_type
from tilewright.relay.op.nn.bias_add import expand_bias_to_match_axis, shape_along
from tilewright.relay.op.strategy import generic as strategies
from tilewright.relay.op.tensor.unary import erf_array

relu = unary(
    "nn.relu",
    "max(data, 0)",
    topi.nn.relu,
    lambda x: np.maximum(x, np.asarray(0, x.dtype)),
    fixed_points=(0, 1),
    finite=True,
    homogeneous=Homogeneous.POSITIVE,
    support_level=1,
    derivative=lambda x, y, g, n: ops.where(ops.less_equal(x, n(0)), n(0), g),  # 0 at 0
)


class LeakyReluAttrs(Attrs):
    """Slope for negative values."""

    alpha: float = 0.25


class LeakyRelu(Elementwise[LeakyReluAttrs]):
    """``data`` where positive, else ``alpha * data``."""

    name = "nn.leaky_relu"
    support_level = 3
    finite = True
    homogeneous = Homogeneous.POSITIVE

    @staticmethod
    def compute(attrs: LeakyReluAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.nn.leaky_relu(inputs[0], attrs.alpha)]

    @staticmethod
    def evaluate(attrs: LeakyReluAttrs, inputs: Sequence[Array]) -> list[Array]:
        x = inputs[0]
        return [np.where(x > 0, x, x * np.asarray(attrs.alpha, x.dtype))]

    @staticmethod
    def gradient(attrs: LeakyReluAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        x = orig.args[0]
        slope = number(float(attrs.alpha), x)
        return [ops.where(ops.less_equal(x, number(0, x)), ops.multiply(grad, slope), grad)]


leaky_relu = builder(LeakyRelu, alpha=0.01)


class GeluAttrs(Attrs):
    """ "none", or "tanh" for the approximation by tanh."""

    approximate: str = "none"


class Gelu(Elementwise[GeluAttrs]):
    """data * P(x <= data) of a standard normal variable x; see RecognizeActivations. Not in TVM 0.8."""

    name = "nn.gelu"
    in_float32 = True

    @staticmethod
    def compute(attrs: GeluAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.nn.gelu(inputs[0], attrs.approximate)]

    @staticmethod
    def evaluate(attrs: GeluAttrs, inputs: Sequence[Array]) -> list[Array]:
        """As the kernel: of -infinity the limit, 0, but NaN in the form with tanh."""
        x = inputs[0].astype("float64")
        if attrs.approximate == "tanh":
            inner = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
        else:
            x = np.maximum(x, np.finfo(x.dtype).min)
            inner = erf_array(x * np.sqrt(0.5))
        return [(x * 0.5 * (1 + inner)).astype(inputs[0].dtype)]

    @staticmethod
    def gradient(attrs: GeluAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """d/dx x P(x) = P(x) + x p(x), where p is the derivative of P."""
        x = orig.args[0]
        one, half, square = number(1, x), number(0.5, x), ops.multiply(x, x)
        if attrs.approximate == "none":
            below = half * (one + ops.erf(ops.multiply(x, number(math.sqrt(0.5), x))))
            density = number(1 / math.sqrt(2 * math.pi), x) * ops.exp(-(half * square))
        else:
            scale, bend = math.sqrt(2 / math.pi), number(math.sqrt(2 / math.pi) * 0.044715, x) * square
            t = ops.tanh(ops.multiply(x, number(scale, x) + bend))  # P = (1 + tanh(scale x + bend x)) / 2
            below = half * (one + t)
            density = half * ((one - t * t) * (number(scale, x) + number(3, x) * bend))
        return [ops.multiply(grad, below + ops.multiply(x, density))]


gelu = builder(Gelu)


class SwishAttrs(Attrs):
    """The factor of the sigmoid's argument."""

    beta: float = 1.0


class Swish(Elementwise[SwishAttrs]):
    """data * sigmoid(beta * data), with beta 1 also called SiLU; see RecognizeActivations. Not in TVM 0.8."""

    name = "nn.swish"
    in_float32 = True

    @staticmethod
    def compute(attrs: SwishAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.nn.swish(inputs[0], attrs.beta)]

    @staticmethod
    def evaluate(attrs: SwishAttrs, inputs: Sequence[Array]) -> list[Array]:
        x = inputs[0].astype("float64")
        with np.errstate(over="ignore"):
            return [(x / (1 + np.exp(-attrs.beta * x))).astype(inputs[0].dtype)]

    @staticmethod
    def gradient(attrs: SwishAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """d/dx x s(b x) = s + b x s (1 - s), where s is the sigmoid at b x."""
        x = orig.args[0]
        scaled = ops.multiply(x, number(float(attrs.beta), x))
        s = ops.sigmoid(scaled)
        return [ops.multiply(grad, ops.add(s, ops.multiply(scaled, ops.multiply(s, ops.subtract(number(1, x), s)))))]


swish = builder(Swish)


class Softplus(Elementwise[None]):
    """log(1 + exp(data)). Not in TVM 0.8."""

    name = "nn.softplus"
    in_float32 = True
    gradient = staticmethod(derivative(lambda x, y, g, n: g * ops.sigmoid(x)))

    @staticmethod
    def compute(attrs: None, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.nn.softplus(inputs[0])]

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        return [np.logaddexp(0, inputs[0].astype("float64")).astype(inputs[0].dtype)]


softplus = builder(Softplus)


class PReluAttrs(Attrs):
    """The dimension that the slopes run along."""

    axis: int = 1


class PRelu(OpDef[PReluAttrs]):
    """``data`` where positive, else ``data`` times the slope of its channel."""

    name = "nn.prelu"
    support_level = 3
    inputs = ("data", "alpha")
    pattern = OpPattern.BROADCAST

    slice_operands = staticmethod(slice_rules.bias_add)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: PReluAttrs, solver: TypeSolver) -> Type | None:
        """The type of the data; infer a missing type of the slopes."""
        data, alpha = relations.tensor(types[0], "data"), relations.tensor_or_none(types[1], "alpha")
        axis = relations.normalize_axis(attrs.axis, len(data.shape))
        if alpha is None:
            solver.assign(types[1], TensorType((data.shape[axis],), data.dtype))
        else:
            relations.require_rank(alpha, 1, "alpha")
            solver.assert_equal(data.shape[axis], alpha.shape[0], "number of slopes")
        return data

    @staticmethod
    def compute(attrs: PReluAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.nn.prelu(inputs[0], inputs[1], attrs.axis % len(inputs[0].shape))]

    @staticmethod
    def evaluate(attrs: PReluAttrs, inputs: Sequence[Array]) -> list[Array]:
        x = inputs[0]
        return [np.where(x > 0, x, x * shape_along(inputs[1], x.ndim, attrs.axis))]

    @staticmethod
    def gradient(attrs: PReluAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """x where positive, else a x."""
        x, alpha = orig.args
        rank = len(tensor_type(x).shape)
        slopes = expand_bias_to_match_axis(alpha, rank, attrs.axis)
        negative_part = ops.where(ops.less_equal(x, number(0, x)), ops.multiply(grad, x), number(0, x))
        by_x = ops.where(ops.less_equal(x, number(0, x)), ops.multiply(grad, slopes), grad)
        return [by_x, ops.sum(negative_part, axis=attrs.axis, exclude=True)]


prelu = builder(PRelu)


class SoftmaxAttrs(Attrs):
    """The dimension that sums to 1."""

    axis: int = -1


def softmax_array(x: Array, axis: int) -> Array:
    """Return the softmax along ``axis``."""
    e = np.exp(x - np.max(x, axis=axis, keepdims=True)) if x.size else x
    return np.asarray(e / np.sum(e, axis=axis, keepdims=True), x.dtype)


def _log_softmax_array(x: Array, axis: int) -> Array:
    shifted = x - np.max(x, axis=axis, keepdims=True) if x.size else x
    return np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)), x.dtype)


class Softmax(OpDef[SoftmaxAttrs]):
    """exp(data) / sum(exp(data)) along ``axis``."""

    name = "nn.softmax"
    support_level = 1
    inputs = ("data",)
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    kind = "softmax"
    transcendental = True
    in_float32 = True
    strategy = strategies.softmax_strategy
    slice_operands = staticmethod(slice_rules.along_others)
    fast: ClassVar[str | None] = "nn.fast_softmax"

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: SoftmaxAttrs, solver: TypeSolver) -> Type | None:
        """Check that the data has the axis."""
        data = relations.tensor(types[0])
        relations.normalize_axis(attrs.axis, len(data.shape))
        return data

    @staticmethod
    def evaluate(attrs: SoftmaxAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [softmax_array(inputs[0], attrs.axis)]

    @staticmethod
    def gradient(attrs: SoftmaxAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """y (g - sum(g y))"""
        mean = ops.sum(ops.multiply(grad, orig), axis=attrs.axis, keepdims=True)
        return [ops.multiply(orig, ops.subtract(grad, mean))]


class FastSoftmax(Softmax):
    """``softmax`` with an approximate exp."""

    name = "nn.fast_softmax"
    strategy = strategies.fast_softmax_strategy
    fast = None


class LogSoftmax(Softmax):
    """log(softmax(data))"""

    name = "nn.log_softmax"
    support_level = 1
    strategy = strategies.log_softmax_strategy
    fast = None

    @staticmethod
    def evaluate(attrs: SoftmaxAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [_log_softmax_array(inputs[0], attrs.axis)]

    @staticmethod
    def gradient(attrs: Any, orig: Call, grad: RelayExpr) -> Gradients:
        """g - exp(y) sum(g)"""
        return [ops.subtract(grad, ops.multiply(ops.exp(orig), ops.sum(grad, axis=attrs.axis, keepdims=True)))]


softmax = builder(Softmax)
fast_softmax = builder(FastSoftmax)
log_softmax = builder(LogSoftmax)


class DropoutAttrs(Attrs):
    """The probability with which an element is dropped in training."""

    rate: float = 0.5


class Dropout(OpDef[DropoutAttrs]):
    """(data, mask); at inference the data itself."""

    name = "nn.dropout"
    support_level = 1
    inputs = ("data",)
    pattern = OpPattern.OPAQUE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: DropoutAttrs, solver: TypeSolver) -> Type | None:
        data = relations.tensor(types[0])
        return TupleType((data, data))

    @staticmethod
    def simplify_inference(attrs: DropoutAttrs, args: Sequence[RelayExpr], typed: Call) -> RelayExpr:
        """Return the data: inference drops nothing."""
        return args[0]

    @staticmethod
    def evaluate(attrs: DropoutAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [inputs[0].copy(), np.ones_like(inputs[0])]


dropout_raw = builder(Dropout, "dropout_raw")


Dropout.op.set_attr("TSimplifiesFirstField", True)


@exported
def dropout(data: RelayExpr, rate: float = 0.5) -> TupleGetItem:
    """Return ``data`` with elements dropped in training, unchanged at inference."""
    return TupleWrapper(dropout_raw(data, rate), 2)[0]
