"""Parsing of command-line values, without the compiler: commands that only run a library start at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from tilewright.runtime.error import TVMError

if TYPE_CHECKING:
    from tilewright.report.passes import PassRecorder

T = TypeVar("T")


def parse_input_shapes(values: list[str] | None) -> dict[str, tuple[int | str, ...]]:
    """Parse ``name:1,3,224,224`` or ``name:batch,seq`` (repeatable) to a mapping; ``name:`` is a scalar."""
    shapes: dict[str, tuple[int | str, ...]] = {}
    for value in values or ():
        name, colon, dims = value.rpartition(":")
        try:
            if not colon or not name:
                raise ValueError
            shape = tuple(_dim(d.strip()) for d in dims.split(",") if d.strip())
        except ValueError:
            raise typer.BadParameter(f"{value!r} is not of the form name:1,3,224,224 or name:batch,3") from None
        if any(isinstance(d, int) and d < 0 for d in shape):
            raise typer.BadParameter(f"{value!r}: a dimension is negative")
        if name in shapes:
            raise typer.BadParameter(f"the shape of {name!r} is set twice")
        shapes[name] = shape
    return shapes


def _dim(text: str) -> int | str:
    """A number, or the name of a dimension."""
    return text if text.isidentifier() else int(text)


def check_is_file(path: Path) -> None:
    """Complain when ``path`` is no file that can be read."""
    if path.is_dir():
        raise OSError(f"{path}: is a directory, not a file")
    if not path.exists():
        raise OSError(f"{path}: no such file")
    if path.is_char_device() or path.is_block_device():
        raise OSError(f"{path}: is a device, not a file")


# What other systems have libraries in; here they would hold what Linux loads.
_FOREIGN = (".dylib", ".exe", ".lib", ".obj")


def check_is_library(path: Path) -> None:
    """Refuse the name of a library of a system that none are made for."""
    if path.suffix.lower() in _FOREIGN:
        raise TVMError(
            f"{path}: libraries are made for Linux, Android (.so, .a, .o, .tar) and Windows (.dll), not "
            f"{path.suffix} files of other systems"
        )


def check_writable(path: Path) -> None:
    """Complain now, not after minutes of compiling, when ``path`` cannot be written."""
    folder = path.parent if str(path.parent) else Path()
    if path.is_dir():
        raise OSError(f"cannot write {path}: it is a directory")
    if not folder.is_dir():
        raise OSError(f"cannot write {path}: the directory {folder} does not exist")
    probe = folder / f".{path.name}.tilewright-probe"
    try:
        probe.touch()
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror}") from None
    finally:
        probe.unlink(missing_ok=True)


def format_bytes(count: float) -> str:
    """Format bytes: 1536 as ``1.5 KiB``."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def parse_threads(value: str | None) -> tuple[int, ...]:
    """Parse ``1,2,4`` to thread counts; empty for no value."""
    return tuple(_listed(value, int, "--threads", "whole numbers from 1 on, such as 1,2", lambda n: n >= 1))


def parse_percentiles(value: str | None) -> tuple[float, ...]:
    """Parse ``50,90,99.9`` to percentiles; empty for no value."""
    return tuple(
        _listed(value, float, "--percentiles", "numbers from 0 to 100, such as 50,90,99", lambda p: 0 <= p <= 100)
    )


def _listed(
    value: str | None, kind: Callable[[str], T], option: str, takes: str, allowed: Callable[[T], bool]
) -> list[T]:
    try:
        numbers = [kind(number) for number in value.split(",")] if value is not None else []
    except ValueError:
        numbers = None
    if numbers is None or not all(map(allowed, numbers)):
        raise typer.BadParameter(f"{option} {value}: takes {takes}") from None
    return numbers


def recorder_for(report: Path | None) -> PassRecorder | None:
    """Return a recorder of the compiler's passes, where a page is asked for."""
    if report is None:
        return None
    from tilewright.report.passes import PassRecorder

    return PassRecorder()
