"""Temporary folders, locks on files and names of programs, as programs written for TVM use them."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, ClassVar


class DirectoryCreatedPastAtExit(Exception):
    """A temporary folder was requested after :meth:`TempDirectory.remove_tempdirs`, so nothing would remove it."""


class TempDirectory:
    """A folder that is removed with this object, or at the end of a ``with`` block."""

    _keep_all: ClassVar[bool] = False
    _to_remove: ClassVar[set[str] | None] = set()

    def __init__(self, custom_path: str | None = None) -> None:
        """Make the folder ``custom_path`` (which is kept), or a temporary one.

        Raises:
            DirectoryCreatedPastAtExit: the process ends already.
        """
        made = TempDirectory._to_remove
        if made is None:
            raise DirectoryCreatedPastAtExit("the process ends: a temporary folder made now would stay")
        self._keep = custom_path is not None or TempDirectory._keep_all
        self.temp_dir = custom_path if custom_path is not None else tempfile.mkdtemp(prefix="tilewright-")
        os.makedirs(self.temp_dir, exist_ok=True)
        if not self._keep:
            made.add(self.temp_dir)

    @classmethod
    @contextmanager
    def set_keep_for_debug(cls, set_to: bool = True) -> Iterator[None]:
        """Keep folders that are made meanwhile after the end of the process, for debugging."""
        before, TempDirectory._keep_all = TempDirectory._keep_all, set_to
        try:
            yield
        finally:
            TempDirectory._keep_all = before

    @classmethod
    def remove_tempdirs(cls) -> None:
        """Remove the remaining folders, as at the end of the process; new ones are refused after that."""
        made, TempDirectory._to_remove = TempDirectory._to_remove, None
        for folder in made or ():
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def path(self) -> Path:
        """Path of the folder."""
        return Path(self.temp_dir)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        if not self._keep:
            shutil.rmtree(self.temp_dir, ignore_errors=True)
            (TempDirectory._to_remove or set()).discard(self.temp_dir)

    def relpath(self, name: str) -> str:
        """Return the path of a file in the folder."""
        return os.path.join(self.temp_dir, name)

    def listdir(self) -> list[str]:
        """Return the names in the folder."""
        return os.listdir(self.temp_dir)

    def __truediv__(self, name: str) -> Path:
        """The path of a file in the folder: ``folder / "model.so"``."""
        return Path(self.temp_dir) / name

    def __enter__(self) -> TempDirectory:
        return self

    def __exit__(self, *_: Any) -> None:
        self.remove()

    def __del__(self) -> None:
        if not getattr(self, "_keep", True) and TempDirectory is not None and shutil is not None:
            self.remove()  # unless the interpreter ends: then remove_tempdirs has run


atexit.register(TempDirectory.remove_tempdirs)


def tempdir(custom_path: str | None = None) -> TempDirectory:
    """Return a temporary folder."""
    return TempDirectory(custom_path)


class FileLock:
    """The lock on a file, from the beginning of this object's life until :meth:`release`; other processes wait."""

    def __init__(self, path: str) -> None:
        """Take the lock, waiting for it; create the file if needed."""
        self.lock_file: IO[str] = open(path, "w")  # noqa: SIM115
        fcntl.lockf(self.lock_file, fcntl.LOCK_EX)

    def release(self) -> None:
        """Let others have it."""
        if not self.lock_file.closed:
            fcntl.lockf(self.lock_file, fcntl.LOCK_UN)
            self.lock_file.close()


def filelock(path: str) -> FileLock:
    """Return a lock on a file."""
    return FileLock(path)


def is_source_path(path: str) -> bool:
    """Return whether a name is that of a source file in C, C++, CUDA or OpenCL."""
    return Path(path).suffix in (".cc", ".cpp", ".cxx", ".c", ".cu", ".cl", ".h", ".hpp")


def which(exec_name: str) -> str | None:
    """The path of a program, or None."""
    return shutil.which(exec_name)
