"""Every rule of a gradient against torch's: evaluated in numpy, and those that have one by the compiled kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import UnsupportedError
from tilewright.relay.testing import check_grad
from tilewright.relay.transform import gradient

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """``build`` of variables and ``oracle`` of torch tensors are the same function of ``inputs``."""

    name: str
    build: Callable[..., Any]
    oracle: Callable[..., Any]
    inputs: tuple[Array, ...]

    def __str__(self) -> str:
        return self.name


def random(*shape: int, seed: int = 0, low: float = -1, high: float = 1) -> Array:
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape)


def apart(*shape: int) -> Array:
    """Numbers of which no two are near each other, for what takes the greatest."""
    size = int(np.prod(shape))
    return (np.random.default_rng(size).permutation(size) / max(size, 1) - 0.4).reshape(shape)


def case(name: str, build: Any, oracle: Any, *inputs: Array) -> Case:
    return Case(name, build, oracle, inputs)


def _weights(shape: Sequence[int], index: int) -> Array:
    return random(*shape, seed=7 + index)


def _objective(result: Any, typed: Any) -> Any:
    """The sum of all results, each element times a weight of its own."""
    outs = list(result) if isinstance(result, (relay.TupleWrapper, tuple, list)) else [result]
    types = typed.fields if isinstance(typed, relay.TupleType) else [typed]
    total = relay.const(0.0, "float64")
    for k, (out, type_) in enumerate(zip(outs, types, strict=True)):
        total = total + relay.sum(out * relay.const(_weights(type_.concrete_shape, k), "float64"))
    return total


def differentiated(item: Case) -> Any:
    params = [relay.var(f"x{i}", shape=a.shape, dtype=str(a.dtype)) for i, a in enumerate(item.inputs)]
    result = item.build(*params)
    plain = result.astuple() if isinstance(result, relay.TupleWrapper) else result
    type_ = relay.transform.InferTypeLocal(plain)
    return gradient(relay.Function(params, _objective(result, type_)))


def expected(item: Case) -> list[Array]:
    tensors = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in item.inputs]
    outs = item.oracle(*tensors)
    outs = outs if isinstance(outs, (tuple, list)) else [outs]
    total = sum((o * torch.tensor(_weights(tuple(o.shape), k))).sum() for k, o in enumerate(outs))
    total.backward()
    return [np.zeros(t.shape) if t.grad is None else t.grad.numpy() for t in tensors]


def check(item: Case, kind: str) -> None:
    func = differentiated(item)
    _, grads = relay.create_executor(kind, tvm.IRModule.from_expr(func)).evaluate()(*item.inputs)
    for have, want, array in zip(grads, expected(item), item.inputs, strict=True):
        assert have.dtype == str(array.dtype)
        np.testing.assert_allclose(have.numpy(), want, rtol=1e-6, atol=1e-7)


def unary(name: str, oracle: Any, low: float = -1, high: float = 1, **attrs: Any) -> Case:
    make = getattr(relay.nn, name.removeprefix("nn.")) if name.startswith("nn.") else getattr(relay, name)
    values = np.concatenate([random(3, 5, low=low, high=high).reshape(-1), [low, high]])
    return case(name, lambda x: make(x, **attrs), oracle, values[:15] if low < -0.99 or low == 1 else values)


ELEMENTWISE = [
    unary("negative", torch.neg), unary("copy", torch.clone), unary("abs", torch.abs), unary("log", torch.log, 0.1, 3),
    unary("log2", torch.log2, 0.1, 3), unary("log10", torch.log10, 0.1, 3), unary("log1p", torch.log1p, -0.5, 3),
    unary("exp", torch.exp), unary("expm1", torch.expm1), unary("sqrt", torch.sqrt, 0.1, 3),
    unary("rsqrt", torch.rsqrt, 0.1, 3), unary("sigmoid", torch.sigmoid), unary("tanh", torch.tanh),
    unary("erf", torch.erf), unary("sin", torch.sin), unary("cos", torch.cos), unary("tan", torch.tan),
    unary("sinh", torch.sinh), unary("cosh", torch.cosh), unary("asin", torch.asin, -0.9, 0.9),
    unary("acos", torch.acos, -0.9, 0.9), unary("atan", torch.atan), unary("asinh", torch.asinh),
    unary("acosh", torch.acosh, 1.1, 3), unary("atanh", torch.atanh, -0.9, 0.9),
    unary("floor", lambda x: torch.floor(x) + 0 * x), unary("sign", lambda x: torch.sign(x) + 0 * x),
    unary("clip", lambda x: torch.clamp(x, -0.25, 0.5), a_min=-0.25, a_max=0.5),
    unary("nn.softplus", F.softplus), unary("nn.gelu", F.gelu),
    unary("nn.gelu", lambda x: F.gelu(x, approximate="tanh"), approximate="tanh"),
    unary("nn.swish", lambda x: x * torch.sigmoid(1.5 * x), beta=1.5),
    unary("nn.leaky_relu", lambda x: F.leaky_relu(x, 0.3), alpha=0.3),
    case("relu, 0 at 0", relay.nn.relu, torch.relu, np.array([-1.0, 0.0, 2.0])),
    case("abs, 0 at 0", relay.abs, torch.abs, np.array([-1.0, 0.0, 2.0])),
    case("cast", lambda x: relay.cast(x, "float64"), lambda x: x.double(), random(2, 3).astype("float32")),
    case("add", relay.add, torch.add, random(2, 3, 4), random(3, 1)),
    case("subtract", relay.subtract, torch.sub, random(3, 1), random(2, 3, 4)),
    case("multiply", relay.multiply, torch.mul, random(2, 1, 4), random(3, 1)),
    case("multiply by a scalar", relay.multiply, torch.mul, random(2, 3), random()),
    case("of nothing", relay.multiply, torch.mul, random(0, 3), random(3)),
    case("divide", relay.divide, torch.div, random(2, 3), random(1, 3, low=1, high=2)),
    case("power", relay.power, torch.pow, random(2, 3, low=0.1, high=2), random(3)),
    case("power at 0", relay.power, torch.pow, np.array([0.0, 0.0, 2.0, 3.0]), np.array([2.0, 0.0, 0.0, 1.0])),
    case("maximum", relay.maximum, torch.maximum, np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 1.0])),
    case("minimum", relay.minimum, torch.minimum, random(2, 3), random(3, seed=1)),
    case("floor_mod", relay.floor_mod, torch.remainder, random(7, low=-9, high=9), random(7, seed=1, low=1, high=3)),
    case("mod", relay.mod, torch.fmod, random(7, low=-9, high=9), random(7, seed=1, low=1, high=3)),
    case("where", lambda c, x, y: relay.where(c, x, y), lambda c, x, y: torch.where(c > 0, x, y),
         np.array([[1], [0]], "int32"), random(2, 3), random(3)),
    case("one value used often", lambda x: x * x + relay.exp(x) * x, lambda x: x * x + torch.exp(x) * x, random(5)),
]  # fmt: skip

SHAPES = [
    case("reshape", lambda x: relay.reshape(x, (-1, 2)), lambda x: x.reshape(-1, 2), random(2, 3, 4)),
    case("reverse_reshape", lambda x: relay.reverse_reshape(x, (-1, 0)), lambda x: x.reshape(12, 2), random(3, 4, 2)),
    case("squeeze", relay.squeeze, torch.squeeze, random(1, 3, 1)),
    case("expand_dims", lambda x: relay.expand_dims(x, -1, 2), lambda x: x[..., None, None], random(3, 2)),
    case("batch_flatten", relay.nn.batch_flatten, lambda x: x.flatten(1), random(2, 3, 4)),
    case("broadcast_to", lambda x: relay.broadcast_to(x, (2, 3, 4)), lambda x: x.expand(2, 3, 4), random(3, 1)),
    case("transpose", lambda x: relay.transpose(x, (1, -1, 0)), lambda x: x.permute(1, 2, 0), random(2, 3, 5)),
    case("trilu", lambda x: relay.trilu(x, 1, True), lambda x: torch.triu(x, 1), random(2, 3, 4)),
    case("reverse", lambda x: relay.reverse(x, 1), lambda x: x.flip(1), random(2, 3)),
    case("layout_transform", lambda x: relay.layout_transform(x, "NCHW", "NCHW2c"),
         lambda x: x.reshape(1, 2, 2, 3, 3).permute(0, 1, 3, 4, 2), random(1, 4, 3, 3)),
    case("concatenate", lambda x, y: relay.concatenate([x, y, x], -1), lambda x, y: torch.cat([x, y, x], -1),
         random(2, 3), random(2, 5)),
    case("concatenate of one", lambda x: relay.concatenate([x], 0), lambda x: x + 0, random(2, 3)),
    case("split", lambda x: relay.split(x, (2, 3), 1), lambda x: torch.tensor_split(x, (2, 3), 1), random(2, 7)),
    case("one part of a split", lambda x: relay.split(x, 3, 0)[1], lambda x: torch.chunk(x, 3)[1], random(6, 2)),
    case("stack", lambda x, y: relay.stack([x, y], -1), lambda x, y: torch.stack([x, y], -1),
         random(2, 3), random(2, 3)),
    case("repeat", lambda x: relay.repeat(x, 3, 1), lambda x: x.repeat_interleave(3, 1), random(2, 3)),
    case("repeat of all", lambda x: relay.repeat(x, 2, None), lambda x: x.repeat_interleave(2), random(2, 3)),
    case("tile", lambda x: relay.tile(x, (2, 1, 3)), lambda x: x.repeat(2, 1, 3), random(2, 3)),
    case("strided_slice", lambda x: relay.strided_slice(x, (1, 0), (3, 5)), lambda x: x[1:3, 0:5], random(4, 7)),
    case("strided_slice with steps", lambda x: relay.strided_slice(x, (0, 1), (4, 7), (2, 3)),
         lambda x: x[0:4:2, 1:7:3], random(4, 7)),
    case("strided_slice backwards", lambda x: relay.strided_slice(x, (6,), (0,), (-2,), axes=[1]),
         lambda x: x[:, [6, 4, 2]], random(4, 7)),
    case("strided_slice by sizes", lambda x: relay.strided_slice(x, (1, 2), (2, -1), slice_mode="size"),
         lambda x: x[1:3, 2:], random(4, 7)),
    case("slice_like", lambda x, y: relay.slice_like(x, y), lambda x, y: x[:2, :3] + 0 * y.sum(),
         random(4, 5), random(2, 3)),
    case("strided_set", lambda x, v: relay.strided_set(x, v, [0, 1], [2, 3]),
         lambda x, v: torch.cat([torch.cat([x[:2, :1], v, x[:2, 3:]], 1), x[2:]]), random(4, 5), random(2, 2)),
    case("pad", lambda x, v: relay.nn.pad(x, ((0, 1), (2, 3)), v),
         lambda x, v: torch.where(F.pad(torch.ones_like(x), (2, 3, 0, 1)) > 0, F.pad(x, (2, 3, 0, 1)), v),
         random(2, 3), random()),
]  # fmt: skip

REDUCTIONS = [
    case("sum", lambda x: relay.sum(x, (0, -1)), lambda x: x.sum((0, -1)), random(2, 3, 5)),
    case("sum of all", relay.sum, torch.sum, random(2, 3)),
    case("sum of the others", lambda x: relay.sum(x, 1, exclude=True, keepdims=True), lambda x: x.sum((0, 2), True),
         random(2, 3, 5)),
    case("mean", lambda x: relay.mean(x, 1), lambda x: x.mean(1), random(2, 3, 5)),
    case("max", lambda x: relay.max(x, (0, 2)), lambda x: torch.amax(x, (0, 2)), apart(2, 3, 5)),
    case("max of equals", lambda x: relay.max(x, 0), lambda x: torch.amax(x, 0), np.array([1.0, 3, 2, 3])),
    case("min", lambda x: relay.min(x, 1, keepdims=True), lambda x: torch.amin(x, 1, True), apart(2, 3)),
    case("prod", lambda x: relay.prod(x, 1), lambda x: torch.prod(x, 1), random(3, 4, 2)),
    case("prod with zeros", lambda x: relay.prod(x, (0, 1)), torch.prod, np.array([[1.0, 0.0, 3.0]])),
    case("variance", lambda x: relay.variance(x, 1), lambda x: x.var(1, correction=0), random(3, 4)),
    case("unbiased variance", lambda x: relay.variance(x, (0, 1), unbiased=True), torch.var, random(3, 4)),
    case("logsumexp", lambda x: relay.logsumexp(x, 1), lambda x: torch.logsumexp(x, 1), random(3, 4)),
    case("cumsum", lambda x: relay.cumsum(x, 1), lambda x: torch.cumsum(x, 1), random(3, 4)),
    case("cumsum of all, exclusive", lambda x: relay.cumsum(x, exclusive=True),
         lambda x: torch.cumsum(x.flatten(), 0) - x.flatten(), random(3, 4)),
]  # fmt: skip

INDICES = np.array([[0, 2], [2, 1]], "int32")

INDEXING = [
    case("take", lambda x, i: relay.take(x, i, 1), lambda x, i: x[:, i.long()], random(2, 3, 4), INDICES),
    case("take of one", lambda x, i: relay.take(x, i, 0), lambda x, i: x[i.long()], random(3, 4), np.array(2, "int32")),
    case("take of all", relay.take, lambda x, i: x.flatten()[i.long()], random(3, 4), INDICES),
    case("take that wraps", lambda x, i: relay.take(x, i, 0, mode="wrap"), lambda x, i: x[(i % 3).long()], random(3, 2),
         np.array([-1, 4, 2], "int32")),
    case("gather", lambda x, i: relay.gather(x, 1, i), lambda x, i: torch.gather(x, 1, i.long()),
         random(2, 3), INDICES),
    case("gather_nd", relay.gather_nd, lambda x, i: x[i[0].long(), i[1].long()], random(3, 3, 2), INDICES),
    case("scatter_add", lambda x, i, u: relay.scatter_add(x, i, u, 1), lambda x, i, u: x.scatter_add(1, i.long(), u),
         random(2, 3), INDICES, random(2, 2)),
    case("scatter", lambda x, i, u: relay.scatter(x, i, u, 1), lambda x, i, u: x.scatter(1, i.long(), u), random(2, 3),
         INDICES, random(2, 2)),
    case("scatter_nd", lambda x, i, u: relay.scatter_nd(x, i, u, "add"),
         lambda x, i, u: x.index_put((i[0].long(), i[1].long()), u, accumulate=True), random(3, 3), INDICES, random(2)),
    case("one_hot", lambda i, a, b: relay.one_hot(i, a, b, 3, -1, "float64"),
         lambda i, a, b: torch.where(F.one_hot(i.long(), 3) > 0, a, b), INDICES, random(seed=1), random(seed=2)),
    case("sequence_mask", lambda x, n: relay.sequence_mask(x, n, 5.0),
         lambda x, n: torch.where(torch.arange(4)[:, None] < n, x, 5.0), random(4, 3), np.array([1, 4, 2], "int32")),
    case("sort", lambda x: relay.sort(x, 1), lambda x: torch.sort(x, 1)[0], apart(2, 5)),
    case("topk", lambda x: relay.topk(x, 2, 1, "values"), lambda x: torch.topk(x, 2, 1)[0], apart(3, 5)),
    case("full_like", lambda x, v: relay.full_like(x, v) * x, lambda x, v: v * x, random(2, 3), random()),
]  # fmt: skip


def product(left: bool, right: bool, batches: Sequence[int] = ()) -> Case:
    make = relay.nn.batch_matmul if batches else relay.nn.matmul
    a, b = ((5, 3) if left else (3, 5)), ((4, 5) if right else (5, 4))
    first, second = (batches[0], batches[1]) if batches else (None, None)

    def oracle(x: Any, y: Any) -> Any:
        return (x.mT if left else x) @ (y.mT if right else y)

    shapes = [s if n is None else (n, *s) for s, n in ((a, first), (b, second))]
    return case(
        f"product {left} {right} {batches}", lambda x, y: make(x, y, transpose_a=left, transpose_b=right), oracle,
        random(*shapes[0]), random(*shapes[1]),
    )  # fmt: skip


def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    return F.layer_norm(x, (x.shape[-1],), gamma, beta, 1e-5)


def norm_statistics(x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    return relay.nn.batch_norm(x, gamma, beta, mean, var)[0]


TARGETS = np.array([1, 0, -100, 2], "int32")

NETWORKS = [
    case("dense", relay.nn.dense, lambda x, w: x @ w.T, random(2, 5), random(3, 5)),
    *[product(left, right) for left in (False, True) for right in (False, True)],
    *[product(left, right, (2, 2)) for left in (False, True) for right in (False, True)],
    product(False, True, (2, 1)), product(True, False, (1, 3)),
    case("bias_add", lambda x, b: relay.nn.bias_add(x, b, -3), lambda x, b: x + b[:, None, None], random(2, 3, 4, 5),
         random(3)),
    case("softmax", lambda x: relay.nn.softmax(x, 0), lambda x: torch.softmax(x, 0), random(3, 4)),
    case("log_softmax", relay.nn.log_softmax, lambda x: torch.log_softmax(x, -1), random(3, 4)),
    case("prelu", lambda x, a: relay.nn.prelu(x, a), F.prelu, random(2, 3, 4), random(3)),
    case("cross_entropy", relay.nn.cross_entropy, lambda x, y: -(x.log() * y).sum() / 3,
         random(3, 4, low=0.1), random(3, 4)),
    case("cross_entropy_with_logits", relay.nn.cross_entropy_with_logits, lambda x, y: -(x * y).sum() / 3, random(3, 4),
         random(3, 4)),
    *[case(f"nll_loss {how}", lambda x, t, w, how=how: relay.nn.nll_loss(x, t, w, how),
           lambda x, t, w, how=how: weighted_loss(x, t, w, how), random(4, 3), TARGETS, random(3, low=0.5))
      for how in ("mean", "sum", "none")],
    case("layer_norm", lambda x, g, b: relay.nn.layer_norm(x, g, b), layer_norm, random(3, 7), random(7),
         random(7, seed=1)),
    case("group_norm", lambda x, g, b: relay.nn.group_norm(x, g, b, 2), lambda x, g, b: F.group_norm(x, 2, g, b),
         random(2, 4, 3), random(4), random(4, seed=1)),
    case("batch_norm by given statistics", norm_statistics,
         lambda x, g, b, m, v: (x - m[:, None]) / (v[:, None] + 1e-5).sqrt() * g[:, None] + b[:, None],
         random(2, 3, 5), random(3), random(3, seed=1), random(3, seed=2), random(3, seed=3, low=0.5)),
    case("l2_normalize", lambda x: relay.nn.l2_normalize(x, 1e-6, [1]), lambda x: F.normalize(x, dim=1, eps=1e-6),
         random(3, 4)),
    case("dropout", relay.nn.dropout, lambda x: x + 0, random(3, 4)),
]  # fmt: skip


RESAMPLING = [
    case("dense of three dimensions", relay.nn.dense, lambda x, w: x @ w.T, random(2, 3, 5), random(4, 5)),
    case("upsampling", lambda x: relay.nn.upsampling(x, 2, 3),
         lambda x: x.repeat_interleave(2, 2).repeat_interleave(3, 3), random(1, 2, 3, 4)),
    case("resize2d linear", lambda x: relay.image.resize2d(x, (7, 4)),
         lambda x: F.interpolate(x, size=(7, 4), mode="bilinear"), random(1, 2, 3, 5)),
    case("resize2d NHWC, aligned", lambda x: relay.image.resize2d(
             x, (7, 5), "NHWC", "linear", "align_corners"),
         lambda x: F.interpolate(x.permute(0, 3, 1, 2), size=(7, 5), mode="bilinear", align_corners=True)
         .permute(0, 2, 3, 1), random(1, 3, 4, 2)),
    case("resize1d nearest", lambda x: relay.image.resize1d(x, (7,), "NCW", "nearest_neighbor", "asymmetric", "floor"),
         lambda x: F.interpolate(x, size=7, mode="nearest"), random(2, 3, 4)),
    case("space_to_depth", lambda x: relay.nn.space_to_depth(x, 2),
         lambda x: x.reshape(1, 3, 2, 2, 3, 2).permute(0, 3, 5, 1, 2, 4).reshape(1, 12, 2, 3), random(1, 3, 4, 6)),
    case("depth_to_space CRD", lambda x: relay.nn.depth_to_space(x, 2, mode="CRD"), lambda x: F.pixel_shuffle(x, 2),
         random(2, 8, 3, 2)),
]  # fmt: skip


def weighted_loss(x: Any, targets: Any, weights: Any, how: str) -> Any:
    """torch's own has no gradient of the weights."""
    counts = targets != -100
    at = torch.where(counts, targets, 0).long()
    weight = torch.where(counts, weights[at], 0)
    losses = -weight * x[torch.arange(len(at)), at]
    return losses if how == "none" else losses.sum() / (weight.sum() if how == "mean" else 1)


def conv(rank: int, data: Sequence[int], weight: Sequence[int], transposed: bool = False, **options: Any) -> Case:
    name = f"conv{rank}d{'_transpose' if transposed else ''}"
    torch_options = {{"strides": "stride"}.get(k, k): v for k, v in options.items()}
    function = getattr(F, f"conv{'_transpose' if transposed else ''}{rank}d")
    return case(
        f"{name} {data} {weight} {options}", lambda x, w: getattr(relay.nn, name)(x, w, **options),
        lambda x, w: function(x, w, **torch_options), random(*data), random(*weight),
    )  # fmt: skip


def conv_in_layouts(data_layout: str, kernel_layout: str) -> Case:
    options = {"strides": (2, 1), "padding": (1, 0), "data_layout": data_layout, "kernel_layout": kernel_layout}
    orders = [["NCHW".index(c) for c in data_layout], ["OIHW".index(c) for c in kernel_layout]]
    back = [[o.index(i) for i in range(4)] for o in orders]
    x, w = random(2, 3, 5, 6), random(4, 3, 3, 2)

    def oracle(x: Any, w: Any) -> Any:
        return F.conv2d(x.permute(back[0]), w.permute(back[1]), stride=(2, 1), padding=(1, 0)).permute(orders[0])

    return case(f"conv2d {data_layout}", lambda x, w: relay.nn.conv2d(x, w, **options), oracle, x.transpose(orders[0]),
                w.transpose(orders[1]))  # fmt: skip


CONVOLUTIONS = [
    conv(2, (2, 3, 5, 7), (4, 3, 3, 3), padding=(1, 1)),
    conv(2, (1, 3, 8, 7), (4, 3, 3, 2), strides=(3, 2)),
    conv(2, (1, 2, 9, 7), (3, 2, 2, 3), dilation=(3, 2), padding=(0, 2)),
    conv(2, (2, 4, 5, 5), (6, 2, 3, 3), groups=2, padding=(1, 1), strides=(2, 2)),
    conv(2, (2, 3, 6, 5), (3, 1, 3, 3), groups=3),
    conv(2, (1, 3, 4, 4), (6, 1, 1, 1), groups=3, strides=(2, 2)),
    conv(1, (2, 3, 9), (4, 3, 3), padding=(1,), strides=(2,)),
    conv(3, (1, 2, 4, 5, 4), (3, 2, 2, 3, 2), padding=(1, 0, 1), strides=(1, 2, 1)),
    conv(2, (2, 3, 4, 3), (3, 2, 3, 3), True, strides=(2, 1), padding=(1, 1), output_padding=(1, 0)),
    conv(2, (1, 4, 3, 3), (4, 1, 2, 3), True, groups=2),
    conv(1, (1, 2, 5), (2, 3, 3), True, strides=(2,)),
    conv_in_layouts("NHWC", "HWIO"),
    case("conv2d with padding of four sides", lambda x, w: relay.nn.conv2d(x, w, padding=(0, 1, 2, 3)),
         lambda x, w: F.conv2d(F.pad(x, (1, 3, 0, 2)), w), random(1, 2, 4, 5), random(3, 2, 3, 3)),
]  # fmt: skip


def pool(kind: str, rank: int, shape: Sequence[int], size: Any, **options: Any) -> Case:
    names = {"strides": "stride", "padding": "padding", "ceil_mode": "ceil_mode", "dilation": "dilation",
             "count_include_pad": "count_include_pad"}  # fmt: skip
    torch_options = {"stride": 1, **{names[k]: v for k, v in options.items()}}
    if kind == "avg":
        torch_options.setdefault("count_include_pad", False)
    return case(
        f"{kind}_pool{rank}d {shape} {options}",
        lambda x: getattr(relay.nn, f"{kind}_pool{rank}d")(x, size, **options),
        lambda x: getattr(F, f"{kind}_pool{rank}d")(x, size, **torch_options), apart(*shape),
    )  # fmt: skip


POOLING = [
    pool("max", 2, (1, 2, 7, 5), (3, 2), strides=(2, 1), padding=(1, 1)),
    pool("max", 2, (1, 2, 7, 6), (2, 2), strides=(2, 2), ceil_mode=True),
    pool("max", 2, (1, 1, 9, 9), (3, 3), dilation=(2, 3)),
    case("max_pool2d of equals", lambda x: relay.nn.max_pool2d(x, (2, 2), (2, 2)), lambda x: F.max_pool2d(x, 2),
         np.zeros((1, 2, 4, 4))),
    pool("max", 1, (2, 3, 9), (3,), strides=(2,)),
    pool("max", 3, (1, 2, 4, 3, 5), (2, 3, 2)),
    pool("avg", 2, (1, 2, 7, 5), (3, 2), strides=(2, 1), padding=(1, 1)),
    pool("avg", 2, (1, 2, 7, 5), (3, 2), strides=(2, 1), padding=(1, 1), count_include_pad=True),
    pool("avg", 2, (1, 2, 7, 6), (3, 3), strides=(2, 2), ceil_mode=True),
    pool("avg", 3, (1, 2, 4, 3, 5), (2, 3, 2)),
    case("max_pool2d NHWC", lambda x: relay.nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"),
         lambda x: F.max_pool2d(x.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1), apart(1, 4, 4, 3)),
    case("global_avg_pool2d", relay.nn.global_avg_pool2d, lambda x: x.mean((2, 3), True), random(2, 3, 4, 5)),
    case("global_max_pool2d", relay.nn.global_max_pool2d, lambda x: torch.amax(x, (2, 3), True), apart(2, 3, 4, 5)),
    case("adaptive_avg_pool2d", lambda x: relay.nn.adaptive_avg_pool2d(x, (2, 3)),
         lambda x: F.adaptive_avg_pool2d(x, (2, 3)), random(1, 2, 4, 9)),
    case("adaptive_max_pool1d", lambda x: relay.nn.adaptive_max_pool1d(x, 1), lambda x: F.adaptive_max_pool1d(x, 1),
         apart(1, 2, 7)),
]  # fmt: skip

ALL = [*ELEMENTWISE, *SHAPES, *REDUCTIONS, *INDEXING, *NETWORKS, *RESAMPLING, *CONVOLUTIONS, *POOLING]


@pytest.mark.parametrize("item", ALL, ids=str)
def test_gradients_by_the_meaning_of_operators(item: Case) -> None:
    check(item, "debug")


# Kernels of what only gradients use, or use in an unusual way.
KERNELS = [*REDUCTIONS[7:8], *INDEXING[:2], *NETWORKS[:2], *CONVOLUTIONS[:4], *POOLING[:4], *POOLING[6:8]]


@pytest.mark.parametrize("item", KERNELS, ids=str)
def test_gradients_by_compiled_kernels(item: Case) -> None:
    check(item, "graph")


def test_second_order() -> None:
    """The gradient of a gradient: of sin(x) x^3."""
    x = relay.var("x", shape=(4,), dtype="float64")
    first = gradient(relay.Function([x], relay.sin(x) * x * x * x))
    y = relay.var("y", shape=(4,), dtype="float64")
    derivative = relay.TupleGetItem(relay.TupleGetItem(first(y), 1), 0)
    second = gradient(relay.Function([y], derivative))
    value = random(4)
    _, (found,) = relay.create_executor().evaluate(second)(value)
    want = 6 * value * np.sin(value) + 6 * value**2 * np.cos(value) - value**3 * np.sin(value)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-9)


def test_second_order_of_a_mean_over_windows() -> None:
    """Of the square of the pooled: twice pooling's adjoint of pooling."""
    x, y = (relay.var(n, shape=(1, 1, 4, 5), dtype="float64") for n in "xy")
    pooled = relay.nn.avg_pool2d(x, (2, 3), (1, 2), padding=(1, 1))
    first = gradient(relay.Function([x], pooled * pooled))
    second = gradient(relay.Function([y], relay.TupleGetItem(relay.TupleGetItem(first(y), 1), 0)))
    value = random(1, 1, 4, 5)
    _, (found,) = relay.create_executor().evaluate(second)(value)
    t = torch.tensor(value, requires_grad=True)
    square = F.avg_pool2d(t, (2, 3), (1, 2), (1, 1), count_include_pad=False) ** 2
    (by_x,) = torch.autograd.grad(square.sum(), t, create_graph=True)
    by_x.sum().backward()
    np.testing.assert_allclose(found.numpy(), t.grad.numpy(), rtol=1e-9)  # type: ignore[union-attr]


def test_numeric_differences_agree_with_arange() -> None:
    ends = [relay.var(n, shape=(), dtype="float64") for n in ("start", "stop", "step")]
    values = [np.array(v) for v in (2.5, 9.5, 1.8)]
    check_grad(relay.Function(ends, relay.arange(*ends, dtype="float64")), inputs=values)


def test_check_grad_finds_a_wrong_gradient() -> None:
    x = relay.var("x", shape=(3,), dtype="float64")
    op = tvm.ir.Op.get("sinh")
    right = op.get_attr("FPrimalGradient")
    try:
        relay.op.register_gradient("sinh", lambda orig, grad: [grad], level=11)
        with pytest.raises(AssertionError):
            check_grad(relay.Function([x], relay.sinh(x)), scale=1)
    finally:
        op.reset_attr("FPrimalGradient")
        op.set_attr("FPrimalGradient", right)


def test_an_operator_without_a_gradient_is_named() -> None:
    x = relay.var("x", shape=(1, 4, 4, 1))
    with pytest.raises(UnsupportedError, match=r"no gradient is registered for nn\.lrn; .*register_gradient"):
        gradient(relay.Function([x], relay.nn.lrn(x)))


def test_a_rule_of_the_wrong_length_is_named() -> None:
    op = tvm.relay.op.op.register("test.twice")
    op.add_type_rel("Identity")
    relay.op.register_gradient("test.twice", lambda orig, grad: [grad, grad])
    x = relay.var("x", shape=(2,))
    try:
        with pytest.raises(tvm.TVMError, match=r"test\.twice returned 2 values for its 1 arguments"):
            gradient(relay.Function([x], relay.Call(op, [x])))
    finally:
        del tvm.ir.Op.registry["test.twice"]
