"""ResNet with pre-activation (He et al., "Identity Mappings in Deep Residual Networks", 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import relay
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.testing import layers
from tilewright.relay.testing.init import create_workload
from tilewright.runtime.ndarray import NDArray

_UNITS = {
    18: [2, 2, 2, 2], 34: [3, 4, 6, 3], 50: [3, 4, 6, 3], 101: [3, 4, 23, 3], 152: [3, 8, 36, 3],
    200: [3, 24, 36, 3], 269: [3, 30, 48, 8],
}  # fmt: skip


def residual_unit(
    data: RelayExpr,
    num_filter: int,
    stride: tuple[int, int],
    dim_match: bool,
    name: str,
    bottle_neck: bool = True,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
) -> RelayExpr:
    """One residual unit: two 3x3 convolutions, or 1x1, 3x3, 1x1 with a bottleneck, around a shortcut.

    Args:
        data: input.
        num_filter: output channels.
        stride: of the first convolution and of the shortcut.
        dim_match: whether input and output have one shape, so that the shortcut is the input itself.
        name: prefix of the parameters' names.
        bottle_neck: whether to use the bottleneck form.
        data_layout: layout of the data.
        kernel_layout: layout of the weights.
    """
    layout: dict[str, Any] = {"data_layout": data_layout, "kernel_layout": kernel_layout}
    narrow = num_filter // 4
    wide = ((3, 3), (1, 1))  # kernel and padding
    point = ((1, 1), (0, 0))
    if bottle_neck:
        steps = [(narrow, stride, *point), (narrow, (1, 1), *wide), (num_filter, (1, 1), *point)]
    else:
        steps = [(num_filter, stride, *wide), (num_filter, (1, 1), *wide)]
    body, first = data, data
    for i, (channels, strides, kernel_size, padding) in enumerate(steps, 1):
        norm = layers.batch_norm_infer(body, epsilon=2e-5, axis=data_layout.index("C"), name=f"{name}_bn{i}")
        active = relay.nn.relu(norm)
        if i == 1:
            first = active
        body = layers.conv2d(
            active, channels=channels, kernel_size=kernel_size, strides=strides, padding=padding, **layout,
            name=f"{name}_conv{i}",
        )  # fmt: skip
    shortcut = data
    if not dim_match:
        shortcut = layers.conv2d(
            first, channels=num_filter, kernel_size=(1, 1), strides=stride, **layout, name=f"{name}_sc"
        )
    result: RelayExpr = relay.add(body, shortcut)
    return result


def resnet(
    units: Sequence[int],
    num_stages: int,
    filter_list: Sequence[int],
    num_classes: int,
    data_shape: tuple[int, ...],
    bottle_neck: bool = True,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """The network from its description.

    Args:
        units: residual units of each stage.
        num_stages: number of stages.
        filter_list: channels of the stem, then of each stage.
        num_classes: outputs.
        data_shape: input with batch, in ``layout``.
        bottle_neck: whether the units are bottlenecks.
        layout: NCHW or NHWC.
        dtype: element type.
    """
    kernel_layout = layers.conv_kernel_layout(layout)
    form: dict[str, Any] = {"data_layout": layout, "kernel_layout": kernel_layout}
    axis = layout.index("C")
    data = relay.var("data", shape=data_shape, dtype=dtype)
    body = layers.batch_norm_infer(data, epsilon=2e-5, axis=axis, scale=False, name="bn_data")
    if data_shape[layout.index("H")] <= 32:
        body = layers.conv2d(
            body, channels=filter_list[0], kernel_size=(3, 3), strides=(1, 1), padding=(1, 1), **form, name="conv0"
        )
    else:
        body = layers.conv2d(
            body, channels=filter_list[0], kernel_size=(7, 7), strides=(2, 2), padding=(3, 3), **form, name="conv0"
        )
        body = relay.nn.relu(layers.batch_norm_infer(body, epsilon=2e-5, axis=axis, name="bn0"))
        body = relay.nn.max_pool2d(body, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout=layout)
    for i in range(num_stages):
        for j in range(units[i]):
            stride = (2, 2) if i > 0 and j == 0 else (1, 1)
            body = residual_unit(
                body, filter_list[i + 1], stride, j > 0, f"stage{i + 1}_unit{j + 1}", bottle_neck, layout, kernel_layout
            )
    body = relay.nn.relu(layers.batch_norm_infer(body, epsilon=2e-5, axis=axis, name="bn1"))
    flat = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(body, layout=layout))
    result = relay.nn.softmax(layers.dense_add_bias(flat, units=num_classes, name="fc1"))
    return Function(relay.analysis.free_vars(result), result)


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    **kwargs: Any,
) -> Function:
    """The network of ``num_layers``: 18 to 269 for large images; 6n+2, or 9n+2 from 164 on, for 28x28 and less."""
    height = image_shape[layout.index("H") - 1]
    if height <= 28:
        num_stages = 3
        if (num_layers - 2) % 9 == 0 and num_layers >= 164:
            per_stage, filter_list, bottle_neck = (num_layers - 2) // 9, [16, 64, 128, 256], True
        elif (num_layers - 2) % 6 == 0 and num_layers < 164:
            per_stage, filter_list, bottle_neck = (num_layers - 2) // 6, [16, 16, 32, 64], False
        else:
            raise ValueError(f"no ResNet for small images has {num_layers} layers; take 6n+2, or 9n+2 from 164 on")
        units = [per_stage] * num_stages
    else:
        num_stages = 4
        bottle_neck = num_layers >= 50
        filter_list = [64, 256, 512, 1024, 2048] if bottle_neck else [64, 64, 128, 256, 512]
        if num_layers not in _UNITS:
            raise ValueError(f"no ResNet has {num_layers} layers; there are {', '.join(map(str, _UNITS))}")
        units = _UNITS[num_layers]
    shape = (batch_size, *image_shape)
    return resnet(units, num_stages, filter_list, num_classes, shape, bottle_neck, layout, dtype, **kwargs)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    **kwargs: Any,
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a typed module, and its parameters; arguments as ``get_net``."""
    return create_workload(get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype, **kwargs))
