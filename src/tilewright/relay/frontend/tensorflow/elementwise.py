"""Operators on each element: arithmetic, comparisons, activations, conversions between types."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.tensorflow.context import NodeContext
from tilewright.relay.frontend.tensorflow.registry import converter


def _relay(build: Callable[..., RelayExpr], *names: str) -> None:
    """Register operators that one of Relay's is, on as many tensors."""

    @converter(*names)
    def convert(ctx: NodeContext) -> RelayExpr:
        return ctx.elementwise(build, ctx.inputs())


def _part(op_type: str, *names: str, **attributes: Any) -> None:
    """Register operators that one of ONNX's is."""

    @converter(*names)
    def convert(ctx: NodeContext) -> RelayExpr:
        return ctx.elementwise(lambda *operands: ctx.part(op_type, operands, **attributes), ctx.inputs())


_OF_RELAY: dict[tuple[str, ...], Callable[..., RelayExpr]] = {
    ("Abs",): relay_op.abs, ("Acos",): relay_op.acos, ("Acosh",): relay_op.acosh, ("Asin",): relay_op.asin,
    ("Asinh",): relay_op.asinh, ("Atan",): relay_op.atan, ("Atanh",): relay_op.atanh, ("Ceil",): relay_op.ceil,
    ("Cos",): relay_op.cos, ("Cosh",): relay_op.cosh, ("Erf",): relay_op.erf, ("Exp",): relay_op.exp,
    ("Floor",): relay_op.floor, ("Log",): relay_op.log, ("Neg",): relay_op.negative, ("Rsqrt",): relay_op.rsqrt,
    ("Sigmoid",): relay_op.sigmoid, ("Sign",): relay_op.sign, ("Sin",): relay_op.sin, ("Sinh",): relay_op.sinh,
    ("Sqrt",): relay_op.sqrt, ("Tan",): relay_op.tan, ("Tanh",): relay_op.tanh, ("LogicalNot",): relay_op.logical_not,
    ("IsFinite",): relay_op.isfinite, ("IsInf",): relay_op.isinf, ("IsNan",): relay_op.isnan,
    ("Rint", "Round"): relay_op.nearbyint, ("ZerosLike",): relay_op.zeros_like, ("OnesLike",): relay_op.ones_like,
    ("Relu",): relay_op.nn.relu, ("Invert",): relay_op.bitwise_not, ("BitwiseAnd",): relay_op.bitwise_and,
    ("BitwiseOr",): relay_op.bitwise_or, ("BitwiseXor",): relay_op.bitwise_xor, ("LeftShift",): relay_op.left_shift,
    ("RightShift",): relay_op.right_shift,
}  # fmt: skip
for _names, _build in _OF_RELAY.items():
    _relay(_build, *_names)

for _op, _names in {
    "Add": ("Add", "AddV2"), "Sub": ("Sub",), "Mul": ("Mul",), "Max": ("Maximum",), "Min": ("Minimum",),
    "Equal": ("Equal",), "Greater": ("Greater",), "GreaterOrEqual": ("GreaterEqual",), "Less": ("Less",),
    "LessOrEqual": ("LessEqual",), "And": ("LogicalAnd",), "Or": ("LogicalOr",), "Xor": ("LogicalXor",),
    "Pow": ("Pow",), "Softplus": ("Softplus",), "Softsign": ("Softsign",), "Selu": ("Selu",), "Elu": ("Elu",),
}.items():  # fmt: skip
    _part(_op, *_names)


@converter(
    "Identity", "StopGradient", "PreventGradient", "CheckNumerics", "CheckNumericsV2", "Snapshot", "EnsureShape",
    "Print", "PlaceholderWithDefault", "ReadVariableOp",
)  # fmt: skip
def convert_identity(ctx: NodeContext) -> Any:
    """The first input."""
    if ctx.node.op == "ReadVariableOp" and not isinstance(ctx.value(0), RelayExpr):
        ctx.fail("Graph is not frozen. Provide a frozen graph")
    return ctx.value(0)


@converter("IdentityN", "ShapeN")
def convert_identity_n(ctx: NodeContext) -> list[Any]:
    """All inputs, or the shapes of all."""
    if ctx.node.op == "IdentityN":
        return ctx.values()
    return [ctx.cast(ctx.part("Shape", [x]), ctx.attr("out_type", "int32")) for x in ctx.inputs()]


@converter("AddN", "AccumulateNV2")
def convert_add_n(ctx: NodeContext) -> RelayExpr:
    """Sum of all inputs."""
    return ctx.elementwise(lambda *operands: ctx.part("Sum", operands), ctx.inputs())


@converter("NotEqual")
def convert_not_equal(ctx: NodeContext) -> RelayExpr:
    """Whether elements differ."""
    return ctx.elementwise(lambda a, b: relay_op.logical_not(ctx.part("Equal", [a, b])), ctx.inputs())


# ---- division ----


@converter("RealDiv", "Div", "Xdivy", "DivNoNan", "TruncateDiv")
def convert_div(ctx: NodeContext) -> RelayExpr:
    """Quotient, of integers rounded towards 0; 0 where ``DivNoNan`` divides by 0 and ``Xdivy`` divides 0."""

    def build(a: RelayExpr, b: RelayExpr) -> RelayExpr:
        zero = {"DivNoNan": b, "Xdivy": a}.get(ctx.node.op)
        made = ctx.part("Div", [a, b])
        if zero is None:
            return made if ctx.node.op != "TruncateDiv" or not dt.is_float(ctx.dtype(a)) else relay_op.trunc(made)
        none = ctx.like(0, a)
        return relay_op.where(relay_op.equal(zero, ctx.like(0, zero)), none, made)

    return ctx.elementwise(build, ctx.inputs())


@converter("FloorDiv")
def convert_floor_div(ctx: NodeContext) -> RelayExpr:
    """Quotient, rounded down."""
    return ctx.elementwise(relay_op.floor_divide, ctx.inputs())


@converter("FloorMod")
def convert_floor_mod(ctx: NodeContext) -> RelayExpr:
    """Remainder with the sign of the divisor."""
    return ctx.elementwise(relay_op.floor_mod, ctx.inputs())


@converter("Mod", "TruncateMod")
def convert_truncate_mod(ctx: NodeContext) -> RelayExpr:
    """Remainder with the sign of the dividend."""
    return ctx.elementwise(lambda a, b: ctx.part("Mod", [a, b], fmod=1), ctx.inputs())


# ---- functions that several of Relay's make ----


@converter("Reciprocal", "Inv")
def convert_reciprocal(ctx: NodeContext) -> RelayExpr:
    """1 over each element."""
    return ctx.elementwise(lambda x: relay_op.divide(ctx.like(1, x), x), ctx.inputs())


@converter("Square")
def convert_square(ctx: NodeContext) -> RelayExpr:
    """Product of each element with itself."""
    return ctx.elementwise(lambda x: relay_op.multiply(x, x), ctx.inputs())


@converter("SquaredDifference")
def convert_squared_difference(ctx: NodeContext) -> RelayExpr:
    """Square of the difference."""

    def build(a: RelayExpr, b: RelayExpr) -> RelayExpr:
        less = ctx.part("Sub", [a, b])
        return relay_op.multiply(less, less)

    return ctx.elementwise(build, ctx.inputs())


@converter("Expm1")
def convert_expm1(ctx: NodeContext) -> RelayExpr:
    """Exponential less 1, by the sinh of half where that is more exact."""

    def build(x: RelayExpr) -> RelayExpr:
        half = relay_op.multiply(x, ctx.like(0.5, x))
        near = relay_op.multiply(relay_op.multiply(ctx.like(2, x), relay_op.exp(half)), relay_op.sinh(half))
        far = relay_op.subtract(relay_op.exp(x), ctx.like(1, x))
        return relay_op.where(relay_op.less(relay_op.abs(x), ctx.like(0.5, x)), near, far)

    return ctx.elementwise(build, ctx.inputs())


@converter("Log1p")
def convert_log1p(ctx: NodeContext) -> RelayExpr:
    """Logarithm of 1 more, corrected by what the sum loses."""

    def build(x: RelayExpr) -> RelayExpr:
        one = ctx.like(1, x)
        whole = typed(relay_op.add(x, one))
        lost = relay_op.divide(relay_op.subtract(x, relay_op.subtract(whole, one)), whole)
        found = relay_op.add(relay_op.log(whole), lost)
        return relay_op.where(relay_op.isinf(x), x, found)

    return ctx.elementwise(build, ctx.inputs())


@converter("Erfc")
def convert_erfc(ctx: NodeContext) -> RelayExpr:
    """1 less the error function."""
    return ctx.elementwise(lambda x: relay_op.subtract(ctx.like(1, x), relay_op.erf(x)), ctx.inputs())


@converter("Relu6")
def convert_relu6(ctx: NodeContext) -> RelayExpr:
    """Numbers between 0 and 6."""
    return ctx.elementwise(lambda x: relay_op.clip(x, 0.0, 6.0), ctx.inputs())


@converter("LeakyRelu")
def convert_leaky_relu(ctx: NodeContext) -> RelayExpr:
    """Numbers below 0 times ``alpha``."""
    return ctx.elementwise(lambda x: relay_op.nn.leaky_relu(x, float(ctx.attr("alpha", 0.2))), ctx.inputs())


@converter("ClipByValue")
def convert_clip_by_value(ctx: NodeContext) -> RelayExpr:
    """Numbers between two others."""
    data, low, high = ctx.inputs()
    return ctx.elementwise(
        lambda x, a, b: relay_op.minimum(typed(relay_op.maximum(x, a)), b), [data, low, high]
    )  # fmt: skip


@converter("Xlogy", "Xlog1py")
def convert_xlogy(ctx: NodeContext) -> RelayExpr:
    """A factor times a logarithm; 0 where the factor is 0."""

    def build(a: RelayExpr, b: RelayExpr) -> RelayExpr:
        inner = b if ctx.node.op == "Xlogy" else relay_op.add(b, ctx.like(1, b))
        zero = ctx.like(0, a)
        return relay_op.where(relay_op.equal(a, zero), zero, relay_op.multiply(a, relay_op.log(inner)))

    return ctx.elementwise(build, ctx.inputs())


@converter("Atan2")
def convert_atan2(ctx: NodeContext) -> RelayExpr:
    """Angle of a point (x, y), y being the first input."""

    def build(y: RelayExpr, x: RelayExpr) -> RelayExpr:
        pi, zero, half = ctx.like(math.pi, x), ctx.like(0, x), ctx.like(math.pi / 2, x)
        near = relay_op.atan(relay_op.divide(y, x))
        turn = relay_op.where(relay_op.less(y, zero), relay_op.negative(pi), pi)
        left = relay_op.where(relay_op.less(x, zero), relay_op.add(near, turn), near)
        up = relay_op.where(relay_op.less(y, zero), relay_op.negative(half), half)
        upright = relay_op.where(relay_op.equal(y, zero), zero, up)
        return relay_op.where(relay_op.equal(x, zero), upright, left)

    return ctx.elementwise(build, ctx.inputs())


@converter("Cast")
def convert_cast(ctx: NodeContext) -> RelayExpr:
    """Elements in another type."""
    return ctx.elementwise(lambda x: ctx.cast(x, ctx.required("DstT")), ctx.inputs())


@converter("Select", "SelectV2")
def convert_select(ctx: NodeContext) -> RelayExpr:
    """Elements of one tensor where a condition holds, else of another; ``Select``'s condition may be one a row."""
    condition, a, b = ctx.inputs()
    if ctx.node.op == "Select" and ctx.rank(condition) == 1 and ctx.rank(a) > 1:
        condition = typed(relay_op.expand_dims(condition, axis=1, num_newaxis=ctx.rank(a) - 1))
    return ctx.elementwise(lambda c, x, y: ctx.part("Where", [c, x, y]), [condition, a, b])


@converter("ApproximateEqual")
def convert_approximate_equal(ctx: NodeContext) -> RelayExpr:
    """Whether elements differ by less than a tolerance."""
    tolerance = float(ctx.attr("tolerance", 1e-5))
    return ctx.elementwise(
        lambda a, b: relay_op.less(relay_op.abs(relay_op.subtract(a, b)), ctx.like(tolerance, a)), ctx.inputs()
    )


@converter("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxArgs")
def convert_fake_quant(ctx: NodeContext) -> RelayExpr:
    """Numbers rounded to those that so many bits between a least and a greatest one stand for."""
    if ctx.node.op.endswith("Args"):
        low, high = float(ctx.attr("min", -6.0)), float(ctx.attr("max", 6.0))
    else:
        low, high = (float(ctx.scalar(i, "a limit")) for i in (1, 2))
    first, last = float(bool(ctx.attr("narrow_range", False))), float(2 ** int(ctx.attr("num_bits", 8)) - 1)
    scale = (high - low) / (last - first)
    zero = min(max(float(np.floor(first - low / scale + 0.5)), first), last)
    least, most = (first - zero) * scale, (last - zero) * scale

    def build(x: RelayExpr) -> RelayExpr:
        inside = relay_op.subtract(relay_op.clip(x, least, most), const(np.float32(least)))
        steps = relay_op.floor(relay_op.add(relay_op.divide(inside, const(np.float32(scale))), const(np.float32(0.5))))
        return relay_op.add(relay_op.multiply(steps, const(np.float32(scale))), const(np.float32(least)))

    return ctx.elementwise(build, [ctx.input(0)])


def bias_added(ctx: NodeContext, data: RelayExpr, bias: RelayExpr, last: bool) -> RelayExpr:
    """Return data with a number for each channel added; the channels are the last dimension, or the second."""
    if not last:
        return typed(relay_op.nn.bias_add(data, bias, axis=1))
    if ctx.is_image(data):
        return ctx.channels_last(typed(relay_op.nn.bias_add(ctx.channels_first(data), bias, axis=1)))
    return typed(relay_op.nn.bias_add(data, bias, axis=-1))


@converter("BiasAdd", "BiasAddV1")
def convert_bias_add(ctx: NodeContext) -> RelayExpr:
    """Data with a number for each channel added."""
    return bias_added(ctx, ctx.input(0), ctx.input(1), not ctx.text("data_format", "NHWC").startswith("NC"))
