"""Large weights inside an ONNX file, treated as external data, so that they never become part of a message.

In protobuf's wire format (https://protobuf.dev/programming-guides/encoding) a message is a sequence of fields: a tag
(number and wire type) and a value each. Messages, strings and bytes are prefixed with their length.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import onnx

from tilewright.relay.frontend.onnx.attributes import has_plain_elements

_LENGTH_DELIMITED = 2
# Bytes of a value by how it is written; those of 0 end at a byte below 128.
_FIXED = {1: 8, 5: 4}
_GRAPH = onnx.ModelProto.GRAPH_FIELD_NUMBER
_INITIALIZER = onnx.GraphProto.INITIALIZER_FIELD_NUMBER
_RAW_DATA = onnx.TensorProto.RAW_DATA_FIELD_NUMBER

Bytes = bytes | mmap.mmap
# A field: its number, how it is written, and where it begins, its value begins, and both end.
_Field = tuple[int, int, int, int, int]


def read_without_weights(file: Path, least: int) -> onnx.ModelProto:
    """Return the model in ``file`` with its initializers of at least ``least`` bytes as external data in ``file``
    itself.

    Raises ``ValueError`` where the file is not encoded as a model.
    """
    model = onnx.ModelProto()
    if not file.stat().st_size:
        return model
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        model.ParseFromString(_without_weights(data, file.name, least))
    return model


def _without_weights(data: Bytes, location: str, least: int) -> bytes:
    parts = []
    for number, kind, begin, value, end in _fields(data, 0, len(data)):
        if number == _GRAPH and kind == _LENGTH_DELIMITED:
            parts.append(_message(_GRAPH, _graph_without_weights(data, value, end, location, least)))
        else:
            parts.append(data[begin:end])
    return b"".join(parts)


def _graph_without_weights(data: Bytes, begin: int, end: int, location: str, least: int) -> bytes:
    parts = []
    for number, kind, start, value, stop in _fields(data, begin, end):
        if number == _INITIALIZER and kind == _LENGTH_DELIMITED and stop - value >= least:
            parts.append(_message(_INITIALIZER, _external_tensor(data, value, stop, location, least)))
        else:
            parts.append(data[start:stop])
    return b"".join(parts)


def _external_tensor(data: Bytes, begin: int, end: int, location: str, least: int) -> bytes:
    parts: list[tuple[int, int, int]] = []
    outside: list[tuple[int, int, int]] = []
    for number, kind, start, value, stop in _fields(data, begin, end):
        large = number == _RAW_DATA and kind == _LENGTH_DELIMITED and stop - value >= least
        (outside if large else parts).append((start, value, stop))
    kept = b"".join(data[start:stop] for start, _, stop in parts)
    tensor = onnx.TensorProto.FromString(kept)
    if len(outside) != 1 or not tensor.name or not has_plain_elements(tensor):
        return data[begin:end]
    ((_, value, stop),) = outside
    place = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, text in (("location", location), ("offset", str(value)), ("length", str(stop - value))):
        place.external_data.add(key=key, value=text)
    return kept + place.SerializeToString()


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Return an integer in groups of seven bits, lowest first; the high bit of a byte says that more follow."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _fields(data: Bytes, begin: int, end: int) -> Iterator[_Field]:
    at = begin
    while at < end:
        tag, value = _read_varint(data, at, end)
        kind = tag & 7
        if kind == 0:
            stop = _read_varint(data, value, end)[1]
        elif kind == _LENGTH_DELIMITED:
            length, value = _read_varint(data, value, end)
            stop = value + length
        elif kind in _FIXED:
            stop = value + _FIXED[kind]
        else:
            raise ValueError(f"byte {at} begins no field")
        if stop > end:
            raise ValueError(f"the field at byte {at} is longer than what holds it")
        yield tag >> 3, kind, at, value, stop
        at = stop


def _read_varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number, and where it ends."""
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError(f"the number at byte {at} has no end")
