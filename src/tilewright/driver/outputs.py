"""Writing a library's outputs to a file: .npz, .npy or .json, by its suffix."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from tilewright.driver.options import check_writable
from tilewright.runtime.error import TVMError
from tilewright.runtime.partial_files import whole_file

SUFFIXES = (".npz", ".npy", ".json")


def check_output(file: Path, count: int) -> None:
    """Raise an error before the run if ``count`` outputs cannot be written to ``file``."""
    if file.suffix not in SUFFIXES:
        raise TVMError(f"cannot write {file}: the name must end in one of {', '.join(SUFFIXES)}")
    if file.suffix == ".npy" and count != 1:
        raise TVMError(f"cannot write {file}: an .npy file holds one array, and there are {count} outputs; use .npz")
    check_writable(file)


def write_outputs(file: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write the outputs to a file, which appears whole or not at all."""
    try:
        with whole_file(file) as partial, partial.open("wb") as stream:
            _WRITERS[file.suffix](stream, arrays)
    except OSError as error:
        raise OSError(f"cannot write {file}: {error.strerror or error}") from None


def to_lists(array: np.ndarray[Any, Any]) -> Any:
    """Nested lists of Python numbers; not a number and infinities are NaN, Infinity and -Infinity in JSON."""
    return array.astype("float32" if array.dtype.kind == "V" else array.dtype).tolist()


def _write_npz(stream: IO[bytes], arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write an .npz file as ``numpy.savez``, but for any name ("file" too, which is an argument there)."""
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _write_npy(stream: IO[bytes], arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    (array,) = arrays.values()
    np.lib.format.write_array(stream, array, allow_pickle=False)


def _write_json(stream: IO[bytes], arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    stream.write(json.dumps({name: to_lists(array) for name, array in arrays.items()}, ensure_ascii=False).encode())


_WRITERS = {".npz": _write_npz, ".npy": _write_npy, ".json": _write_json}
