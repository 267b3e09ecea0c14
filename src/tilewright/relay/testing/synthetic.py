"""A small network of many kinds of operators: convolutions, dense layers, softmax, reshapes, batch normalization."""

from __future__ import annotations

from tilewright import relay
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.testing import layers
from tilewright.relay.testing.init import create_workload
from tilewright.runtime.ndarray import NDArray


def get_net(
    input_shape: tuple[int, int, int, int] = (1, 3, 24, 12), dtype: str = "float32", wtype: str | None = None
) -> Function:
    """The network.

    Args:
        input_shape: (batch, channels, height, width).
        dtype: element type of the data.
        wtype: that of the weights; ``dtype`` by default.
    """
    data = relay.var("data", shape=input_shape, dtype=dtype)
    first = _block(data, data, input_shape, wtype or dtype, "")
    biased = relay.nn.bias_add(first, relay.var("bias", dtype=wtype or dtype))
    result = _block(layers.batch_norm_infer(biased, name="batch_norm"), data, input_shape, wtype or dtype, "2")
    return Function(relay.analysis.free_vars(result), result)


def _block(data: RelayExpr, like: RelayExpr, shape: tuple[int, int, int, int], wtype: str, suffix: str) -> RelayExpr:
    """The sum of a dense layer on rows and a convolution, each of the data's shape."""
    _, channels, _, width = shape
    weight = relay.var(f"dense{suffix}_weight", shape=(width, width), dtype=wtype)
    dense = relay.nn.relu(relay.nn.dense(relay.reshape(data, (-1, width)), weight))
    kernel = relay.var(f"conv{suffix}_weight", shape=(channels, channels, 3, 3), dtype=wtype)
    conv = relay.nn.softmax(relay.nn.conv2d(data, kernel, padding=1, kernel_size=3))
    return relay.add(relay.reshape_like(dense, like), conv)


def get_workload(
    input_shape: tuple[int, int, int, int] = (1, 3, 24, 12), dtype: str = "float32", wtype: str | None = None
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a typed module, and its parameters; arguments as ``get_net``."""
    return create_workload(get_net(input_shape, dtype, wtype))
