"""Small networks that torchao's quantizer for x86 quantizes, static and dynamic."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.frontend_coverage.subject import Example, Subject
from torch import nn


class Residual(nn.Module):
    """Convolutions with normalization, a depthwise one, a sum, pools and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        self.second = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16))
        self.depthwise, self.wide = nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 32, 1, stride=2)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = F.hardswish(self.depthwise(F.relu(x + self.second(x))))
        return self.head(F.adaptive_avg_pool2d(F.relu6(self.wide(x)), 1).flatten(1))


class Attention(nn.Module):
    """Heads of attention between dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [h.unflatten(-1, (4, 8)).transpose(1, 2) for h in self.inner(x).chunk(3, -1)]
        return self.outer(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16), nn.LayerNorm(16))


NETWORKS = {"residual": (Residual, (2, 3, 16, 16)), "attention": (Attention, (2, 5, 32)), "mlp": (_perceptron, (8, 32))}


def subjects() -> list[Subject]:
    """Return each network with each way to quantize."""
    return [
        Subject(
            f"{name}_{'dynamic' if dynamic else 'static'}", lambda name=name, dynamic=dynamic: example(name, dynamic)
        )
        for name in NETWORKS
        for dynamic in (False, True)
    ]


def example(name: str, dynamic: bool) -> Example:
    """Return a quantized network; no convolution and no dense layer of it may stay in float32."""
    import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer as x86
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(0)
    build, shape = NETWORKS[name]
    x = torch.randn(*shape)
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_dynamic=dynamic))
    prepared = prepare_pt2e(torch.export.export(build().eval(), (x,)).module(), quantizer)
    for _ in range(4):
        prepared(torch.randn_like(x))
    return Example(convert_pt2e(prepared), (x,), integers=True)
