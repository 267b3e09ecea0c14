"""Large weights inside an ONNX file, as if they lay in a file beside it: so they never become part of a message.

Protobuf's wire format (https://protobuf.dev/programming-guides/encoding) is a row of fields, each a tag (its number and
how its value is written) and the value; a message, a string or bytes are written as their length and that many bytes.
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


def read_light_model(file: Path, least: int) -> onnx.ModelProto:
    """The model in ``file``, whose initializers of at least ``least`` bytes are external data in ``file`` itself.

    Raises ``ValueError`` for what is not written as a model is.
    """
    model = onnx.ModelProto()
    if not file.stat().st_size:
        return model
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        model.ParseFromString(_light_model(data, file.name, least))
    return model


def _light_model(data: Bytes, location: str, least: int) -> bytes:
    parts = []
    for number, kind, begin, value, end in _fields(data, 0, len(data)):
        if number == _GRAPH and kind == _LENGTH_DELIMITED:
            parts.append(_message(_GRAPH, _light_graph(data, value, end, location, least)))
        else:
            parts.append(data[begin:end])
    return b"".join(parts)


def _light_graph(data: Bytes, begin: int, end: int, location: str, least: int) -> bytes:
    parts = []
    for number, kind, start, value, stop in _fields(data, begin, end):
        if number == _INITIALIZER and kind == _LENGTH_DELIMITED and stop - value >= least:
            parts.append(_message(_INITIALIZER, _light_tensor(data, value, stop, location, least)))
        else:
            parts.append(data[start:stop])
    return b"".join(parts)


def _light_tensor(data: Bytes, begin: int, end: int, location: str, least: int) -> bytes:
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
    """Seven bits a byte, the lowest first; the highest bit of a byte says that more follow."""
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
    """A number, and where it ends."""
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError(f"the number at byte {at} has no end")
