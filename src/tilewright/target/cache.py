"""Compiled kernels on disk: building the same model again compiles nothing.

An entry's name is the hash of everything that the object code depends on; its content starts with its own checksum, so
that a damaged entry is noticed and built again. Entries are written to a temporary file and renamed, so that processes
may share a cache. The least recently used ones go when it grows beyond its limit.

``TILEWRIGHT_CACHE``, ``TILEWRIGHT_CACHE_DIR`` and ``TILEWRIGHT_CACHE_SIZE`` govern it (``runtime/environment.py``).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewright.runtime import environment
from tilewright.runtime.fork import forked_lock
from tilewright.runtime.partial_files import write_whole

_MAGIC = b"TWKERN1\n"
_DIGEST_BYTES = 32
_PLAIN = (str, int, float, bool, type(None))


def cache_directory() -> Path:
    """The folder of the cache."""
    given = environment.CACHE_DIR.read()
    if given is not None:
        return given
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(base) if base else Path.home() / ".cache"
    except RuntimeError:  # a user without a home
        folder = Path(tempfile.gettempdir()) / f"tilewright-{os.getuid()}"
    return folder / "tilewright" / "kernels"


def cache_key(*parts: str) -> str:
    """The name of the entry that depends on ``parts``."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def is_plain(value: Any) -> bool:
    """Return whether a value has the same ``repr`` in two processes if and only if it is the same."""
    if isinstance(value, Mapping):
        return all(isinstance(k, str) and is_plain(v) for k, v in value.items())
    return all(map(is_plain, value)) if isinstance(value, (list, tuple)) else isinstance(value, _PLAIN)


class KernelCache:
    """A folder of checked entries. Trouble with the disk makes it miss, never fail."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self.directory, self.limit_bytes = directory, limit_bytes
        self._lock = forked_lock()
        self._written = 0
        self._looked_at_size = False

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / key[2:]

    def get(self, key: str) -> bytes | None:
        """The entry, or None. A damaged one is removed."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        head = len(_MAGIC) + _DIGEST_BYTES
        data = content[head:]
        if content[: len(_MAGIC)] != _MAGIC or hashlib.sha256(data).digest() != content[len(_MAGIC) : head]:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # recently used
        return data

    def put(self, key: str, data: bytes) -> None:
        """Add an entry."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, _MAGIC + hashlib.sha256(data).digest() + data)
        except OSError:
            return
        with self._lock:
            self._written += len(data)
            due = not self._looked_at_size or self._written > self.limit_bytes // 16
            if due:
                self._looked_at_size, self._written = True, 0
        if due:
            self.evict()

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        for folder in self.directory.glob("??"):
            for path in folder.iterdir():
                with contextlib.suppress(OSError):
                    found = path.stat()
                    yield found.st_mtime, found.st_size, path

    def evict(self) -> None:
        """Remove the least recently used entries while the cache is above its limit."""
        try:
            entries = sorted(self._entries())
        except OSError:
            return
        total = sum(size for _, size, _ in entries)
        if total <= self.limit_bytes:
            return
        for _, size, path in entries:
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size
            if total <= self.limit_bytes * 3 // 4:
                return

    def size(self) -> tuple[int, int]:
        """Return the number of entries and their total bytes."""
        try:
            sizes = [size for _, size, _ in self._entries()]
        except OSError:  # another process clears it
            return 0, 0
        return len(sizes), sum(sizes)

    def clear(self) -> None:
        """Remove every entry."""
        with contextlib.suppress(OSError):
            for _, _, path in list(self._entries()):
                with contextlib.suppress(OSError):
                    path.unlink()


def current_cache() -> KernelCache | None:
    """The cache as the environment sets it; None when it is off."""
    if not environment.CACHE.read():
        return None
    directory, limit = cache_directory(), environment.CACHE_SIZE.read() << 20
    cache = _caches.get((directory, limit))
    if cache is None:
        cache = _caches[directory, limit] = KernelCache(directory, limit)
    return cache


_caches: dict[tuple[Path, int], KernelCache] = {}


def clear_cache() -> None:
    """Remove all compiled kernels from the disk cache."""
    KernelCache(cache_directory(), 0).clear()
