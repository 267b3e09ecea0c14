"""``python -m tilewright_npu show LIB``, ``layers LIB`` and ``timeline LIB -o FILE.svg``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tilewright.runtime.partial_files import write_whole
from tilewright_npu.chip import NpuError
from tilewright_npu.isa import Program
from tilewright_npu.report import table
from tilewright_npu.show import lines, programs_in
from tilewright_npu.timeline import measure, svg


def main(arguments: list[str] | None = None) -> int:
    """Run a command; 0, or 1 with a line on the standard error."""
    parser = argparse.ArgumentParser(prog="python -m tilewright_npu", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (
        ("show", "print the command streams of a library"),
        ("layers", "print cycles and use by layer, beside the roofs of SRAM and DDR"),
        ("timeline", "draw engines over cycles"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("library", help="an exported library, or a program's own bytes")
        command.add_argument("--program", help="only the program of this name")
    commands.choices["timeline"].add_argument("-o", "--output", required=True, help="the SVG file to write")
    options = parser.parse_args(arguments)
    try:
        programs = _chosen(options.library, options.program)
        if options.command == "show":
            for program in programs:
                print("\n".join(lines(program)))
        elif options.command == "layers":
            for program in programs:
                print("\n".join((program.name, *table(measure(program)))))
        else:
            write_whole(Path(options.output), svg([measure(program) for program in programs]))
    except BrokenPipeError:  # of `show LIB | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, NpuError) as error:
        print(f"tilewright_npu: {error}", file=sys.stderr)
        return 1
    return 0


def _chosen(library: str, name: str | None) -> list[Program]:
    programs = programs_in(library)
    chosen = [p for p in programs if name in (None, p.name)]
    if not chosen:
        raise ValueError(f"{library}: no program {name!r}; there are {', '.join(p.name for p in programs)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
