"""Texts that C sources begin with."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def part(name: str) -> str:
    """The text of a file beside this one."""
    return Path(__file__).with_name(name).read_text("utf-8")
