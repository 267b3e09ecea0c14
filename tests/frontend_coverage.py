"""How many of torchvision's models agree with eager torch: ``python -m tests.frontend_coverage [NAME ...]``.

Without names all of torchvision's classifiers, and its models of segmentation, detection and video, with random weights
and small pictures. It needs ``pip install --no-deps torchvision``. One line a model, and the counts at the end.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import torch
from tests.models import torchvision_operators
from torch.utils._pytree import tree_leaves

import tilewright

TOLERANCE = 1e-4  # of the largest result
_SIZES = {"inception_v3": 175, "googlenet": 96, "alexnet": 96, "maxvit_t": 224}
_QUANTIZED = "quantized_"


def names() -> list[str]:
    """Return the names of torchvision's models."""
    torchvision_operators.define()
    from torchvision import models

    return [name for name in models.list_models() if not name.startswith(_QUANTIZED)]


class _Picture(torch.nn.Module):
    """A detector of one picture, whose result is tensors in a fixed order."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, picture: torch.Tensor) -> list[Any]:
        (found,) = self.network([picture])
        return [found[key] for key in sorted(found)]


def network(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """Return a model with random weights, and a picture or a film for it."""
    torchvision_operators.define()
    from torchvision import models

    torch.manual_seed(0)
    options: dict[str, Any] = {"weights_backbone": None} if _has_backbone(name) else {}
    side = _SIZES.get(name, 64)
    if name.startswith("vit_"):
        side = options["image_size"] = 56 if "14" in name else 64
    made = models.get_model(name, weights=None, **options).eval()
    with torch.no_grad():
        for parameter in made.parameters():  # heads that begin as zeros say nothing
            if not parameter.any():
                parameter.normal_(std=0.1)
    if models.get_model_builder(name).__module__.startswith("torchvision.models.detection"):
        return _Picture(made), torch.rand(3, side, side)
    if models.get_model_builder(name).__module__.startswith("torchvision.models.video"):
        return made, torch.rand(1, 3, 16, *((224, 224) if name.startswith(("mvit", "swin")) else (112, 112)))
    return made, torch.rand(1, 3, side, side)


def _has_backbone(name: str) -> bool:
    from torchvision import models

    module = models.get_model_builder(name).__module__
    return module.startswith(("torchvision.models.detection", "torchvision.models.segmentation"))


def error_of(name: str) -> float:
    """Compile a model; return its largest error, relative to the largest result."""
    made, x = network(name)
    model = tilewright.compile(made, (x,))
    with torch.no_grad():
        expected = tree_leaves(made(x))
    errors = [0.0]
    for found, wanted in zip(tree_leaves(model(x)), expected, strict=True):
        assert found.shape == wanted.shape, (found.shape, wanted.shape)
        if wanted.numel():
            largest = max(wanted.double().abs().max().item(), 1e-6)
            errors.append((found.double() - wanted.double()).abs().max().item() / largest)
    return max(errors)


def main(chosen: list[str]) -> None:
    """Print what became of each model."""
    warnings.filterwarnings("ignore")
    counts = {"equal": 0, "different": 0, "failed": 0}
    for name in chosen or names():
        begun = time.process_time()
        try:
            error = error_of(name)
            kind, text = ("equal" if error <= TOLERANCE else "different"), f"{error:.1e}"
        except Exception as problem:
            kind, text = "failed", f"{type(problem).__name__}: {str(problem)[:300]}"
        counts[kind] += 1
        print(f"{kind:10}{name:32}{time.process_time() - begun:6.1f} s  {text}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
