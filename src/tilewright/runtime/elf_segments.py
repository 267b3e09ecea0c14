"""Appends a segment of data to a linked library of 64 bits, which the linker then never sees.

The linker gets an object of :func:`place_object`: a symbol, and a note of our own. Its entry among the program headers
becomes that of the segment, which lies behind everything else in the file and in memory; the symbol then is its begin,
and a section tells debuggers and ``strip`` what it is. See the System V ABI, "Program Loading".

The segment is private and may be written to. In the file it begins at a multiple of the largest page of any machine,
and at the place inside of a huge page at which it lies in memory: the system can map it by huge pages.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

from .elf_objects import Section, data_object
from .error import ExportError

SYMBOL = "__tvm_dev_mblob"
_NOTE_NAME, _SECTION_AT = b".note.tilewright\0", len(b".note")  # the section's name is the end of the note's
_LOAD, _NOTE, _READ_WRITE = 1, 4, 6
_PROGBITS, _WRITE_ALLOC = 1, 3
_SYMBOL_TABLES = (2, 11)
_PAGE, _HUGE_PAGE = 1 << 16, 1 << 21
_HEADER, _PROGRAM, _SECTION, _SYMBOL = "<16sHHIQQQIHHHHHH", "<IIQQQQQQ", "<IIQQQQIIQQ", "<IBBHQQ"


def place_object(like: bytes) -> bytes:
    """Return an object for the machine of another that a library has to be linked with to get a segment."""
    data = struct.pack("<3I12s", len(b"Tilewright\0"), 0, 1, b"Tilewright")
    note = Section(_NOTE_NAME[:-1], 7, 2, 0, 0, 4, 0, len(data), data)
    return data_object(like, SYMBOL, bytes(64), ".data", "aw", [note])


class _Library:
    """The headers of a library; tables are lists of rows, which are lists of numbers."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.header = list(struct.unpack_from(_HEADER, data))
        self.programs = self._table(_PROGRAM, self.header[5], self.header[10])
        self.sections = self._table(_SECTION, self.header[6], self.header[12])

    def _table(self, form: str, offset: int, count: int) -> list[list[int]]:
        size = struct.calcsize(form)
        return [list(struct.unpack_from(form, self.data, offset + i * size)) for i in range(count)]

    def name(self, strings: int, at: int) -> bytes:
        """Return the name at a place of section ``strings``, with its end."""
        start = self.sections[strings][4] + at
        return bytes(self.data[start : self.data.index(b"\0", start) + 1])

    def take_note(self) -> int:
        """Remove the program header of the note; return where the name of its section is."""
        note = next((s for s in self.sections if self.name(self.header[13], s[0]) == _NOTE_NAME), None)
        for program in self.programs:
            if note is not None and program[0] == _NOTE and program[3] <= note[3] < program[3] + program[6]:
                self.programs.remove(program)
                return note[0]
        raise ExportError("the linker dropped the section .note.tilewright, which the library's data needs")

    def move_symbol(self, section: int, address: int, size: int) -> None:
        """Let the symbol be all of a section."""
        wanted = SYMBOL.encode() + b"\0"
        for table in self.sections:
            if table[1] not in _SYMBOL_TABLES:
                continue
            for at in range(table[4], table[4] + table[5], struct.calcsize(_SYMBOL)):
                name, info, other, *_ = struct.unpack_from(_SYMBOL, self.data, at)
                if self.name(table[6], name) == wanted:
                    struct.pack_into(_SYMBOL, self.data, at, name, info, other, section, address, size)


def append_segment(path: Path, write: Callable[[Path], None]) -> None:
    """Append what ``write`` appends to the library at ``path`` as a segment.

    The library was linked with a :func:`place_object`.

    Raises:
        ExportError: the library has no place for it.
    """
    library = _Library(path.read_bytes())
    name = library.take_note()
    offset = -(-len(library.data) // _PAGE) * _PAGE
    end = max(p[3] + p[6] for p in library.programs if p[0] == _LOAD)
    address = -(-end // _HUGE_PAGE) * _HUGE_PAGE + offset % _HUGE_PAGE
    os.truncate(path, offset)
    write(path)
    size = path.stat().st_size - offset
    last = max(i for i, p in enumerate(library.programs) if p[0] == _LOAD)
    library.programs.insert(last + 1, [_LOAD, _READ_WRITE, offset, address, address, size, size, _HUGE_PAGE])
    library.move_symbol(len(library.sections), address, size)
    library.sections.append([name + _SECTION_AT, _PROGBITS, _WRITE_ALLOC, address, offset, size, 0, 0, 64, 0])
    _write_headers(path, library)


def _write_headers(path: Path, library: _Library) -> None:
    """Write the headers, and the sections' behind everything else."""
    for i, program in enumerate(library.programs):
        struct.pack_into(_PROGRAM, library.data, library.header[5] + i * struct.calcsize(_PROGRAM), *program)
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(bytes(-file.tell() % 8))
        library.header[6], library.header[12] = file.tell(), len(library.sections)
        for section in library.sections:
            file.write(struct.pack(_SECTION, *section))
        struct.pack_into(_HEADER, library.data, 0, *library.header)
        file.seek(0)
        file.write(library.data)
