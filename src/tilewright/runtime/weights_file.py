"""Writes files of weights beside libraries, which several libraries share; see native/src/array/weights.c.

A tensor that the file has already, with the same bytes, is used where it lies; others are added at its end. What is
there does not move, so libraries that were written earlier stay valid. The file appears whole or not at all: where
tensors are added, a copy of it takes its place, and processes that have it mapped keep the one before.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .error import ExportError


@dataclass(frozen=True)
class WeightsFile:
    """A file that weights are being added to.

    ``name`` is its place relative to the library's folder, ``old`` the file that is there already (None: none),
    ``state`` how it is, and ``added`` the one that gets what it lacks.
    """

    name: str
    old: Path | None
    state: tuple[int, ...]
    added: Path

    def finish(self, target: Path) -> None:
        """Let the file take the place of the old one, if anything was added."""
        size = self.old.stat().st_size if self.old is not None else 0
        grows = self.added.exists() and self.added.stat().st_size > size
        if self.old is not None and grows:
            _copy_start(self.old, self.added, size)
            shutil.copymode(self.old, self.added)
        if _state(target) != self.state:
            raise ExportError(f"{target} was changed by someone else meanwhile; export again")
        if grows:
            os.replace(self.added, target)


def _state(path: Path) -> tuple[int, ...]:
    """Return what tells a file from one that has taken its place, or from itself after a change."""
    if not path.exists():
        return ()
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _copy_start(source: Path, target: Path, nbytes: int) -> None:
    """Copy the first bytes of a file over those of another; file systems that can share them do."""
    with source.open("rb") as reading, target.open("r+b") as writing:
        done = 0
        while done < nbytes:
            try:
                count = os.copy_file_range(reading.fileno(), writing.fileno(), nbytes - done, done, done)
            except OSError:
                count = 0  # not between these file systems
            if count == 0:
                reading.seek(done)
                writing.seek(done)
                shutil.copyfileobj(reading, writing, 1 << 20)
                return
            done += count


def check_place(path: Path) -> None:
    """Raise ExportError where no file can be written."""
    if path.is_dir():
        raise ExportError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise ExportError(f"cannot write {path}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ExportError(f"cannot write {path}: no permission to write in {path.parent}")


def check_weights_file(library: Path, weights: Path) -> None:
    """Raise ExportError where a library cannot have its weights in a file."""
    if library.suffix != ".so":
        raise ExportError(f"weights can be in a file beside a shared library (.so), which finds it, not {library}")
    if weights.resolve() == library.resolve():
        raise ExportError(f"{library} cannot be both the library and the file of its weights")
    check_place(weights)


@contextlib.contextmanager
def adding_weights(library: Path, weights: Path, partial: Path) -> Iterator[WeightsFile]:
    """Give a file of weights, which takes its place when the block ends without an error.

    Other exports that add to files in its folder wait meanwhile, where its file system has locks of folders.

    Args:
        library: whose weights they are.
        weights: the file.
        partial: a file in its folder, for what is not finished.
    """
    name = os.path.relpath(weights, library.parent.resolve())
    lock = os.open(weights.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        file = WeightsFile(name, weights if weights.exists() else None, _state(weights), partial)
        yield file
        file.finish(weights)
    finally:
        partial.unlink(missing_ok=True)
        os.close(lock)
