"""Options of custom operators: maps of numbers, as flexbuffers."""

from __future__ import annotations

import struct

from tilewright.relay.frontend.tflite.flatbuffer import TfliteImportError

_INT, _UINT, _FLOAT, _MAP, _BOOL = 1, 2, 3, 9, 26
_KINDS = {_INT: {1: "b", 2: "h", 4: "i", 8: "q"}, _UINT: {1: "B", 2: "H", 4: "I", 8: "Q"},
          _FLOAT: {2: "e", 4: "f", 8: "d"}}  # fmt: skip


def read_map(data: bytes) -> dict[str, float | int]:
    """Return the numbers of a map by their keys.

    Raises:
        TfliteImportError: it is no map of numbers, or damaged.
    """
    try:
        return _Map(data).numbers()
    except (struct.error, IndexError, KeyError, ValueError) as error:
        raise TfliteImportError(f"options that are no flexbuffer map of numbers: {error}") from None


class _Map:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def number(self, at: int, kind: int, width: int) -> float | int:
        if at < 0:
            raise ValueError(f"place {at}")
        found: float | int = struct.unpack_from("<" + _KINDS[kind][width], self.data, at)[0]
        return found

    def back(self, at: int, width: int) -> int:
        """Return the place that an offset, which counts backwards, leads to."""
        return at - int(self.number(at, _UINT, width))

    def numbers(self) -> dict[str, float | int]:
        root_width, kind = self.data[-1], self.data[-2]
        if kind >> 2 != _MAP:
            raise ValueError(f"type {kind >> 2}")
        at, width = self.back(len(self.data) - 2 - root_width, root_width), 1 << (kind & 3)
        count = int(self.number(at - width, _UINT, width))
        keys, key_width = self.back(at - 3 * width, width), int(self.number(at - 2 * width, _UINT, width))
        if count * width > len(self.data):
            raise ValueError(f"{count} entries")
        found: dict[str, float | int] = {}
        for i in range(count):
            start = self.back(keys + i * key_width, key_width)
            key = self.data[start : self.data.index(b"\0", start)].decode("utf-8", "replace")
            packed = self.data[at + count * width + i] >> 2
            if packed in (*_KINDS, _BOOL):
                found[key] = self.number(at + i * width, _UINT if packed == _BOOL else packed, width)
        return found
