"""How instructions and words of x86-64 and AArch64 refer to symbols, and the stubs that call other libraries.

See "System V Application Binary Interface, AMD64 Architecture Processor Supplement" and "ELF for the Arm 64-bit
Architecture". Only what position-independent code without variables of threads uses is here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from .error import ExportError


@dataclass(frozen=True)
class Machine:
    """A machine that libraries are linked for: its largest page, and its relocations by their numbers.

    ``relative``, ``symbol`` and ``absolute`` are those of the loader: the library's place and a number, a symbol's
    address, a symbol's address and a number. ``by_table`` are those that mean a symbol's slot in the table of
    addresses, ``calls`` those of calls, which may go to a stub.

    ``patch(data, at, kind, place, value)`` writes one, and ``stub`` gives the code, at an address, that jumps to where
    the slot at another says.
    """

    page: int
    relative: int
    symbol: int
    absolute: int
    by_table: frozenset[int]
    calls: frozenset[int]
    patch: Callable[[bytearray, int, int, int, int], None]
    stub: Callable[[int, int], bytes]


STUB_BYTES = 16


def _patch_x86_64(data: bytearray, at: int, kind: int, place: int, value: int) -> None:
    match kind:
        case 1:
            struct.pack_into("<Q", data, at, value % (1 << 64))
        case 24:
            struct.pack_into("<q", data, at, value - place)
        case 2 | 4 | 9 | 41 | 42:
            struct.pack_into("<i", data, at, value - place)
        case _:
            raise ExportError(f"relocations of kind {kind} need a linker")


def _stub_x86_64(place: int, slot: int) -> bytes:
    return b"\xff\x25" + struct.pack("<i", slot - place - 6) + b"\xcc" * (STUB_BYTES - 6)  # jmp *slot(%rip)


# Loads and stores: the bits of an address within a page, in units of what is loaded.
_SCALED = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4, 312: 3}
# Branches: where the distance in words is, and how many bits it has.
_BRANCHES = {283: (0, 26), 282: (0, 26), 280: (5, 19), 279: (5, 14)}


def _bits(data: bytearray, at: int, first: int, count: int, value: int) -> None:
    """Write ``count`` bits of the instruction at ``at``."""
    word: int = struct.unpack_from("<I", data, at)[0]
    mask = ((1 << count) - 1) << first
    struct.pack_into("<I", data, at, word & ~mask | value << first & mask)


def _check_reach(distance: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= distance < 1 << (bits - 1):
        raise ExportError("the code is too large for its branches; it needs a linker")
    return distance


def _patch_aarch64(data: bytearray, at: int, kind: int, place: int, value: int) -> None:
    if kind == 257:
        struct.pack_into("<Q", data, at, value % (1 << 64))
    elif kind == 260:
        struct.pack_into("<q", data, at, value - place)
    elif kind == 261:
        struct.pack_into("<i", data, at, value - place)
    elif kind in _BRANCHES:
        first, count = _BRANCHES[kind]
        _bits(data, at, first, count, _check_reach((value - place) >> 2, count))
    elif kind in _SCALED:
        _bits(data, at, 10, 12, (value & 0xFFF) >> _SCALED[kind])
    elif kind in (275, 276, 311):
        pages = _check_reach((value >> 12) - (place >> 12), 21)
        _bits(data, at, 29, 2, pages)
        _bits(data, at, 5, 19, pages >> 2)
    else:
        raise ExportError(f"relocations of kind {kind} need a linker")


def _stub_aarch64(place: int, slot: int) -> bytes:
    code = bytearray(struct.pack("<4I", 0x90000010, 0xF9400211, 0xD61F0220, 0xD503201F))  # adrp, ldr, br, nop
    _patch_aarch64(code, 0, 275, place, slot)
    _patch_aarch64(code, 4, 286, place + 4, slot)
    return bytes(code)


MACHINES = {
    62: Machine(1 << 12, 8, 6, 1, frozenset((9, 41, 42)), frozenset((2, 4)), _patch_x86_64, _stub_x86_64),
    183: Machine(1 << 16, 1027, 1025, 257, frozenset((311, 312)), frozenset((282, 283)), _patch_aarch64, _stub_aarch64),
}
