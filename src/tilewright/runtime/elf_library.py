"""Link objects to a shared library, where there is no linker: for the libraries that Tilewright writes.

They are of x86-64 or AArch64, position-independent, and refer to little beyond themselves. What they define and what
they refer to is bound when they are linked; functions of the C library, called through stubs, when they are loaded. The
loader then writes no more to the table of their addresses. See the System V ABI, "Program Loading and Dynamic Linking".

In the file and in memory come: what is only read, code, what only the loader writes to, data, large data. Each begins
in a page of its own in memory, and in the file where the last one ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from .elf_objects import FORMATS, Section, Strings, Symbol, join_objects, read_header, read_sections, read_symbols
from .elf_relocations import MACHINES, STUB_BYTES, Machine
from .error import ExportError, TVMError

_HEADER, _PROGRAM, _SECTION, _SYMBOL = "<16sHHIQQQIHHHHHH", "<IIQQQQQQ", "<IIQQQQIIQQ", "<IBBHQQ"
_PROGBITS, _SYMTAB, _STRTAB, _RELA, _HASH, _DYNAMIC, _NOTE, _NOBITS, _DYNSYM = 1, 2, 3, 4, 5, 6, 7, 8, 11
_WRITE, _ALLOC, _EXECUTE, _TLS, _LARGE = 1, 2, 4, 0x400, 0x10000000
_ABSOLUTE, _COMMON = 0xFFF1, 0xFFF2
_LOCAL, _WEAK, _HIDDEN = 0, 2, (1, 2)
_NO_TYPE, _FILE = 0, 4
_READ, _CODE, _FIXED, _DATA, _FAR = range(5)
_SEGMENT_FLAGS = {_READ: 4, _CODE: 5, _FIXED: 6, _DATA: 6, _FAR: 6}
# glibc's names, by which musl's loader knows itself too. Weak hooks of the runtime need neither.
_C_LIBRARIES = b"libm.so.6", b"libc.so.6"


@dataclass
class _Output:
    """A section of the library: ``parts`` of objects, by the numbers of their sections."""

    name: bytes
    kind: int
    segment: int
    align: int = 1
    entry: int = 0
    link: bytes = b""  # the name of another section
    info: int = 0
    data: bytearray = field(default_factory=bytearray)
    size: int = 0
    address: int = 0
    offset: int = 0
    parts: dict[int, int] = field(default_factory=dict)  # section of the objects: place

    def add(self, number: int, section: Section) -> None:
        """Append a section of the objects."""
        self.align = max(self.align, section.align)
        self.size += -self.size % max(section.align, 1)
        self.parts[number] = self.size
        self.data += bytes(self.size - len(self.data)) if section.kind != _NOBITS else b""
        self.data += section.data
        self.size += section.size

    @property
    def flags(self) -> int:
        """Return the flags of its header."""
        return _ALLOC | {_READ: 0, _CODE: _EXECUTE, _FAR: _WRITE | _LARGE}.get(self.segment, _WRITE)


def _output_of(section: Section) -> tuple[int, bytes]:
    """Return the segment, and the name of the output, of a section of the objects."""
    if section.flags & _TLS or section.kind in (15, 16) or section.name.startswith(b".dtors"):
        raise ExportError(f"the section {section.name.decode()} needs a linker")
    if section.flags & _EXECUTE:
        return _CODE, b".text"
    if not section.flags & _WRITE:
        own = section.kind == _NOTE or section.name == b".eh_frame"
        return _READ, section.name if own else b".rodata"
    if section.name.startswith((b".ctors", b".init_array")):
        return _FIXED, b".init_array"
    if section.flags & _LARGE:
        return _FAR, b".ldata"
    if section.kind == _NOBITS:
        return _DATA, b".bss"
    return (_FIXED, b".data.rel.ro") if section.name.startswith(b".data.rel.ro") else (_DATA, b".data")


@dataclass
class _Reference:
    """A relocation of the objects."""

    section: int
    at: int
    kind: int
    symbol: int
    addend: int


class _Library:
    """The library that is made; symbols are numbers in the objects' table."""

    def __init__(self, data: bytes, machine: Machine) -> None:
        self.machine = machine
        self.sections = read_sections(data, read_header(data), FORMATS[2])
        self.symbols = read_symbols(self.sections, FORMATS[2])
        self.outputs: dict[bytes, _Output] = {}
        self.place: dict[int, _Output] = {}
        self._place_commons()
        for number, section in enumerate(self.sections):
            if section.flags & _ALLOC:
                self._place(number, section)
        self.references = list(self._references())
        self.exports = self._exports()
        self.slots: dict[int, int] = {}
        self.stubs: dict[int, int] = {}
        for reference in self.references:
            self._note(reference)

    def _place(self, number: int, section: Section) -> None:
        segment, name = _output_of(section)
        output = self.outputs.setdefault(name, _Output(name, section.kind, segment))
        output.add(number, section)
        self.place[number] = output

    def _place_commons(self) -> None:
        for symbol in self.symbols:
            if symbol.section == _COMMON:
                flags = _WRITE | _ALLOC
                self.sections.append(Section(b"COMMON", _NOBITS, flags, 0, 0, symbol.value, 0, symbol.size, b""))
                symbol.section, symbol.value = len(self.sections) - 1, 0

    def _references(self) -> Iterator[_Reference]:
        for section in self.sections:
            if section.kind == _RELA and section.info in self.place:
                for at, info, addend in struct.iter_unpack("<QQq", section.data):
                    yield _Reference(section.info, at, info & 0xFFFFFFFF, info >> 32, addend)

    def _exports(self) -> list[int]:
        """Return the symbols that the loader sees: those of other libraries first."""
        wide = [i for i, s in enumerate(self.symbols) if s.binding != _LOCAL and s.name]
        hidden = [self.symbols[i] for i in wide if not self.symbols[i].section and self.symbols[i].other & 3 in _HIDDEN]
        if hidden:
            raise ExportError(f"the symbol {hidden[0].name.decode(errors='replace')} is not defined")
        return sorted(
            (i for i in wide if self.symbols[i].other & 3 not in _HIDDEN),
            key=lambda i: (self.symbols[i].section != 0, self.symbols[i].name),
        )

    def _note(self, reference: _Reference) -> None:
        """Give the symbol of a reference a slot, and a stub, where it needs them."""
        outside = not self.symbols[reference.symbol].section and reference.symbol != 0
        if reference.kind in self.machine.by_table:
            self.slots.setdefault(reference.symbol, len(self.slots))
        elif outside and reference.kind in self.machine.calls:
            self.slots.setdefault(reference.symbol, len(self.slots))
            self.stubs.setdefault(reference.symbol, len(self.stubs))
        elif outside and reference.kind != self.machine.absolute:
            name = self.symbols[reference.symbol].name.decode(errors="replace")
            raise ExportError(f"a reference to {name}, which is not in the library, needs a linker")

    def address(self, number: int) -> int:
        """Return the address of a symbol in the library; 0 outside of it."""
        symbol = self.symbols[number]
        if symbol.section in (0, _ABSOLUTE):
            return symbol.value
        output = self.place[symbol.section]
        return output.address + output.parts[symbol.section] + symbol.value

    @cached_property
    def loaded(self) -> list[_Reference]:
        """The references that the loader resolves, when the library's place is known."""
        return [
            r
            for r in self.references
            if r.kind == self.machine.absolute and self.symbols[r.symbol].section != _ABSOLUTE
        ]


def link_library(objects: Sequence[bytes]) -> bytes:
    """Return the shared library of objects.

    Raises:
        ExportError: they are for a machine, or have something, that needs a linker.
    """
    try:
        joined = join_objects(objects)
        number = read_header(joined)[2]
        if number not in MACHINES or joined[4] != 2:
            raise ExportError(f"libraries of ELF's machine {number} need a linker")
        return _written(_Library(joined, MACHINES[number]), number)
    except struct.error:
        raise ExportError("the library is too large for its references; it needs a linker") from None
    except TVMError as error:
        raise error if isinstance(error, ExportError) else ExportError(str(error)) from None


def _written(library: _Library, machine: int) -> bytes:
    dynamic = _add_tables(library)
    outputs = sorted(library.outputs.values(), key=lambda output: (output.segment, output.kind == _NOBITS))
    end = _lay_out(outputs, library.machine.page)
    _check_fixed(library)
    _fill_tables(library, outputs, dynamic)
    for reference in library.references:
        _resolve(library, reference)
    tail = _symbol_sections(library, outputs)
    return _file(outputs, tail, end, library.machine.page, machine)


def _check_fixed(library: _Library) -> None:
    """Refuse addresses among what nobody writes to."""
    for reference in library.loaded:
        if library.place[reference.section].segment in (_READ, _CODE):
            raise ExportError(f"an address in {library.place[reference.section].name.decode()} needs a linker")


def _add_tables(library: _Library) -> list[tuple[int, bytes | int]]:
    """Add the outputs that the loader reads, with the sizes that they will have; return the entries of ``.dynamic``."""
    names = Strings()
    for number in library.exports:
        names.add(library.symbols[number].name)
    rows = len(library.loaded) + len(library.slots)
    dynamic = _dynamic_entries(library, names, rows)
    count = len(library.exports) + 1
    sizes = {
        (b".hash", _HASH, _READ, 8, 4, b".dynsym"): 4 * (2 + count + max(count // 2, 1)),
        (b".dynsym", _DYNSYM, _READ, 8, 24, b".dynstr"): 24 * count,
        (b".dynstr", _STRTAB, _READ, 1, 0, b""): len(names.data),
        (b".rela.dyn", _RELA, _READ, 8, 24, b".dynsym"): 24 * rows,
        (b".plt", _PROGBITS, _CODE, 16, STUB_BYTES, b""): STUB_BYTES * len(library.stubs),
        (b".got", _PROGBITS, _FIXED, 8, 8, b""): 8 * len(library.slots),
        (b".dynamic", _DYNAMIC, _FIXED, 8, 16, b".dynstr"): 16 * len(dynamic),
    }
    frames = library.outputs.get(b".eh_frame")
    if frames is not None:
        frames.data += bytes(4)  # where unwinders stop
        frames.size += 4
        sizes[b".eh_frame_hdr", _PROGBITS, _READ, 4, 0, b""] = 8
    for (name, kind, segment, align, entry, link), size in sizes.items():
        if size:
            library.outputs[name] = _Output(name, kind, segment, align, entry, link, 0, bytearray(size), size)
    library.outputs[b".dynstr"].data[:] = names.data
    library.outputs[b".dynsym"].info = 1
    return dynamic


def _dynamic_entries(library: _Library, names: Strings, rows: int) -> list[tuple[int, bytes | int]]:
    """Return the entries of ``.dynamic``: a tag, and a number or the name of the output whose address it is."""
    outside = any(not s.section and s.binding != _WEAK for s in (library.symbols[i] for i in library.exports))
    found: list[tuple[int, bytes | int]] = [(1, names.add(name)) for name in _C_LIBRARIES if outside]
    found += [(4, b".hash"), (5, b".dynstr"), (6, b".dynsym"), (10, len(names.data)), (11, 24)]
    if rows:
        found += [(7, b".rela.dyn"), (8, rows * 24), (9, 24)]
    constructors = library.outputs.get(b".init_array")
    if constructors is not None:
        found += [(25, constructors.name), (27, constructors.size)]
    return [*found, (30, 8), (0x6FFFFFFB, 1), (0, 0)]  # all is bound at once


def _lay_out(outputs: Sequence[_Output], page: int) -> int:
    """Give the outputs their places in the file and in memory; return where the file's last one ends."""
    offset = struct.calcsize(_HEADER) + len(_programs(outputs, page)) * struct.calcsize(_PROGRAM)
    address, segment = offset, _READ
    for output in outputs:
        if output.segment != segment:
            segment = output.segment
            address += -address % page + offset % page
        gap = -address % output.align
        offset += 0 if output.kind == _NOBITS else gap
        address += gap
        output.offset, output.address = offset, address
        offset += 0 if output.kind == _NOBITS else output.size
        address += output.size
    return offset


def _programs(outputs: Sequence[_Output], page: int) -> list[list[int]]:
    """Return the program headers."""
    rows = []
    for segment, flags in _SEGMENT_FLAGS.items():
        inside = [o for o in outputs if o.segment == segment]
        if inside:
            rows.append(_span(1, flags, inside, page))
    rows[0] = [1, 4, 0, 0, 0, *[rows[0][5] + rows[0][2]] * 2, page]  # with the headers
    fixed = next(row for row in rows if row[1] == 6)
    fixed[6] += -(fixed[3] + fixed[6]) % page  # protected to the end of its page
    for kind, flags, names in ((2, 6, [b".dynamic"]), (4, 4, None), (0x6474E550, 4, [b".eh_frame_hdr"])):
        inside = [o for o in outputs if (o.kind == _NOTE if names is None else o.name in names)]
        if inside:
            rows.append(_span(kind, flags, inside, inside[0].align))
    rows.append([0x6474E551, 6, 0, 0, 0, 0, 0, 16])
    rows.append([0x6474E552, 4, *fixed[2:7], 1])
    return rows


def _span(kind: int, flags: int, outputs: Sequence[_Output], align: int) -> list[int]:
    first, last = outputs[0], outputs[-1]
    stored = [o for o in outputs if o.kind != _NOBITS]
    in_file = stored[-1].offset + stored[-1].size - first.offset if stored else 0
    size = last.address + last.size - first.address
    return [kind, flags, first.offset, first.address, first.address, in_file, size, align]


def _fill_tables(library: _Library, outputs: Sequence[_Output], dynamic: Sequence[tuple[int, bytes | int]]) -> None:
    places = {output.name: output.address for output in outputs}
    values = [(tag, places[value] if isinstance(value, bytes) else value) for tag, value in dynamic]
    library.outputs[b".dynamic"].data[:] = b"".join(struct.pack("<QQ", *entry) for entry in values)
    names = Strings()
    rows = [_symbol_row(library, outputs, number, names) for number in library.exports]
    library.outputs[b".dynsym"].data[:] = b"".join([bytes(24), *rows])
    library.outputs[b".hash"].data[:] = _hash_table([library.symbols[i].name for i in library.exports])
    if library.loaded or library.slots:
        library.outputs[b".rela.dyn"].data[:] = b"".join(struct.pack("<QQq", *row) for row in _loader_rows(library))
    for number, index in library.stubs.items():
        place = places[b".plt"] + STUB_BYTES * index
        code = library.machine.stub(place, places[b".got"] + 8 * library.slots[number])
        library.outputs[b".plt"].data[STUB_BYTES * index : STUB_BYTES * (index + 1)] = code
    if b".eh_frame_hdr" in places:  # no table: unwinders walk the frames
        distance = places[b".eh_frame"] - places[b".eh_frame_hdr"] - 4
        library.outputs[b".eh_frame_hdr"].data[:] = struct.pack("<4Bi", 1, 0x1B, 0xFF, 0xFF, distance)


def _symbol_row(library: _Library, outputs: Sequence[_Output], number: int, names: Strings) -> bytes:
    symbol = library.symbols[number]
    section = symbol.section
    if section not in (0, _ABSOLUTE):
        section = next(i for i, o in enumerate(outputs, 1) if o is library.place[section])
    place = names.add(symbol.name)
    return struct.pack(_SYMBOL, place, symbol.info, symbol.other, section, library.address(number), symbol.size)


def _hash_table(names: Sequence[bytes]) -> bytes:
    """Return the table by which the loader finds symbols; the first symbol has no name."""
    count = len(names) + 1
    buckets, chains = [0] * max(count // 2, 1), [0] * count
    for index, name in enumerate(names, 1):
        value = 0
        for byte in name:
            value = (value << 4) + byte
            high = value & 0xF0000000
            value = (value ^ high >> 24) & ~high
        bucket = value % len(buckets)
        chains[index], buckets[bucket] = buckets[bucket], index
    return struct.pack(f"<{2 + len(buckets) + count}I", len(buckets), count, *buckets, *chains)


def _loader_rows(library: _Library) -> list[tuple[int, int, int]]:
    """Return the relocations that the loader does: at which address, kind and symbol, number."""
    machine, rows = library.machine, []
    order = {number: index for index, number in enumerate(library.exports, 1)}

    def add(place: int, symbol: int, kind: int, addend: int) -> None:
        if library.symbols[symbol].section:
            rows.append((place, machine.relative, library.address(symbol) + addend))
        else:
            rows.append((place, order[symbol] << 32 | kind, addend))

    for reference in library.loaded:
        output = library.place[reference.section]
        place = output.address + output.parts[reference.section] + reference.at
        add(place, reference.symbol, machine.absolute, reference.addend)
    for symbol, slot in library.slots.items():
        add(library.outputs[b".got"].address + 8 * slot, symbol, machine.symbol, 0)
    return rows


def _resolve(library: _Library, reference: _Reference) -> None:
    """Write what is known when linking."""
    output = library.place[reference.section]
    at = output.parts[reference.section] + reference.at
    value = library.address(reference.symbol)
    if reference.kind in library.machine.by_table:
        value = library.outputs[b".got"].address + 8 * library.slots[reference.symbol]
    elif reference.symbol in library.stubs and reference.kind in library.machine.calls:
        value = library.outputs[b".plt"].address + STUB_BYTES * library.stubs[reference.symbol]
    library.machine.patch(output.data, at, reference.kind, output.address + at, value + reference.addend)


def _is_named(symbol: Symbol) -> bool:
    return bool(symbol.name) and symbol.info & 15 not in (_NO_TYPE, _FILE) and symbol.binding == _LOCAL


def _symbol_sections(library: _Library, outputs: Sequence[_Output]) -> list[_Output]:
    """Return the sections that only tools read: all symbols, their names, and the names of sections."""
    names = Strings()
    local = [i for i, symbol in enumerate(library.symbols) if symbol.section in library.place and _is_named(symbol)]
    rows = [_symbol_row(library, outputs, i, names) for i in (*local, *library.exports)]
    table = bytearray(b"".join([bytes(24), *rows]))
    text = bytearray(names.data)
    return [
        _Output(b".symtab", _SYMTAB, _READ, 8, 24, b".strtab", len(local) + 1, table, len(table)),
        _Output(b".strtab", _STRTAB, _READ, 1, 0, b"", 0, text, len(text)),
        _Output(b".shstrtab", _STRTAB, _READ, 1),
    ]


def _file(outputs: Sequence[_Output], tail: Sequence[_Output], end: int, page: int, machine: int) -> bytes:
    programs, titles = _programs(outputs, page), Strings()
    places = [titles.add(output.name) for output in (*outputs, *tail)]
    tail[-1].data += titles.data
    tail[-1].size = len(tail[-1].data)
    body = bytearray(end)
    numbers = {output.name: index for index, output in enumerate((*outputs, *tail), 1)}
    rows = [bytes(struct.calcsize(_SECTION))]
    for place, output in zip(places, (*outputs, *tail), strict=True):
        if output in tail:
            body += bytes(-len(body) % output.align)
            output.offset = len(body)
            body += output.data
        elif output.kind != _NOBITS:
            body[output.offset : output.offset + output.size] = output.data
        flags = 0 if output in tail else output.flags
        rows.append(
            struct.pack(
                _SECTION, place, output.kind, flags, output.address, output.offset, output.size,
                numbers.get(output.link, 0), output.info, output.align, output.entry,
            )
        )  # fmt: skip
    body += bytes(-len(body) % 8)
    start = struct.calcsize(_HEADER)
    struct.pack_into(
        _HEADER, body, 0, b"\x7fELF\x02\x01\x01" + bytes(9), 3, machine, 1, 0, start, len(body), 0, start,
        struct.calcsize(_PROGRAM), len(programs), struct.calcsize(_SECTION), len(rows), len(rows) - 1,
    )  # fmt: skip
    for index, program in enumerate(programs):
        struct.pack_into(_PROGRAM, body, start + index * struct.calcsize(_PROGRAM), *program)
    return bytes(body) + b"".join(rows)
