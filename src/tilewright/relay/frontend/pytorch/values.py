"""Values that a TorchScript graph passes, besides tensors, numbers, lists and modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Known:
    """A tensor whose elements are known while tracing: a real tensor, or a number (a size that has a name) as one."""

    value: Any

    def number(self) -> Any:
        """Return its only element."""
        return self.value.item() if isinstance(self.value, torch.Tensor) else self.value

    def tensor(self) -> torch.Tensor:
        """Return a tensor for tracing."""
        if not isinstance(self.value, torch.Tensor):
            return torch.scalar_tensor(self.value, dtype=torch.int64)
        if self.value.dim() == 0:
            return torch.full((), self.value.item(), dtype=self.value.dtype)
        return self.value


@dataclass(frozen=True)
class Truth:
    """A truth value that is known at run time alone: a tensor of one element."""

    tensor: torch.Tensor


def is_known(values: Sequence[Any]) -> bool:
    """Return whether all are tensors with elements that are known as numbers."""
    return all(isinstance(x, Known) and isinstance(x.value, torch.Tensor) for x in values)


def as_tensors(value: Any) -> Any:
    """Return values with tensors in place of known ones, also in lists."""
    if isinstance(value, Known):
        return value.tensor()
    if isinstance(value, Truth):
        return value.tensor
    if isinstance(value, (list, tuple)):
        return type(value)(map(as_tensors, value))
    if isinstance(value, dict):
        return {key: as_tensors(item) for key, item in value.items()}
    return value
