"""A network in the manner of DenseNet (Huang et al., "Densely Connected Convolutional Networks", 2016).

As in ``tvm.relay.testing``, the layers of a block follow one another, and the block's result is the concatenation
of all their results; the input of a layer is the previous layer's result alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import relay
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.testing import layers
from tilewright.relay.testing.init import He, create_workload
from tilewright.runtime.ndarray import NDArray

# Channels of the stem, growth rate, layers of each block.
_SPECS = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (69, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}


def _layer(data: RelayExpr, growth_rate: int, bn_size: int, index: str) -> RelayExpr:
    body: RelayExpr = relay.nn.relu(layers.batch_norm_infer(data, name=f"batch_1_{index}"))
    body = layers.conv2d(body, channels=bn_size * growth_rate, kernel_size=(1, 1), name=f"conv2d_1_{index}")
    body = relay.nn.relu(layers.batch_norm_infer(body, name=f"batch_2_{index}"))
    return layers.conv2d(body, channels=growth_rate, kernel_size=(3, 3), padding=(1, 1), name=f"conv2d_2_{index}")


def _block(data: RelayExpr, num_layers: int, growth_rate: int, bn_size: int, index: int) -> RelayExpr:
    results = []
    for i in range(num_layers):
        data = _layer(data, growth_rate, bn_size, f"{index}_{i}")
        results.append(data)
    joined: RelayExpr = relay.concatenate(results, 1)
    return joined


def _transition(data: RelayExpr, channels: int, index: int) -> RelayExpr:
    body: RelayExpr = relay.nn.relu(layers.batch_norm_infer(data, name=f"batch_t_{index}"))
    body = layers.conv2d(body, channels=channels, kernel_size=(1, 1), name=f"conv_t_{index}")
    result: RelayExpr = relay.nn.avg_pool2d(body, pool_size=(2, 2), strides=(2, 2))
    return result


def _dense_net(
    num_init_features: int,
    growth_rate: int,
    block_config: Sequence[int],
    data_shape: tuple[int, ...],
    dtype: str,
    classes: int,
    bn_size: int = 4,
) -> Function:
    data = relay.var("data", shape=data_shape, dtype=dtype)
    body = layers.conv2d(
        data, channels=num_init_features, kernel_size=(7, 7), strides=(2, 2), padding=(3, 3), name="conv1"
    )
    body = relay.nn.relu(layers.batch_norm_infer(body, name="batch1"))
    body = relay.nn.max_pool2d(body, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    features = num_init_features
    for i, num_layers in enumerate(block_config):
        body = _block(body, num_layers, growth_rate, bn_size, i)
        features += num_layers * growth_rate
        if i + 1 < len(block_config):
            features //= 2
            body = _transition(body, features, i)
    body = relay.nn.relu(layers.batch_norm_infer(body, name="batch2"))
    flat = relay.nn.batch_flatten(relay.nn.avg_pool2d(body, pool_size=(7, 7)))
    result = layers.dense_add_bias(flat, units=classes, name="dense")
    return Function(relay.analysis.free_vars(result), result)


def get_net(
    densenet_size: int = 121,
    classes: int = 1000,
    batch_size: int = 4,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> Function:
    """The network of 121, 161, 169 or 201 layers.

    Args:
        densenet_size: number of layers.
        classes: outputs.
        batch_size: images at once.
        image_shape: one image, (channels, height, width).
        dtype: element type.
    """
    if densenet_size not in _SPECS:
        raise ValueError(f"no DenseNet has {densenet_size} layers; there are {', '.join(map(str, _SPECS))}")
    return _dense_net(*_SPECS[densenet_size], (batch_size, *image_shape), dtype, classes)


def get_workload(
    densenet_size: int = 121,
    classes: int = 1000,
    batch_size: int = 4,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a typed module, and its parameters; arguments as ``get_net``."""
    return create_workload(get_net(densenet_size, classes, batch_size, image_shape, dtype), He())
