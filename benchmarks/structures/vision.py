"""Torchvision's classifiers, segmenters and networks of films."""

from __future__ import annotations

import torch

Shape = tuple[int, ...]
_PICTURE: Shape = (1, 3, 224, 224)

# the name: what torchvision calls it, and the input's shape
NETWORKS: dict[str, tuple[str, Shape]] = {
    "alexnet": ("alexnet", _PICTURE),
    "convnext_tiny": ("convnext_tiny", _PICTURE),
    "densenet121": ("densenet121", _PICTURE),
    "efficientnet_b0": ("efficientnet_b0", _PICTURE),
    "googlenet": ("googlenet", _PICTURE),
    "inception_v3": ("inception_v3", (1, 3, 299, 299)),
    "maxvit_t": ("maxvit_t", _PICTURE),
    "mnasnet1_0": ("mnasnet1_0", _PICTURE),
    "mobilenet_v2": ("mobilenet_v2", _PICTURE),
    "mobilenet_v3_small_16": ("mobilenet_v3_small", (16, 3, 224, 224)),
    "mobilenet_v3_large": ("mobilenet_v3_large", _PICTURE),
    "regnet_x_400mf": ("regnet_x_400mf", _PICTURE),
    "regnet_y_400mf": ("regnet_y_400mf", _PICTURE),
    "resnet18": ("resnet18", _PICTURE),
    "resnet18_151": ("resnet18", (1, 3, 151, 151)),
    "resnet50": ("resnet50", _PICTURE),
    "resnet50_4": ("resnet50", (4, 3, 112, 112)),
    "resnext50_32x4d": ("resnext50_32x4d", _PICTURE),
    "shufflenet_v2_x1_0": ("shufflenet_v2_x1_0", _PICTURE),
    "squeezenet1_1": ("squeezenet1_1", _PICTURE),
    "swin_t": ("swin_t", _PICTURE),
    "swin_v2_t": ("swin_v2_t", _PICTURE),
    "vgg16": ("vgg16", _PICTURE),
    "vit_b_16": ("vit_b_16", _PICTURE),
    "deeplabv3_mobilenet": ("deeplabv3_mobilenet_v3_large", _PICTURE),
    "lraspp_mobilenet": ("lraspp_mobilenet_v3_large", _PICTURE),
    "r3d_18": ("r3d_18", (1, 3, 8, 56, 56)),
    "mc3_18": ("mc3_18", (1, 3, 8, 56, 56)),
    "r2plus1d_18": ("r2plus1d_18", (1, 3, 8, 56, 56)),
    "s3d": ("s3d", (1, 3, 16, 224, 224)),
}


class _Segmenter(torch.nn.Module):
    """A segmenter that returns its scores alone."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """Return the scores of each pixel."""
        scores: torch.Tensor = self.network(picture)["out"]
        return scores


def build(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Return a network and its input."""
    declare_operators()
    from torchvision import models

    torch.backends.mha.set_fastpath_enabled(False)  # ONNX's exporter lacks that operator
    published, shape = NETWORKS[name]
    options = {"init_weights": True} if published in ("googlenet", "inception_v3") else {}
    segments = models.get_model_builder(published).__module__.startswith("torchvision.models.segmentation")
    if segments:
        options["weights_backbone"] = None  # type: ignore[assignment]
    network = models.get_model(published, weights=None, **options)
    return (_Segmenter(network) if segments else network), (torch.randn(shape),)


def declare_operators() -> None:
    """Declare the operators that importing torchvision asks for: PyPI's wheel has them for CUDA's torch alone."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    globals()["_LIBRARY"] = library  # its declarations go when it does
