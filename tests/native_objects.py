"""The C runtime's objects, compiled once for each compiler and options and kept by content in ``build/tests``."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NATIVE = ROOT / "native"
KEPT = ROOT / "build" / "tests"
# Not optimised, they compile in half the time.
SANITIZED = ["-g", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Werror", "-pedantic"]


def runtime_objects(compiler: str, *options: str) -> list[str]:
    """Return the paths of the objects of ``native/src`` as ``compiler`` makes them: ``FOLDER/NAME.o`` for each source.

    Processes that ask for the same wait for the first of them. Warnings are errors.
    """
    command = [compiler, "-std=c11", *WARNINGS, *options, f"-I{NATIVE / 'include'}", "-c"]
    folder = KEPT / _digest(command)
    KEPT.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _compile(command, folder)
    return sorted(map(str, folder.glob("*/*.o")))


def run_sanitized(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program that was compiled with sanitizers; again where LeakSanitizer itself crashed.

    GCC's stops all threads to look for leaks, and dies in one of some sixty runs if one is just starting or ending.
    """
    for _ in range(3):
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
        if "LeakSanitizer has encountered a fatal error" not in done.stderr:
            break
    return done


def _digest(command: list[str]) -> str:
    """Return a name for what ``command`` makes of the sources as they are now."""
    digest = hashlib.sha256("\0".join(command).encode())
    digest.update(subprocess.run([command[0], "--version"], check=True, capture_output=True).stdout)
    for path in sorted([*NATIVE.glob("src/*/*"), *NATIVE.glob("include/**/*.h")]):
        digest.update(f"{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:24]


def _compile(command: list[str], folder: Path) -> None:
    """Compile all sources into ``folder``, which is there only when that succeeded."""
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        for source in sorted((NATIVE / "src").iterdir()):
            place = unfinished / source.name
            place.mkdir()
            subprocess.run([*command, *map(str, sorted(source.glob("*.c")))], cwd=place, check=True)
        os.rename(unfinished, folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
