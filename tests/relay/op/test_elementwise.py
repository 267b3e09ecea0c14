"""Element-wise and broadcasting operators against numpy and torch."""

import numpy as np
import pytest
import torch
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type, integers, random

from tilewright import relay

X = random(3, 5)
POSITIVE = np.abs(random(3, 5, seed=1)) + np.float32(0.5)
SPECIAL = np.array([0.0, 1.5, -np.inf, np.inf, np.nan, -2.5], "float32")
HALVES = np.array([-2.5, -1.5, -0.5, -0.3, -0.0, 0.5, 1.5, 2.5, 2.51, 2.0**23 + 1, -np.inf, np.nan], "float32")
INTS = integers(-50, 50, 2, 7)


def torch_unary(function, x):
    return function(torch.from_numpy(x)).numpy()


UNARY = [
    case("exp", relay.exp, [X], torch_unary(torch.exp, X)),
    case("log", relay.log, [POSITIVE], torch_unary(torch.log, POSITIVE)),
    case("log2", relay.log2, [POSITIVE], torch_unary(torch.log2, POSITIVE)),
    case("log10", relay.log10, [POSITIVE], torch_unary(torch.log10, POSITIVE)),
    case("sqrt", relay.sqrt, [POSITIVE], torch_unary(torch.sqrt, POSITIVE)),
    case("rsqrt", relay.rsqrt, [POSITIVE], torch_unary(torch.rsqrt, POSITIVE)),
    case("tanh", relay.tanh, [X], torch_unary(torch.tanh, X)),
    *(
        case(
            f"lookup of {data.dtype}",
            relay.lookup,
            [data, np.arange(256, dtype="int32") * 3],
            (data.astype("int32") - np.iinfo(data.dtype).min) * 3,
        )
        for data in (np.arange(-128, 128, dtype="int8").reshape(2, 128), np.array([0, 255, 7], "uint8"))
    ),
    case("sigmoid", relay.sigmoid, [X * 20], torch_unary(torch.sigmoid, X * 20)),
    case("erf", relay.erf, [X * 3], torch_unary(torch.erf, X * 3)),
    case("sin", relay.sin, [X * 6], torch_unary(torch.sin, X * 6)),
    case("cos", relay.cos, [X * 6], torch_unary(torch.cos, X * 6)),
    case("tan", relay.tan, [X], torch_unary(torch.tan, X)),
    case("asin", relay.asin, [X], torch_unary(torch.asin, X), rtol=1e-4),
    case("acos", relay.acos, [X], torch_unary(torch.acos, X), rtol=1e-4),
    case("atan", relay.atan, [X * 4], torch_unary(torch.atan, X * 4)),
    case("sinh", relay.sinh, [X * 3], torch_unary(torch.sinh, X * 3)),
    case("cosh", relay.cosh, [X * 3], torch_unary(torch.cosh, X * 3)),
    case("asinh", relay.asinh, [X * 3], torch_unary(torch.asinh, X * 3)),
    case("acosh", relay.acosh, [POSITIVE + 1], torch_unary(torch.acosh, POSITIVE + 1)),
    case("atanh", relay.atanh, [X * 0.9], torch_unary(torch.atanh, X * np.float32(0.9)), rtol=1e-4),
    case("abs", relay.abs, [X], np.abs(X)),
    case("abs of integers", relay.abs, [INTS], np.abs(INTS)),
    case("sign", relay.sign, [X], np.sign(X)),
    case("negative", relay.negative, [X], -X),
    case("ceil", relay.ceil, [X * 9], np.ceil(X * 9)),
    case("floor", relay.floor, [X * 9], np.floor(X * 9)),
    case("round", relay.round, [X * 9], np.round(X * 9)),
    case("nearbyint", relay.nearbyint, [HALVES], np.rint(HALVES)),
    case("nearbyint of integers", relay.nearbyint, [INTS], INTS),
    case("trunc", relay.trunc, [X * 9], np.trunc(X * 9)),
    case("floor of integers", relay.floor, [INTS], INTS),
    case("copy", relay.copy, [X], X),
    case("isnan", relay.isnan, [SPECIAL], np.isnan(SPECIAL)),
    case("isinf", relay.isinf, [SPECIAL], np.isinf(SPECIAL)),
    case("isfinite", relay.isfinite, [SPECIAL], np.isfinite(SPECIAL)),
    case("logical_not", relay.logical_not, [X > 0], X <= 0),
    case("bitwise_not", relay.bitwise_not, [INTS], ~INTS),
    case("fast_exp", relay.fast_exp, [X * 5], np.exp(X * 5), rtol=1e-4),
    case("fast_tanh", relay.fast_tanh, [X * 5], np.tanh(X * 5), rtol=1e-4),
    case("fast_erf", relay.fast_erf, [X * 3], torch_unary(torch.erf, X * 3), rtol=1e-3, atol=1e-4),
    case("clip", lambda x: relay.clip(x, -0.25, 0.5), [X], np.clip(X, -0.25, 0.5)),
    case("clip integers", lambda x: relay.clip(x, -7, 9), [INTS], np.clip(INTS, -7, 9)),
    case(
        "clip uint8",
        lambda x: relay.clip(x, 0, 6),
        [integers(0, 99, 7, dtype="uint8")],
        np.clip(integers(0, 99, 7, dtype="uint8"), 0, 6),
    ),
    case("cast to int", lambda x: relay.cast(x, "int32"), [X * 9], (X * 9).astype("int32")),
    case("cast to bool", lambda x: relay.cast(x, "bool"), [INTS], INTS.astype(bool)),
    case("cast to float16", lambda x: relay.cast(x, "float16"), [X], X.astype("float16"), rtol=1e-3),
    case("cast_like", relay.cast_like, [INTS, X], INTS.astype("float32")),
    case("reinterpret", lambda x: relay.reinterpret(x, "int32"), [X], X.view("int32")),
    case("relu", relay.nn.relu, [X], np.maximum(X, 0)),
    case("leaky_relu", lambda x: relay.nn.leaky_relu(x, 0.1), [X], np.where(X > 0, X, X * np.float32(0.1))),
    case("scalar exp", relay.exp, [np.float32(0.5)], np.exp(np.float32(0.5))),
    case("empty exp", relay.exp, [np.zeros((0, 3), "float32")], np.zeros((0, 3), "float32")),
]

Y = random(5, seed=2)
Z = np.where(np.abs(random(3, 1, seed=3)) < 0.1, np.float32(0.5), random(3, 1, seed=3))
JNTS = integers(1, 9, 7, seed=4)
SHIFTS = integers(0, 5, 7, seed=5)
FLAGS, GLAGS = X > 0, Y > 0


def c_division(a, b):
    return torch.div(torch.from_numpy(a), torch.from_numpy(b), rounding_mode="trunc").numpy()


BINARY = [
    case("add", relay.add, [X, Y], X + Y),
    case("add of scalars", relay.add, [np.float32(1), np.float32(2)], np.float32(3)),
    case("subtract", relay.subtract, [Z, X], Z - X),
    case("multiply", relay.multiply, [X, Z], X * Z),
    case("divide", relay.divide, [X, Z], X / Z),
    case("divide integers", relay.divide, [INTS, JNTS], c_division(INTS, JNTS)),
    case("floor_divide", relay.floor_divide, [INTS, JNTS], INTS // JNTS),
    case("floor_divide floats", relay.floor_divide, [X * 9, Z], torch.floor(torch.from_numpy(X * 9 / Z)).numpy()),
    case("mod", relay.mod, [INTS, JNTS], torch.fmod(torch.from_numpy(INTS), torch.from_numpy(JNTS)).numpy()),
    case("floor_mod", relay.floor_mod, [INTS, JNTS], torch.remainder(*map(torch.from_numpy, (INTS, JNTS))).numpy()),
    case("power", relay.power, [POSITIVE, Y], torch.pow(*map(torch.from_numpy, (POSITIVE, Y))).numpy()),
    case("maximum", relay.maximum, [X, Y], np.maximum(X, Y)),
    case("minimum", relay.minimum, [X, Z], np.minimum(X, Z)),
    case("logical_and", relay.logical_and, [FLAGS, GLAGS], FLAGS & GLAGS),
    case("logical_or", relay.logical_or, [FLAGS, GLAGS], FLAGS | GLAGS),
    case("logical_xor", relay.logical_xor, [FLAGS, GLAGS], FLAGS ^ GLAGS),
    case("bitwise_and", relay.bitwise_and, [INTS, JNTS], INTS & JNTS),
    case("bitwise_or", relay.bitwise_or, [INTS, JNTS], INTS | JNTS),
    case("bitwise_xor", relay.bitwise_xor, [INTS, JNTS], INTS ^ JNTS),
    case("left_shift", relay.left_shift, [INTS, SHIFTS], INTS << SHIFTS),
    case("right_shift", relay.right_shift, [INTS, SHIFTS], INTS >> SHIFTS),
    case("equal", relay.equal, [INTS, JNTS], INTS == JNTS),
    case("not_equal", relay.not_equal, [INTS, JNTS], INTS != JNTS),
    case("less", relay.less, [X, Y], X < Y),
    case("less_equal", relay.less_equal, [X, Y], X <= Y),
    case("greater", relay.greater, [X, Y], X > Y),
    case("greater_equal", relay.greater_equal, [X, Y], X >= Y),
    case("where", relay.where, [X > 0, X, Y], np.where(X > 0, X, Y)),
    case("where with a numeric condition", relay.where, [INTS % 2, INTS, JNTS], np.where(INTS % 2 != 0, INTS, JNTS)),
    case("full", lambda v: relay.full(v, (2, 3)), [np.float32(4)], np.full((2, 3), 4, "float32")),
    case("full_like", relay.full_like, [X, np.float32(4)], np.full_like(X, 4)),
    case("zeros_like", relay.zeros_like, [X], np.zeros_like(X)),
    case("ones_like", relay.ones_like, [INTS], np.ones_like(INTS)),
    case(
        "prelu",
        relay.nn.prelu,
        [random(2, 3, 4), random(3)],
        torch.prelu(*map(torch.from_numpy, (random(2, 3, 4), random(3)))).numpy(),
    ),
    case("bias_add", relay.nn.bias_add, [random(2, 3, 4), random(3)], random(2, 3, 4) + random(3)[:, None]),
    case(
        "bias_add on the last axis",
        lambda x, b: relay.nn.bias_add(x, b, -1),
        [random(2, 3), random(3)],
        random(2, 3) + random(3),
    ),
]

MADE = [
    case("zeros", lambda: relay.zeros((2, 3), "float32"), [], np.zeros((2, 3), "float32")),
    case("ones", lambda: relay.ones((4,), "int64"), [], np.ones(4, "int64")),
    case(
        "arange",
        lambda: relay.arange(relay.const(2), relay.const(11), relay.const(3), "int32"),
        [],
        np.arange(2, 11, 3, "int32"),
    ),
    case(
        "arange backwards",
        lambda: relay.arange(relay.const(5.0), relay.const(0.0), relay.const(-1.5), "float32"),
        [],
        np.arange(5, 0, -1.5, "float32"),
    ),
]


@pytest.mark.parametrize("item", UNARY + BINARY + MADE, ids=str)
def test_type(item: Case) -> None:
    check_type(item)


@pytest.mark.parametrize("item", UNARY + BINARY + MADE, ids=str)
def test_meaning(item: Case) -> None:
    check_meaning(item)


@pytest.mark.parametrize("items", [UNARY, BINARY], ids=["unary", "binary"])
def test_kernels(items: list[Case]) -> None:
    check_kernels(items)


def test_fixed_point_multiply_rounds_to_nearest() -> None:
    x = integers(-1000, 1000, 20)
    item = case("q", lambda d: relay.fixed_point_multiply(d, 1 << 30, -1), [x], np.floor(x / 4 + 0.5).astype("int32"))
    check_type(item)
    check_meaning(item)
    check_kernels([item])
