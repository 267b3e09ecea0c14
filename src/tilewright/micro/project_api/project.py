"""Projects for a process of this machine, and for boards that QEMU emulates.

A project's folder::

    microtvm_api_server.py      its server: the template's
    model.tar, model/           the network in the Model Library Format, and unpacked
    main.c                      the program: it serves remote calls over its line
    crt/                        what it is linked with
    Makefile                    builds ``build/main``
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.micro.boards.records import BOARDS, Board, board_named
from tilewright.micro.boards.support import (
    compiler_flags,
    emulation_of,
    emulator_command,
    linked_libraries,
    linker_flags,
    support_files,
)
from tilewright.micro.project_api import server

ARCHIVE, SERVER = "model.tar", "microtvm_api_server.py"
_OPTIONS = "options.json"
_COPIED = ("include", "src/rpc", "src/runtime/crt/common")

_MAKEFILE = """\
# {title}
CC = {compiler}
CFLAGS = -std=gnu11 -O2 -ffp-contract=fast -fno-math-errno {flags}
INCLUDES = -I. -Icrt/include -Icrt/src/rpc
SOURCES = main.c {board}$(wildcard crt/src/rpc/*.c crt/src/runtime/crt/common/*.c model/codegen/host/src/*.c)
OBJECTS = $(SOURCES:%.c=build/%.o) $(wildcard model/codegen/host/lib/*.o)

build/main: $(OBJECTS)
\t$(CC) $(CFLAGS) {link} $(OBJECTS) {libraries} -o $@

build/%.o: %.c
\t@mkdir -p $(@D)
\t$(CC) $(CFLAGS) $(INCLUDES) -c $< -o $@
"""


_PACKED = "int32_t {run}(void* args, int32_t* type_codes"

_REGISTRATION = """\
/* Registers the network with the system library, as the program's entry. */
#include <tvm/runtime/c_backend_api.h>

extern int32_t {run}(void*, int32_t*, int32_t, void*, int32_t*, void*);

static void __attribute__((constructor)) register_network(void) {{
  TVMBackendRegisterSystemLibSymbol("{run}", (void*)&{run});
  TVMBackendRegisterSystemLibSymbol("__tvm_main__", (void*)"{run}");
}}
"""


class Project(server.ProjectAPIHandler):
    """The server of a template's or a project's folder; a subclass says what the programs are for."""

    platform = ""
    own_options: Sequence[server.ProjectOption] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def archive(self) -> Path:
        """Return where the network's archive is, or would be."""
        return self.folder / ARCHIVE

    def server_info_query(self, tvm_version: str) -> server.ServerInfo:
        """Return what the folder is."""
        is_template = not self.archive.exists()
        verbose = server.ProjectOption("verbose", (True, False), "Print the commands that build the program.")
        return server.ServerInfo(
            self.platform, is_template, "" if is_template else self.archive, [verbose, *self.own_options]
        )

    def generate_project(
        self,
        model_library_format_path: Path,
        standalone_crt_dir: Path,
        project_dir: Path,
        options: dict[str, Any],
    ) -> None:
        """Make the project's folder."""
        project_dir.mkdir(parents=True)
        for name in (SERVER, "main.c"):
            shutil.copy2(self.folder / name, project_dir / name)
        for name in _COPIED:
            shutil.copytree(standalone_crt_dir / name, project_dir / "crt" / name)
        shutil.copy2(model_library_format_path, project_dir / ARCHIVE)
        with tarfile.open(project_dir / ARCHIVE) as archive:
            archive.extractall(project_dir / "model", filter="data")
        _register(project_dir / "model")
        (project_dir / _OPTIONS).write_text(json.dumps(options))
        for name, text in self.files(options).items():
            (project_dir / name).write_text(text)

    def files(self, options: dict[str, Any]) -> dict[str, str]:
        """Return the Makefile, and what else the program needs, by name."""
        raise NotImplementedError

    def command(self, options: dict[str, Any]) -> list[str]:
        """Return the command that runs the program, whose line is the process's input and output."""
        raise NotImplementedError

    def _generated(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / _OPTIONS).read_text())
        return found

    def build(self, options: dict[str, Any]) -> None:
        """Run make."""
        done = subprocess.run(["make", "build/main"], cwd=self.folder, capture_output=True, text=True)
        if options.get("verbose"):
            print(done.stdout, done.stderr, flush=True)
        if done.returncode != 0:
            raise server.ServerError(f"the project in {self.folder} does not build:\n{done.stderr[-4000:]}")

    def flash(self, options: dict[str, Any]) -> None:
        """Do nothing: opening the line starts the program."""

    def open_transport(self, options: dict[str, Any]) -> server.TransportTimeouts:
        """Start the program."""
        self.close_transport()
        command = self.command(self._generated() | options)
        self._process = subprocess.Popen(
            command, cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        return server.TransportTimeouts(0.0, 30.0, 0.0)

    def close_transport(self) -> None:
        """End the program."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def read_transport(self, n: int, timeout_sec: float | None) -> bytes:
        """Read what the program writes."""
        if self._process is None or self._process.stdout is None:
            raise server.TransportClosedError()
        return server.read_with_timeout(self._process.stdout.fileno(), n, timeout_sec)

    def write_transport(self, data: bytes, timeout_sec: float | None) -> None:
        """Write what the program reads."""
        if self._process is None or self._process.stdin is None:
            raise server.TransportClosedError()
        server.write_with_timeout(self._process.stdin.fileno(), data, timeout_sec)


def _register(model: Path) -> None:
    """Make an ahead-of-time program register with the system library, and see that another network's functions do.

    Raises
    ------
    ServerError : the program would not find the network
    """
    folder = model / "codegen" / "host" / "src"
    sources = [*folder.glob("*.c"), *model.glob("codegen/host/lib/*.o")]
    described = json.loads((model / "metadata.json").read_text())
    run = f"tvmgen_{described['model_name']}_run"
    if described["executors"] == ["aot"]:
        if not any(_PACKED.format(run=run).encode() in source.read_bytes() for source in sources):
            raise server.ServerError(f"the network has no packed function {run}: leave out -interface-api=c")
        (folder / "register.c").write_text(_REGISTRATION.format(run=run))
    elif not any(b"TVMBackendRegisterSystemLibSymbol" in source.read_bytes() for source in sources):
        raise server.ServerError(
            "the network's functions register with no system library: build it for the graph executor with a target of "
            'tvm.target.target.micro, or with "c -runtime=c -system-lib"'
        )


class HostProject(Project):
    """A program of this machine that stands for a board; its line are its standard input and output."""

    platform = "host"

    def files(self, options: dict[str, Any]) -> dict[str, str]:
        """Return the Makefile."""
        title = "A program that stands for a board on this machine."
        values = {"title": title, "compiler": "cc", "flags": "", "board": "", "link": "", "libraries": "-lm"}
        return {"Makefile": _MAKEFILE.format(**values)}

    def command(self, options: dict[str, Any]) -> list[str]:
        """Return the program."""
        return [str(self.folder / "build" / "main")]


class QemuProject(Project):
    """A program for a board that QEMU emulates; its line is the board's first serial line.

    The emulator counts instructions for time, one a nanosecond, so that measurements are the same in every run.
    """

    platform = "qemu"
    own_options = (
        server.ProjectOption(
            "board",
            [name for name, b in BOARDS.items() if b.emulation is not None and b.emulation.has_libc],
            "The board; mps2_an386 by default.",
        ),
    )

    def _board(self, options: dict[str, Any]) -> Board:
        return board_named(options.get("board", "mps2_an386"))

    def files(self, options: dict[str, Any]) -> dict[str, str]:
        """Return the Makefile, and the board's start-up code."""
        board = self._board(options)
        values = {
            "title": f"A program for the board {board.name}.", "compiler": f"{emulation_of(board).compiler}gcc",
            "flags": " ".join(compiler_flags(board)), "board": "board.c ",
            "link": " ".join([*linker_flags(board), "--specs=nano.specs"]),
            "libraries": " ".join(linked_libraries(board)),
        }  # fmt: skip
        return {**support_files(board), "Makefile": _MAKEFILE.format(**values)}

    def command(self, options: dict[str, Any]) -> list[str]:
        """Return the emulator's command."""
        program = str(self.folder / "build" / "main")
        return [*emulator_command(self._board(options), serial="stdio", counted=True), program]
