"""docs/rpc.md: its transcripts are what the commands print.

The transcripts' machines are all this one: addresses and ports become its own. The boards are servers, one of them
under an emulator.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.driver.command import ROOT
from tests.driver.transcript import add_command, commands, environment, labels
from tests.ports import free_port
from tests.processors.tools import need

DOC = ROOT / "docs" / "rpc.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", DOC.read_text(), re.DOTALL | re.MULTILINE)
SERVICES = re.compile(r"rpc-(server|tracker|proxy)\b.* --")
CODE = re.compile(r"tw1\.[\w-]+(\.\.\.)?")


class Machines:
    """Where the transcripts' commands run: those that serve go on until the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = environment(folder) | {"TILEWRIGHT_CONFIG_DIR": str(folder / "config")}
        self._ports: dict[str, int] = {}
        self._code = ""  # that the last server has printed
        self.running: list[subprocess.Popen[str]] = []

    def here(self, text: str) -> str:
        """The text, of this machine."""
        text = re.sub(r"192\.168\.0\.\d+", "127.0.0.1", CODE.sub(self._code, text))
        return re.sub(r"\b9[01]\d\d\b", lambda port: str(self._ports.setdefault(port.group(), free_port())), text)

    def run(self, command: str, shown: str) -> None:
        """Run a command; the words that it prints are those that are shown."""
        line = self.here(command)
        if SERVICES.search(line):
            printed = self._start(line)
        else:
            done = subprocess.run(
                line, shell=True, cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=120
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            printed = done.stdout
        assert _words(printed) == _words(shown), line

    def _start(self, line: str) -> str:
        process = subprocess.Popen(
            f"exec {line}", shell=True, cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, text=True
        )
        self.running.append(process)
        assert process.stdout is not None
        printed = process.stdout.readline()
        code = CODE.search(printed)
        self._code = code.group() if code else self._code
        return printed


def _words(text: str) -> list[str]:
    """What is the same on all machines: no numbers, addresses, codes and lines of dashes."""
    text = re.sub(r"-{3,}|[\d.]+:\d+|whose certificate is .*", "", CODE.sub("CODE", text))
    return [word for label in labels(text) for word in label.split() if not re.fullmatch(r"[\d.]+", word)]


@contextmanager
def machines(folder: Path) -> Iterator[Machines]:
    made = Machines(folder)
    try:
        yield made
    finally:
        for process in made.running:
            process.terminate()
            process.wait(60)


@pytest.mark.full
def test_transcripts_from_a_fresh_board_to_a_measured_model(tmp_path: Path) -> None:
    need("qemu-arm", "arm-linux-gnueabihf-gcc")
    add_command(tmp_path)
    for name in ("examples", "native"):
        (tmp_path / name).symlink_to(ROOT / name)
    served = 0
    with machines(tmp_path) as there:
        for kind, transcript in BLOCKS:
            for command, shown in commands(transcript) if kind == "console" else ():
                there.run(command, shown)
                served += bool(SERVICES.search(command))
    assert served == len(there.running) == 4
