"""Interface of a compiled model: names, data types, and shapes whose dimensions are numbers or names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .dtype import DataType
from .error import TVMError

Limits = tuple[int, int | None, int]
"""The least number of a dimension, the largest (None: any), and what the number is a multiple of."""


@dataclass(frozen=True)
class TensorInfo:
    """Shape and data type of an input, output or parameter; a dimension is a number, or the name of one."""

    shape: tuple[int | str, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.dims}"

    @property
    def dims(self) -> str:
        """The shape as text: ``(batch, 3)``."""
        return f"({', '.join(map(str, self.shape))}{',' if len(self.shape) == 1 else ''})"

    @property
    def nbytes(self) -> int:
        """Size in bytes; raises TVMError if a dimension has no number."""
        numbers = [d for d in self.shape if isinstance(d, int)]
        if len(numbers) < len(self.shape):
            raise TVMError(f"{self} has no size: its dimensions are known when it is there")
        return math.prod(numbers) * DataType(self.dtype).itemsize


@dataclass(frozen=True)
class Interface:
    """Inputs and outputs by name, and the limits of named dimensions.

    A dimension of a shape is a number, a name that stands for the same number wherever it occurs, a sum of such
    (``"past+new"``), or ``"?"``.
    ``sources`` are the names of the model's nodes that each kernel computes.
    """

    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]
    limits: dict[str, Limits]
    made_by: str = ""
    target: str = ""
    sources: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Interface:
        """Read the text that a program of the virtual machine holds (``relay/backend/interface.py`` writes it)."""
        found = cls({}, {}, {})
        about: dict[str, str] = {}
        for line in text.splitlines():
            kind, *rest = line.split("\t")
            if kind == "dim":
                low, high, multiple = map(int, rest[1:4])
                found.limits[rest[0]] = (low, high if high >= 0 else None, multiple)
            elif kind == "kernel":
                found.sources[rest[0]] = rest[1:]
            elif kind in ("input", "output"):
                dtype, dims, name = rest
                shape = tuple(int(d) if d.isdigit() else d for d in dims.split(",") if d)
                (found.inputs if kind == "input" else found.outputs)[name] = TensorInfo(shape, dtype)
            elif rest:
                about[kind] = rest[0]
        return replace(found, made_by=about.get("made by", ""), target=about.get("target", ""))

    def described(self, name: str) -> str:
        """Return a dimension and its limits in words."""
        low, high, multiple = self.limits[name]
        steps = f", a multiple of {multiple}" if multiple != 1 else ""
        return f"{name} (from {low}{'' if high is None else f' to {high}'}{steps})"

    def at(self, numbers: Mapping[str, int]) -> dict[str, TensorInfo]:
        """Return the inputs with numbers for names; other names stay.

        Raises:
            TVMError: there is no dimension of a name.
        """
        unknown = [name for name in numbers if name not in self.limits]
        if unknown:
            known = ", ".join(map(self.described, self.limits)) or "none"
            raise TVMError(f"--dim {unknown[0]}: the library has no dimension of that name; its dimensions are {known}")
        return {
            name: TensorInfo(tuple(_number(d, numbers) for d in info.shape), info.dtype)
            for name, info in self.inputs.items()
        }


def _number(dim: int | str, numbers: Mapping[str, int]) -> int | str:
    """Return the number of a dimension, or the dimension where a name has none."""
    found = [int(part) if part.isdigit() else numbers.get(part) for part in str(dim).split("+")]
    known = [number for number in found if number is not None]
    return sum(known) if len(known) == len(found) else dim


def open_names(info: TensorInfo) -> list[str]:
    """Return the names of a tensor's dimensions that have no number."""
    return [part for d in info.shape if isinstance(d, str) for part in d.split("+") if not part.isdigit()]


def fits(shape: tuple[int, ...], info: TensorInfo) -> bool:
    """Return whether an array's shape is that of a tensor, whose names may be any numbers."""
    return len(shape) == len(info.shape) and all(
        isinstance(d, str) or d == n for n, d in zip(shape, info.shape, strict=True)
    )
