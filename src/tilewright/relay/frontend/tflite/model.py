"""A TensorFlow Lite model as Python objects: tensors, operators and subgraphs of a file."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilewright.relay.frontend.tflite.flatbuffer import Reader, TfliteImportError
from tilewright.relay.frontend.tflite.schema import IDENTIFIER, OPERATORS, PLACEHOLDER, TABLES, TYPES
from tilewright.relay.frontend.tflite.sparsity import dense

Array = np.ndarray[Any, Any]
_DATA_TYPES = frozenset(TYPES) - {"string", "resource", "variant", "complex64", "complex128"}
_OF_BITS = {"int4": "int8", "bfloat16": "uint16"}
_MOST_ELEMENTS = 1 << 40


@dataclass(frozen=True)
class Tensor:
    """A tensor; ``data`` are a constant's elements. An integer q stands for ``(q - zero) * scale`` where it has scales,
    one, or one for each entry of ``axis``.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    data: Array | None
    scale: Array | None
    zero: Array
    axis: int
    is_variable: bool

    @property
    def is_quantized(self) -> bool:
        """Whether its integers stand for numbers."""
        return self.scale is not None

    @property
    def is_per_axis(self) -> bool:
        """Whether the entries of an axis have scales of their own."""
        return self.scale is not None and self.scale.size > 1


@dataclass(frozen=True)
class Operator:
    """An operator: its name (of a custom one, its own), tensors (-1 where omitted), options.

    Attributes:
        intermediates: tensors that state the scales of what is computed on the way.
    """

    name: str
    is_custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: SimpleNamespace | None
    custom: bytes
    intermediates: tuple[int, ...] = ()


@dataclass(frozen=True)
class Subgraph:
    """Operators in the order in which they run."""

    name: str
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True)
class Model:
    """Subgraphs, the main one first."""

    subgraphs: tuple[Subgraph, ...]


def read_model(source: Any) -> Model:
    """Return a model: of a file, of its bytes, or of an object of a schema package.

    Raises:
        TfliteImportError: it is no model, or damaged.
    """
    if isinstance(source, (str, os.PathLike)):
        return _model(Reader(Path(source).read_bytes(), TABLES, str(source)), None)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _model(Reader(bytes(source), TABLES, "the buffer"), None)
    table: Any = getattr(source, "_tab", None)  # how generated classes of flatbuffers hold their data
    if not hasattr(source, "SubgraphsLength") or not hasattr(table, "Bytes"):
        raise TfliteImportError(
            f"a model is a tflite.Model, the bytes of a file or its path; found {type(source).__name__}"
        )
    return _model(Reader(bytes(table.Bytes), TABLES, "the model"), int(table.Pos))


def _model(reader: Reader, at: int | None) -> Model:
    if at is None:
        if reader.data[4:8] != IDENTIFIER:
            reader.fail(f"its bytes 4 to 7 are {reader.data[4:8]!r}, expected {IDENTIFIER!r}")
        at = reader.follow(0)
    raw = reader.table("Model", at)
    if not raw.subgraphs:
        reader.fail("it has no subgraph")
    return Model(tuple(_subgraph(reader, raw, graph) for graph in raw.subgraphs))


def _subgraph(reader: Reader, raw: SimpleNamespace, graph: SimpleNamespace) -> Subgraph:
    tensors = tuple(_tensor(reader, raw, index, tensor) for index, tensor in enumerate(graph.tensors))

    def known(indices: Sequence[int], least: int, what: str) -> tuple[int, ...]:
        if bad := [int(i) for i in indices if not least <= i < len(tensors)]:
            reader.fail(f"{what} is tensor {bad[0]}, and there are {len(tensors)}")
        return tuple(int(i) for i in indices)

    operators = []
    for op in graph.operators:
        name, is_custom = _name(reader, raw, op.code)
        inputs, outputs = known(op.inputs, -1, f"an input of {name}"), known(op.outputs, -1, f"an output of {name}")
        between = known(op.intermediates, -1, f"an intermediate tensor of {name}")
        operators.append(Operator(name, is_custom, inputs, outputs, _options(reader, op), _custom(reader, op), between))
    inputs, outputs = known(graph.inputs, 0, "an input"), known(graph.outputs, 0, "an output")
    return Subgraph(graph.name, tensors, inputs, outputs, tuple(operators))


def _name(reader: Reader, raw: SimpleNamespace, code: int) -> tuple[str, bool]:
    if code >= len(raw.operator_codes):
        reader.fail(f"an operator has code {code}, and there are {len(raw.operator_codes)}")
    found = raw.operator_codes[code]
    number = found.deprecated if 0 <= found.deprecated < PLACEHOLDER and not found.code else found.code
    if not 0 <= number < len(OPERATORS):
        return f"operator {number}", False
    name = OPERATORS[number]
    return (found.custom or "CUSTOM", True) if name == "CUSTOM" else (name, False)


def _options(reader: Reader, op: SimpleNamespace) -> SimpleNamespace | None:
    kind = str(op.options_type)
    return reader.table(kind, op.options) if kind in TABLES and op.options else None


def _custom(reader: Reader, op: SimpleNamespace) -> bytes:
    if op.large_offset > 1:
        return reader.data[op.large_offset : op.large_offset + op.large_size]
    return bytes(op.custom.tobytes())


def _tensor(reader: Reader, raw: SimpleNamespace, index: int, tensor: SimpleNamespace) -> Tensor:
    name = tensor.name or f"tensor_{index}"
    if not 0 <= tensor.type < len(TYPES):
        reader.fail(f"tensor {name!r} has type {tensor.type}; types are 0 to {len(TYPES) - 1}")
    dtype, shape = TYPES[tensor.type], tuple(int(d) for d in tensor.shape)
    if min(shape, default=0) < -1 or math.prod(map(abs, shape)) > _MOST_ELEMENTS:
        reader.fail(f"tensor {name!r} has the shape {shape}")
    scale, zero, axis = _quantization(reader, name, shape, tensor.quantization)
    data = _data(reader, raw, name, tensor, shape, dtype)
    return Tensor(index, name, shape, _held_as(dtype), data, scale, zero, axis, bool(tensor.is_variable))


def _held_as(dtype: str) -> str:
    return "int8" if dtype == "int4" else dtype


def _quantization(
    reader: Reader, name: str, shape: tuple[int, ...], raw: SimpleNamespace | None
) -> tuple[Array | None, Array, int]:
    if raw is None or not raw.scale.size:
        return None, np.zeros(1, "int32"), 0
    scale = raw.scale.astype("float32")
    zero = raw.zero_point if raw.zero_point.size else np.zeros(1, "int64")
    if not np.isfinite(scale).all() or (scale < 0).any() or (np.abs(zero) >= 1 << 31).any():
        reader.fail(f"tensor {name!r} has the scales {scale[:4].tolist()} and zero points {zero[:4].tolist()}")
    axis = int(raw.axis)
    if scale.size > 1 and (not 0 <= axis < len(shape) or shape[axis] != scale.size):
        reader.fail(f"tensor {name!r} of shape {shape} has {scale.size} scales along axis {axis}")
    if zero.size not in (1, scale.size):
        reader.fail(f"tensor {name!r} has {scale.size} scales and {zero.size} zero points")
    if not scale.all():
        return (None, np.zeros(1, "int32"), 0) if scale.size == 1 else (np.where(scale, scale, 1), _int32(zero), axis)
    if scale.size > 1 and (scale == scale[0]).all() and (zero == zero[0]).all():
        scale, zero = scale[:1], zero[:1]
    return scale, _int32(zero), axis


def _int32(values: Array) -> Array:
    return values.astype("int32")


def _data(
    reader: Reader, raw: SimpleNamespace, name: str, tensor: SimpleNamespace, shape: tuple[int, ...], dtype: str
) -> Array | None:
    """Return the elements of a constant."""
    if tensor.buffer >= len(raw.buffers):
        reader.fail(f"tensor {name!r} is in buffer {tensor.buffer}, and there are {len(raw.buffers)}")
    buffer = raw.buffers[tensor.buffer]
    data = buffer.data
    if buffer.offset > 1:  # behind the tables, in files of more than 2 GiB
        if buffer.offset + buffer.size > len(reader.data):
            reader.fail(f"the data of tensor {name!r} end at byte {buffer.offset + buffer.size}; it is cut off")
        data = np.frombuffer(reader.data, np.uint8, buffer.size, buffer.offset)
    if not tensor.buffer or not data.size or dtype not in _DATA_TYPES:
        return None
    if tensor.sparsity is not None:
        return dense(reader, name, tensor.sparsity, shape, _numbers(data, dtype))
    count = math.prod(shape)
    size = -(-count // 2) if dtype == "int4" else count * np.dtype(_OF_BITS.get(dtype, dtype)).itemsize
    if min(shape, default=0) < 0 or data.size != size:
        reader.fail(f"tensor {name!r}, {dtype} of shape {shape}, has {data.size} bytes of data, expected {size}")
    return _numbers(data, dtype)[:count].reshape(shape)


def _numbers(data: Array, dtype: str) -> Array:
    """Return the numbers that bytes are."""
    if dtype == "int4":
        signed = data.view(np.int8)
        return np.stack([np.left_shift(signed, 4) >> 4, signed >> 4], axis=-1).reshape(-1)
    if dtype == "bfloat16":
        return (np.frombuffer(data.tobytes(), "<u2").astype(np.uint32) << 16).view(np.float32)
    whole = data.size // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize
    return np.frombuffer(data[:whole].tobytes(), dtype)
