"""The C compilers of this machine: where they are found, and how they are called."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence

from .error import ExportError
from .windows_library import compiler_names, is_windows, zig_target

CPLUSPLUS_LIBRARIES = ["-lstdc++"]

_ZIG = [sys.executable, "-m", "ziglang"]


def run_compiler(command: list[str]) -> None:
    """Run a compiler; its complaint becomes the error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise ExportError(f"cannot run the C compiler {command[0]!r}: {error.strerror}") from None
    if done.returncode != 0:
        message = (done.stderr or done.stdout).strip()
        name = " ".join(command[:4]) if _is_zig(command) else command[0]
        raise ExportError(f"{name} failed with exit status {done.returncode}:\n{message[-2000:]}")


def find_compiler(cc: str | None = None, triple: str | None = None) -> list[str]:
    """Return the beginning of a call of the C compiler.

    That is ``cc`` or ``$CC`` (a program, or a command line such as "ccache gcc"), or the first of cc, gcc and clang on
    the PATH, or the one in the Python package ziglang. For another machine's ``triple``, such as aarch64-linux-gnu, it
    is its gcc, aarch64-linux-gnu-gcc, or ziglang.

    Raises:
        ExportError: there is none.
    """
    package, zig_options = "gcc", ["-mcpu=baseline"]  # without that, zig compiles C for this very processor
    if cc:
        names = [cc]
    elif triple is not None:
        arch, *rest = triple.split("-")
        family = re.sub(r"^armv\d\w*$", "arm", arch)  # tool chains have one name for armv7l and its like
        machine = zig_target(triple) if is_windows(triple) else "-".join([family, *rest[-2:]])
        package, zig_options = f"gcc-{machine}", ["-target", machine]
        names = [f"{arch}-{'-'.join(rest)}-gcc", f"{'-'.join([arch, *rest[-2:]])}-gcc", f"{machine}-gcc"]
        if is_windows(triple):
            package, names = "gcc-mingw-w64-x86-64", compiler_names(triple)
    else:
        chosen = os.environ.get("CC", "")
        if chosen.strip() and _command(chosen) is None:
            raise ExportError(f"the environment variable CC names {chosen!r}, and there is no such program; unset it")
        names = [*filter(None, [chosen]), "cc", "gcc", "clang"]
    for name in names:
        found = _command(name)
        if found is not None:
            return found
    if not cc and _has_ziglang():
        return [*_ZIG, "cc", *zig_options]
    if not cc:
        names.append("the Python package ziglang")
    raise ExportError(
        f"cannot find a C compiler{f' for {triple}' if triple else ''} (looked for {', '.join(dict.fromkeys(names))}), "
        "which links the library; "
        f'install gcc (Debian: apt install {package}) or ziglang (pip install ziglang), or name one with cc="..." '
        "(tilewright compile --cc, or the environment variable CC)"
    )


def _command(text: str) -> list[str] | None:
    """Split ``text`` into a program on the PATH and options; return None when there is no such program."""
    for split in (lambda name: [name]), shlex.split:
        try:
            program, *options = split(text)
        except ValueError:  # quotes that do not match, or nothing at all
            continue
        found = shutil.which(program)
        if found is not None:
            return [found, *options]
    return None


def _is_zig(command: list[str]) -> bool:
    return "ziglang" in command or os.path.basename(command[0]) == "zig"


def _has_ziglang() -> bool:
    return importlib.util.find_spec("ziglang") is not None


def find_archiver() -> list[str]:
    """Return the beginning of a call of ar: the system's, or the one in the Python package ziglang."""
    found = shutil.which("ar")
    return [*_ZIG, "ar"] if found is None and _has_ziglang() else [found or "ar"]


def for_language(suffix: str, options: Sequence[str]) -> list[str]:
    """Return options without those that choose a standard of the other language: C++, or for ``"cc"`` C.

    As in TVM, one list of options goes to all sources of a library, such as ``-std=c++14``.
    """
    return [o for o in options if not o.startswith("-std=") or ("++" in o) == (suffix == "cc")]
