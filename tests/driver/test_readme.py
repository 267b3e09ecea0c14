"""README.md: its programs run in an empty folder, its transcripts are what the commands print, its commands exist."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.driver.command import ROOT
from tests.driver.transcript import add_command, commands, environment, labels

TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def blocks(language: str) -> list[str]:
    found = [text for kind, text in BLOCKS if kind == language]
    assert found
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder in which the programs ran, and a `tilewright` command for the transcripts.

    They run in this process, which has PyTorch: to import it and what exports networks takes longer than all else.
    """
    folder = tmp_path_factory.mktemp("readme")
    for program in blocks("python"):
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})
        for printed in re.findall(r"print\(.*\)  # (.*)", program):
            assert printed in output.getvalue()
    add_command(folder)
    return folder


def test_the_languages_of_the_blocks_are_those_that_are_tested() -> None:
    assert {kind for kind, _ in BLOCKS} == {"sh", "python", "console"}


def test_transcripts_are_what_the_commands_print(folder: Path) -> None:
    (folder / "examples").symlink_to(ROOT / "examples")
    for transcript in blocks("console"):
        for command, shown in commands(transcript):
            env = environment(folder)
            result = subprocess.run(command, shell=True, cwd=folder, env=env, capture_output=True, text=True)
            assert result.returncode == 0, result.stderr
            assert labels(result.stdout) == labels(shown), command


def test_commands_of_the_set_up_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    makefile = (ROOT / "Makefile").read_text()
    for line in "".join(blocks("sh")).splitlines():
        command, *words = line.partition("#")[0].split()
        assert command in ("make", "pip")
        if command == "make":
            assert re.search(rf"^{words[0]}:", makefile, re.MULTILINE)
        else:
            assert words[0] == "install"
    for names in re.findall(r"\[([\w,]+)\]'", TEXT):
        assert set(names.split(",")) <= set(extras)


def test_links_lead_to_files() -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)):
        assert (ROOT / target).exists(), target
