"""The network that learned Atari games (Mnih et al., "Human-level control through deep ... learning", 2015)."""

from __future__ import annotations

from tilewright import relay
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.testing import layers
from tilewright.relay.testing.init import create_workload
from tilewright.runtime.ndarray import NDArray

_CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, size of the kernel, stride


def get_net(
    batch_size: int,
    num_actions: int = 18,
    image_shape: tuple[int, int, int] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Function:
    """From the last images of a game, (batch, *image_shape), to the value of each action, (batch, num_actions)."""
    net: RelayExpr = relay.var("data", shape=(batch_size, *image_shape), dtype=dtype)
    for k, (channels, size, stride) in enumerate(_CONVOLUTIONS, 1):
        net = layers.conv2d(
            net, channels=channels, kernel_size=(size, size), strides=(stride, stride), padding=(0, 0),
            data_layout=layout, kernel_layout=layers.conv_kernel_layout(layout), name=f"conv{k}",
        )  # fmt: skip
        net = relay.nn.relu(relay.nn.bias_add(net, relay.var(f"conv{k}_bias"), layout.index("C")))
    net = relay.nn.batch_flatten(net)
    net = relay.nn.relu(layers.dense_add_bias(net, units=512, name="dense1"))
    net = layers.dense_add_bias(net, units=num_actions, name="dense2")
    return Function(relay.analysis.free_vars(net), net)


def get_workload(
    batch_size: int,
    num_actions: int = 18,
    image_shape: tuple[int, int, int] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network with random weights."""
    return create_workload(get_net(batch_size, num_actions, image_shape, dtype, layout))
