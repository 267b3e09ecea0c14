"""Element-wise operators, activations, comparisons and logic."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.random_operators.case import EXACT, Graph, Tolerance, generator, onnx_type
from tests.random_operators.draw import FLOATS

# Functions of one operand and the ulps they may be off: elementary functions 4, what is composed of several more.
UNARY = {
    **dict.fromkeys(("Abs", "Neg", "Floor", "Ceil", "Round", "Sign", "Sqrt", "Relu", "Not", "IsNaN", "BitwiseNot",
                     "Identity", "Reciprocal"), EXACT),
    **dict.fromkeys(("Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh",
                     "Atanh", "Erf", "Sigmoid", "Tanh"), Tolerance("ulp", 4)),
    **dict.fromkeys(("Softplus", "Softsign", "Mish"), Tolerance("ulp", 8)),
    "HardSwish": Tolerance("rough", 1e-6),  # which subtracts where it becomes 0
}  # fmt: skip


@generator(*UNARY)
def unary(g: Graph) -> Tolerance:
    dtype = g.dtype()
    g.emit([g.data(dtype, g.draw.shape())])
    # The reference rounds the error function of integers to them.
    return Tolerance("truncated") if g.operator == "Erf" and dtype not in FLOATS else UNARY[g.operator]


_FACTORS = {
    "Elu": {"alpha": 1.0}, "Celu": {"alpha": 1.0}, "LeakyRelu": {"alpha": 0.01}, "ThresholdedRelu": {"alpha": 1.0},
    "Selu": {"alpha": 1.67326, "gamma": 1.0507}, "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "Shrink": {"lambd": 0.5, "bias": 0.0},
}  # fmt: skip


@generator(*_FACTORS)
def activation(g: Graph) -> Tolerance:
    dtype = g.dtype()
    attributes = {}
    for name in _FACTORS[g.operator]:
        if g.draw.of(False, True):
            # A negative factor makes no activation of some, and integers that no unsigned type has.
            usual = g.operator in ("Selu", "Celu") or dtype not in FLOATS
            attributes[name] = g.draw.of(0.5, 1.0, 2.0, 0.3) if usual else g.draw.of(0.5, 0.0, 1.0, -1.0, 0.3)
    g.emit([g.data(dtype, g.draw.shape(), "any" if dtype in FLOATS else "mild")], **attributes)
    return EXACT if g.operator == "ThresholdedRelu" else Tolerance("ulp", 8)


@generator("Gelu")
def gelu(g: Graph) -> Tolerance:
    attributes = {"approximate": g.draw.of("none", "tanh")} if g.draw.of(False, True) else {}
    data = g.draw.array(g.dtype(), g.draw.shape())
    g.undefined = data == -np.inf  # infinity times zero: the limit is 0, the formula's value no number
    g.emit([g.input(data)], **attributes)
    return Tolerance("close", 8)


@generator("IsInf")
def is_inf(g: Graph) -> Tolerance:
    attributes = {name: g.draw.of(0, 1) for name in g.draw.some(("detect_negative", "detect_positive"))}
    g.emit([g.data(g.dtype(), g.draw.shape())], **attributes)
    return EXACT


BINARY = ("Add", "Sub", "Mul", "Div", "And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual",
          "BitwiseAnd", "BitwiseOr", "BitwiseXor")  # fmt: skip


def _pair(g: Graph) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes that broadcast together."""
    shape = g.draw.shape()
    return (shape, g.draw.broadcast(shape)) if g.draw.of(True, False) else (g.draw.broadcast(shape), shape)


@generator(*BINARY)
def binary(g: Graph) -> Tolerance:
    dtype = g.dtype()
    left, right = _pair(g)
    dividend, divisor = (g.draw.array(dtype, shape) for shape in (left, right))
    g.emit([g.input(dividend), g.input(_divisor(g, divisor) if g.operator == "Div" else divisor)])
    return EXACT


def _divisor(g: Graph, divisor: Any) -> Any:
    """Divisors; of integers mostly without 0 and -1 (of the least number): of these an oracle may die."""
    if str(divisor.dtype) in FLOATS or g.draw.chance(4):
        return divisor
    return np.where((divisor == 0) | (divisor.astype("float64") == -1), divisor.dtype.type(3), divisor)


@generator("Mod")
def mod(g: Graph) -> Tolerance:
    dtype = g.dtype()
    left, right = _pair(g)
    fmod = 1 if dtype in FLOATS and g.opset < 28 else g.draw.of(0, 1)
    divisor = _divisor(g, g.draw.array(dtype, right))
    g.emit([g.data(dtype, left), g.input(divisor)], **({"fmod": fmod} if fmod or g.draw.of(False, True) else {}))
    return EXACT


@generator("Pow")
def power(g: Graph) -> Tolerance:
    dtype = g.dtype()
    left, right = _pair(g)
    other = g.dtype(1) if g.opset >= 12 else dtype
    whole = dtype not in FLOATS
    base = g.draw.array(dtype, left, "mild" if whole else "any")
    if other in FLOATS and not whole:
        exponent = (
            g.draw.array(other, right)
            if g.draw.of(False, True)
            else np.full(right, g.draw.of(2.0, 3.0, 0.5, 1.0, 0.0, -1.0)).astype(g.draw.array(other, ()).dtype)
        )
    elif other in FLOATS and g.draw.of(False, True):  # powers are cut off at whole numbers
        exponent = np.full(right, g.draw.of(0.5, 1.5, 2.0)).astype(g.draw.array(other, ()).dtype)
        base = np.clip(base, 0, 6).astype(dtype)
    else:
        exponent = g.draw.integers(other, right, 0, 4)
        if whole:
            base = np.clip(base, 0 if dtype.startswith("u") else -6, 6).astype(dtype)
    g.emit([g.input(base), g.input(exponent)])
    return EXACT if whole else Tolerance("ulp", 8)


@generator("BitShift")
def bit_shift(g: Graph) -> Tolerance:
    dtype = g.dtype()
    left, right = _pair(g)
    bits = np.iinfo(dtype).bits
    amount = g.draw.integers(dtype, right, 0, bits) if g.draw.of(True, False) else g.draw.array(dtype, right)
    g.emit([g.data(dtype, left), g.input(amount)], direction=g.draw.of("LEFT", "RIGHT"))
    return EXACT


@generator("Sum", "Mean", "Max", "Min")
def variadic(g: Graph) -> Tolerance:
    dtype = g.dtype()
    shape = g.draw.shape()
    names = [g.data(dtype, shape if i == 0 else g.draw.broadcast(shape)) for i in range(g.draw.between(1, 4))]
    g.emit(names)
    return EXACT if g.operator in ("Max", "Min") else Tolerance("linear", 4)


@generator("PRelu")
def prelu(g: Graph) -> Tolerance:
    dtype = g.dtype()
    shape = g.draw.shape()
    g.emit([g.data(dtype, shape), g.data(dtype, g.draw.broadcast(shape))])
    return EXACT


@generator("Where")
def where(g: Graph) -> Tolerance:
    dtype = g.dtype(1)
    shape = g.draw.shape()
    shapes = [g.draw.broadcast(shape) for _ in range(3)]
    shapes[g.draw.below(3)] = shape
    g.emit([g.data("bool", shapes[0]), g.data(dtype, shapes[1]), g.data(dtype, shapes[2])])
    return EXACT


@generator("Clip")
def clip(g: Graph) -> Tolerance:
    dtype = g.dtype()
    low, high = sorted(g.draw.array(dtype, (2,), "finite"))
    name = g.data(dtype, g.draw.shape())
    if g.opset < 11:
        attributes = {"min": float(low), "max": float(high)}
        g.emit([name], **{key: attributes[key] for key in g.draw.some(("min", "max"))})
        return EXACT
    limits = [g.input(np.asarray(v)) if g.draw.of(False, True) else "" for v in (low, high)]
    g.emit([name, *limits])
    return EXACT


def _castable(g: Graph, source: str, to: str) -> Any:
    """Numbers; where a float becomes an integer, those whose conversion is undefined are marked."""
    data = g.draw.array(source, g.draw.shape())
    if source not in FLOATS or to in (*FLOATS, "bool"):
        return data
    with np.errstate(all="ignore"):
        wide = np.trunc(data.astype("float64"))
        if g.draw.of(True, False):
            wide = np.where(np.isfinite(wide), np.clip(wide * 7, 0 if to.startswith("u") else -100, 100), 0)
            return wide.astype(data.dtype)
        info = np.iinfo(to)
        g.undefined = ~((wide >= float(info.min)) & (wide < float(info.max) + 1))
    return data


@generator("Cast")
def cast(g: Graph) -> Tolerance:
    source, to = g.dtype(), g.dtype()
    g.emit([g.input(_castable(g, source, to))], to=onnx_type(to))
    return EXACT


@generator("CastLike")
def cast_like(g: Graph) -> Tolerance:
    source, to = g.dtype(), g.dtype(1)
    g.emit([g.input(_castable(g, source, to)), g.data(to, g.draw.shape(0, 2))])
    return EXACT


@generator("Dropout")
def dropout(g: Graph) -> Tolerance:
    name = g.data(g.dtype(), g.draw.shape())
    outputs = g.draw.between(1, 2)
    if g.opset < 12:
        g.emit([name], outputs, **({"ratio": 0.3} if g.draw.of(False, True) else {}))
        return EXACT
    ratio = g.fixed(np.array(g.draw.of(0.5, 0.0, 0.3), "float32")) if g.draw.of(False, True) else ""
    training = g.fixed(np.array(False)) if g.draw.of(False, True) else ""
    g.emit([name, ratio, training], outputs)
    return EXACT
