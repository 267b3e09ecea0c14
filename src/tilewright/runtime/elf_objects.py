"""Join ELF objects to one, as ``ld -r`` does, and makes objects of data, where there is no compiler.

Sections stay as they are, one behind the other; a linker merges those of one name later. Symbols become one table, in
which each global name stands once, and relocations refer to that table. See the System V ABI, "Object files".
"""

from __future__ import annotations

import functools
import operator
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from .error import TVMError

_SYMTAB, _STRTAB, _RELA, _REL, _NOBITS, _GROUP = 2, 3, 4, 9, 8, 17
_ADDRSIG, _ATTRIBUTES = 0x6FFF4C03, 0x70000003  # LLVM's list of symbols; of ARM and RISC-V, once a file
_PROGBITS, _LINK_ORDER = 1, 0x80
_FLAGS = {"w": 1, "a": 2, "l": 0x10000000}
_GLOBAL_OBJECT = 0x11
_LOCAL, _WEAK = 0, 2
_FIRST_SPECIAL = 0xFF00  # of section numbers: absolute, common
_RELOCATABLE = 1
_INFO_LINK = 0x40
_MAY_DIFFER = {243: 1}  # by machine, flags that one object may have alone: RISC-V's compressed instructions
# By machine and width of addresses: the relocation that is a symbol's address, and whether it has an addend of its own.
_ADDRESSES = {(3, "I"): (1, False), (40, "I"): (2, False), (62, "Q"): (1, True), (183, "Q"): (257, True),
              (243, "I"): (1, True), (243, "Q"): (2, True)}  # fmt: skip


@dataclass(frozen=True)
class Format:
    """The layout of one class of ELF, little-endian."""

    header: str
    section: str
    symbol: str
    symbol_fields: tuple[int, ...]  # where name, info, other, section, value, size stand in a symbol
    symbol_bits: int  # by which a relocation's symbol is shifted
    address: str


FORMATS = {
    1: Format("<16sHHIIIIIHHHHHH", "<10I", "<IIIBBH", (0, 3, 4, 5, 1, 2), 8, "I"),
    2: Format("<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IBBHQQ", (0, 1, 2, 3, 4, 5), 32, "Q"),
}


@dataclass
class Section:
    """A section, with the fields of its header."""

    name: bytes
    kind: int
    flags: int
    link: int
    info: int
    align: int
    entry: int
    size: int
    data: bytes


@dataclass
class Symbol:
    """A symbol."""

    name: bytes
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def binding(self) -> int:
        return self.info >> 4

    def over(self, other: Symbol) -> bool:
        """Whether this is what the name means, where another object has ``other``."""
        if not self.section or not other.section:
            return bool(self.section) or (not other.section and other.binding == _WEAK)
        if _WEAK not in (self.binding, other.binding):
            raise TVMError(f"the symbol {self.name.decode(errors='replace')} is defined by two objects")
        return other.binding == _WEAK


@dataclass
class _Joined:
    """The object that is made."""

    format: Format
    sections: list[Section] = field(default_factory=list)
    locals: list[Symbol] = field(default_factory=lambda: [Symbol(b"", 0, 0, 0, 0, 0)])  # the first means none
    globals: dict[bytes, Symbol] = field(default_factory=dict)


def join_objects(objects: Sequence[bytes], prefix: str = "") -> bytes:
    """Return one relocatable object with what is in all.

    Args:
        prefix: where there is one, every global symbol that the objects define becomes ``PREFIX_symbol``, so that
            several models link into one program, and ``PREFIX_model`` is a table of their names, without the
            prefix, and addresses (``TilewrightSymbol`` of ``native/include/tilewright_model.h``).

    Raises:
        TVMError: they are no objects of one machine, or two define one symbol.
    """
    headers = [read_header(data) for data in objects]
    kinds = {
        (h[0][:6], h[2], h[7] & ~_MAY_DIFFER.get(h[2], 0)) for h in headers
    }  # class, order of bytes, machine, flags
    if len(kinds) != 1:
        raise TVMError("the objects to join are for different machines")
    joined = _Joined(FORMATS[objects[0][4]])
    uses: list[tuple[Section, list[int | bytes], dict[int, int]]] = []
    for data, header in zip(objects, headers, strict=True):
        uses += _add(joined, data, header)
    if prefix:
        uses.append(_tabulate(joined, prefix.encode(), headers[0][2]))
        _rename(joined, prefix.encode(), uses)
    _refer(joined, uses)
    flags = functools.reduce(operator.or_, (header[7] for header in headers))
    return _written(joined, (*headers[0][:7], flags, *headers[0][8:]))


def data_object(like: bytes, symbol: str, data: bytes, section: str, flags: str, more: Sequence[Section] = ()) -> bytes:
    """Return an object for the machine of another, ``like``, that has ``data`` under a global name.

    Args:
        section: the name of its section.
        flags: letters of assembly: ``a`` is in memory, ``w`` is written to, ``l`` may lie far away (x86-64).
        more: further sections.
    """
    header = read_header(like)
    joined = _Joined(FORMATS[like[4]])
    bits = sum(_FLAGS[letter] for letter in flags)
    joined.sections.append(Section(b".note.GNU-stack", _PROGBITS, 0, 0, 0, 1, 0, 0, b""))
    joined.sections.append(Section(section.encode(), _PROGBITS, bits, 0, 0, 64, 0, 0, data))
    joined.globals[symbol.encode()] = Symbol(symbol.encode(), _GLOBAL_OBJECT, 0, len(joined.sections), 0, len(data))
    joined.sections += more
    return _written(joined, header)


def as_object(header: bytes) -> bytes:
    """Return the begin of a library, or program, as that of an object of its machine."""
    return header[:16] + struct.pack("<H", _RELOCATABLE) + header[18:]


def read_header(data: bytes) -> tuple[bytes, int, int, int, int, int, int, int, int, int, int, int, int, int]:
    """Return the fields of an object's header.

    Raises:
        TVMError: it is no relocatable object, or not little-endian.
    """
    if data[:4] != b"\x7fELF" or len(data) < 52 or data[4] not in FORMATS or data[5] != 1:
        raise TVMError("what is to be joined is no little-endian ELF object")
    found: tuple[bytes, int, int, int, int, int, int, int, int, int, int, int, int, int]
    found = struct.unpack_from(FORMATS[data[4]].header, data)
    if found[1] != _RELOCATABLE:
        raise TVMError("what is to be joined is no relocatable ELF object")
    return found


def _text(table: bytes, start: int) -> bytes:
    return table[start : table.index(b"\0", start)]


def read_sections(data: bytes, header: Sequence[int | bytes], layout: Format) -> list[Section]:
    """Return an object's sections, which its symbols and relocations number."""
    offset, count, names = int(header[6]), int(header[12]), int(header[13])
    size = struct.calcsize(layout.section)
    rows = [struct.unpack_from(layout.section, data, offset + i * size) for i in range(count)]
    table = data[rows[names][4] : rows[names][4] + rows[names][5]]
    return [
        Section(
            _text(table, name), kind, flags, link, info, align, entry, nbytes,
            b"" if kind == _NOBITS else data[start : start + nbytes],
        )
        for name, kind, flags, _, start, nbytes, link, info, align, entry in rows
    ]  # fmt: skip


def read_symbols(sections: Sequence[Section], layout: Format) -> list[Symbol]:
    """Return an object's symbols, which its relocations number."""
    table = next((s for s in sections if s.kind == _SYMTAB), None)
    if table is None:
        return []
    names, found = sections[table.link].data, []
    for row in struct.iter_unpack(layout.symbol, table.data):
        name, info, other, section, value, size = (row[i] for i in layout.symbol_fields)
        found.append(Symbol(_text(names, name), info, other, section, value, size))
    return found


def _add(
    joined: _Joined, data: bytes, header: Sequence[int | bytes]
) -> list[tuple[Section, list[int | bytes], dict[int, int]]]:
    """Add an object; gives the sections that refer to its symbols, with these and its sections' numbers.

    A symbol is its place among the local ones, or its name.
    """
    sections = read_sections(data, header, joined.format)
    has_attributes = any(s.kind == _ATTRIBUTES for s in joined.sections)
    place: dict[int, int] = {0: 0}
    for number, section in enumerate(sections):
        dropped = section.kind in (0, _SYMTAB, _STRTAB, _ADDRSIG) or (section.kind == _ATTRIBUTES and has_attributes)
        if not dropped:
            joined.sections.append(section)
            place[number] = len(joined.sections)
    symbols: list[int | bytes] = [0]
    for symbol in read_symbols(sections, joined.format)[1:]:
        if symbol.section < _FIRST_SPECIAL:
            symbol.section = place.get(symbol.section, 0)
        if symbol.binding == _LOCAL:
            joined.locals.append(symbol)
            symbols.append(len(joined.locals) - 1)
            continue
        symbols.append(symbol.name)
        known = joined.globals.get(symbol.name)
        if known is None or symbol.over(known):
            joined.globals[symbol.name] = symbol
        if known is not None:
            joined.globals[symbol.name].other = max(symbol.other, known.other)
    return [(section, symbols, place) for number, section in enumerate(sections) if number and number in place]


def _defined(joined: _Joined) -> list[bytes]:
    return [name for name, symbol in joined.globals.items() if symbol.section]


def _tabulate(joined: _Joined, prefix: bytes, machine: int) -> tuple[Section, list[int | bytes], dict[int, int]]:
    """Add the table of defined symbols; return its relocations as :func:`_add` does."""
    if (machine, joined.format.address) not in _ADDRESSES:
        raise TVMError(f"objects of ELF's machine {machine} cannot have a prefix")
    kind, has_addends = _ADDRESSES[machine, joined.format.address]
    layout, names, texts = joined.format, _defined(joined), Strings()
    width = struct.calcsize(f"<{layout.address}")
    places = [texts.add(name) for name in names]
    joined.sections.append(
        Section(b".rodata.tilewright_names", _PROGBITS, _FLAGS["a"], 0, 0, 1, 0, 0, bytes(texts.data))
    )
    joined.locals.append(Symbol(b"", 0, 0, len(joined.sections), 0, 0))
    symbols: list[int | bytes] = [len(joined.locals) - 1, *names]
    rows, data = [], bytearray((len(names) + 1) * 2 * width)
    for index, place in enumerate(places):
        for at, symbol, addend in ((2 * index, 0, place), (2 * index + 1, index + 1, 0)):
            if not has_addends:
                struct.pack_into(f"<{layout.address}", data, at * width, addend)
            rows.append((at * width, symbol << layout.symbol_bits | kind, *((addend,) if has_addends else ())))
    flags = _FLAGS["a"] | _FLAGS["w"]
    joined.sections.append(Section(b".data.rel.ro.tilewright_model", _PROGBITS, flags, 0, 0, width, 0, 0, bytes(data)))
    table = len(joined.sections)
    joined.globals[b"model"] = Symbol(b"model", _GLOBAL_OBJECT, 0, table, 0, len(data))
    form = f"<{3 if has_addends else 2}{layout.address}"
    title, section_kind = (b".rela", _RELA) if has_addends else (b".rel", _REL)
    relocations = b"".join(struct.pack(form, *row) for row in rows)
    section = Section(
        title + b".data.rel.ro.tilewright_model",
        section_kind,
        _INFO_LINK,
        0,
        table,
        width,
        struct.calcsize(form),
        0,
        relocations,
    )
    joined.sections.append(section)
    return section, symbols, {table: table}


def _rename(joined: _Joined, prefix: bytes, uses: Sequence[tuple[Section, list[int | bytes], dict[int, int]]]) -> None:
    """Put the prefix before each global symbol that is defined."""
    renamed = {name: prefix + b"_" + name for name in _defined(joined)}
    for _, symbols, _ in uses:
        symbols[:] = [renamed.get(s, s) if isinstance(s, bytes) else s for s in symbols]
    joined.globals = {renamed.get(name, name): symbol for name, symbol in joined.globals.items()}
    for name, symbol in joined.globals.items():
        symbol.name = name


def _refer(joined: _Joined, uses: Sequence[tuple[Section, list[int | bytes], dict[int, int]]]) -> None:
    """Let sections refer to the numbers that symbols and sections have now."""
    order = {name: len(joined.locals) + index for index, name in enumerate(joined.globals)}
    table = len(joined.sections) + 1
    layout = joined.format
    for section, symbols, place in uses:
        numbers = [n if isinstance(n, int) else order[n] for n in symbols]
        if section.kind in (_RELA, _REL):
            section.data = _moved(section, numbers, layout)
            section.link, section.info = table, place[section.info]
        elif section.kind == _GROUP:
            words = struct.unpack(f"<{len(section.data) // 4}I", section.data)
            section.data = struct.pack(f"<{len(words)}I", words[0], *(place[w] for w in words[1:]))
            section.link, section.info = table, numbers[section.info]
        elif section.flags & _LINK_ORDER:
            section.link = place[section.link]


def _moved(section: Section, numbers: Sequence[int], layout: Format) -> bytes:
    """Relocations with the symbols' new numbers."""
    form = f"<2{layout.address}" + (layout.address if section.kind == _RELA else "")
    mask = (1 << layout.symbol_bits) - 1
    rows = [
        struct.pack(form, at, numbers[info >> layout.symbol_bits] << layout.symbol_bits | (info & mask), *addend)
        for at, info, *addend in struct.iter_unpack(form, section.data)
    ]
    return b"".join(rows)


class Strings:
    """A table of texts that end with zeros."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0")
        self.place: dict[bytes, int] = {b"": 0}

    def add(self, text: bytes) -> int:
        if text not in self.place:
            self.place[text] = len(self.data)
            self.data += text + b"\0"
        return self.place[text]


def _symbol_table(joined: _Joined, names: Strings) -> bytes:
    rows = []
    for symbol in (*joined.locals, *joined.globals.values()):
        values = [0] * 6
        fields = (names.add(symbol.name), symbol.info, symbol.other, symbol.section, symbol.value, symbol.size)
        for index, value in zip(joined.format.symbol_fields, fields, strict=True):
            values[index] = value
        rows.append(struct.pack(joined.format.symbol, *values))
    return b"".join(rows)


def _written(joined: _Joined, header: Sequence[int | bytes]) -> bytes:
    """The file: header, sections, their table."""
    layout, names, titles = joined.format, Strings(), Strings()
    symbols = _symbol_table(joined, names)
    number = len(joined.sections) + 1
    tail = [
        Section(b".symtab", _SYMTAB, 0, number + 1, len(joined.locals), 8, struct.calcsize(layout.symbol), 0, symbols),
        Section(b".strtab", _STRTAB, 0, 0, 0, 1, 0, 0, bytes(names.data)),
        Section(b".shstrtab", _STRTAB, 0, 0, 0, 1, 0, 0, b""),
    ]
    sections = [*joined.sections, *tail]
    rows = [bytes(struct.calcsize(layout.section))]
    places = [titles.add(section.name) for section in sections]
    tail[-1].data = bytes(titles.data)
    body = bytearray(struct.calcsize(layout.header))
    for name, section in zip(places, sections, strict=True):
        body += bytes(-len(body) % max(section.align, 1))
        size = section.size if section.kind == _NOBITS else len(section.data)
        rows.append(
            struct.pack(
                layout.section, name, section.kind, section.flags, 0, len(body), size, section.link, section.info,
                section.align, section.entry,
            )
        )  # fmt: skip
        body += section.data
    body += bytes(-len(body) % 8)
    fields = list(header)
    fields[4:7] = 0, 0, len(body)
    fields[12:14] = len(rows), len(rows) - 1
    struct.pack_into(layout.header, body, 0, *fields)
    return bytes(body) + b"".join(rows)
