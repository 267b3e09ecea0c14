"""Export the zoo's networks to ONNX, once: the files are kept in a cache outside the repository.

A network's folder is named by its options and a hash of the zoo's source, the torch version and the
exporter's settings, so a changed builder is exported anew. It holds ``model.onnx`` and ``reference.npz``, the
inputs and the outputs that PyTorch computed. The TorchScript exporter (``dynamo=False``) writes the files:
with torch 2.13 it still handles every network here, in a fraction of the newer exporter's time.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.runtime import environment
from tilewright.runtime.partial_files import whole_folder

from .catalogue import build, entry

OPSET = 17
TOLERANCE = 1e-3


def cache_directory() -> Path:
    """Return the cache folder: ``$TILEWRIGHT_ZOO``, or ``tilewright/zoo`` in the user's cache folder."""
    chosen = environment.ZOO.read()
    if chosen is not None:
        return chosen
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilewright" / "zoo"


@dataclass(frozen=True)
class _Settings:
    """Settings that determine an exported file, besides the network's name."""

    keep_batch_norm: bool
    opset: int
    options: Mapping[str, Any]


def export(
    name: str,
    directory: Path | None = None,
    *,
    keep_batch_norm: bool = False,
    opset: int = OPSET,
    **options: Any,
) -> Path:
    """The ONNX file of network `name`, exported and checked if the cache does not have it yet.

    Parameters
    ----------
    name : one of `names()`.
    directory : where exports are kept; `cache_directory()` by default.
    keep_batch_norm : leave batch norms as operators and constants unfolded, where the exporter by default
        folds both.
    opset : ONNX opset; below 17 layer norm, which is one operator from there on, is exported as its parts.
    options : sizes for the builder, e.g. those of `small_options(name)`; the published network's by default.

    Returns the path of ``model.onnx``; `reference` reads the inputs and outputs beside it. Safe with several
    processes. Raises ValueError where ONNX Runtime disagrees with PyTorch by more than 1e-3 of the largest
    output.
    """
    settings = _Settings(keep_batch_norm, opset, options)
    folder = (directory or cache_directory()) / _folder_name(name, settings)
    if not folder.is_dir():
        with whole_folder(folder) as partial:
            _write(name, partial, settings)
    return folder / "model.onnx"


def reference(path: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the inputs of the network exported to `path`, and PyTorch's outputs for them, by name."""
    inputs: dict[str, np.ndarray] = {}
    outputs: dict[str, np.ndarray] = {}
    with np.load(path.with_name("reference.npz")) as stored:
        for key in stored.files:
            kind, name = key.split(":", 1)
            (inputs if kind == "input" else outputs)[name] = stored[key]
    return inputs, outputs


def largest_relative_difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest absolute difference over the largest absolute expected value."""
    scale = float(np.max(np.abs(expected), initial=0.0)) or 1.0
    return float(np.max(np.abs(found.astype(np.float64) - expected), initial=0.0)) / scale


def _folder_name(name: str, settings: _Settings) -> str:
    import torch

    entry(name)  # a wrong name is reported before anything is written
    described = (
        name,
        settings.keep_batch_norm,
        settings.opset,
        sorted(settings.options.items()),
        torch.__version__,
    )
    digest = hashlib.sha256(repr(described).encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return f"{name}-{digest.hexdigest()[:16]}"


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Have `nn.MultiheadAttention` traced as its parts: its fused inference operator has no ONNX form."""
    from torch.backends import mha

    enabled = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(enabled)


def _write(name: str, folder: Path, settings: _Settings) -> None:
    """Export network `name` into `folder`, with its reference, and check one against the other."""
    import onnx
    import torch

    workload = build(name, **settings.options)
    path = folder / "model.onnx"
    inputs = tuple(workload.inputs.values())
    with warnings.catch_warnings(), torch.no_grad(), _plain_attention():
        warnings.simplefilter("ignore")
        outputs = workload.network(*inputs)
        torch.onnx.export(
            workload.network,
            inputs,
            str(path),
            input_names=list(workload.inputs),
            output_names=list(workload.output_names),
            opset_version=settings.opset,
            training=torch.onnx.TrainingMode.PRESERVE if settings.keep_batch_norm else torch.onnx.TrainingMode.EVAL,
            do_constant_folding=not settings.keep_batch_norm,
            dynamo=False,
        )
    onnx.checker.check_model(str(path), full_check=True)
    results = outputs if isinstance(outputs, tuple) else (outputs,)
    expected = {key: value.numpy() for key, value in zip(workload.output_names, results, strict=True)}
    given = {key: value.numpy() for key, value in workload.inputs.items()}
    _check(path, given, expected)
    arrays = {f"input:{key}": value for key, value in given.items()}
    arrays.update({f"output:{key}": value for key, value in expected.items()})
    np.savez(folder / "reference.npz", **arrays)


def _check(path: Path, inputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError if ONNX Runtime's outputs for the file at `path` differ from PyTorch's."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = session.run(list(expected), dict(inputs))
    for (key, wanted), value in zip(expected.items(), found, strict=True):
        difference = largest_relative_difference(value, wanted)
        if not difference <= TOLERANCE:
            raise ValueError(f"{path}: output {key} differs from PyTorch's by {difference:.2g} of its largest value")
