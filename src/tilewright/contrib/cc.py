"""C compilers for ``export_library``: ``lib.export_library(path, cc.cross_compiler("aarch64-linux-gnu-gcc"))``."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.runtime.compilers import find_compiler, run_compiler
from tilewright.runtime.error import ExportError


def get_cc() -> str | None:
    """Return the command of the system's C compiler, or None."""
    try:
        return shlex.join(find_compiler())
    except ExportError:
        return None


def create_shared(
    output: str, objects: str | Sequence[str], options: Sequence[str] | None = None, cc: str | None = None
) -> None:
    """Link object files to a shared library.

    Args:
        output: path of the library.
        objects: paths of the objects.
        options: further options for the compiler.
        cc: the compiler; the system's without it.

    Raises:
        ExportError: there is no compiler, or it failed.
    """
    files = [objects] if isinstance(objects, str) else list(objects)
    run_compiler([*find_compiler(cc), "-shared", "-fPIC", *files, *(options or []), "-lm", "-o", output])


def create_executable(
    output: str, objects: str | Sequence[str], options: Sequence[str] | None = None, cc: str | None = None
) -> None:
    """Link object files, or compile C files, to a program.

    Args:
        output: path of the program.
        objects: paths of the files.
        options: further options for the compiler.
        cc: the compiler; the system's without it.

    Raises:
        ExportError: there is no compiler, or it failed.
    """
    files = [objects] if isinstance(objects, str) else list(objects)
    run_compiler([*find_compiler(cc), *files, *(options or []), "-lm", "-o", output])


def get_target_by_dump_machine(compiler: str) -> Callable[[], str]:
    """Return a function that returns the target triple of a compiler."""

    def get_target_triple() -> str:
        done = subprocess.run([*find_compiler(compiler), "-dumpmachine"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ExportError(f"{compiler} -dumpmachine failed: {done.stderr.strip()}")
        return done.stdout.strip()

    return get_target_triple


def cross_compiler(
    compile_func: str | Callable[..., Any],
    options: Sequence[str] | None = None,
    output_format: str = "so",
    get_target_triple: Callable[[], str] | None = None,
    add_files: Sequence[str] | None = None,
) -> Callable[..., None]:
    """Return a function for ``export_library``'s ``fcompile``.

    Args:
        compile_func: the name of a (cross) compiler, or a function like :func:`create_shared`.
        options: options added to each call.
        output_format: suffix of the output.
        get_target_triple: returns the compiler's target triple; by default the compiler is queried.
        add_files: further files to link.
    """
    base_options, extra = list(options or []), list(add_files or [])
    compiler = compile_func if isinstance(compile_func, str) else None

    def fcompile(output: str, objects: Sequence[str], options: Sequence[str] | None = None, **kwargs: Any) -> None:
        files, all_options = [*objects, *extra], [*base_options, *(options or [])]
        if callable(compile_func):
            compile_func(output, files, options=all_options, **kwargs)
        else:
            create_shared(output, files, all_options, cc=compile_func, **kwargs)

    named: Any = fcompile
    named.output_format = output_format
    named.compiler = compiler
    named.get_target_triple = get_target_triple or (get_target_by_dump_machine(compiler) if compiler else None)
    return fcompile
