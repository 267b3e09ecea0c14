"""Inception v3 (Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2015)."""

from __future__ import annotations

from tilewright import relay
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.testing import layers
from tilewright.relay.testing.init import He, create_workload
from tilewright.runtime.ndarray import NDArray

Pair = tuple[int, int]


def _conv(
    data: RelayExpr, num_filter: int, kernel: Pair = (1, 1), stride: Pair = (1, 1), pad: Pair = (0, 0), name: str = ""
) -> RelayExpr:
    conv = layers.conv2d(
        data, channels=num_filter, kernel_size=kernel, strides=stride, padding=pad, name=f"{name}_conv1d"
    )
    norm = layers.batch_norm_infer(conv, epsilon=2e-5, scale=False, name=f"{name}_batchnorm")
    result: RelayExpr = relay.nn.relu(norm)
    return result


def _pool(data: RelayExpr, kind: str, kernel: Pair, stride: Pair, pad: Pair) -> RelayExpr:
    if kind == "max":
        result: RelayExpr = relay.nn.max_pool2d(data, pool_size=kernel, strides=stride, padding=pad)
    else:
        result = relay.nn.avg_pool2d(data, pool_size=kernel, strides=stride, padding=pad, count_include_pad=True)
    return result


def _tower(data: RelayExpr, name: str, steps: list[tuple[int, Pair, Pair, Pair]]) -> RelayExpr:
    """Convolutions one after another: (filters, kernel, stride, padding)."""
    for i, (num_filter, kernel, stride, pad) in enumerate(steps):
        data = _conv(data, num_filter, kernel, stride, pad, f"{name}_conv" + (f"_{i}" if i else ""))
    return data


def _concat(*parts: RelayExpr) -> RelayExpr:
    result: RelayExpr = relay.concatenate(parts, axis=1)
    return result


_ONE, _TWO, _NONE = (1, 1), (2, 2), (0, 0)


def _point(num_filter: int) -> tuple[int, Pair, Pair, Pair]:
    return num_filter, _ONE, _ONE, _NONE


def _square(num_filter: int) -> tuple[int, Pair, Pair, Pair]:
    return num_filter, (3, 3), _ONE, _ONE


def _halving(num_filter: int) -> tuple[int, Pair, Pair, Pair]:
    return num_filter, (3, 3), _TWO, _NONE


def _row(num_filter: int) -> tuple[int, Pair, Pair, Pair]:
    return num_filter, (1, 7), _ONE, (0, 3)


def _column(num_filter: int) -> tuple[int, Pair, Pair, Pair]:
    return num_filter, (7, 1), _ONE, (3, 0)


def _projected_pool(data: RelayExpr, kind: str, proj: int, name: str) -> RelayExpr:
    return _tower(_pool(data, kind, (3, 3), _ONE, _ONE), f"{name}_tower_2", [_point(proj)])


def _block_a(data: RelayExpr, proj: int, name: str) -> RelayExpr:
    """1x1, 5x5 and double 3x3 convolutions beside a pooling."""
    return _concat(
        _conv(data, 64, name=f"{name}_conv"),
        _tower(data, f"{name}_tower", [_point(48), (64, (5, 5), _ONE, (2, 2))]),
        _tower(data, f"{name}_tower_1", [_point(64), _square(96), _square(96)]),
        _projected_pool(data, "avg", proj, name),
    )


def _block_b(data: RelayExpr, name: str) -> RelayExpr:
    """From 35x35 to 17x17."""
    return _concat(
        _conv(data, 384, (3, 3), _TWO, name=f"{name}_conv"),
        _tower(data, f"{name}_tower", [_point(64), _square(96), _halving(96)]),
        _pool(data, "max", (3, 3), _TWO, _NONE),
    )


def _block_c(data: RelayExpr, narrow: int, name: str) -> RelayExpr:
    """7x7 convolutions as rows and columns, of ``narrow`` channels inside."""
    return _concat(
        _conv(data, 192, name=f"{name}_conv"),
        _tower(data, f"{name}_tower", [_point(narrow), _row(narrow), _column(192)]),
        _tower(data, f"{name}_tower_1", [_point(narrow), _column(narrow), _row(narrow), _column(narrow), _row(192)]),
        _projected_pool(data, "avg", 192, name),
    )


def _block_d(data: RelayExpr, name: str) -> RelayExpr:
    """From 17x17 to 8x8."""
    return _concat(
        _tower(data, f"{name}_tower", [_point(192), _halving(320)]),
        _tower(data, f"{name}_tower_1", [_point(192), _row(192), _column(192), _halving(192)]),
        _pool(data, "max", (3, 3), _TWO, _NONE),
    )


def _block_e(data: RelayExpr, kind: str, name: str) -> RelayExpr:
    """1x3 and 3x1 convolutions side by side."""
    first = _conv(data, 384, name=f"{name}_tower_conv")
    second = _tower(data, f"{name}_tower_1", [_point(448), _square(384)])
    return _concat(
        _conv(data, 320, name=f"{name}_conv"),
        _conv(first, 384, (1, 3), pad=(0, 1), name=f"{name}_tower_mixed_conv"),
        _conv(first, 384, (3, 1), pad=(1, 0), name=f"{name}_tower_mixed_conv_1"),
        _conv(second, 384, (1, 3), pad=(0, 1), name=f"{name}_tower_1_mixed_conv"),
        _conv(second, 384, (3, 1), pad=(1, 0), name=f"{name}_tower_1_mixed_conv_1"),
        _projected_pool(data, kind, 192, name),
    )


def get_net(batch_size: int, num_classes: int, image_shape: tuple[int, ...], dtype: str) -> Function:
    """The network.

    Args:
        batch_size: images at once.
        num_classes: outputs.
        image_shape: one image, (channels, height, width); the network is made for (3, 299, 299).
        dtype: element type.
    """
    body: RelayExpr = relay.var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = _conv(body, 32, (3, 3), _TWO, name="conv")
    body = _conv(body, 32, (3, 3), name="conv_1")
    body = _conv(body, 64, (3, 3), pad=_ONE, name="conv_2")
    body = _pool(body, "max", (3, 3), _TWO, _NONE)
    body = _conv(body, 80, name="conv_3")
    body = _conv(body, 192, (3, 3), name="conv_4")
    body = _pool(body, "max", (3, 3), _TWO, _NONE)
    for name, proj in (("mixed", 32), ("mixed_1", 64), ("mixed_2", 64)):
        body = _block_a(body, proj, name)
    body = _block_b(body, "mixed_3")
    for name, narrow in (("mixed_4", 128), ("mixed_5", 160), ("mixed_6", 160), ("mixed_7", 192)):
        body = _block_c(body, narrow, name)
    body = _block_d(body, "mixed_8")
    body = _block_e(body, "avg", "mixed_9")
    body = _block_e(body, "max", "mixed_10")
    flat = relay.nn.batch_flatten(_pool(body, "avg", (8, 8), _ONE, _NONE))
    dense = relay.nn.dense(flat, relay.var("fc1_weight"), units=num_classes)
    result = relay.nn.softmax(relay.nn.bias_add(dense, relay.var("fc2_bias"), axis=-1))
    return Function(relay.analysis.free_vars(result), result)


def get_workload(
    batch_size: int = 1, num_classes: int = 1000, image_shape: tuple[int, ...] = (3, 299, 299), dtype: str = "float32"
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a typed module, and its parameters; arguments as ``get_net``."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype), He())
