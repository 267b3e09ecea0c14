"""Frames of the line to a board: the same in Python and on the board, and noise is noticed by both."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tilewright.micro import get_standalone_crt_dir
from tilewright.micro.frames import FrameError, FrameReader, framed
from tilewright.micro.session import SessionTerminatedError, _Line
from tilewright.micro.transport import Transport, TransportTimeouts

DATA = np.random.default_rng(0).integers(0, 256, 700, "uint8").tobytes()
LINE = """
#include <string.h>
#include "board_rpc.h"
static unsigned char line[4096];
static size_t filled, read_to;
void put_line(const void* from, size_t size) { memcpy(line, from, size), filled = size, read_to = 0; }
size_t line_bytes(void* to) { memcpy(to, line, filled); return filled; }
int BoardRpcRead(void* to, size_t size) {
  if (size > filled - read_to) return -1;
  memcpy(to, line + read_to, size), read_to += size;
  return 0;
}
int BoardRpcWrite(const void* from, size_t size) { memcpy(line + filled, from, size), filled += size; return 0; }
"""


def taken(*parts: bytes) -> bytes:
    reader = FrameReader()
    for part in parts:
        reader.add(part)
    return bytes(reader.data)


def test_frames_give_their_bytes_however_they_come() -> None:
    line = framed(DATA)
    assert taken(line) == DATA
    assert taken(*(line[i : i + 1] for i in range(len(line)))) == DATA
    assert framed(b"") == b""


def test_what_a_board_says_when_it_starts_is_skipped() -> None:
    assert taken(b"\xff\xfdboot \xff", framed(b"hello")) == b"hello"


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 100, 259, 260, 261])
def test_a_changed_byte_is_noticed(at: int) -> None:
    line = bytearray(framed(b"x" + DATA[:254]) + framed(DATA[:20]))
    begun = framed(b"begun")
    line[at] ^= 0x40
    with pytest.raises(FrameError):
        taken(begun, bytes(line), framed(DATA))


class Noisy(Transport):
    """A line that gives these bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def timeouts(self) -> TransportTimeouts:
        return TransportTimeouts(0, 0, 0)

    def open(self) -> None: ...

    def close(self) -> None: ...

    def read(self, n: int, timeout_sec: float | None) -> bytes:
        found, self.data = self.data[:n], self.data[n:]
        return found

    def write(self, data: bytes, timeout_sec: float | None) -> None:
        self.data = data


def test_noise_ends_a_session_in_words() -> None:
    line = bytearray(framed(DATA[:50]))
    line[20] ^= 1
    channel = _Line(Noisy(bytes(line)), TransportTimeouts(0, 0, 0))
    with pytest.raises(SessionTerminatedError, match="disturbed: a frame has a wrong checksum"):
        channel.receive(memoryview(bytearray(50)), 50)


@pytest.fixture
def board(tmp_path: Path) -> Iterator[ctypes.CDLL]:
    """The board's frames, over a line in memory."""
    crt = Path(get_standalone_crt_dir())
    (tmp_path / "line.c").write_text(LINE)
    includes = [f"-I{path.parent.parent.parent}" for path in crt.rglob("tvm/runtime/c_backend_api.h")]
    includes += [f"-I{path.parent.parent.parent.parent}" for path in crt.rglob("tvm/runtime/crt/platform.h")]
    includes += [f"-I{path.parent}" for path in crt.rglob("dlpack")]
    source = next(crt.rglob("frames.c"))
    command = ["gcc", "-O1", "-shared", "-fPIC", *includes, f"-I{source.parent}", "line.c", source, "-o", "board.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    yield ctypes.CDLL(str(tmp_path / "board.so"))


def test_boards_have_the_same_frames(board: ctypes.CDLL) -> None:
    found = ctypes.create_string_buffer(4096)
    assert board.BoardFrameWrite(DATA, len(DATA)) == 0 and board.BoardFrameFlush() == 0
    count = board.line_bytes(found)
    assert found.raw[:count] == framed(DATA)
    line = b"noise" + framed(DATA)
    board.put_line(line, len(line))
    assert board.BoardFrameRead(found, len(DATA)) == 0 and found.raw[: len(DATA)] == DATA
    changed = bytearray(framed(DATA))
    changed[40] ^= 2
    board.put_line(bytes(changed), len(changed))
    assert board.BoardFrameRead(found, len(DATA)) == -1
