"""Frames of a line to a board, as ``native/crt/src/rpc/frames.c`` has them: noise on the line is noticed.

``0xff 0xfd``, how many bytes follow (1 to 255) and its complement, the bytes, and their checksum.
"""

from __future__ import annotations

import binascii

MOST_BYTES = 255
_HEAD, _SUM = 4, 2


class FrameError(Exception):
    """The line has lost bytes, or changed them."""


def framed(data: bytes) -> bytes:
    """Return bytes as frames."""
    return b"".join(_frame(data[i : i + MOST_BYTES]) for i in range(0, len(data), MOST_BYTES))


def _frame(data: bytes) -> bytes:
    head = bytes([0xFF, 0xFD, len(data), len(data) ^ 0xFF])
    return head + data + binascii.crc_hqx(data, 0xFFFF).to_bytes(_SUM, "little")


class FrameReader:
    """Takes what comes over the line, and gives the bytes in the frames; what is before the first frame is skipped."""

    def __init__(self) -> None:
        self._raw, self.data = bytearray(), bytearray()
        self._begun = False

    def add(self, raw: bytes) -> None:
        """Take bytes of the line.

        Raises
        ------
        FrameError : they are no frames, or a checksum is wrong
        """
        self._raw += raw
        while len(self._raw) >= _HEAD:
            first, second, size, complement = self._raw[:_HEAD]
            if (first, second) != (0xFF, 0xFD) or size == 0 or complement != size ^ 0xFF:
                if self._begun:
                    raise FrameError("bytes between two frames")
                del self._raw[0]
                continue
            self._begun = True
            end = _HEAD + size + _SUM
            if len(self._raw) < end:
                return
            data, checksum = self._raw[_HEAD : end - _SUM], self._raw[end - _SUM : end]
            if binascii.crc_hqx(data, 0xFFFF).to_bytes(_SUM, "little") != checksum:
                raise FrameError("a frame has a wrong checksum")
            self.data += data
            del self._raw[:end]
