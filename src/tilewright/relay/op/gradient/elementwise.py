"""Gradients of element-wise operators; those of two inputs sum over broadcast dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call
from tilewright.relay.op.gradient.rule import Gradients, collapsed, number, rule, tensor_type
from tilewright.relay.op.tensor.binary import (
    add,
    divide,
    equal,
    floor_divide,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    multiply,
    power,
    subtract,
)
from tilewright.relay.op.tensor.creation import where
from tilewright.relay.op.tensor.unary import (
    cast,
    cos,
    cosh,
    erf,
    exp,
    log,
    negative,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    tanh,
    trunc,
)  # fmt: skip

Expr = RelayExpr
Number = Callable[[float], Expr]


def _square(x: Expr) -> Expr:
    return multiply(x, x)


# Of y = f(x): the gradient of x by those of y, g; n makes a number of the data type.
_UNARY: dict[str, Callable[[Expr, Expr, Expr, Number], Expr]] = {
    "negative": lambda x, y, g, n: negative(g),
    "copy": lambda x, y, g, n: g,
    "abs": lambda x, y, g, n: multiply(g, sign(x)),  # 0 at 0
    "log": lambda x, y, g, n: divide(g, x),
    "log2": lambda x, y, g, n: divide(g, multiply(x, n(math.log(2)))),
    "log10": lambda x, y, g, n: divide(g, multiply(x, n(math.log(10)))),
    "log1p": lambda x, y, g, n: divide(g, add(x, n(1))),
    "exp": lambda x, y, g, n: multiply(g, y),
    "fast_exp": lambda x, y, g, n: multiply(g, y),
    "expm1": lambda x, y, g, n: multiply(g, add(y, n(1))),
    "sqrt": lambda x, y, g, n: divide(g, multiply(y, n(2))),
    "rsqrt": lambda x, y, g, n: multiply(g, divide(multiply(y, n(-0.5)), x)),  # y / x, since x y^2 = 1
    "sigmoid": lambda x, y, g, n: multiply(g, multiply(y, subtract(n(1), y))),
    "tanh": lambda x, y, g, n: multiply(g, subtract(n(1), _square(y))),
    "fast_tanh": lambda x, y, g, n: multiply(g, subtract(n(1), _square(y))),
    "erf": lambda x, y, g, n: multiply(g, multiply(n(2 / math.sqrt(math.pi)), exp(negative(_square(x))))),
    "fast_erf": lambda x, y, g, n: multiply(g, multiply(n(2 / math.sqrt(math.pi)), exp(negative(_square(x))))),
    "sin": lambda x, y, g, n: multiply(g, cos(x)),
    "cos": lambda x, y, g, n: negative(multiply(g, sin(x))),
    "tan": lambda x, y, g, n: multiply(g, add(n(1), _square(y))),  # 1 / cos(x)^2
    "sinh": lambda x, y, g, n: multiply(g, cosh(x)),
    "cosh": lambda x, y, g, n: multiply(g, sinh(x)),
    "asin": lambda x, y, g, n: divide(g, sqrt(subtract(n(1), _square(x)))),
    "acos": lambda x, y, g, n: negative(divide(g, sqrt(subtract(n(1), _square(x))))),
    "atan": lambda x, y, g, n: divide(g, add(n(1), _square(x))),
    "asinh": lambda x, y, g, n: divide(g, sqrt(add(n(1), _square(x)))),
    "acosh": lambda x, y, g, n: divide(g, sqrt(subtract(_square(x), n(1)))),
    "atanh": lambda x, y, g, n: divide(g, subtract(n(1), _square(x))),
    "nn.relu": lambda x, y, g, n: where(less_equal(x, n(0)), n(0), g),  # 0 at 0
    "nn.softplus": lambda x, y, g, n: multiply(g, sigmoid(x)),
}  # fmt: skip


def _declare(name: str, formula: Callable[[Expr, Expr, Expr, Number], Expr]) -> None:
    @rule(name)
    def gradient(orig: Call, grad: Expr) -> Gradients:
        x = orig.args[0]
        return [formula(x, orig, grad, lambda value: number(value, x))]


for _name, _formula in _UNARY.items():
    _declare(_name, _formula)


@rule("nn.leaky_relu")
def _leaky_relu(orig: Call, grad: Expr) -> Gradients:
    x = orig.args[0]
    slope = number(float(orig.attrs.alpha), x)  # type: ignore[union-attr]
    return [where(less_equal(x, number(0, x)), multiply(grad, slope), grad)]


@rule("nn.gelu")
def _gelu(orig: Call, grad: Expr) -> Gradients:
    """d/dx x P(x) = P(x) + x p(x), where p is the derivative of P."""
    x = orig.args[0]
    one, half = number(1, x), number(0.5, x)
    if orig.attrs.approximate == "none":  # type: ignore[union-attr]
        below = multiply(half, add(one, erf(multiply(x, number(math.sqrt(0.5), x)))))
        density = multiply(number(1 / math.sqrt(2 * math.pi), x), exp(negative(multiply(half, _square(x)))))
    else:
        scale, cubic = math.sqrt(2 / math.pi), 0.044715
        bend = multiply(number(scale * cubic, x), _square(x))  # P = (1 + tanh(scale x + bend x)) / 2
        t = tanh(multiply(x, add(number(scale, x), bend)))
        below = multiply(half, add(one, t))
        inner = add(number(scale, x), multiply(number(3, x), bend))
        density = multiply(half, multiply(subtract(one, _square(t)), inner))
    return [multiply(grad, add(below, multiply(x, density)))]


@rule("nn.swish")
def _swish(orig: Call, grad: Expr) -> Gradients:
    """d/dx x s(b x) = s + b x s (1 - s), where s is the sigmoid at b x."""
    x = orig.args[0]
    scaled = multiply(x, number(float(orig.attrs.beta), x))  # type: ignore[union-attr]
    s = sigmoid(scaled)
    return [multiply(grad, add(s, multiply(scaled, multiply(s, subtract(number(1, x), s)))))]


@rule("clip")
def _clip(orig: Call, grad: Expr) -> Gradients:
    x, attrs = orig.args[0], orig.attrs
    lowest, highest = (number(float(end), x) for end in (attrs.a_min, attrs.a_max))  # type: ignore[union-attr]
    within = logical_and(greater_equal(x, lowest), less_equal(x, highest))
    return [where(within, grad, number(0, x))]


@rule("cast", "cast_like")
def _cast(orig: Call, grad: Expr) -> Gradients:
    dtype = tensor_type(orig.args[0]).dtype
    return [None if dtype == "bool" else cast(grad, dtype), None][: len(orig.args)]


@rule("add")
def _add(orig: Call, grad: Expr) -> Gradients:
    return [collapsed(grad, orig, arg) for arg in orig.args]


@rule("subtract")
def _subtract(orig: Call, grad: Expr) -> Gradients:
    x, y = orig.args
    return [collapsed(grad, orig, x), negative(collapsed(grad, orig, y))]


@rule("multiply")
def _multiply(orig: Call, grad: Expr) -> Gradients:
    x, y = orig.args
    return [collapsed(multiply(grad, y), orig, x), collapsed(multiply(grad, x), orig, y)]


@rule("divide")
def _divide(orig: Call, grad: Expr) -> Gradients:
    x, y = orig.args
    by_x = divide(grad, y)
    return [collapsed(by_x, orig, x), negative(collapsed(multiply(by_x, orig), orig, y))]


@rule("power")
def _power(orig: Call, grad: Expr) -> Gradients:
    """Of x^y: y x^(y-1), 0 for y = 0; and x^y log(x), 0 for x = 0 and y >= 0."""
    x, y = orig.args
    zero, one = number(0, x), number(1, x)
    by_x = where(equal(y, zero), zero, multiply(grad, multiply(y, power(x, subtract(y, one)))))
    still = logical_and(equal(x, zero), greater_equal(y, zero))
    by_y = where(still, zero, multiply(grad, multiply(orig, log(x))))
    return [collapsed(by_x, orig, x), collapsed(by_y, orig, y)]


@rule("maximum", "minimum")
def _extreme(orig: Call, grad: Expr) -> Gradients:
    """The gradient goes to the operand that was chosen; equal operands get half each."""
    taken = greater if orig.op.name == "maximum" else less  # type: ignore[attr-defined]
    x, y = orig.args
    zero, half = number(0, x), multiply(grad, number(0.5, x))

    def share(a: Expr, b: Expr) -> Expr:
        return collapsed(where(taken(a, b), grad, where(equal(a, b), half, zero)), orig, a)

    return [share(x, y), share(y, x)]


@rule("mod", "floor_mod")
def _remainder(orig: Call, grad: Expr) -> Gradients:
    x, y = orig.args
    quotient = trunc(divide(x, y)) if orig.op.name == "mod" else floor_divide(x, y)  # type: ignore[attr-defined]
    return [collapsed(grad, orig, x), negative(collapsed(multiply(grad, quotient), orig, y))]


@rule("where")
def _where(orig: Call, grad: Expr) -> Gradients:
    condition, x, y = orig.args
    zero = number(0, x)
    return [
        None,
        collapsed(where(condition, grad, zero), orig, x),
        collapsed(where(condition, zero, grad), orig, y),
    ]
