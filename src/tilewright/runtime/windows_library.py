"""Libraries for Windows: a compiled model and the runtime in one ``.dll``, made by MinGW-w64 or by zig.

The runtime's sources are compiled once for each compiler and version, and kept in the user's cache.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ._ffi import include_dir
from .environment import CACHE_DIR
from .error import ExportError
from .partial_files import whole_folder

Run = Callable[[list[str]], None]

_PARTS = ("core", "array", "device", "function", "module", "executor", "vm", "model")
_FLAGS = ["-std=gnu11", "-O2", "-D__USE_MINGW_ANSI_STDIO=1", "-D_FILE_OFFSET_BITS=64"]
_LINK = ["-shared", "-static", "-Wl,--export-all-symbols"]


def is_windows(triple: str | None) -> bool:
    """Return whether a triple is that of a machine with Windows."""
    return triple is not None and "windows" in triple


def compiler_names(triple: str) -> list[str]:
    """Return the names under which compilers for such a machine are installed."""
    return [f"{triple.split('-')[0]}-w64-mingw32-gcc"]


def zig_target(triple: str) -> str:
    """Return zig's name of such a machine."""
    return f"{triple.split('-')[0]}-windows-gnu"


def table_object(blob: Path, symbol: str, compiler: Sequence[str], run: Run) -> Path:
    """Return an object file that has the bytes of a file under a symbol, in memory that may be written to."""
    source, made = blob.with_suffix(".S"), blob.with_suffix(".o")
    source.write_text(f'.section .data\n.globl {symbol}\n.balign 64\n{symbol}:\n.incbin "{blob.as_posix()}"\n')
    run([*compiler, "-c", str(source), "-o", str(made)])
    return made


def link_dll(
    files: Sequence[str], out: Path, name: str, compiler: Sequence[str], options: Sequence[str], run: Run
) -> None:
    """Link objects and the runtime to a ``.dll``, which needs nothing but Windows; programs look for it by ``name``."""
    runtime = _runtime_objects(list(compiler), run)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        definition = Path(folder) / "library.def"
        definition.write_text(f'LIBRARY "{name}"\n')
        objects = [*files, *map(str, runtime), str(definition)]
        run([*compiler, *_LINK, *objects, *options, "-lpthread", "-lm", "-o", str(out)])


def _sources() -> list[Path]:
    """Return the runtime's C files.

    Raises:
        ExportError: this installation has none.
    """
    for folder in (include_dir().parent / "src", Path(__file__).parents[3] / "native" / "src"):
        found = [file for part in _PARTS for file in sorted((folder / part).glob("*.c"))]
        if found:
            return found
    raise ExportError("a library for Windows takes the runtime's C sources, and they are not installed: use a checkout")


def _runtime_objects(compiler: list[str], run: Run) -> list[Path]:
    sources = _sources()
    headers = sorted(file for file in sources[0].parents[1].rglob("*.h"))
    version = subprocess.run([*compiler, "--version"], capture_output=True, check=False).stdout
    digest = hashlib.sha256(b"\0".join([version, *(file.read_bytes() for file in (*sources, *headers))])).hexdigest()
    folder = Path(CACHE_DIR.read() or Path.home() / ".cache" / "tilewright") / f"windows-runtime-{digest[:16]}"
    names = [f"{file.parent.name}_{file.stem}.o" for file in sources]
    if not folder.is_dir():
        with whole_folder(folder) as partial:
            commands = [
                [*compiler, "-c", *_FLAGS, f"-I{include_dir()}", str(file), "-o", str(partial / name)]
                for file, name in zip(sources, names, strict=True)
            ]
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(run, commands))
    return [folder / name for name in names]
