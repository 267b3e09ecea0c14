"""Parsing of command-line values."""

from __future__ import annotations

from pathlib import Path

import typer

from tilewright.ir.transform import PassContext

_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def parse_input_shapes(values: list[str] | None) -> dict[str, tuple[int, ...]]:
    """``name:1,3,224,224`` (repeatable) to a mapping; ``name:`` is a scalar."""
    shapes: dict[str, tuple[int, ...]] = {}
    for value in values or ():
        name, colon, dims = value.rpartition(":")
        try:
            if not colon or not name:
                raise ValueError
            shape = tuple(int(d) for d in dims.split(",") if d.strip())
        except ValueError:
            raise typer.BadParameter(f"{value!r} is not of the form name:1,3,224,224") from None
        if any(d < 0 for d in shape):
            raise typer.BadParameter(f"{value!r}: a dimension is negative")
        if name in shapes:
            raise typer.BadParameter(f"the shape of {name!r} is given twice")
        shapes[name] = shape
    return shapes


def parse_pass_config(values: list[str] | None) -> dict[str, bool | int | str]:
    """``name=value`` (repeatable) to a mapping for ``PassContext``, which says what an option takes."""
    config: dict[str, bool | int | str] = {}
    for item in values or ():
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{item!r} is not of the form name=value")
        option = PassContext.declared(name)
        try:
            config[name] = _FLAGS[value.lower()] if option.type is bool else option.type(value)
        except (KeyError, ValueError):
            raise typer.BadParameter(f"{item!r}: {name} takes a value of type {option.type.__name__}") from None
    return config


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
    """``1536`` as ``1.5 KiB``."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
