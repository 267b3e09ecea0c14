"""Eighty structures of networks that `benchmarks.doctor` and `benchmarks.torch_compile` run, with random weights.

`vision` names torchvision's, `language` those of transformers in small configurations, `own` holds small modules of
ours. Each is a PyTorch module and its inputs, so that engines of ONNX files and `torch.compile` run the same one.
"""

from . import language, vision
from .catalogue import OUTPUT_NAMES, Structure, export, made, names, reference

__all__ = ["OUTPUT_NAMES", "Structure", "export", "language", "made", "names", "reference", "vision"]
