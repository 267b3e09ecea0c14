"""Real networks for tests and benchmarks, with random weights, exported to ONNX from PyTorch modules.

`names` lists them, `export` writes the ONNX file of one (to a cache outside the repository), `reference` the
inputs and PyTorch's outputs for it, `build` the PyTorch module itself. `classifiers`, `multibranch`,
`transformers` and `recurrent` hold the modules; nothing here imports torch before a network is built.
"""

from .catalogue import build, names, small_options
from .export import cache_directory, export, largest_relative_difference, reference

__all__ = [
    "build",
    "cache_directory",
    "export",
    "largest_relative_difference",
    "names",
    "reference",
    "small_options",
]
