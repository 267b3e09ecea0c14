"""Operators of single elements."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.relay.frontend.torch_operators.case import b, case, i, p, x

_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp exp2 expm1 floor log10 "
    "log2 neg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc "
    "square isnan isinf isfinite asinh log1p frac "
)
for _f in _UNARY.split():
    case("unary", _f, getattr(torch, _f), x(3, 5) if _f not in ("rsqrt", "log1p", "log10", "log2") else p(3, 5))
case("unary", "acosh", torch.acosh, p(7) + 1)
case("unary", "atanh", torch.atanh, p(7) / 2)
for _f in ("exp", "sqrt", "sigmoid", "abs", "neg", "sign", "relu", "isnan", "ceil"):
    case("unary of integers", _f, getattr(torch, _f), i(2, 3, low=1))
for _f in ("logical_not", "bitwise_not"):
    case("unary of integers", _f, getattr(torch, _f), i(2, 3))
    case("unary of integers", _f + " of bools", getattr(torch, _f), b(2, 3))

for _f in ("add", "sub", "mul", "div", "maximum", "minimum", "atan2", "fmod", "remainder", "fmax", "fmin"):
    case("binary", _f, getattr(torch, _f), x(3, 1, 5), x(2, 1))
for _f in (
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "add",
    "mul",
    "sub",
    "div",
    "remainder",
    "fmod",
    "maximum",
    "logical_and",
    "logical_or",
    "logical_xor",
    "floor_divide",
):
    case("binary of integers", _f, getattr(torch, _f), i(3, 4, low=-5), i(3, 4, low=1))
for _f in ("add", "mul", "eq", "lt", "logical_xor", "bitwise_and", "maximum"):
    case("binary of bools", _f, getattr(torch, _f), b(3, 4), b(3, 4))
case("binary", "pow", torch.pow, p(3, 4), x(3, 4))
case("binary", "pow of a number", lambda a: torch.pow(2.5, a), x(3))
case("binary", "pow to a number", lambda a: (a**2, a**3, a**0.5, a**-1), p(3))
case(
    "binary",
    "rounded division",
    lambda a, c: (torch.div(a, c, rounding_mode="floor"), torch.div(a, c, rounding_mode="trunc")),
    x(9),
    x(9),
)
case(
    "binary",
    "rounded division of integers",
    lambda a: (torch.div(a, 3, rounding_mode="floor"), torch.div(a, 3, rounding_mode="trunc"), a / 3),
    i(9, low=-9),
)
case("binary", "alpha", lambda a, c: (torch.add(a, c, alpha=2.5), torch.sub(a, c, alpha=3)), x(4), x(4))
case(
    "binary",
    "lerp addcmul addcdiv",
    lambda a, c, d: (torch.lerp(a, c, 0.3), torch.addcmul(a, c, d, value=2), torch.addcdiv(a, c, d, value=0.5)),
    x(4),
    x(4),
    p(4),
)

case("promotion", "integer tensor and float", lambda a: a + 1.5, i(3))
case("promotion", "integer tensor and bool", lambda a: a + True, i(3))
case("promotion", "bool tensor and integer", lambda a: a * 2, b(3))
case("promotion", "bool tensor and float", lambda a: a * 2.5, b(3))
case("promotion", "int32 and int64", lambda a, c: a + c, i(3, dtype=torch.int32), i(3))
case("promotion", "uint8 and int8", lambda a, c: a + c, i(3, dtype=torch.uint8), i(3, dtype=torch.int8))
case("promotion", "float32 and scalar float64", lambda a, c: a + c, x(3), x(1, dtype=torch.float64).reshape(()))
case("promotion", "int64 and scalar float32", lambda a, c: a + c, i(3), x(1).reshape(()))
case("promotion", "float32 and float64", lambda a, c: a * c, x(3), x(3, dtype=torch.float64))
case("promotion", "float16 and float", lambda a: a * 2.5 + 1, x(3, dtype=torch.float16))
case("promotion", "comparison of integers and floats", lambda a: a < 2.5, i(5))
case("promotion", "where", lambda c, a: torch.where(c, a, 1.5), b(4), i(4))
case("promotion", "cat", lambda a, c: torch.cat([a, c]), i(2), x(3))
case("promotion", "sum of integers", lambda a: (a.sum(), a.sum(0), a.prod()), i(3, 2, dtype=torch.int32))
case("promotion", "sum of bools", lambda a: (a.sum(), a.sum(0)), b(3, 2))
case(
    "promotion",
    "casts",
    lambda a: (a.int(), a.long(), a.bool(), a.double(), a.half().float(), a.to(torch.uint8)),
    p(3) * 9,
)
case("promotion", "mean in another type", lambda a: a.mean(dtype=torch.float64), x(5))

for _f in (
    "silu",
    "gelu",
    "elu",
    "selu",
    "celu",
    "softplus",
    "logsigmoid",
    "hardsigmoid",
    "hardswish",
    "mish",
    "hardtanh",
    "relu6",
    "leaky_relu",
    "softsign",
    "tanhshrink",
    "hardshrink",
    "softshrink",
    "glu",
):
    case("activations", _f, getattr(F, _f), x(3, 6) * 4)
case("activations", "gelu by tanh", lambda a: F.gelu(a, approximate="tanh"), x(7))
case("activations", "prelu", F.prelu, x(2, 3, 4), x(3))
case("activations", "threshold", lambda a: F.threshold(a, 0.1, 20), x(9))
case("activations", "softplus with beta", lambda a: F.softplus(a, beta=2, threshold=5), x(9) * 5)
case(
    "activations", "clamp", lambda a: (a.clamp(-0.5, 0.5), a.clamp(min=0.1), a.clamp(max=0.3), a.clamp(0.5, -0.5)), x(9)
)
case("activations", "clamp of integers", lambda a: (a.clamp(1, 3), a.clamp(min=2)), i(9))
case("activations", "clamp by tensors", torch.clamp, x(9), x(9), x(9))
case("activations", "softmax", lambda a: (a.softmax(-1), a.softmax(0), a.log_softmax(1), F.softmin(a, 1)), x(3, 5))
case("activations", "softmax of a scalar", lambda a: a.softmax(0), x(1).reshape(()))
case("activations", "nan_to_num", torch.nan_to_num, torch.tensor([1.0, float("nan"), float("inf"), -float("inf")]))
case(
    "activations",
    "logit and sinc and xlogy",
    lambda a, c: (torch.logit(a / 2), torch.sinc(a), torch.xlogy(a, c)),
    p(5),
    p(5),
)
case("activations", "masked_fill", lambda a, m: a.masked_fill(m, -1e9), x(3, 4), b(3, 4))
