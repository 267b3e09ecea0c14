"""Samples to calibrate with: from arrays, iterables, .npz and .npy files, and folders of them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tilewright.ir.errors import TilewrightError
from tilewright.runtime.interface import TensorInfo, fits
from tilewright.runtime.ndarray import numpy_dtype

Array = np.ndarray[Any, Any]
Sample = dict[str, Array]
ReadOther = Callable[[Path, Mapping[str, TensorInfo]], Sample]

LABELS = "labels"
_LARGEST_BATCH = 16  # samples that run together where the batch has a name


class SampleError(TilewrightError):
    """Samples that do not fit the model."""


@dataclass(frozen=True)
class Samples:
    """Batches to run a model on, read when they are needed; ``labels`` are the right classes, one for each sample."""

    sources: Sequence[Callable[[], Mapping[str, Any]]]
    inputs: Mapping[str, TensorInfo]
    labels: Array | None = None

    def __iter__(self) -> Iterator[Sample]:
        """Yield a value for each input, checked."""
        for source in self.sources:
            yield from split(source(), self.inputs)

    @cached_property
    def dims(self) -> dict[str, tuple[int, None]]:
        """Limits from 0 on of the named dimensions that are 0 in a sample, as in a cache before the first token.

        Programs take them from 1 on where nothing is said. The samples are read for it, once, if such a dimension is
        possible: not the first one, which counts them.
        """
        places = [(i, n, axis) for i, info in self.inputs.items() for axis, n in enumerate(info.shape) if axis]
        named = [(name, dim, axis) for name, dim, axis in places if isinstance(dim, str)]
        samples = self if named else ()
        return {dim: (0, None) for sample in samples for name, dim, axis in named if sample[name].shape[axis] == 0}


def make_samples(
    data: Any, inputs: Mapping[str, TensorInfo], labels: Any = None, read_other: ReadOther | None = None
) -> Samples:
    """Return samples for a model.

    Args:
        data: a mapping of input names to arrays, an array for the only input, an iterable of either, or the path of an
            .npz or .npy file or of a folder of such. An array with one more dimension than the input, or with more
            rows, is many samples.
        inputs: the model's inputs.
        labels: the right class of each sample; of an .npz file also its array "labels".
        read_other: reads files of a folder that are of other kinds.

    Raises:
        SampleError: there are none, or names, shapes or data types are not the model's.
    """
    sources = list(_sources(data, inputs, read_other))
    if not sources:
        raise SampleError(_none(data, inputs))
    if labels is None and len(sources) == 1:
        found = sources[0]()
        labels = None if LABELS in inputs else found.get(LABELS)
    return Samples(sources, inputs, None if labels is None else np.asarray(labels).reshape(-1))


def _none(data: Any, inputs: Mapping[str, TensorInfo]) -> str:
    where = f"{data}: " if isinstance(data, str | Path) else ""
    return f"{where}there are no samples to calibrate with; give some values of the inputs: {_listed(inputs)}"


def _listed(inputs: Mapping[str, TensorInfo]) -> str:
    return ", ".join(f"{name} ({info})" for name, info in inputs.items())


def _sources(
    data: Any, inputs: Mapping[str, TensorInfo], read_other: ReadOther | None
) -> Iterator[Callable[[], Mapping[str, Any]]]:
    if isinstance(data, str | Path):
        yield from _files(Path(data), inputs, read_other)
    elif isinstance(data, Mapping) or hasattr(data, "__array__"):
        yield lambda: _by_name(data, inputs, "the samples")
    elif isinstance(data, Iterable):
        for index, one in enumerate(list(data)):
            yield lambda one=one, index=index: _by_name(one, inputs, f"sample {index}")  # type: ignore[misc]
    else:
        raise SampleError(
            f"samples are arrays by input name, an iterable of them, or a path, not {type(data).__name__}"
        )


def _files(
    path: Path, inputs: Mapping[str, TensorInfo], read_other: ReadOther | None
) -> Iterator[Callable[[], Mapping[str, Any]]]:
    if not path.exists():
        raise SampleError(f"{path}: no such file or folder")
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        yield lambda file=file: _read(file, inputs, read_other)  # type: ignore[misc]


def _read(file: Path, inputs: Mapping[str, TensorInfo], read_other: ReadOther | None) -> Mapping[str, Any]:
    data = file.read_bytes()
    if not data.startswith((b"PK", b"\x93NUMPY")):
        if read_other is None:
            raise SampleError(f"{file}: neither an .npz file nor an .npy array")
        return read_other(file, inputs)
    try:
        loaded = np.load(io.BytesIO(data), allow_pickle=False)
        found = loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except Exception as error:  # damaged archives raise many kinds
        raise SampleError(f"{file}: damaged, or no .npz file or .npy array ({error})") from None
    return _by_name(found, inputs, str(file))


def _by_name(value: Any, inputs: Mapping[str, TensorInfo], where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        if len(inputs) != 1:
            raise SampleError(f"{where}: an array without a name, and the model has the inputs {_listed(inputs)}")
        return {next(iter(inputs)): np.asarray(value)}
    missing = [name for name in inputs if name not in value]
    if missing:
        raise SampleError(
            f"{where}: no values for the input {missing[0]!r}; found {', '.join(map(str, value)) or 'none'}, expected "
            f"{_listed(inputs)}"
        )
    unknown = [name for name in value if name not in inputs and name != LABELS]
    if unknown:
        raise SampleError(f"{where}: the model has no input {unknown[0]!r}; its inputs are {_listed(inputs)}")
    return value


def split(values: Mapping[str, Any], inputs: Mapping[str, TensorInfo]) -> Iterator[Sample]:
    """Yield the samples that arrays hold, each in the shape of the inputs."""
    parts = {name: _parts(name, np.asarray(values[name]), info) for name, info in inputs.items()}
    count = max((len(one) for one in parts.values()), default=0)
    for name, one in parts.items():
        if len(one) not in (1, count):
            raise SampleError(f"the input {name!r} has {len(one)} samples, another one {count}")
    for index in range(count):
        yield {name: one[index if len(one) > 1 else 0] for name, one in parts.items()}


def _parts(name: str, array: Array, info: TensorInfo) -> list[Array]:
    dtype = numpy_dtype(info.dtype)
    wrong = f"samples of the input {name!r}: expected {info}, found {array.dtype} of shape {array.shape}"
    if array.dtype != dtype and not {array.dtype.kind + dtype.kind} <= {"ff", "ii", "uu", "iu", "ui"}:
        raise SampleError(wrong)
    array = array.astype(dtype, copy=False)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise SampleError(f"samples of the input {name!r} have elements that are not finite numbers")
    if fits(array.shape[1:], info) and array.ndim:
        return list(array)
    if array.ndim and info.shape and fits(array.shape, TensorInfo((array.shape[0], *info.shape[1:]), info.dtype)):
        rows = info.shape[0]
        size = rows if isinstance(rows, int) else _LARGEST_BATCH
        if isinstance(rows, str) or (size and len(array) % size == 0):
            return [array[i : i + size] for i in range(0, len(array), size)]
    if fits(array.shape, info):
        return [array]
    raise SampleError(wrong)


def inputs_of(model: onnx.ModelProto) -> dict[str, TensorInfo]:
    """Return data type and shape of a model's inputs, without constants; a dimension without a number is a name."""
    constants = {t.name for t in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        dims = enumerate(tensor.shape.dim)
        shape = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or f"{value.name}_{i}" for i, d in dims)
        found[value.name] = TensorInfo(shape, str(dtype))
    return found
