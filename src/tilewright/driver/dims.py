"""Named dimensions on the command line: what a library's are, and numbers for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from tilewright.runtime.error import TVMError
from tilewright.runtime.library_info import TensorInfo

Limits = tuple[int, int | None, int]


def parse_dim_limits(values: list[str] | None) -> dict[str, Limits]:
    """``batch=1:8``, ``seq=8:512:8`` or ``batch=4`` (repeatable) to the least, the largest and the divisor by name."""
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
    """``seq=1,16,128`` (repeatable) to numbers by name."""
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


@dataclass(frozen=True)
class Interface:
    """What a library of a program with named dimensions takes and gives (``relay/backend/interface.py``)."""

    inputs: dict[str, TensorInfo]
    outputs: tuple[str, ...]
    limits: dict[str, Limits]

    @classmethod
    def parse(cls, text: str) -> Interface:
        """The interface in a library."""
        inputs: dict[str, TensorInfo] = {}
        outputs: list[str] = []
        limits: dict[str, Limits] = {}
        for line in text.splitlines():
            kind, *rest = line.split("\t")
            if kind == "dim":
                low, high, multiple = map(int, rest[1:4])
                limits[rest[0]] = (low, high if high >= 0 else None, multiple)
                continue
            dtype, dims, name = rest
            if kind == "input":
                shape = tuple(int(d) if d.isdigit() else d for d in dims.split(",") if d)
                inputs[name] = TensorInfo(shape, dtype)  # type: ignore[arg-type]  # names stand for numbers
            else:
                outputs.append(name)
        return cls(inputs, tuple(outputs), limits)

    def described(self, name: str) -> str:
        """A dimension and its limits in words."""
        low, high, multiple = self.limits[name]
        steps = f", a multiple of {multiple}" if multiple != 1 else ""
        return f"{name} (from {low}{'' if high is None else f' to {high}'}{steps})"

    def at(self, numbers: Mapping[str, int]) -> dict[str, TensorInfo]:
        """The inputs with numbers for names; other names stay."""
        unknown = [name for name in numbers if name not in self.limits]
        if unknown:
            known = ", ".join(map(self.described, self.limits)) or "none"
            raise TVMError(f"--dim {unknown[0]}: the library has no dimension of that name; its dimensions are {known}")
        return {
            name: TensorInfo(tuple(numbers.get(d, d) for d in info.shape), info.dtype)  # type: ignore[call-overload]
            for name, info in self.inputs.items()
        }


def _dims(info: TensorInfo) -> tuple[Any, ...]:
    """Numbers, and names where there is none."""
    return info.shape


def open_names(info: TensorInfo) -> list[str]:
    """The dimensions of an input that have no number."""
    return [d for d in _dims(info) if isinstance(d, str)]


def fits(shape: tuple[int, ...], info: TensorInfo) -> bool:
    """Return whether an array's shape is that of an input, whose names may be any numbers."""
    dims = _dims(info)
    return len(shape) == len(dims) and all(isinstance(d, str) or d == n for n, d in zip(shape, dims, strict=True))
