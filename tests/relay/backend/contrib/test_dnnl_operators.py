"""Operators through oneDNN, each alone, against their meaning in numpy; and what is fused into one primitive."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from tests.relay.backend.contrib.dnnl_regions import nodes_of, partitioned, run_partitioned

import tilewright as tvm
from tilewright import relay
from tilewright.relay.interpreter import interpret

nn = relay.nn
Shape = tuple[int, ...]


def values(*shapes: Shape, seed: int = 0) -> list[np.ndarray]:
    """Random float32 arrays."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def check(
    build: Callable[..., relay.Expr], data: Sequence[np.ndarray], weights: Sequence[np.ndarray] = ()
) -> list[str]:
    """Compare what oneDNN makes of ``build(*data, *weights)`` with numpy; weights are constants, and then inputs too.

    Gives the names of the nodes in the JSON of the one region.
    """
    names: list[str] = []
    for constant in (True, False) if weights else (True,):
        given = [*data] if constant else [*data, *weights]
        params = [relay.var(f"p{i}", shape=array.shape) for i, array in enumerate(given)]
        operands = [*params, *(relay.const(w) for w in weights)] if constant else params
        mod = tvm.IRModule.from_expr(relay.Function(params, build(*operands)))
        split = partitioned(mod)
        names = nodes_of(split)
        expected = interpret(mod, given)
        for found, wanted in zip(run_partitioned(split, given), _tuple(expected), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)
    return names


def _tuple(results: np.ndarray | tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return results if isinstance(results, tuple) else (results,)


CONVOLUTIONS = {
    "plain": ((1, 3, 17, 19), (8, 3, 3, 3), {}),
    "one pixel": ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    "primes, batch, uneven padding": ((2, 5, 11, 7), (13, 5, 3, 2), {"padding": (1, 0, 2, 1), "strides": (2, 1)}),
    "dilated": ((1, 16, 23, 29), (32, 16, 3, 3), {"dilation": (2, 3), "padding": (2, 3)}),
    "grouped": ((1, 12, 9, 9), (18, 4, 3, 3), {"groups": 3, "padding": (1, 1)}),
    "depthwise": ((1, 17, 8, 9), (17, 1, 3, 3), {"groups": 17, "padding": (1, 1), "strides": (2, 2)}),
    "depthwise, two for each channel": ((2, 6, 7, 5), (12, 1, 5, 5), {"groups": 6, "padding": (2, 2)}),
    "pointwise": ((1, 33, 5, 7), (65, 33, 1, 1), {}),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_conv2d(case: str) -> None:
    data, weight, attrs = CONVOLUTIONS[case]
    assert check(lambda x, w: nn.conv2d(x, w, **attrs), *map(list, (values(data), values(weight, seed=1)))) == [
        "nn.conv2d"
    ]


TRANSPOSED = {
    "plain": ((1, 5, 7, 6), (5, 3, 3, 3), {}),
    "strided": ((2, 4, 5, 3), (4, 7, 4, 4), {"strides": (2, 2), "padding": (1, 1)}),
    "output padding": ((1, 3, 5, 5), (3, 2, 3, 3), {"strides": (2, 2), "padding": (1, 1), "output_padding": (1, 1)}),
    "grouped": ((1, 6, 4, 5), (6, 2, 3, 3), {"groups": 3, "strides": (2, 1)}),
}


@pytest.mark.parametrize("case", TRANSPOSED)
def test_conv2d_transpose(case: str) -> None:
    data, weight, attrs = TRANSPOSED[case]
    names = check(lambda x, w: nn.conv2d_transpose(x, w, **attrs), values(data), values(weight, seed=1))
    assert names == ["nn.conv2d_transpose"]


@pytest.mark.parametrize("rows, inner, columns", [(1, 1, 1), (1, 7, 13), (5, 33, 17), (64, 128, 100)])
def test_dense(rows: int, inner: int, columns: int) -> None:
    assert check(nn.dense, values((rows, inner)), values((columns, inner), seed=1)) == ["nn.dense"]


@pytest.mark.parametrize("a, b, transposed", [
    ((3, 5, 7), (3, 11, 7), {}),
    ((1, 1, 1), (1, 1, 1), {}),
    ((2, 7, 5), (2, 7, 4), {"transpose_a": True, "transpose_b": False}),
    ((4, 16, 9), (1, 13, 9), {}),
    ((1, 6, 9), (4, 9, 2), {"transpose_b": False}),
])  # fmt: skip
def test_batch_matmul(a: Shape, b: Shape, transposed: dict[str, bool]) -> None:
    assert check(lambda x, y: nn.batch_matmul(x, y, **transposed), values(a), values(b, seed=1)) == ["nn.batch_matmul"]


POOLS: dict[str, Callable[[relay.Expr], relay.Expr]] = {
    "max": lambda x: nn.max_pool2d(x, (3, 2), (2, 2), padding=(1, 0)),
    "max, dilated": lambda x: nn.max_pool2d(x, (2, 2), (1, 1), dilation=(2, 2)),
    "max, ceil": lambda x: nn.max_pool2d(x, (2, 2), (2, 2), ceil_mode=True),
    "average": lambda x: nn.avg_pool2d(x, (3, 3), (2, 2), padding=(1, 1)),
    "average with padding": lambda x: nn.avg_pool2d(x, (3, 3), (1, 2), padding=(1, 1), count_include_pad=True),
    "global max": nn.global_max_pool2d,
    "global average": nn.global_avg_pool2d,
}


@pytest.mark.parametrize("shape", [(1, 1, 5, 5), (2, 19, 11, 7)])
@pytest.mark.parametrize("kind", POOLS)
def test_pooling(kind: str, shape: Shape) -> None:
    assert len(check(POOLS[kind], values(shape))) == 1


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 17, 3, 5), (3, 7)])
def test_batch_norm(shape: Shape) -> None:
    channel = (shape[1],)
    mean, gamma, beta = values(channel, channel, channel, seed=1)
    variance = np.abs(values(channel, seed=2)[0]) + 0.1
    check(lambda x, *rest: nn.batch_norm(x, *rest, epsilon=1e-3)[0], values(shape), [gamma, beta, mean, variance])


@pytest.mark.parametrize("attrs", [{}, {"scale": False}, {"center": False, "epsilon": 0.1}])
@pytest.mark.parametrize("shape", [(1, 1), (5, 13), (2, 3, 32)])
def test_layer_norm(shape: Shape, attrs: dict[str, float]) -> None:
    data = values(shape)
    check(lambda x, g, b: nn.layer_norm(x, g, b, **attrs), data, values(shape[-1:], shape[-1:], seed=1))


@pytest.mark.parametrize("shape, axis", [((5,), 0), ((3, 7), -1), ((3, 7), 0), ((2, 3, 5, 4), 1)])
def test_softmax(shape: Shape, axis: int) -> None:
    check(lambda x: nn.softmax(x, axis=axis), values(shape))
    check(lambda x: nn.log_softmax(x, axis=axis), values(shape))


ELEMENTWISE: dict[str, Callable[[relay.Expr], relay.Expr]] = {
    "relu": nn.relu,
    "leaky_relu": lambda x: nn.leaky_relu(x, alpha=0.3),
    "clip": lambda x: relay.clip(x, -0.5, 0.75),
    "sigmoid": relay.sigmoid,
    "tanh": relay.tanh,
    "gelu": nn.gelu,
    "gelu by tanh": lambda x: nn.gelu(x, approximate="tanh"),
    "swish": lambda x: nn.swish(x, beta=1.5),
    "exp": relay.exp,
    "log": lambda x: relay.log(relay.abs(x)),
    "sqrt": lambda x: relay.sqrt(relay.abs(x)),
    "negative": relay.negative,
}


@pytest.mark.parametrize("shape", [(1,), (7, 13), (2, 3, 5, 7), ()])
@pytest.mark.parametrize("kind", ELEMENTWISE)
def test_activations(kind: str, shape: Shape) -> None:
    check(ELEMENTWISE[kind], values(shape))


@pytest.mark.parametrize("a, b", [
    ((3, 5), (3, 5)), ((2, 3, 5), (5,)), ((1,), (4, 7)), ((2, 1, 5), (1, 3, 1)), ((6, 1, 1), (2, 6, 3, 4)),
    ((), (2, 3)),
])  # fmt: skip
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "maximum", "minimum"])
def test_arithmetic_broadcasts(name: str, a: Shape, b: Shape) -> None:
    operands = values(a, b)
    operands[1] = np.sign(operands[1]) * (np.abs(operands[1]) + 0.5)  # divisors away from 0
    assert check(getattr(relay, name), operands) == [name]


@pytest.mark.parametrize("shapes, axis", [
    ([(2, 3, 5), (2, 7, 5), (2, 1, 5)], 1), ([(1, 4), (3, 4)], 0), ([(2, 3)], -1), ([(1, 16, 4, 4), (1, 17, 4, 4)], 1),
])  # fmt: skip
def test_concatenate(shapes: list[Shape], axis: int) -> None:
    assert check(lambda *parts: relay.concatenate(parts, axis), values(*shapes)) == ["concatenate"]


def test_shapes_are_views() -> None:
    def build(x: relay.Expr) -> relay.Expr:
        turned = relay.transpose(relay.reshape(x, (4, 6, 5)), (2, 0, 1))
        return relay.transpose(nn.relu(relay.squeeze(relay.expand_dims(turned, 1), [1])))

    check(build, values((2, 12, 5)))


def test_heads_of_attention_are_read_where_they_lie() -> None:
    def heads(x: relay.Expr) -> relay.Expr:
        return relay.reshape(relay.transpose(relay.reshape(x, (1, 9, 3, 8)), (0, 2, 1, 3)), (3, 9, 8))

    def build(q: relay.Expr, k: relay.Expr, v: relay.Expr) -> relay.Expr:
        weights = nn.softmax(nn.batch_matmul(heads(q), heads(k)))
        return nn.batch_matmul(weights, relay.transpose(heads(v), (0, 2, 1)))

    check(build, values((1, 9, 24), (1, 9, 24), (1, 9, 24)))


# ---- fused ----


def fuse(root: Callable[..., relay.Expr], bias: bool, total: bool, activation: str) -> Callable[..., relay.Expr]:
    """The operator with what follows it; operands are data, weight, bias, summand."""

    def build(x: relay.Expr, *rest: relay.Expr) -> relay.Expr:
        summand, operands = (rest[0], rest[1:]) if total else (None, rest)
        result = root(x, operands[0])
        if bias:
            result = nn.bias_add(result, operands[1], axis=1)
        if summand is not None:
            result = summand + result
        return ELEMENTWISE[activation](result) if activation else result

    return build


@pytest.mark.parametrize("activation", ["", "relu", "clip", "leaky_relu", "gelu", "swish", "sigmoid", "tanh"])
@pytest.mark.parametrize("bias, total", [(True, False), (False, True), (True, True), (False, False)])
def test_convolutions_take_bias_summand_and_activation(bias: bool, total: bool, activation: str) -> None:
    shape = (1, 16, 7, 9)
    weights = values((16, 16, 3, 3), *[(16,)] * bias, seed=1)
    build = fuse(lambda x, w: nn.conv2d(x, w, padding=(1, 1)), bias, total, activation)
    names = check(build, values(shape, *[shape] * total), weights)
    expected = "_".join(["conv2d", *["bias"] * bias, *["sum"] * total, *[activation] * bool(activation)])
    assert names == [f"dnnl.{expected}" if "_" in expected else f"nn.{expected}"]


@pytest.mark.parametrize("activation", ["", "relu", "gelu"])
@pytest.mark.parametrize("bias, total", [(True, False), (True, True)])
def test_dense_layers_take_bias_summand_and_activation(bias: bool, total: bool, activation: str) -> None:
    build = fuse(nn.dense, bias, total, activation)
    names = check(build, values((5, 13), *[(5, 17)] * total), values((17, 13), (17,), seed=1))
    assert len(names) == 1 and names[0].startswith("dnnl.dense_bias")


def test_a_summand_that_is_read_again_keeps_its_value() -> None:
    def build(x: relay.Expr, w: relay.Expr) -> relay.Expr:
        first = nn.relu(nn.conv2d(x, w))
        return relay.concatenate([nn.relu(nn.conv2d(first, w) + first), first], 1)

    check(build, values((1, 8, 5, 5)), values((8, 8, 1, 1), seed=1))


def test_what_is_added_to_itself_is_no_summand() -> None:
    def build(x: relay.Expr, w: relay.Expr) -> relay.Expr:
        conv = nn.conv2d(x, w)
        return conv + conv

    assert check(build, values((1, 4, 5, 5)), values((4, 4, 1, 1), seed=1)) == ["nn.conv2d", "add"]


def test_results_that_are_inputs_constants_or_twice_the_same() -> None:
    def build(x: relay.Expr, c: relay.Expr) -> relay.Expr:
        y = nn.relu(x)
        return relay.Tuple([y, y, relay.reshape(y, (6,)), y + c])

    check(build, values((2, 3)), values((2, 3), seed=1))


# ---- the dialect ----


def test_names_and_attributes_are_those_of_tvm_0_8() -> None:
    x = relay.var("x", shape=(1, 4, 8, 8))
    w, b = (relay.const(v) for v in values((8, 2, 3, 3), (8, 1, 1)))
    body = nn.relu(nn.conv2d(x, w, padding=(1, 1), groups=2) + b)
    split = partitioned(tvm.IRModule.from_expr(relay.Function([x], body)))
    (node,) = [n for n in json.loads(_source(split))["nodes"] if n["op"] == "kernel"]
    assert node["name"] == "dnnl.conv2d_bias_relu"
    assert node["inputs"] == [[0, 0, 0], [1, 0, 0], [2, 0, 0]]
    assert node["attrs"]["strides"] == [["1", "1"]] and node["attrs"]["padding"] == [["1", "1", "1", "1"]]
    assert node["attrs"]["groups"] == [["2"]] and node["attrs"]["data_layout"] == [["NCHW"]]


def _source(split: tvm.IRModule) -> str:
    (module,) = [m for m in relay.build(split, "llvm").lib.imported_modules if m.type_key == "dnnl_json"]
    return module.get_source()
