"""Torchvision's models with random weights, and small pictures or films for them.

Its wheel on PyPI needs a CUDA build of torch for its own operators; ``torchvision_operators`` has them in Python.
"""

from __future__ import annotations

from typing import Any

import torch
from tests.frontend_coverage.subject import Example, Subject, awake
from tests.models import torchvision_operators

_SIZES = {"inception_v3": 175, "googlenet": 96, "alexnet": 96, "maxvit_t": 224}
_QUANTIZED = "quantized_"


def subjects() -> list[Subject]:
    """Return torchvision's models, all but the quantized ones."""
    torchvision_operators.define()
    from torchvision import models

    names = [name for name in models.list_models() if not name.startswith(_QUANTIZED)]
    return [Subject(name, lambda name=name: Example(*network(name))) for name in names]


class _Picture(torch.nn.Module):
    """A detector of one picture, whose result is tensors in a fixed order."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, picture: torch.Tensor) -> list[Any]:
        (found,) = self.network([picture])
        return [found[key] for key in sorted(found)]


def network(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Return a model with random weights, and a picture, two of them, or a film for it."""
    torchvision_operators.define()
    from torchvision import models

    torch.manual_seed(0)
    options: dict[str, Any] = {"weights_backbone": None} if _has_backbone(name) else {}
    side = _SIZES.get(name, 64)
    if name.startswith("vit_"):
        side = options["image_size"] = 56 if "14" in name else 64
    made = models.get_model(name, weights=None, **options).eval()
    awake(made)
    if models.get_model_builder(name).__module__.startswith("torchvision.models.detection"):
        return _Picture(made), (torch.rand(3, side, side),)
    if name.startswith("raft_"):
        return made, (torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128))
    if models.get_model_builder(name).__module__.startswith("torchvision.models.video"):
        return made, (torch.rand(1, 3, 16, *((224, 224) if name.startswith(("mvit", "swin", "s3d")) else (112, 112))),)
    return made, (torch.rand(1, 3, side, side),)


def _has_backbone(name: str) -> bool:
    from torchvision import models

    module = models.get_model_builder(name).__module__
    return module.startswith(("torchvision.models.detection", "torchvision.models.segmentation"))
