"""The same model and options give the same bytes, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.driver.command import DIGITS


def _compiled(folder: Path, seed: str) -> list[bytes]:
    """The libraries that a process of its own makes: its sets have another order, its cache of kernels is empty."""
    folder.mkdir()
    libraries = [folder / f"{executor}.so" for executor in ("graph", "vm")]
    program = (
        "import sys, tilewright\n"
        "for path in sys.argv[2:]:\n"
        "    executor = 'vm' if path.endswith('vm.so') else 'graph'\n"
        "    tilewright.compile(sys.argv[1], executor=executor).save(path)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed, "XDG_CACHE_HOME": str(folder / "cache")}
    subprocess.run([sys.executable, "-c", program, DIGITS, *libraries], env=environment, check=True)
    return [path.read_bytes() for path in libraries]


def test_two_processes_make_the_same_libraries(tmp_path: Path) -> None:
    assert _compiled(tmp_path / "one", "1") == _compiled(tmp_path / "two", "2")
