"""Compiled libraries, kept in a folder of the user's by what they were made of.

A library is written to a temporary file and renamed, so that processes may share a folder. Nothing is removed from it.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from pathlib import Path

from tilewright.runtime.error import ExportError, TVMError
from tilewright.runtime.module import Module, load_module


class KeptLibraries:
    """A folder of libraries, each by the digest of all that it depends on.

    Args:
        folder: where they lie; it is made if it is not there. Loading a library runs its code: the folder must be the
            user's own.
        prefix: what their names begin with.

    Raises:
        TVMError: the folder belongs to another user.
        OSError: the folder cannot be made.
    """

    def __init__(self, folder: str | os.PathLike[str], prefix: str) -> None:
        self.folder, self.prefix = Path(folder).expanduser(), prefix
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid") and self.folder.stat().st_uid != os.getuid():
            raise TVMError(f"cache_dir {self.folder}: it belongs to another user; code in it would run as yours")

    def _path(self, key: str) -> Path:
        return self.folder / f"{self.prefix}-{key}.so"

    def get(self, key: str) -> Module | None:
        """Return the module of a library; None where there is no such file, or a damaged one."""
        path = self._path(key)
        if path.is_file():
            with contextlib.suppress(TVMError, OSError):
                return load_module(str(path))
        return None

    def keep(self, key: str, module: Module) -> None:
        """Write a library. Where that fails, the program goes on with a warning."""
        try:
            module.export_library(str(self._path(key)))
        except (OSError, ExportError) as error:
            warnings.warn(f"cache_dir {self.folder}: the library is not kept: {error}", RuntimeWarning, stacklevel=3)
