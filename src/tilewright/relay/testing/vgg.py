"""VGG (Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", 2014)."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import relay
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.testing import layers as wrapper
from tilewright.relay.testing.init import He, create_workload
from tilewright.runtime.ndarray import NDArray

_FILTERS = (64, 128, 256, 512, 512)
_LAYERS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def get_feature(
    internal_layer: RelayExpr, layers: Sequence[int], filters: Sequence[int], batch_norm: bool = False
) -> RelayExpr:
    """The convolutional part: for each stage ``layers[i]`` convolutions of ``filters[i]`` channels, then pooling."""
    for i, count in enumerate(layers, 1):
        for j in range(1, count + 1):
            internal_layer = wrapper.conv2d(
                internal_layer, kernel_size=(3, 3), padding=(1, 1), channels=filters[i - 1], name=f"conv{i}_{j}"
            )
            internal_layer = relay.nn.bias_add(internal_layer, relay.var(f"conv{i}_{j}_bias"))
            if batch_norm:
                internal_layer = wrapper.batch_norm_infer(internal_layer, name=f"bn{i}_{j}")
            internal_layer = relay.nn.relu(internal_layer)
        internal_layer = relay.nn.max_pool2d(internal_layer, pool_size=(2, 2), strides=(2, 2))
    return internal_layer


def get_classifier(input_data: RelayExpr, num_classes: int) -> RelayExpr:
    """The fully connected part: 4096, 4096, ``num_classes``."""
    body: RelayExpr = relay.nn.batch_flatten(input_data)
    for name in ("fc6", "fc7"):
        body = relay.nn.relu(wrapper.dense_add_bias(body, units=4096, name=name))
        body = relay.nn.dropout(body, rate=0.5)
    return wrapper.dense_add_bias(body, units=num_classes, name="fc8")


def get_net(
    batch_size: int,
    image_shape: tuple[int, ...],
    num_classes: int,
    dtype: str,
    num_layers: int = 11,
    batch_norm: bool = False,
) -> Function:
    """Return the network of 11, 13, 16 or 19 layers.

    Args:
        batch_size: images at once.
        image_shape: one image, (channels, height, width).
        num_classes: outputs.
        dtype: element type.
        num_layers: 11, 13, 16 or 19.
        batch_norm: whether to normalize after each convolution.
    """
    if num_layers not in _LAYERS:
        raise ValueError(f"no VGG has {num_layers} layers; there are {', '.join(map(str, _LAYERS))}")
    data = relay.var("data", shape=(batch_size, *image_shape), dtype=dtype)
    feature = get_feature(data, _LAYERS[num_layers], _FILTERS, batch_norm)
    result = relay.nn.softmax(get_classifier(feature, num_classes))
    return Function(relay.analysis.free_vars(result), result)


def get_workload(
    batch_size: int,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    num_layers: int = 11,
    batch_norm: bool = False,
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a typed module, and its parameters; arguments as ``get_net``."""
    return create_workload(get_net(batch_size, image_shape, num_classes, dtype, num_layers, batch_norm), He())
