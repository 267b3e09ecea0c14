"""Values for a library's inputs: from files of several kinds, from standard input, or made up.

A file is what its first bytes say, whatever its name: an ``.npz`` archive, an ``.npy`` array, a PNG or JPEG picture, or
else JSON: an object with a value for each input, or the value of the only one.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.driver.fill import filled
from tilewright.driver.images import ImageOptions, image_layout, is_image, read_image
from tilewright.driver.library import Library
from tilewright.driver.options import check_is_file
from tilewright.runtime.error import TVMError
from tilewright.runtime.interface import TensorInfo, fits
from tilewright.runtime.ndarray import numpy_dtype

Array = np.ndarray[Any, Any]

FILLS = ("random", "zeros", "ones")
_NPZ_MAGIC, _NPY_MAGIC = b"PK", b"\x93NUMPY"


def make_inputs(
    library: Library, sources: list[str] | None, fill: str | None, image: ImageOptions | None = None
) -> dict[str, Array]:
    """Return an array for each input: from the sources, or made up for missing ones if ``fill`` is set.

    Args:
        library: the library with the inputs.
        sources: each a file, ``-`` for standard input, or ``NAME=FILE`` for a file with the value of one input.
        fill: ``"random"``, ``"zeros"`` or ``"ones"``.
        image: conversion of images.

    Raises:
        TVMError: a file cannot be read, an input has no value or two, or a value does not fit.
    """
    if fill is not None and fill not in FILLS:
        raise TVMError(f"--fill takes {', '.join(FILLS)}, not {fill!r}")
    given: dict[str, Array] = {}
    for source in sources or ():
        for name, array in _read(source, library, image or ImageOptions()).items():
            if name in given:
                raise TVMError(f"--inputs gives two values for the input {name!r}")
            given[name] = array
    missing = [name for name in library.inputs if name not in given]
    if missing and fill is None:
        raise TVMError(
            f"no value for the input {missing[0]!r}; give --inputs or --fill. Inputs: {library.describe_inputs()}"
        )
    rng = np.random.default_rng(0)
    return {
        name: given[name] if name in given else filled(name, info, fill or "zeros", rng)
        for name, info in library.inputs.items()
    }


def _read(source: str, library: Library, image: ImageOptions) -> dict[str, Array]:
    """The arrays of one source, by input, checked."""
    name, equals, file = split_source(source, library)
    if not equals or Path(source).exists():
        name, file = "", source
    elif name not in library.inputs:
        raise TVMError(f"--inputs {source}: {_no_input(library, name)}")
    where = "standard input" if file == "-" else file
    data = _bytes(file)
    if is_image(data):
        target = name or _only(library, where, [n for n, info in library.inputs.items() if image_layout(info)])
        return {target: read_image(data, where, target, library.inputs[target], image)}
    if data.startswith((_NPZ_MAGIC, _NPY_MAGIC)):
        found = _read_numpy(data, where)
    else:
        found = _read_json(data, where)
    if not isinstance(found, dict):
        found = {name or _only(library, where, list(library.inputs)): found}
    elif name:
        found = {name: _single(found, where)}
    return {key: _fitting(value, key, library, where) for key, value in found.items()}


def split_source(source: str, library: Library) -> tuple[str, str, str]:
    """Split ``NAME=FILE`` after the longest input name that it begins with, else at the first ``=``."""
    named = [name for name in library.inputs if source.startswith(f"{name}=")]
    if not named:
        return source.partition("=")
    name = max(named, key=len)
    return name, "=", source[len(name) + 1 :]


def _bytes(file: str) -> bytes:
    if file == "-":
        if sys.stdin is None or sys.stdin.closed:
            raise TVMError("--inputs -: standard input is closed")
        return sys.stdin.buffer.read()
    check_is_file(Path(file))
    return Path(file).read_bytes()


def _only(library: Library, where: str, candidates: list[str]) -> str:
    """The one input that a file without a name for its value can be meant for."""
    names = candidates or list(library.inputs)
    if len(names) != 1:
        raise TVMError(
            f"{where}: which input is this? Say so: --inputs NAME=FILE. The inputs are {library.describe_inputs()}"
        )
    return names[0]


def _single(found: dict[str, Any], where: str) -> Any:
    if len(found) != 1:
        raise TVMError(f"{where}: one array was asked for, and it holds {len(found)}: {', '.join(found)}")
    return next(iter(found.values()))


def _no_input(library: Library, name: str) -> str:
    return f"the library has no input {name!r}; its inputs are {library.describe_inputs()}"


def _read_numpy(data: bytes, where: str) -> Array | dict[str, Array]:
    kind = ".npz file of arrays" if data.startswith(_NPZ_MAGIC) else ".npy array"
    try:
        loaded = np.load(io.BytesIO(data), allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception as error:  # damaged archives raise many kinds: zlib.error, BadZipFile, EOFError, MemoryError, ...
        raise TVMError(f"{where}: damaged, or not an {kind} ({error})") from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise TVMError(f"{where}: not an {kind} (its member {name!r} is no array)")
    return arrays


def _read_json(data: bytes, where: str) -> Any:
    """Parse a JSON file."""
    try:
        return json.loads(data.decode())
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        suffix = Path(where).suffix
        hint = f" ({error})" if suffix == ".json" or data[:1] in (b"{", b"[") else ""
        raise TVMError(f"{where}: neither .npz, .npy, JSON, PNG nor JPEG{hint}, or cut short") from None


def _fitting(value: Any, name: str, library: Library, where: str) -> Array:
    """Convert ``value`` to the input's array; numpy arrays must have its dtype, JSON numbers take it."""
    if name not in library.inputs:
        raise TVMError(f"{where}: {_no_input(library, name)}")
    info = library.inputs[name]
    dtype = numpy_dtype(info.dtype)
    if not isinstance(value, np.ndarray):
        value = _from_json(value, dtype, f"{where}: input {name!r}", info)
    elif value.dtype.kind == "V" and value.dtype.itemsize == dtype.itemsize and dtype.kind == "V":
        value = value.view(dtype)  # .npy files know bfloat16 as two bytes of no type
    if not fits(value.shape, info) or value.dtype != dtype:
        remedy = f"; convert it: array.astype({info.dtype!r})" if fits(value.shape, info) else ""
        raise TVMError(f"{where}: input {name!r}: expected {info}, got {value.dtype} of shape {value.shape}{remedy}")
    return value


def _from_json(value: Any, dtype: np.dtype[Any], where: str, info: TensorInfo) -> Array:
    """Nested lists of numbers as an array of the input's type, each value unchanged but for rounding of fractions."""
    try:
        array = np.array(value)
    except (ValueError, OverflowError):
        raise TVMError(f"{where}: expected {info}, got lists of unequal lengths") from None
    if array.size == 0:
        return array.astype(dtype)
    if array.dtype.kind not in "biuf" or (dtype.kind != "b") == (array.dtype.kind == "b"):
        found = "true and false" if array.dtype.kind == "b" else "something other than numbers"
        found = found if dtype.kind != "b" else "something other than true and false"
        raise TVMError(f"{where}: expected {info}, got {found}")
    with np.errstate(all="ignore"):
        converted = array.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(converted.astype(array.dtype), array):
        raise TVMError(f"{where}: expected {info.dtype}, and it holds numbers that are not whole or too large")
    return converted
