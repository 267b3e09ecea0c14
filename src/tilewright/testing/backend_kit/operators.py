"""Random operators: each family draws a Relay function, with many extents 1 or prime.

A family is a function from a random generator to a function and the ranges of its inputs; others are constants, like
weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import relay
from tilewright.relay.expr import Expr, Function, Var

Draw = np.random.Generator
EXTENTS = (1, 2, 3, 5, 7, 8, 11, 13, 16, 17, 19, 24, 31, 32, 33)


def _extent(rng: Draw, most: int = 33) -> int:
    return int(rng.choice([e for e in EXTENTS if e <= most]))


def _weights(rng: Draw, *shape: int) -> Expr:
    spread = max(float(np.prod(shape[1:])), 1.0) ** -0.5  # sums stay near 1
    return relay.const((spread * rng.standard_normal(shape)).astype("float32"))


def _input(*shape: int, name: str = "x") -> Var:
    return relay.var(name, shape=shape, dtype="float32")


def _activation(rng: Draw, x: Expr) -> Expr:
    kind = rng.integers(0, 4)
    return (x, relay.nn.relu(x), relay.clip(x, 0.0, 6.0), relay.sigmoid(x))[kind]


def _image(rng: Draw, kernel: int) -> tuple[int, int, int, int]:
    low = max(kernel, 3)
    return int(rng.choice([1, 1, 2])), _extent(rng), low + int(rng.integers(0, 14)), low + int(rng.integers(0, 14))


def conv2d(rng: Draw) -> Function:
    """Convolutions with strides, padding, dilation, groups, bias and an activation."""
    kernel = int(rng.choice([1, 1, 2, 3, 3, 5, 7]))
    groups = int(rng.choice([1, 1, 1, 2]))
    n, channels, height, width = _image(rng, kernel)
    channels, outputs = channels * groups, _extent(rng) * groups
    dilation = 2 if kernel in (2, 3) and min(height, width) > 2 * kernel and rng.random() < 0.25 else 1
    x = _input(n, channels, height, width)
    out = relay.nn.conv2d(
        x,
        _weights(rng, outputs, channels // groups, kernel, kernel),
        strides=(int(rng.integers(1, 3)),) * 2,
        padding=tuple(int(p) for p in rng.integers(0, kernel // 2 + 1, 4)),
        dilation=(dilation, dilation),
        groups=groups,
        channels=outputs,
        kernel_size=(kernel, kernel),
    )
    if rng.random() < 0.6:
        out = relay.nn.bias_add(out, _weights(rng, outputs))
    return Function([x], _activation(rng, out))


def depthwise_conv2d(rng: Draw) -> Function:
    """Convolutions of each channel by itself."""
    kernel = int(rng.choice([3, 3, 5]))
    n, channels, height, width = _image(rng, kernel)
    x = _input(n, channels, height, width)
    weights = _weights(rng, channels, 1, kernel, kernel)
    step, edge = int(rng.integers(1, 3)), kernel // 2
    out = relay.nn.conv2d(
        x,
        weights,
        strides=(step, step),
        padding=(edge,) * 4,
        groups=channels,
        channels=channels,
        kernel_size=(kernel,) * 2,
    )
    return Function([x], _activation(rng, relay.nn.bias_add(out, _weights(rng, channels))))


def dense(rng: Draw) -> Function:
    """Dense layers with bias and an activation."""
    rows, depth, columns = _extent(rng), _extent(rng) * int(rng.choice([1, 4])), _extent(rng)
    x = _input(rows, depth)
    out = relay.nn.dense(x, _weights(rng, columns, depth), units=columns)
    if rng.random() < 0.6:
        out = relay.nn.bias_add(out, _weights(rng, columns))
    return Function([x], _activation(rng, out))


def batch_matmul(rng: Draw) -> Function:
    """Products of two inputs."""
    batch, rows, depth, columns = (_extent(rng, 24) for _ in range(4))
    a, b = _input(batch, rows, depth), _input(batch, columns, depth, name="y")
    return Function([a, b], relay.nn.batch_matmul(a, b))


def pool2d(rng: Draw) -> Function:
    """Pools of maxima and averages, with and without padding; global ones."""
    kernel = int(rng.choice([2, 3, 3]))
    n, channels, height, width = _image(rng, kernel)
    x = _input(n, channels, height, width)
    if rng.random() < 0.25:
        return Function([x], relay.nn.global_avg_pool2d(x))
    options: dict[str, Any] = {"pool_size": (kernel, kernel), "strides": (int(rng.integers(1, 3)),) * 2}
    options["padding"] = (int(rng.integers(0, kernel // 2 + 1)),) * 4
    if rng.random() < 0.5:
        return Function([x], relay.nn.max_pool2d(x, **options))
    return Function([x], relay.nn.avg_pool2d(x, **options, count_include_pad=bool(rng.random() < 0.5)))


def elementwise(rng: Draw) -> Function:
    """Draw sums, products, maxima of two inputs, one of which may broadcast; and element-wise functions."""
    shape = tuple(_extent(rng, 17) for _ in range(int(rng.integers(1, 5))))
    other = tuple(1 if rng.random() < 0.25 else extent for extent in shape)
    x, y = _input(*shape), _input(*other, name="y")
    binary = (relay.add, relay.subtract, relay.multiply, relay.maximum, relay.minimum)
    unary = (relay.nn.relu, relay.tanh, relay.sigmoid, relay.exp, relay.negative, relay.abs)
    out = binary[rng.integers(0, len(binary))](x, y)
    return Function([x, y], unary[rng.integers(0, len(unary))](out) if rng.random() < 0.6 else out)


def softmax(rng: Draw) -> Function:
    """Build a softmax along the last axis."""
    x = _input(*(_extent(rng) for _ in range(int(rng.integers(2, 4)))))
    return Function([x], relay.nn.softmax(x))


def residual(rng: Draw) -> Function:
    """Draw two convolutions and a residual sum, whose input is used twice."""
    channels, height, width = _extent(rng), int(rng.integers(3, 12)), int(rng.integers(3, 12))
    x = _input(1, channels, height, width)
    options: dict[str, Any] = {"padding": (1, 1, 1, 1), "channels": channels, "kernel_size": (3, 3)}
    first = relay.nn.relu(relay.nn.conv2d(x, _weights(rng, channels, channels, 3, 3), **options))
    second = relay.nn.conv2d(first, _weights(rng, channels, channels, 3, 3), **options)
    return Function([x], relay.nn.relu(relay.add(second, x)))


def moves(rng: Draw) -> Function:
    """Transposed, reshaped and joined tensors between sums."""
    a, b = _extent(rng, 17), _extent(rng, 17)
    x, y = _input(a, b), _input(b, a, name="y")
    flipped = relay.add(relay.transpose(x), y)
    joined = relay.concatenate([flipped, y], axis=1)
    return Function([x, y], relay.reshape(relay.nn.relu(joined), (2 * a, b)))


FAMILIES: dict[str, Callable[[Draw], Function]] = {
    family.__name__: family
    for family in (
        conv2d, depthwise_conv2d, dense, batch_matmul, pool2d, elementwise, softmax, residual, moves,
    )
}  # fmt: skip
