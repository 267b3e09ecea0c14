"""Networks whose layers join by concatenation: DenseNet-121, Inception v3, U-Net."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .workload import Workload, image_workload


class Concatenate(nn.Module):
    """Several branches on the same input, concatenated along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, data: Tensor) -> Tensor:
        """The branches' outputs side by side, in order."""
        return torch.cat([branch(data) for branch in self.branches], 1)


def _norm_relu_conv(inputs: int, outputs: int, kernel: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    return [nn.BatchNorm2d(inputs), nn.ReLU(inplace=False), convolution]


def densenet121(
    image_size: int = 224, growth: int = 32, layers: Sequence[int] = (6, 12, 24, 16), classes: int = 1000
) -> Workload:
    """DenseNet-121 (Huang et al., arXiv:1608.06993): every layer adds `growth` channels to all before it."""
    channels = 2 * growth
    stem = nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False)
    modules: list[nn.Module] = [stem, nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    for block, repeats in enumerate(layers):
        for _ in range(repeats):
            bottleneck = _norm_relu_conv(channels, 4 * growth, 1)
            modules.append(
                Concatenate(nn.Identity(), nn.Sequential(*bottleneck, *_norm_relu_conv(4 * growth, growth, 3)))
            )
            channels += growth
        if block + 1 < len(layers):
            modules += [*_norm_relu_conv(channels, channels // 2, 1), nn.AvgPool2d(2, 2)]
            channels //= 2
    modules += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return image_workload(nn.Sequential(*modules, nn.Linear(channels, classes)), image_size)


def _conv(
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    padding: int | tuple[int, int] = 0,
) -> nn.Sequential:
    """Build Inception's unit: bias-free convolution, batch norm with epsilon 0.001, ReLU."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs, eps=0.001), nn.ReLU(inplace=True))


class _Inception:
    """The modules of Inception v3, with every channel count of the paper multiplied by `width`."""

    def __init__(self, width: float) -> None:
        self.width = width

    def channels(self, published: int) -> int:
        return max(1, round(published * self.width))

    def conv(
        self, inputs: int, published: int, kernel: int | tuple[int, int], stride: int = 1
    ) -> tuple[nn.Module, int]:
        """Build a unit that keeps the size (stride 1) or is unpadded (stride 2); also return its output channels."""
        sides = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        padding = (sides[0] // 2, sides[1] // 2) if stride == 1 else (0, 0)
        outputs = self.channels(published)
        return _conv(inputs, outputs, kernel, stride, padding), outputs

    def chain(
        self, inputs: int, *units: tuple[int, int | tuple[int, int]], last_stride: int = 1
    ) -> tuple[nn.Module, int]:
        """Chain units, each specified as (published channels, kernel)."""
        modules = []
        for index, (published, kernel) in enumerate(units):
            unit, inputs = self.conv(inputs, published, kernel, last_stride if index == len(units) - 1 else 1)
            modules.append(unit)
        return nn.Sequential(*modules), inputs

    def pooled(self, inputs: int, published: int) -> tuple[nn.Module, int]:
        unit, outputs = self.conv(inputs, published, 1)
        return nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), unit), outputs

    def join(self, *branches: tuple[nn.Module, int]) -> tuple[nn.Module, int]:
        return Concatenate(*(module for module, _ in branches)), sum(outputs for _, outputs in branches)

    def fork(self, inputs: int, published: int) -> tuple[nn.Module, int]:
        """1x3 and 3x1 side by side."""
        return self.join(self.conv(inputs, published, (1, 3)), self.conv(inputs, published, (3, 1)))

    def block_a(self, inputs: int, pool: int) -> tuple[nn.Module, int]:
        return self.join(
            self.conv(inputs, 64, 1),
            self.chain(inputs, (48, 1), (64, 5)),
            self.chain(inputs, (64, 1), (96, 3), (96, 3)),
            self.pooled(inputs, pool),
        )

    def block_b(self, inputs: int) -> tuple[nn.Module, int]:
        return self.join(
            self.conv(inputs, 384, 3, stride=2),
            self.chain(inputs, (64, 1), (96, 3), (96, 3), last_stride=2),
            (nn.MaxPool2d(3, 2), inputs),
        )

    def block_c(self, inputs: int, middle: int) -> tuple[nn.Module, int]:
        row, column = (1, 7), (7, 1)
        return self.join(
            self.conv(inputs, 192, 1),
            self.chain(inputs, (middle, 1), (middle, row), (192, column)),
            self.chain(inputs, (middle, 1), (middle, column), (middle, row), (middle, column), (192, row)),
            self.pooled(inputs, 192),
        )

    def block_d(self, inputs: int) -> tuple[nn.Module, int]:
        return self.join(
            self.chain(inputs, (192, 1), (320, 3), last_stride=2),
            self.chain(inputs, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3), last_stride=2),
            (nn.MaxPool2d(3, 2), inputs),
        )

    def block_e(self, inputs: int) -> tuple[nn.Module, int]:
        single, single_outputs = self.conv(inputs, 384, 1)
        fork, fork_outputs = self.fork(single_outputs, 384)
        double, double_outputs = self.chain(inputs, (448, 1), (384, 3))
        double_fork, double_fork_outputs = self.fork(double_outputs, 384)
        return self.join(
            self.conv(inputs, 320, 1),
            (nn.Sequential(single, fork), fork_outputs),
            (nn.Sequential(double, double_fork), double_fork_outputs),
            self.pooled(inputs, 192),
        )


def inception_v3(image_size: int = 299, width: float = 1.0, classes: int = 1000) -> Workload:
    """Build Inception v3 (Szegedy et al., arXiv:1512.00567) as in torchvision, without the side branch of training.

    `image_size` is at least 75; every channel count is multiplied by `width`.
    """
    make = _Inception(width)
    c32, c64, c80, c192 = (make.channels(published) for published in (32, 64, 80, 192))
    modules: list[nn.Module] = [_conv(3, c32, 3, stride=2), _conv(c32, c32, 3), _conv(c32, c64, 3, padding=1)]
    modules += [nn.MaxPool2d(3, 2), _conv(c64, c80, 1), _conv(c80, c192, 3), nn.MaxPool2d(3, 2)]
    channels = c192
    for pool in (32, 64, 64):
        block, channels = make.block_a(channels, pool)
        modules.append(block)
    block, channels = make.block_b(channels)
    modules.append(block)
    for middle in (128, 160, 160, 192):
        block, channels = make.block_c(channels, middle)
        modules.append(block)
    block, channels = make.block_d(channels)
    modules.append(block)
    for _ in range(2):
        block, channels = make.block_e(channels)
        modules.append(block)
    modules += [nn.AdaptiveAvgPool2d(1), nn.Dropout(), nn.Flatten(), nn.Linear(channels, classes)]
    return image_workload(nn.Sequential(*modules), image_size)


def _double_conv(inputs: int, outputs: int) -> nn.Sequential:
    modules: list[nn.Module] = []
    for source in (inputs, outputs):
        modules += [nn.Conv2d(source, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
        modules.append(nn.ReLU(inplace=True))
    return nn.Sequential(*modules)


class UNet(nn.Module):
    """Encoder and decoder with skip connections (Ronneberger et al., arXiv:1505.04597), "same" padding."""

    def __init__(self, width: int, layers: int, classes: int) -> None:
        super().__init__()
        channels = [width * 2**level for level in range(layers + 1)]
        self.down = nn.ModuleList(
            _double_conv(inputs, outputs) for inputs, outputs in zip([3, *channels], channels, strict=False)
        )
        self.pool = nn.MaxPool2d(2, 2)
        self.widen = nn.ModuleList(
            nn.ConvTranspose2d(2 * outputs, outputs, kernel_size=2, stride=2) for outputs in channels[:-1]
        )
        self.up = nn.ModuleList(_double_conv(2 * outputs, outputs) for outputs in channels[:-1])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, data: Tensor) -> Tensor:
        """Map (n, 3, h, w) to (n, classes, h, w); h and w are multiples of 2 ** layers."""
        skipped: list[Tensor] = []
        for level, encode in enumerate(self.down):
            data = encode(data if level == 0 else self.pool(data))
            skipped.append(data)
        skipped.pop()
        for widen, decode in zip(reversed(self.widen), reversed(self.up), strict=True):
            data = decode(torch.cat([widen(data), skipped.pop()], 1))
        mask: Tensor = torch.sigmoid(self.head(data))
        return mask


def unet(image_size: int = 256, width: int = 32, layers: int = 4, classes: int = 1) -> Workload:
    """U-Net for 256x256 pictures with `width` base channels and `layers` halvings; a sigmoid mask out."""
    return image_workload(UNet(width, layers, classes), image_size, output="mask")
