"""MobileNet (Howard et al., "MobileNets: Efficient CNNs for Mobile Vision Applications", 2017)."""

from __future__ import annotations

from tilewright import relay
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.testing import layers
from tilewright.relay.testing.init import He, create_workload
from tilewright.runtime.ndarray import NDArray


def conv_block(
    data: RelayExpr,
    name: str,
    channels: int,
    kernel_size: tuple[int, int] = (3, 3),
    strides: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (1, 1),
    epsilon: float = 1e-5,
    layout: str = "NCHW",
) -> RelayExpr:
    """Convolution, batch normalization, ReLU."""
    conv = layers.conv2d(
        data, channels=channels, kernel_size=kernel_size, strides=strides, padding=padding, data_layout=layout,
        kernel_layout=layers.conv_kernel_layout(layout), name=f"{name}_conv",
    )  # fmt: skip
    norm = layers.batch_norm_infer(conv, epsilon=epsilon, axis=layout.index("C"), name=f"{name}_bn")
    result: RelayExpr = relay.nn.relu(norm)
    return result


def separable_conv_block(
    data: RelayExpr,
    name: str,
    depthwise_channels: int,
    pointwise_channels: int,
    kernel_size: tuple[int, int] = (3, 3),
    downsample: bool = False,
    padding: tuple[int, int] = (1, 1),
    epsilon: float = 1e-5,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> RelayExpr:
    """A depthwise and a pointwise convolution, each with batch normalization and ReLU."""
    shape = (depthwise_channels, 1, *kernel_size) if layout == "NCHW" else (*kernel_size, depthwise_channels, 1)
    axis = layout.index("C")
    depthwise = layers.conv2d(
        data, relay.var(f"{name}_weight", shape=shape, dtype=dtype), channels=depthwise_channels,
        groups=depthwise_channels, kernel_size=kernel_size, strides=(2, 2) if downsample else (1, 1), padding=padding,
        data_layout=layout, kernel_layout=layers.conv_kernel_layout(layout, is_depthwise=True),
    )  # fmt: skip
    body = relay.nn.relu(layers.batch_norm_infer(depthwise, epsilon=epsilon, axis=axis, name=f"{name}_bn1"))
    pointwise = layers.conv2d(
        body, channels=pointwise_channels, kernel_size=(1, 1), strides=(1, 1), padding=(0, 0), data_layout=layout,
        kernel_layout=layers.conv_kernel_layout(layout), name=f"{name}_conv2",
    )  # fmt: skip
    norm = layers.batch_norm_infer(pointwise, epsilon=epsilon, axis=axis, name=f"{name}_bn2")
    result: RelayExpr = relay.nn.relu(norm)
    return result


def mobile_net(
    num_classes: int = 1000,
    data_shape: tuple[int, ...] = (1, 3, 224, 224),
    dtype: str = "float32",
    alpha: float = 1.0,
    is_shallow: bool = False,
    layout: str = "NCHW",
) -> Function:
    """The network.

    Args:
        num_classes: outputs.
        data_shape: input with batch, in ``layout``.
        dtype: element type.
        alpha: scale of all channel counts.
        is_shallow: leave out the five blocks of 512 channels.
        layout: NCHW or NHWC.
    """
    # channels after each block, and whether it halves the image
    blocks = [(64, False), (128, True), (128, False), (256, True), (256, False), (512, True)]
    blocks += [] if is_shallow else [(512, False)] * 5
    blocks += [(1024, True), (1024, False)]
    data = relay.var("data", shape=data_shape, dtype=dtype)
    body = conv_block(data, "conv_block_1", int(32 * alpha), strides=(2, 2), layout=layout)
    channels = 32
    for i, (following, downsample) in enumerate(blocks, 1):
        body = separable_conv_block(
            body, f"separable_conv_block_{i}", int(channels * alpha), int(following * alpha), downsample=downsample,
            layout=layout, dtype=dtype,
        )  # fmt: skip
        channels = following
    flat = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(body, layout=layout))
    dense = relay.nn.dense(flat, relay.var("fc_weight"), units=num_classes)
    result = relay.nn.softmax(relay.nn.bias_add(dense, relay.var("fc_bias")))
    return Function(relay.analysis.free_vars(result), result)


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Function:
    """The network for ``batch_size`` images of ``image_shape``."""
    return mobile_net(num_classes, (batch_size, *image_shape), dtype, layout=layout)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a typed module, and its parameters; arguments as ``get_net``."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype, layout), He())
