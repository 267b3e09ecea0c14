"""Residual, plain and mobile image classifiers, layer for layer as in their papers and in torchvision.

Every builder takes sizes smaller than the published ones, so that tests can afford many; the defaults are the
published network. All return a `Workload` with one input ``data`` (1, 3, image_size, image_size) and one
output ``logits`` (1, classes).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .workload import Workload, image_workload


class ResidualBlock(nn.Module):
    """A residual block: `body` plus the input, the latter through `shortcut`, then ReLU."""

    def __init__(self, body: nn.Sequential, shortcut: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut
        self.relu = nn.ReLU(inplace=True)

    def forward(self, data: Tensor) -> Tensor:
        """Return data with the height and width of `body`'s result."""
        total: Tensor = self.relu(self.body(data) + self.shortcut(data))
        return total


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A bias-free "same" convolution and its batch norm."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]


def _basic_block(inputs: int, width: int, stride: int) -> tuple[nn.Sequential, int]:
    body = nn.Sequential(*conv_norm(inputs, width, 3, stride), nn.ReLU(inplace=True), *conv_norm(width, width, 3))
    return body, width


def _bottleneck_block(inputs: int, width: int, stride: int) -> tuple[nn.Sequential, int]:
    body = nn.Sequential(
        *conv_norm(inputs, width, 1),
        nn.ReLU(inplace=True),
        *conv_norm(width, width, 3, stride),
        nn.ReLU(inplace=True),
        *conv_norm(width, 4 * width, 1),
    )
    return body, 4 * width


def _resnet(layers: Sequence[int], bottleneck: bool, image_size: int, width: int, classes: int) -> Workload:
    stem = [*conv_norm(3, width, 7, stride=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    blocks: list[nn.Module] = []
    inputs = width
    for stage, repeats in enumerate(layers):
        for index in range(repeats):
            stride = 2 if stage > 0 and index == 0 else 1
            make = _bottleneck_block if bottleneck else _basic_block
            body, outputs = make(inputs, width * 2**stage, stride)
            same = stride == 1 and inputs == outputs
            shortcut = nn.Identity() if same else nn.Sequential(*conv_norm(inputs, outputs, 1, stride))
            blocks.append(ResidualBlock(body, shortcut))
            inputs = outputs
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
    return image_workload(nn.Sequential(*stem, *blocks, *head), image_size)


def resnet18(image_size: int = 224, width: int = 64, classes: int = 1000) -> Workload:
    """ResNet-18 (He et al., arXiv:1512.03385): basic blocks 2, 2, 2, 2, the first of `width` channels."""
    return _resnet((2, 2, 2, 2), False, image_size, width, classes)


def resnet50(
    image_size: int = 224, width: int = 64, layers: Sequence[int] = (3, 4, 6, 3), classes: int = 1000
) -> Workload:
    """ResNet-50 v1.5 (arXiv:1512.03385, stride in the 3x3 as in torchvision): bottlenecks 3, 4, 6, 3."""
    return _resnet(layers, True, image_size, width, classes)


def vgg16(image_size: int = 224, width: int = 64, classes: int = 1000) -> Workload:
    """VGG-16 (Simonyan and Zisserman, arXiv:1409.1556, configuration D, without batch norm).

    `image_size` is a multiple of 32. The dense layers have 64 * `width` units (4,096 as published).
    """
    layers: list[nn.Module] = []
    inputs = 3
    for outputs, repeats in ((width, 2), (2 * width, 2), (4 * width, 3), (8 * width, 3), (8 * width, 3)):
        for _ in range(repeats):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = outputs
        layers.append(nn.MaxPool2d(2, 2))
    side, hidden = image_size // 32, 64 * width
    layers += [nn.AdaptiveAvgPool2d(side), nn.Flatten()]
    layers += [nn.Linear(inputs * side * side, hidden), nn.ReLU(inplace=True), nn.Dropout()]
    layers += [nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(hidden, classes)]
    return image_workload(nn.Sequential(*layers), image_size)


class InvertedResidual(nn.Module):
    """MobileNetV2's block: widen by 1x1, filter each channel by 3x3, narrow by 1x1, add the input if shapes
    allow.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        layers: list[nn.Module] = []
        if expansion != 1:
            layers += [*conv_norm(inputs, hidden, 1), nn.ReLU6(inplace=True)]
        layers += [*conv_norm(hidden, hidden, 3, stride, groups=hidden), nn.ReLU6(inplace=True)]
        layers += conv_norm(hidden, outputs, 1)
        self.body = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, data: Tensor) -> Tensor:
        """Map (n, inputs, h, w) to (n, outputs, h / stride, w / stride)."""
        narrowed: Tensor = self.body(data)
        return data + narrowed if self.residual else narrowed


def _multiple_of_eight(channels: float) -> int:
    """The nearest multiple of 8, at least 8 and not more than a tenth below `channels` (as in the paper's
    code).
    """
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def mobilenet_v2(image_size: int = 224, width: float = 1.0, classes: int = 1000) -> Workload:
    """MobileNetV2 (Sandler et al., arXiv:1801.04381), channels multiplied by `width`."""
    inputs = _multiple_of_eight(32 * width)
    layers: list[nn.Module] = [*conv_norm(3, inputs, 3, stride=2), nn.ReLU6(inplace=True)]
    settings = (
        # expansion, channels, repeats, stride
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expansion, channels, repeats, first_stride in settings:
        outputs = _multiple_of_eight(channels * width)
        for index in range(repeats):
            layers.append(InvertedResidual(inputs, outputs, first_stride if index == 0 else 1, expansion))
            inputs = outputs
    last = _multiple_of_eight(1280 * max(1.0, width))
    layers += [*conv_norm(inputs, last, 1), nn.ReLU6(inplace=True)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(last, classes)]
    return image_workload(nn.Sequential(*layers), image_size)


class Fire(nn.Module):
    """SqueezeNet's block: squeeze by 1x1, then 1x1 and 3x3 side by side, concatenated."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Conv2d(inputs, squeezed, 1), nn.ReLU(inplace=True))
        self.expand1 = nn.Sequential(nn.Conv2d(squeezed, expanded, 1), nn.ReLU(inplace=True))
        self.expand3 = nn.Sequential(nn.Conv2d(squeezed, expanded, 3, padding=1), nn.ReLU(inplace=True))

    def forward(self, data: Tensor) -> Tensor:
        """Map (n, inputs, h, w) to (n, 2 * expanded, h, w)."""
        squeezed = self.squeeze(data)
        return torch.cat([self.expand1(squeezed), self.expand3(squeezed)], 1)


def squeezenet1_1(image_size: int = 224, width: int = 64, classes: int = 1000) -> Workload:
    """SqueezeNet 1.1 (Iandola et al., arXiv:1602.07360); every channel count scales with `width`, a multiple
    of 4.
    """
    unit = width // 4
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, stride=2), nn.ReLU(inplace=True)]
    inputs = width
    # squeeze channels over 16 * unit / 16; 0 stands for a pooling
    for squeeze in (0, 1, 1, 0, 2, 2, 0, 3, 3, 4, 4):
        if squeeze == 0:
            layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
            continue
        layers.append(Fire(inputs, squeeze * unit, 4 * squeeze * unit))
        inputs = 8 * squeeze * unit
    layers += [nn.Dropout(), nn.Conv2d(inputs, classes, 1), nn.ReLU(inplace=True)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return image_workload(nn.Sequential(*layers), image_size)
