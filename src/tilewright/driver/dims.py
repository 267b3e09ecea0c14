"""Named dimensions on the command line: limits and numbers for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import typer

from tilewright.runtime.interface import Limits


def parse_dim_limits(values: list[str] | None) -> dict[str, Limits]:
    """Parse ``batch=1:8``, ``seq=8:512:8`` or ``batch=4`` (repeatable) to the least, the largest and the divisor by
    name.
    """
    found: dict[str, Limits] = {}
    for item in values or ():
        name, equals, value = item.partition("=")
        parts = value.split(":")
        try:
            if not name or not equals or len(parts) > 3:
                raise ValueError
            low = int(parts[0] or 1)
            high = low if len(parts) == 1 else int(parts[1]) if parts[1] else None
            found[name] = (low, high, int(parts[2]) if len(parts) == 3 else 1)
        except ValueError:
            raise typer.BadParameter(f"{item!r} is not of the form batch=4, batch=1:8 or seq=8:512:8") from None
    return found


def parse_dim_numbers(values: list[str] | None) -> dict[str, tuple[int, ...]]:
    """Parse ``seq=1,16,128`` (repeatable) to numbers by name."""
    found: dict[str, tuple[int, ...]] = {}
    for item in values or ():
        name, equals, value = item.partition("=")
        try:
            if not name or not equals:
                raise ValueError
            found[name] = tuple(int(number) for number in value.split(","))
        except ValueError:
            raise typer.BadParameter(f"{item!r} is not of the form seq=16 or seq=1,16,128") from None
    return found


def combinations(numbers: Mapping[str, tuple[int, ...]]) -> Iterator[dict[str, int]]:
    """Every choice of a number for each name, the last name's numbers changing fastest."""
    for chosen in itertools.product(*numbers.values()):
        yield dict(zip(numbers, chosen, strict=True))
