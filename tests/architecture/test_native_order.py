"""What the C runtime's files use of each other goes down the table in docs/architecture.md, file by file.

Read from the symbols of the compiled files, so that nothing is missed.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.native_objects import NATIVE, ROOT, SANITIZED, runtime_objects

GUIDE = ROOT / "docs" / "architecture.md"


def listed() -> list[str]:
    """The files as the guide has them, from the highest to the lowest: "executor/factory", ..."""
    section = GUIDE.read_text().split("\n## The runtime in C", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `(\w+)/` \|([^|]*)\|", section, re.MULTILINE)
    return [f"{folder}/{name}" for folder, names in rows for name in re.findall(r"`(\w+)`", names)]


def symbols(listing: str) -> tuple[set[str], set[str]]:
    """What an object defines, and what it uses from elsewhere."""
    found = [line.split()[-2:] for line in listing.splitlines()]
    return {name for kind, name in found if kind in "TDBRC"}, {name for kind, name in found if kind == "U"}


@pytest.fixture(scope="module")
def objects() -> dict[str, tuple[set[str], set[str]]]:
    """Defined and used symbols by file."""
    found = {}
    for path in map(Path, runtime_objects("gcc", *SANITIZED)):
        listing = subprocess.run(["nm", str(path)], check=True, capture_output=True, text=True).stdout
        found[f"{path.parent.name}/{path.stem}"] = symbols(listing)
    return found


def test_every_file_has_its_place(objects: dict[str, tuple[set[str], set[str]]]) -> None:
    assert sorted(listed()) == sorted(objects)


def test_files_use_what_is_below_them(objects: dict[str, tuple[set[str], set[str]]]) -> None:
    place = {name: index for index, name in enumerate(listed())}
    home = {symbol: name for name, (defined, _) in objects.items() for symbol in defined}
    upward = [
        f"{name}.c uses {symbol} of {home[symbol]}.c"
        for name, (_, used) in objects.items()
        for symbol in sorted(used)
        if symbol in home and place[home[symbol]] <= place[name]
    ]
    assert not upward, "\n".join(upward)


def test_headers_include_those_of_lower_folders() -> None:
    folders = list(dict.fromkeys(name.split("/")[0] for name in listed()))
    wrong = []
    for path in sorted((NATIVE / "src").glob("*/*.[ch]")):
        for included in re.findall(r'^#include "\.\./(\w+)/', path.read_text(), re.MULTILINE):
            if folders.index(included) <= folders.index(path.parent.name):
                wrong.append(f"{path.parent.name}/{path.name} includes a header of {included}/")
    assert not wrong, "\n".join(wrong)


def test_locks_are_free_in_children_of_fork() -> None:
    """A mutex of pthreads stays locked in a child for ever; ``TwLock`` (core.h) does not."""
    own = {"lock.c", "core.h", "threadpool.c"}
    found = [
        f"{path.parent.name}/{path.name} has a mutex of pthreads; use TwLock"
        for path in sorted((NATIVE / "src").glob("*/*.[ch]"))
        if path.name not in own and "pthread_mutex_t" in path.read_text()
    ]
    assert not found, "\n".join(found)
