"""A case of ATen's operators: a function of tensors, and the tensors; random ones, the same in each process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Case:
    """A function of tensors, by name, with example inputs."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]


CASES: dict[str, list[Case]] = {}
_G = torch.Generator().manual_seed(39)


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return normal random numbers."""
    return torch.randn(*shape, generator=_G).to(dtype)


def p(*shape: int) -> torch.Tensor:
    """Return numbers from 0.1 to 1.1."""
    return torch.rand(*shape, generator=_G) + 0.1


def i(*shape: int, high: int = 5, low: int = 0, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Return random integers."""
    return torch.randint(low, high, shape, generator=_G).to(dtype)


def b(*shape: int) -> torch.Tensor:
    """Return random bools."""
    return torch.rand(*shape, generator=_G) > 0.5


def case(family: str, name: str, function: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """Add a case to a family."""
    CASES.setdefault(family, []).append(Case(name, function, inputs))
