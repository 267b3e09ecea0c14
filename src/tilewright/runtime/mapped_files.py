"""Files that arrays are views of: nothing is read before it is used, and the system takes pages back when it needs
them.

Writing to a view of a model's file changes no file. A file that changes or becomes shorter meanwhile is an error, which
``check_mapped_files`` finds; who looks at a part that is gone is ended by the system.

``weight_array`` gives the memory of weights that a compiler makes of others: beyond ``IN_MEMORY`` bytes it is that of
a file without a name on the disk.
"""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakSet

import numpy as np

from .dtype import DataType
from .error import TVMError
from .ndarray import NDArray, empty, share_memory
from .saving import PACKED, tell_bytes

_PRIVATE = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)
_State = tuple[int, int, int, int]


class _Memory(mmap.mmap):
    """The memory of a file, which the arrays on it keep."""

    path: Path
    state: _State


_mapped: WeakSet[_Memory] = WeakSet()


class MappedFile:
    """A file in memory, as long as this or an array on it lives.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            self._memory = _Memory(file.fileno(), 0, flags=_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            self._memory.path, self._memory.state = path, _state(os.fstat(file.fileno()))
        _mapped.add(self._memory)

    def array(self, offset: int, shape: Sequence[int], dtype: str) -> NDArray:
        """Return an array on the bytes from ``offset``, which need not be aligned."""
        kind = DataType(dtype).to_numpy()
        if offset + int(np.prod(shape, dtype=np.int64)) * kind.itemsize > len(self._memory):
            raise ValueError(f"{self.path.name} has become shorter")
        return share_memory(np.ndarray(tuple(shape), kind, self._memory, offset))


IN_MEMORY = 1 << 28
_LARGE = 1 << 20  # bytes; smaller arrays are not worth a file
_held: dict[int, int] = {}  # bytes of large arrays in memory
_numbers = itertools.count()
_packed = [0]  # bytes of all large arrays so far


def packed_bytes() -> int:
    """Return the bytes of all large arrays that ``weight_array`` has given so far."""
    return _packed[0]


def weight_array(shape: Sequence[int], dtype: str) -> NDArray:
    """Return an array with undefined contents for a weight that is made of others.

    Where large ones take over ``IN_MEMORY`` bytes already, its pages are those of a file that has no name, in TMPDIR or
    /var/tmp: the system writes them out when it needs memory, and the file goes with the array. Where the disk is full
    it is in memory.
    """
    kind = DataType(dtype).to_numpy()
    nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if nbytes < _LARGE:
        return empty(shape, dtype)
    _packed[0] += nbytes
    tell_bytes(PACKED, _packed[0])
    if sum(_held.values()) + nbytes > IN_MEMORY and kind.itemsize <= 8:
        memory = _on_disk(nbytes)
        if memory is not None:
            return share_memory(np.ndarray(tuple(shape), kind, memory))
    array, number = empty(shape, dtype), next(_numbers)
    _held[number] = nbytes
    weakref.finalize(array, _held.pop, number, None)
    return array


def folder_of_weights() -> str | None:
    """Return the folder on whose disk weights beyond ``IN_MEMORY`` are; None where there is none."""
    place = os.environ.get("TMPDIR") or "/var/tmp"
    if os.access(place, os.W_OK):
        return place
    try:
        return tempfile.gettempdir()
    except OSError:
        return None


def _on_disk(nbytes: int) -> mmap.mmap | None:
    """Return memory of a file without a name; None where the disk has no room."""
    try:
        with tempfile.TemporaryFile(dir=folder_of_weights()) as file:
            os.posix_fallocate(file.fileno(), 0, nbytes)
            return mmap.mmap(file.fileno(), nbytes)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EOPNOTSUPP, errno.ENOENT, errno.EACCES):
            raise
        return None


def _state(status: os.stat_result) -> _State:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def check_mapped_files() -> None:
    """Raise TVMError where a file that arrays are views of has changed; one that was removed or replaced stays."""
    for memory in list(_mapped):
        try:
            now = _state(memory.path.stat())
        except OSError:
            continue
        if now[:2] == memory.state[:2] and now != memory.state:
            raise TVMError(
                f"{memory.path} has changed since it was read, and weights are used where they lie in it; "
                "import the model again"
            )
