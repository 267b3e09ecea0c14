"""Cases of ATen's operators: a function of tensors, and the tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Case:
    """A function of tensors, by name, with example inputs."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]


CASES: dict[str, list[Case]] = {}
_G = torch.Generator().manual_seed(39)


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return normal random numbers."""
    return torch.randn(*shape, generator=_G).to(dtype)


def p(*shape: int) -> torch.Tensor:
    """Return numbers from 0.1 to 1.1."""
    return torch.rand(*shape, generator=_G) + 0.1


def i(*shape: int, high: int = 5, low: int = 0, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Return random integers."""
    return torch.randint(low, high, shape, generator=_G).to(dtype)


def b(*shape: int) -> torch.Tensor:
    """Return random bools."""
    return torch.rand(*shape, generator=_G) > 0.5


def case(family: str, name: str, function: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """Add a case to a family."""
    CASES.setdefault(family, []).append(Case(name, function, inputs))


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

for _f in ("sum", "mean", "amax", "amin", "logsumexp", "var", "std"):
    _reduce = getattr(torch, _f)
    case("reductions", _f, lambda a, f=_reduce: (f(a, dim=1), f(a, dim=(0, 2), keepdim=True), f(a, dim=-1)), x(3, 5, 4))
for _f in ("sum", "mean", "max", "min", "prod", "var", "std", "argmax", "argmin", "median"):
    case("reductions", _f + " of all", getattr(torch, _f), x(3, 5))
case("reductions", "max and min", lambda a: (*a.max(1), *a.min(0, keepdim=True)), x(3, 5))
case("reductions", "argmax", lambda a: (a.argmax(1), a.argmin(0, keepdim=True)), x(3, 5))
case("reductions", "any and all", lambda a: (a.any(), a.any(1), a.all(), a.all(0, keepdim=True)), b(3, 5))
case(
    "reductions",
    "norms",
    lambda a: (
        a.norm(dim=1),
        torch.linalg.vector_norm(a, 1, 0),
        torch.linalg.vector_norm(a, float("inf"), 1),
        torch.linalg.vector_norm(a, 3.0),
    ),
    x(3, 5),
)
case("reductions", "running", lambda a: (a.cumsum(1), a.cumprod(0), a.cumsum(-1, dtype=torch.float64)), x(3, 5))
case("reductions", "running of integers", lambda a: (a.cumsum(0), a.cumprod(0)), i(4, 3, dtype=torch.int32))
case(
    "reductions",
    "var with corrections",
    lambda a: (a.var(1, correction=0), torch.var_mean(a, 0), a.std(1, unbiased=False)),
    x(4, 5),
)
case(
    "reductions",
    "count_nonzero and aminmax",
    lambda a: (torch.count_nonzero(a, 1), *torch.aminmax(a.float())),
    i(3, 4, high=2),
)
case("reductions", "of a scalar", lambda a: (a.sum(), a.mean(), a.amax(), a.sum(0)), x(1).reshape(()))
case("reductions", "of nothing", lambda a: (a.sum(), a.sum(1), a.prod(), a.sum(0), a.mean(1)), x(3, 0))

case(
    "products",
    "mm bmm mv dot",
    lambda a, c, d, e: (a @ c, d @ d.mT, a @ e, torch.dot(e, e), torch.outer(e, e)),
    x(3, 5),
    x(5, 2),
    x(2, 3, 4),
    x(5),
)
case("products", "broadcast", lambda a, c: a @ c, x(2, 1, 3, 5), x(4, 5, 2))
case(
    "products",
    "linear",
    lambda a, w, c: (F.linear(a, w, c), F.linear(a, w), F.linear(a[0], w, c)),
    x(2, 3, 5),
    x(4, 5),
    x(4),
)
case("products", "linear of a vector", F.linear, x(5), x(4, 5), x(4))
case(
    "products",
    "addmm",
    lambda a, c, d: (torch.addmm(d, a, c), torch.addmm(d, a, c, beta=0.5, alpha=2), torch.addmm(d[0], a, c)),
    x(3, 5),
    x(5, 2),
    x(3, 2),
)
case("products", "baddbmm", torch.baddbmm, x(2, 3, 4), x(2, 3, 5), x(2, 5, 4))
case(
    "products",
    "einsum",
    lambda a, c: (
        torch.einsum("bik,bkj->bij", a, c),
        torch.einsum("bik,bkj->ij", a, c),
        torch.einsum("bii->bi", a[:, :, :3]),
    ),
    x(2, 3, 5),
    x(2, 5, 4),
)
case("products", "bilinear", F.bilinear, x(3, 4), x(3, 5), x(2, 4, 5), x(2))
case("products", "of integers", lambda a, c: a @ c, i(3, 4), i(4, 2))
case("products", "of nothing", lambda a, c: (a @ c, c.T @ a.T), x(3, 0), x(0, 2))
case("products", "cdist", lambda a, c: torch.cdist(a, c), x(3, 4), x(5, 4))
case(
    "products",
    "inverse and determinant",
    lambda a: (torch.linalg.inv(a), torch.linalg.det(a)),
    x(2, 3, 3) + 3 * torch.eye(3),
)

case(
    "convolutions",
    "1d",
    lambda a, w, c: F.conv1d(a, w, c, stride=2, padding=1, dilation=2),
    x(2, 3, 11),
    x(5, 3, 3),
    x(5),
)
case(
    "convolutions",
    "2d",
    lambda a, w, c: F.conv2d(a, w, c, stride=(2, 1), padding=(1, 0)),
    x(2, 3, 11, 7),
    x(5, 3, 3, 3),
    x(5),
)
case("convolutions", "3d", F.conv3d, x(1, 2, 5, 6, 7), x(3, 2, 3, 3, 3))
case("convolutions", "groups", lambda a, w: F.conv2d(a, w, groups=4, padding="same"), x(1, 4, 7, 5), x(8, 1, 4, 3))
case("convolutions", "no batch", lambda a, w: F.conv2d(a, w, padding="valid"), x(3, 7, 5), x(2, 3, 3, 3))
case(
    "convolutions",
    "transposed",
    lambda a, w, c: F.conv_transpose2d(a, w, c, stride=2, padding=1, output_padding=1),
    x(2, 3, 5, 4),
    x(3, 4, 3, 3),
    x(4),
)
case(
    "convolutions",
    "transposed 1d in groups",
    lambda a, w: F.conv_transpose1d(a, w, stride=3, groups=2, dilation=2),
    x(2, 4, 5),
    x(4, 3, 3),
)
case(
    "convolutions", "transposed 3d", lambda a, w: F.conv_transpose3d(a, w, stride=2), x(1, 2, 3, 3, 3), x(2, 3, 2, 2, 2)
)

case(
    "pools",
    "max",
    lambda a: (F.max_pool2d(a, 3, 2, 1), F.max_pool2d(a, 2, ceil_mode=True), F.max_pool2d(a, (3, 2), dilation=2)),
    x(2, 3, 11, 9),
)
case("pools", "max with indices", lambda a: F.max_pool2d(a, 3, 2, 1, return_indices=True), x(2, 3, 11, 9))
case("pools", "max 1d and 3d", lambda a, c: (F.max_pool1d(a, 3), F.max_pool3d(c, 2)), x(2, 3, 11), x(1, 2, 5, 6, 4))
case(
    "pools",
    "avg",
    lambda a: (
        F.avg_pool2d(a, 3, 2, 1),
        F.avg_pool2d(a, 2, ceil_mode=True),
        F.avg_pool2d(a, 3, padding=1, count_include_pad=False),
        F.avg_pool2d(a, 2, divisor_override=3),
    ),
    x(2, 3, 11, 9),
)
case("pools", "avg 1d and 3d", lambda a, c: (F.avg_pool1d(a, 3, 2), F.avg_pool3d(c, 2)), x(2, 3, 11), x(1, 2, 5, 6, 4))
case(
    "pools",
    "adaptive",
    lambda a: (
        F.adaptive_avg_pool2d(a, 1),
        F.adaptive_avg_pool2d(a, (3, 2)),
        F.adaptive_avg_pool2d(a, (None, 3)),
        F.adaptive_max_pool2d(a, 4),
    ),
    x(2, 3, 8, 6),
)
case(
    "pools",
    "adaptive 1d and 3d",
    lambda a, c: (F.adaptive_avg_pool1d(a, 3), F.adaptive_avg_pool3d(c, 2)),
    x(2, 3, 11),
    x(1, 2, 5, 6, 4),
)
case("pools", "no batch", lambda a: (F.max_pool2d(a, 2), F.avg_pool2d(a, 2)), x(3, 7, 5))
case("pools", "lp", lambda a: F.lp_pool2d(a, 2, 3), x(1, 2, 7, 7))
case("pools", "unpool", lambda a: F.max_unpool2d(*F.max_pool2d(a, 2, return_indices=True), 2), x(1, 2, 6, 4))

case(
    "normalizations",
    "layer",
    lambda a, w, c: (F.layer_norm(a, (5,), w, c), F.layer_norm(a, (4, 5)), F.layer_norm(a, (5,), w)),
    x(3, 4, 5),
    x(5),
    x(5),
)
case(
    "normalizations", "group", lambda a, w, c: (F.group_norm(a, 2, w, c), F.group_norm(a, 3)), x(2, 6, 5, 3), x(6), x(6)
)
case(
    "normalizations",
    "batch",
    lambda a, m, v, w, c: (F.batch_norm(a, m, v, w, c), F.batch_norm(a, m, v)),
    x(2, 3, 5),
    x(3),
    p(3),
    x(3),
    x(3),
)
case(
    "normalizations",
    "instance",
    lambda a, w, c: (F.instance_norm(a), F.instance_norm(a, weight=w, bias=c)),
    x(2, 3, 5, 4),
    x(3),
    x(3),
)
case("normalizations", "rms", lambda a, w: (F.rms_norm(a, (5,), w), F.rms_norm(a, (5,), eps=1e-3)), x(3, 5), x(5))
case("normalizations", "local response", lambda a: F.local_response_norm(a, 3), x(2, 5, 4, 4))
case("normalizations", "normalize", lambda a: (F.normalize(a), F.cosine_similarity(a, a + 1)), x(3, 5))
case(
    "normalizations",
    "losses",
    lambda a, t: (
        F.cross_entropy(a, t),
        F.mse_loss(a, a + 1),
        F.nll_loss(a.log_softmax(1), t),
        F.smooth_l1_loss(a, a * 2),
        F.binary_cross_entropy_with_logits(a, a.sigmoid()),
    ),
    x(4, 5),
    i(4),
)

case(
    "shapes",
    "views",
    lambda a: (a.view(4, -1), a.reshape(-1), a.flatten(1), a.unsqueeze(1), a[None], a.squeeze()),
    x(2, 6, 1),
)
case(
    "shapes", "orders", lambda a: (a.permute(2, 0, 1), a.transpose(0, -1), a.mT, a.movedim(0, 1), a[0].t()), x(2, 3, 4)
)
case("shapes", "expand", lambda a: (a.expand(4, -1, 3), a.expand(2, 1, 2, 3)), x(1, 2, 3))
case("shapes", "repeat", lambda a: (a.repeat(2, 1, 2), a.tile(2), a.repeat_interleave(2, 1)), x(1, 2, 3))
case(
    "shapes",
    "joins",
    lambda a, c: (torch.cat([a, c], 1), torch.stack([a, a], -1), torch.hstack([a, c])),
    x(2, 3),
    x(2, 1),
)
case("shapes", "cat with nothing", lambda a, c: torch.cat([c, a]), x(2, 3), x(0))
case(
    "shapes",
    "splits",
    lambda a: (*a.split(2), *a.split([1, 4], 0), *a.chunk(3), *a.unbind(1), *torch.tensor_split(a, 2, 0)),
    x(5, 3),
)
case(
    "shapes",
    "flip and roll",
    lambda a: (a.flip(0, 1), a.roll(1, 0), a.roll((1, -2), (0, 1)), a.roll(2), a.rot90()),
    x(3, 4),
)
case(
    "shapes",
    "diagonals",
    lambda a: (a.diagonal(), a.diagonal(1), a.diagonal(-1), torch.diag_embed(a[0]), a.trace()),
    x(4, 4),
)
case(
    "shapes",
    "as_strided and unfold",
    lambda a: (a.as_strided((2, 3), (1, 2)), a.unfold(1, 3, 2), a.as_strided((4,), (1,), 2)),
    x(3, 7),
)
case("shapes", "triangles", lambda a: (a.tril(), a.triu(1), a.tril(-1)), x(2, 4, 5))
case(
    "shapes",
    "pads",
    lambda a: (
        F.pad(a, (1, 2)),
        F.pad(a, (1, 0, 2, 1), value=3.5),
        F.pad(a, (-1, 1)),
        F.pad(a, (1, 1, 1, 1), mode="reflect"),
        F.pad(a, (1, 2, 0, 1), mode="replicate"),
        F.pad(a, (1, 1, 1, 1), mode="circular"),
    ),
    x(2, 3, 4, 5),
)
case(
    "shapes",
    "pixels",
    lambda a: (F.pixel_shuffle(a, 2), F.pixel_unshuffle(F.pixel_shuffle(a, 2), 2), F.channel_shuffle(a, 2)),
    x(1, 8, 3, 2),
)
case(
    "shapes",
    "columns",
    lambda a: F.fold(F.unfold(a, (2, 3), padding=1, stride=2), (5, 7), (2, 3), padding=1, stride=2),
    x(1, 2, 5, 7),
)
case("shapes", "meshgrid", lambda a, c: torch.meshgrid(a, c, indexing="ij"), x(3), x(2))
case(
    "shapes", "of nothing", lambda a: (a.reshape(0, 3), a.permute(1, 0), torch.cat([a, a]), a.expand(2, 3, 0)), x(3, 0)
)

case(
    "creation",
    "constants",
    lambda a: (
        torch.zeros(2, 3) + a,
        torch.ones_like(a),
        torch.full((2,), 7),
        torch.arange(5),
        torch.arange(1, 9, 2.5),
        torch.eye(3),
        torch.linspace(0, 1, 5),
        torch.zeros_like(a),
        a.new_full((2,), 3.5),
        torch.empty_like(a) * 0,
        torch.tensor([1, 2, 3]),
        torch.tril_indices(3, 3),
    ),
    x(3),
)

case(
    "indexing", "slices", lambda a: (a[1:3], a[:, ::2], a[-2:], a[..., 0], a[1], a[-1], a[2:1], a[:, -3:-1]), x(5, 6, 2)
)
case("indexing", "select", lambda a, n: (a.select(1, 2), a.index_select(0, n), torch.take(a, n)), x(5, 6), i(4))
case("indexing", "gather", lambda a, n: (a.gather(0, n), torch.take_along_dim(a, n, 0)), x(5, 3), i(2, 3))
case("indexing", "gather of a part", lambda a, n: a.gather(1, n), x(5, 6), i(2, 7))
case("indexing", "positions", lambda a, n: (a[n], a[:, n], a[n, 0], a[-n]), x(5, 6), i(4, low=1))
case(
    "indexing",
    "several positions",
    lambda a, n, m: (a[n, m], a[:, n, m], a[n, :, m], a[n[:, None], m], a[..., n, m]),
    x(5, 5, 5),
    i(3),
    i(3),
)
case("indexing", "mask", lambda a, m: (a[m], a.masked_select(m)), x(5, 3), b(5, 3))
case("indexing", "mask of rows", lambda a, m: (a[m], a[:, m[:3]]), x(5, 3), b(5))
case("indexing", "nonzero", lambda a: (a.nonzero(), torch.where(a)[0]), b(4, 3))
case("indexing", "embedding", F.embedding, i(2, 3), x(5, 4))
case(
    "indexing",
    "embedding bags",
    lambda n, w, o: (
        F.embedding_bag(n, w, o, mode="sum"),
        F.embedding_bag(n, w, o, mode="mean"),
        F.embedding_bag(n, w, o, mode="max"),
        F.embedding_bag(n, w, o, mode="mean", padding_idx=2),
    ),
    i(7),
    x(5, 4),
    torch.tensor([0, 2, 2, 5]),
)
case("indexing", "one_hot", lambda n: F.one_hot(n, 6), i(2, 3))
case("indexing", "isin", lambda n: torch.isin(n, torch.tensor([1, 3])), i(2, 3))


def _puts(a, n, v, m):
    a, c, d, e = a.clone(), a.clone(), a.clone(), a.clone()
    a[n] = v
    c[1:3] = 0
    d[m] = 7.5
    e[:, 1] = v[0, 0]
    return a, c, d, e


case("scatters", "assignments", _puts, x(5, 3), torch.tensor([3, 1]), x(2, 3), b(5, 3))
case(
    "scatters",
    "index_put",
    lambda a, n, m, v: (
        a.index_put((n, m), v),
        a.index_put((n, m), v, accumulate=True),
        a.index_put((n,), v[0], accumulate=True),
    ),
    x(5, 5),
    torch.tensor([0, 3, 1]),
    torch.tensor([2, 2, 4]),
    x(3),
)
case(
    "scatters",
    "index_put of a middle dimension",
    lambda a, n, v: a.index_put((torch.arange(2)[:, None], n), v),
    x(2, 5, 3),
    torch.tensor([[0, 3], [1, 2]]),
    x(2, 2, 3),
)
case(
    "scatters",
    "scatter",
    lambda a, n, v: (a.scatter(0, n, v), a.scatter(0, n, 3.5), a.scatter_add(0, n, v)),
    x(5, 3),
    torch.tensor([[0, 1, 2], [3, 4, 0]]),
    x(2, 3),
)
case(
    "scatters",
    "scatter of a part",
    lambda a, n, v: (a.scatter(1, n, v), a.scatter_add(1, n, v)),
    x(5, 6),
    torch.tensor([[0, 1], [3, 4]]),
    x(3, 3),
)
for _f in ("sum", "prod", "mean", "amax", "amin"):
    case(
        "scatters",
        f"scatter_reduce {_f}",
        lambda a, n, v, f=_f: (a.scatter_reduce(0, n, v, f), a.scatter_reduce(0, n, v, f, include_self=False)),
        x(4, 3),
        i(5, 3, high=4),
        x(5, 3),
    )
case(
    "scatters",
    "index_add copy fill",
    lambda a, n, v: (
        a.index_add(0, n, v),
        a.index_copy(0, n, v),
        a.index_fill(0, n, 2.5),
        a.index_add(1, n, v.T, alpha=2),
    ),
    x(5, 5),
    torch.tensor([0, 3]),
    x(2, 5),
)
case(
    "scatters",
    "slices",
    lambda a, v: (
        torch.slice_scatter(a, v, 0, 1, 3),
        torch.select_scatter(a, v[0], 0, 2),
        torch.slice_scatter(a, v, 0, 0, 4, 2),
        torch.diagonal_scatter(a, v[0, :4]),
    ),
    x(4, 5),
    x(2, 5),
)
case("scatters", "masked_scatter", lambda a, m, v: a.masked_scatter(m, v), x(3, 4), b(3, 4), x(12))

case("sorting", "sort", lambda a: (*a.sort(), *a.sort(0, descending=True), a.argsort(1), a.msort()), x(4, 5))
case("sorting", "topk", lambda a: (*a.topk(3), *a.topk(2, 0, largest=False), *a.kthvalue(2)), x(4, 5))
case("sorting", "median", lambda a: (*a.median(1), *a.median(0, keepdim=True)), x(4, 5))
case(
    "sorting",
    "searches",
    lambda a, c: (torch.searchsorted(a, c), torch.bucketize(c, a, right=True)),
    torch.arange(5.0),
    x(3, 2) * 3,
)
case("sorting", "unique", lambda a: torch.unique(a), i(9))

for _mode in ("nearest", "bilinear", "bicubic", "nearest-exact", "area"):
    case(
        "resizing",
        _mode,
        lambda a, m=_mode: (
            F.interpolate(a, scale_factor=2, mode=m),
            F.interpolate(a, size=(7, 5), mode=m),
            F.interpolate(a, size=(3, 4), mode=m),
        ),
        x(1, 2, 5, 6),
    )
for _mode in ("bilinear", "bicubic"):
    case(
        "resizing",
        f"{_mode} by corners",
        lambda a, m=_mode: F.interpolate(a, size=(7, 5), mode=m, align_corners=True),
        x(1, 2, 5, 6),
    )
    case(
        "resizing",
        f"{_mode} antialiased",
        lambda a, m=_mode: F.interpolate(a, size=(3, 4), mode=m, antialias=True),
        x(1, 2, 7, 6),
    )
case(
    "resizing",
    "1d and 3d",
    lambda a, c: (
        F.interpolate(a, size=7, mode="linear"),
        F.interpolate(a, scale_factor=2.5),
        F.interpolate(c, scale_factor=2, mode="trilinear"),
    ),
    x(1, 2, 5),
    x(1, 1, 3, 2, 4),
)
for _mode in ("bilinear", "nearest", "bicubic"):
    case(
        "resizing",
        f"grid_sample {_mode}",
        lambda a, g, m=_mode: [
            F.grid_sample(a, g, m, q, k) for q in ("zeros", "border", "reflection") for k in (False, True)
        ],
        x(1, 2, 5, 6),
        x(1, 3, 4, 2),
    )
case("resizing", "affine_grid", lambda t: F.affine_grid(t, (2, 3, 4, 5), align_corners=False), x(2, 2, 3))

case("attention", "plain", F.scaled_dot_product_attention, x(2, 4, 3, 8), x(2, 4, 5, 8), x(2, 4, 5, 8))
case(
    "attention",
    "causal",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    x(2, 4, 5, 8),
    x(2, 4, 5, 8),
    x(2, 4, 5, 8),
)
case(
    "attention",
    "mask",
    lambda q, k, v, m, n: (
        F.scaled_dot_product_attention(q, k, v, m),
        F.scaled_dot_product_attention(q, k, v, n, scale=0.3),
    ),
    x(2, 4, 3, 8),
    x(2, 4, 5, 8),
    x(2, 4, 5, 8),
    b(3, 5) | torch.eye(3, 5).bool(),
    x(2, 1, 3, 5),
)
case(
    "attention",
    "mask of whole rows",
    F.scaled_dot_product_attention,
    x(1, 2, 3, 8),
    x(1, 2, 4, 8),
    x(1, 2, 4, 8),
    torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]]).bool(),
)
case(
    "attention",
    "groups of heads",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    x(2, 4, 3, 8),
    x(2, 2, 5, 8),
    x(2, 2, 5, 8),
)
case("attention", "three dimensions", F.scaled_dot_product_attention, x(4, 3, 8), x(4, 5, 8), x(4, 5, 6))


def _layer_norm_backward(a, g, w):
    _, mean, inverse = torch.native_layer_norm(a, (5,), w, w, 1e-5)
    return torch.ops.aten.native_layer_norm_backward(g, a, (5,), mean, inverse, w, w, [True, True, True])


def _group_norm_backward(a, g, w):
    _, mean, inverse = torch.native_group_norm(a, w, w, 2, 6, 12, 3, 1e-5)
    return torch.ops.aten.native_group_norm_backward(g, a, mean, inverse, w, 2, 6, 12, 3, [True, True, True])


case("gradients", "layer norm", _layer_norm_backward, x(3, 4, 5), x(3, 4, 5), x(5))
case("gradients", "group norm", _group_norm_backward, x(2, 6, 4, 3), x(2, 6, 4, 3), x(6))
case(
    "gradients",
    "embedding",
    lambda g, n: torch.ops.aten.embedding_dense_backward(g, n, 5, 2, False),
    x(2, 3, 4),
    i(2, 3),
)


case(
    "sorting",
    "histc",
    lambda a, n: (
        torch.histc(a, 7, -1, 1.5),
        torch.histc(a, 5),
        torch.histc(a * 0 + 2, 3),
        torch.histc(n.float(), 5, 0, 4),
        torch.histc(a, 4, 3, 3),
    ),
    x(4, 9),
    i(20),
)


def _grouped(a, w, n):
    return torch._grouped_mm(a, w, n.to(torch.int32))


for _rows, _ends in ((5, (2, 2, 5)), (9, (0, 4, 9)), (83, (20, 20, 83)), (40, (3, 39, 40)), (64, (0, 16, 64))):
    case(
        "experts",
        f"{_rows} rows to {_ends}",
        _grouped,
        i(_rows, 8, low=-3, dtype=torch.bfloat16),  # sums that are exact
        i(3, 8, 8, low=-3, dtype=torch.bfloat16),
        torch.tensor(_ends),
    )
case("experts", "batches", torch._grouped_mm, *(i(*_s, dtype=torch.bfloat16) for _s in ((3, 5, 8), (3, 8, 8))))
case(
    "products",
    "einsum of three",
    lambda a, c, d: (
        torch.einsum("ab,bc,cd->ad", a, c, d),
        torch.einsum("ab,bc,cd->b", a, c, d),
        torch.einsum("ab,bc,cd", a, c, d),
        torch.einsum("ab,bc,cd,ae->de", a, c, d, a),
        torch.einsum("b,ab,bc->abc", c[:, 0], a, c),
        torch.einsum("...b,bc,...b->...c", a, c, a),
    ),
    x(3, 5),
    x(5, 2),
    x(2, 4),
)
