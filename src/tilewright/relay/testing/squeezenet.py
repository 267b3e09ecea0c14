"""SqueezeNet (Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters", 2016)."""

from __future__ import annotations

from tilewright import relay
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.testing import layers
from tilewright.relay.testing.init import He, create_workload
from tilewright.runtime.ndarray import NDArray

# Channels squeezed to and expanded to by each fire module; "pool" halves the image.
_FIRES: dict[str, list[tuple[int, int] | str]] = {
    "1.0": [(16, 64), (16, 64), (32, 128), "pool", (32, 128), (48, 192), (48, 192), (64, 256), "pool", (64, 256)],
    "1.1": [(16, 64), (16, 64), "pool", (32, 128), (32, 128), "pool", (48, 192), (48, 192), (64, 256), (64, 256)],
}


def _conv(net: RelayExpr, channels: int, kernel: int, stride: int, padding: int, name: str) -> RelayExpr:
    net = layers.conv2d(
        net, channels=channels, kernel_size=(kernel, kernel), strides=(stride, stride), padding=(padding, padding),
        name=name,
    )  # fmt: skip
    result: RelayExpr = relay.nn.relu(relay.nn.bias_add(net, relay.var(f"{name}_bias")))
    return result


def _fire(net: RelayExpr, squeezed: int, expanded: int, prefix: str) -> RelayExpr:
    net = _conv(net, squeezed, 1, 1, 0, f"{prefix}_input_conv")
    left = _conv(net, expanded, 1, 1, 0, f"{prefix}_left_conv")
    right = _conv(net, expanded, 3, 1, 1, f"{prefix}_right_conv")
    result: RelayExpr = relay.concatenate((left, right), axis=1)
    return result


def _pool(net: RelayExpr) -> RelayExpr:
    result: RelayExpr = relay.nn.max_pool2d(net, pool_size=(3, 3), strides=(2, 2))
    return result


def get_net(batch_size: int, image_shape: tuple[int, ...], num_classes: int, version: str, dtype: str) -> Function:
    """The network.

    Args:
        batch_size: images at once.
        image_shape: one image, (channels, height, width).
        num_classes: outputs.
        version: "1.0" or "1.1".
        dtype: element type.
    """
    if version not in _FIRES:
        raise ValueError(f"SqueezeNet has the versions 1.0 and 1.1, not {version!r}")
    net: RelayExpr = relay.var("data", shape=(batch_size, *image_shape), dtype=dtype)
    channels, kernel, padding = (96, 7, 3) if version == "1.0" else (64, 3, 1)
    net = _pool(_conv(net, channels, kernel, 2, padding, "conv1"))
    fires = 0
    for item in _FIRES[version]:
        if isinstance(item, str):
            net = _pool(net)
        else:
            fires += 1
            net = _fire(net, *item, f"fire{fires}")
    net = relay.nn.dropout(net, rate=0.5)
    net = _conv(net, num_classes, 1, 1, 0, "conv_final")
    result = relay.nn.softmax(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(net)))
    return Function(relay.analysis.free_vars(result), result)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    version: str = "1.0",
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a typed module, and its parameters; arguments as ``get_net``."""
    return create_workload(get_net(batch_size, image_shape, num_classes, version, dtype), He())
