"""A multilayer perceptron with two hidden layers."""

from __future__ import annotations

from tilewright import relay
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.testing import layers
from tilewright.relay.testing.init import create_workload
from tilewright.runtime.ndarray import NDArray


def get_net(
    batch_size: int, num_classes: int = 10, image_shape: tuple[int, ...] = (1, 28, 28), dtype: str = "float32"
) -> Function:
    """The network: 128 and 64 hidden units.

    Args:
        batch_size: images at once.
        num_classes: outputs.
        image_shape: one image, (channels, height, width).
        dtype: element type.
    """
    data = relay.var("data", shape=(batch_size, *image_shape), dtype=dtype)
    flat = relay.nn.batch_flatten(data)
    hidden1 = relay.nn.relu(layers.dense_add_bias(flat, units=128, name="fc1"))
    hidden2 = relay.nn.relu(layers.dense_add_bias(hidden1, units=64, name="fc2"))
    result = relay.nn.softmax(layers.dense_add_bias(hidden2, units=num_classes, name="fc3"))
    return Function(relay.analysis.free_vars(result), result)


def get_workload(
    batch_size: int, num_classes: int = 10, image_shape: tuple[int, ...] = (1, 28, 28), dtype: str = "float32"
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a typed module, and its parameters; arguments as ``get_net``."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype))
