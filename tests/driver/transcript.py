"""Transcripts in documents, "console" blocks: ``$ command`` lines with what they print."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path


def commands(transcript: str) -> list[tuple[str, str]]:
    """Each command, and the lines that it is shown to print."""
    return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", transcript, re.MULTILINE)


def add_command(folder: Path) -> None:
    """Put a ``tilewright`` command into the folder's ``bin``."""
    command = folder / "bin" / "tilewright"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tilewright "$@"\n')
    command.chmod(0o755)


def environment(folder: Path) -> dict[str, str]:
    """The environment of commands, which finds that command first."""
    return {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


def labels(text: str) -> list[str]:
    """The words of headings and the first words of lines, without the numbers, which differ between machines."""
    lines = [re.split(r"\t| {2,}|: ", line.strip()) for line in text.splitlines() if line.strip()]
    return [cell for line in lines for cell in (line if line[0].endswith("(ms)") or line[0] == "threads" else line[:1])
            if not cell[:1].isdigit()]  # fmt: skip
