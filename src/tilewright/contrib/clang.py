"""C or C++ to LLVM's text by clang, for kernels that call it (``pragma`` ``import_llvm``)."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilewright.ir.errors import TilewrightError


def find_clang(required: bool = True) -> list[str]:
    """The clangs on the PATH, the plain name first.

    Raises:
        TilewrightError: there is none, and one is ``required``.
    """
    names = ["clang", *(f"clang-{version}" for version in range(25, 13, -1))]
    found = [name for name in names if shutil.which(name)]
    if required and not found:
        raise TilewrightError("no clang is on the PATH: install one (on Debian: apt install clang)")
    return found


def create_llvm(
    inputs: str | Sequence[str], output: str | None = None, options: Sequence[str] | None = None, cc: str | None = None
) -> str:
    """Compile C or C++ to LLVM's text.

    Args:
        inputs: names of files, or texts of programs (what has more than one line is C).
        output: the file that gets the text.
        options: more options of clang's.
        cc: the compiler; the first of :func:`find_clang` by default.

    Returns:
        The text. It has pointers without the types that they point to, as LLVM has them now.

    Raises:
        TilewrightError: there is no clang, or it refuses the program; with what it says.
    """
    compiler = cc if cc is not None else find_clang()[0]
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        sources = []
        for at, text in enumerate([inputs] if isinstance(inputs, str) else inputs):
            if "\n" in text or not Path(text).exists():
                name = f"input{at}.cc"  # without the folder: the same program gives the same text
                (Path(folder) / name).write_text(text)
                sources.append(name)
            else:
                sources.append(str(Path(text).resolve()))
        target = str(Path(output).resolve()) if output is not None else f"{folder}/output.ll"
        command = [compiler, "-O3", "-emit-llvm", "-S", *_opaque_pointers(compiler), *(options or ())]
        command += [*sources, "-o", target]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise TilewrightError(f"{compiler} fails ({' '.join(command)}):\n{run.stderr}")
        return Path(target).read_text()


def _opaque_pointers(compiler: str) -> list[str]:
    """Return the options that make clang 14 write opaque pointers, as later versions do by default."""
    version = subprocess.run([compiler, "-dumpversion"], capture_output=True, text=True, check=False).stdout
    return ["-Xclang", "-opaque-pointers"] if version.startswith("14") else []
