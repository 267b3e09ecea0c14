"""The key of a compiled model: the digest of all that its library depends on, made without the compiler.

That is the content of the model's files, the arguments of ``tilewright.compile``, the target and its processor, and the
source of the compiler. Where something takes part of which two processes cannot tell whether it is the same, a model
has no key: somebody else's operators and schedules, options that hold functions, tuning contexts in force.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tilewright.runtime.error import TVMError
from tilewright.target.cache import cache_key, is_plain
from tilewright.target.features import text_with_processor
from tilewright.target.own_code import source_digest
from tilewright.target.target import Target

_EXTERNAL = b"location"  # the key under which ONNX names a file of weights
# Who has registered code of his own has imported one of these.
_COMPILER = ("tilewright.relay", "tilewright.autotvm", "tilewright.te")


def model_key(
    model: Any, target: Any, records: str | os.PathLike[str] | None, options: Mapping[str, Any]
) -> str | None:
    """Return the key of a model; None for one that is compiled each time.

    Args:
        model: the path of a model's file or folder, or the bytes of an ONNX file.
        target: what it is compiled for.
        records: a file of tuning records.
        options: the other arguments that the library depends on.

    Raises:
        TVMError: the model is neither a path nor bytes.
    """
    if not isinstance(model, (str, bytes, os.PathLike)):
        found = f"{type(model).__module__}.{type(model).__qualname__}"
        raise TVMError(
            f"cache_dir keeps the libraries of model files: it takes a path or bytes, not a {found}; save the compiled "
            "model instead, or of a torch.nn.Module use torch.compile(backend='tilewright', options={'cache_dir': ...})"
        )
    source = source_digest(importers=True)
    if source is None or not isinstance(target, (str, Target)) or not is_plain(options):
        return None
    chosen = Target(target)
    if not chosen.kind.capabilities.machine_code or not _is_as_shipped(chosen):
        return None
    of_target = text_with_processor(chosen)
    try:
        files = repr([None if records is None else _digest_of_file(Path(records)), *_digests(model)])
    except OSError:  # compiling says what is wrong with it
        return None
    return cache_key(source, version("llvmlite"), of_target, repr(sorted(options.items())), files)


def _is_as_shipped(target: Target) -> bool:
    if not any(name in sys.modules for name in _COMPILER):
        return True
    from tilewright.relay.backend.kernel_key import is_as_shipped

    return is_as_shipped(target)


def _digests(model: str | bytes | os.PathLike[str]) -> list[tuple[str, str]]:
    """Return the names and digests of a model's files."""
    if isinstance(model, bytes):
        return [(".onnx", hashlib.sha256(model).hexdigest())]
    path = Path(model)
    names = [(str(file.relative_to(path)) if path.is_dir() else path.suffix, file) for file in _files(path)]
    return [(name, _digest_of_file(file)) for name, file in names]


def _files(path: Path) -> Iterator[Path]:
    """Yield the files of a model."""
    if path.is_dir():
        yield from sorted(file for file in path.rglob("*") if file.is_file())
        return
    yield path
    if path.suffix == ".onnx" and _holds(path, _EXTERNAL):
        from tilewright.relay.frontend.onnx.loading import external_files

        yield from external_files(path)


def _holds(path: Path, text: bytes) -> bool:
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return mapped.find(text) >= 0


def _digest_of_file(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
