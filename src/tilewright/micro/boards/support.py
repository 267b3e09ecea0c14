"""The files that a program on an emulated board needs, and how it is built and run."""

from __future__ import annotations

from pathlib import Path

from tilewright.micro.boards.memory import STACK
from tilewright.micro.boards.records import Board, Emulation

_PRINTS = ("-semihosting-config", "enable=on,target=native,chardev=out", "-chardev")
_COUNTED = ("-icount", "shift=0,sleep=off")
_QUIET = ("-display", "none", "-monitor", "none")


def support_files(board: Board) -> dict[str, str]:
    """Return start-up code, its header and the linker's script for an emulated board, by name of file."""
    emulation = emulation_of(board)
    places = f"#define BOARD_UART {emulation.uart_at:#x}\n#define BOARD_CLOCK_HZ {emulation.clock_hz}\n"
    start_up = places + _text(emulation.start_up) if emulation.uart_at else _text(emulation.start_up)
    files = {"board.h": _text("board.h"), "board.c": start_up, "board.ld": _script(board, emulation)}
    return files if emulation.has_libc else {**files, "string.h": _text("string.h")}


def _script(board: Board, emulation: Emulation) -> str:
    text = _text("board.ld")
    places = {
        "FLASH_AT": hex(emulation.flash_at), "FLASH": str(board.flash), "RAM_AT": hex(emulation.ram_at),
        "RAM": str(board.ram), "STACK": str(STACK),
    }  # fmt: skip
    for place, value in places.items():
        text = text.replace(f"@{place}@", value)
    return text


def emulator_command(board: Board, serial: str = "none", counted: bool = False) -> list[str]:
    """Return the command that runs the program whose file follows it.

    ``serial`` is where the board's serial line leads; what programs print goes to the standard output, or to that of
    errors where the serial line has it. ``counted``: instructions make the time, one a nanosecond.
    """
    prints = [*_PRINTS, "file,id=out,path=/dev/stderr" if serial == "stdio" else "stdio,id=out"]
    clock = _COUNTED if counted else ()
    return [*emulation_of(board).command, *_QUIET, "-serial", serial, *prints, *clock, "-kernel"]


def compiler_flags(board: Board) -> list[str]:
    """Return the options that compile for a board."""
    emulation = emulation_of(board)
    return [*emulation.flags, "-ffunction-sections", "-fdata-sections", *_libc(emulation, ["-ffreestanding", "-I."])]


def linker_flags(board: Board) -> list[str]:
    """Return the options that link a program for a board, before its objects; ``linked_libraries`` follow them."""
    emulation = emulation_of(board)
    return ["-nostartfiles", "-T", "board.ld", "-Wl,--gc-sections", *_libc(emulation, ["-nostdlib"])]


def linked_libraries(board: Board) -> list[str]:
    """Return the libraries of a program."""
    return ["-lm"] if emulation_of(board).has_libc else ["-lgcc"]


def emulation_of(board: Board) -> Emulation:
    """Return how a board is emulated, which it must be."""
    assert board.emulation is not None
    return board.emulation


def _libc(emulation: Emulation, without: list[str]) -> list[str]:
    return [] if emulation.has_libc else without


def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")
