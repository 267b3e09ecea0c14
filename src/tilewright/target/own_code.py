"""Whose code compiles: the digest of Tilewright's own source, and registrations that are not Tilewright's.

What a cache keeps from one process to the next must change with the code that made it.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PACKAGE = __name__.partition(".")[0]
_COMPILER = ("arith", "autotvm", "ir", "relay", "target", "te", "tir", "topi")
_SUFFIXES = (".py", ".ll")
_IMPORTERS = "frontend"  # folders of what ends before the first pass begins


def is_own(function: Any) -> bool:
    """Return whether a function, or the class of a callable object, is Tilewright's."""
    while isinstance(function, functools.partial):
        function = function.func
    module = getattr(function, "__module__", None) or type(function).__module__
    return str(module).partition(".")[0] == _PACKAGE


def _sources(folder: str, importers: bool) -> Iterator[str]:
    """Yield the files of a folder and those below it that take part in compilation, in order."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.endswith(_SUFFIXES):
            yield entry.path
        elif entry.name != "__pycache__" and (importers or entry.name != _IMPORTERS) and entry.is_dir():
            yield from _sources(entry.path, importers)


@functools.cache
def source_digest(importers: bool = False) -> str | None:
    """Return the digest of the source of the packages that compile; None where it is not there to be read.

    It takes 20 ms: 800 files, 5 MB.

    Args:
        importers: count the front ends, too.
    """
    root = str(Path(__file__).parent.parent)
    digest = hashlib.sha256()
    try:
        paths = [path for name in _COMPILER for path in _sources(os.path.join(root, name), importers)]
        for path in paths:
            with open(path, "rb", buffering=0) as file:
                content = file.readall()
            digest.update(f"{path.removeprefix(root)} {len(content)}\n".encode())
            digest.update(content)
    except OSError:
        return None
    return digest.hexdigest() if paths else None
