"""The Makefile of a network for an emulated board."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.micro.boards.records import Board
from tilewright.micro.boards.support import (
    compiler_flags,
    emulation_of,
    emulator_command,
    linked_libraries,
    linker_flags,
)
from tilewright.micro.templates import RULES

_LIBRARY = (
    """\
# The network "{name}" as a static library for the board {board}. board.c starts a program there.
TOOLS ?= {tools}
CC = $(TOOLS)gcc
AR = $(TOOLS)ar
CFLAGS ?= -O2
ALL_CFLAGS = -std=c99 {flags} $(CFLAGS)
"""
    + RULES
)

_TEST = """
{name}_test.o: ALL_CFLAGS += -DTW_BOARD

{name}_test.elf: {name}_test.o board.o lib{name}.a board.ld
\t$(CC) $(ALL_CFLAGS) {link} -Wl,-Map={name}_test.map $(filter %.o %.a,$^) {libraries} -o $@

test: {name}_test.elf
\t{run} $<

.PHONY: test
"""


def makefile(board: Board, name: str, objects: Sequence[str], test: bool) -> str:
    """Return the Makefile of a network's library, and of its test in QEMU."""
    text = _LIBRARY + (_TEST if test else "")
    return text.format(
        name=name, board=board.name, objects=" ".join(objects), tools=emulation_of(board).compiler,
        flags=" ".join(compiler_flags(board)), link=" ".join(linker_flags(board)),
        libraries=" ".join(linked_libraries(board)), run=" ".join(emulator_command(board)),
    )  # fmt: skip
