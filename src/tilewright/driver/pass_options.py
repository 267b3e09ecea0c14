"""Options of passes on the command line."""

from __future__ import annotations

from typing import Any

import typer

from tilewright.ir.transform import PassContext
from tilewright.relay.options import RUNTIMES

_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def parse_pass_config(values: list[str] | None) -> dict[str, Any]:
    """Parse ``name=value`` (repeatable) to a mapping for ``PassContext``, which declares the values."""
    config: dict[str, Any] = {}
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


def runtime_config(runtime: str | None) -> dict[str, Any]:
    """Options of ``PassContext`` for the libraries of ``--for``; none for this package's own runtime."""
    if runtime is None:
        return {}
    if runtime not in RUNTIMES:
        raise typer.BadParameter(f"--for {runtime}: the runtimes that can be compiled for are {', '.join(RUNTIMES)}")
    return RUNTIMES[runtime]
