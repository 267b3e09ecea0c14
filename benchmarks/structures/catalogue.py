"""The structures' names, their modules, and ONNX files of them."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from . import language, own, vision

OPSET = 17
OUTPUT_NAMES = ("output",)


@dataclass(frozen=True)
class Structure:
    """A module in evaluation mode that takes and returns tensors, and an input for each of its parameters."""

    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs in the ONNX file."""
        return [f"input{index}" for index in range(len(self.inputs))]


def names() -> list[str]:
    """Return the names of all structures."""
    return [*vision.NETWORKS, *language.NETWORKS, *own.NETWORKS]


def made(name: str) -> Structure:
    """Return the structure of a name, the same in every process.

    Raises:
        KeyError: there is none of that name.
    """
    torch.manual_seed(0)
    for place in (vision, language, own):
        if name in place.NETWORKS:
            module, inputs = place.build(name)
            return Structure(module.eval(), inputs)
    raise KeyError(f"no structure is called {name!r}; there are: {', '.join(names())}")


def export(name: str, folder: Path) -> Path:
    """Return the ONNX file of a structure in ``folder``, written unless it is there, with ``inputs.npz`` beside it."""
    path = folder / "model.onnx"
    if path.exists():
        return path
    structure = made(name)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "inputs.npz", **dict(_arrays(structure)))  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory(dir=folder) as scratch, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        partial = Path(scratch) / "model.onnx"
        torch.onnx.export(
            structure.module,
            structure.inputs,
            str(partial),
            input_names=structure.input_names,
            output_names=list(OUTPUT_NAMES),
            opset_version=OPSET,
            dynamo=False,
        )
        partial.rename(path)
    return path


def reference(path: Path) -> dict[str, np.ndarray]:
    """Return the inputs of the structure that was exported to ``path``, by name."""
    with np.load(path.with_name("inputs.npz")) as stored:
        return {name: stored[name] for name in stored.files}


def _arrays(structure: Structure) -> Iterable[tuple[str, np.ndarray]]:
    return zip(structure.input_names, (tensor.numpy() for tensor in structure.inputs), strict=True)
