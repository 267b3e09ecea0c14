"""A TorchScript module as a plain module of the same parameters and buffers, whose forward runs the graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Mirror(nn.Module):
    """The parameters, buffers and submodules of a TorchScript module under their names.

    ``torch.export`` takes no TorchScript modules; it takes this one, and finds the parameters by the names that the
    user knows.
    """

    def __init__(self, script: Any, made: dict[int, nn.Parameter] | None = None) -> None:
        super().__init__()
        object.__setattr__(self, "script", script)
        object.__setattr__(self, "numbers", {})
        made = {} if made is None else made
        for name, tensor in script._c.named_attributes(False) if hasattr(script._c, "named_attributes") else ():
            if isinstance(tensor, torch.Tensor):
                self.register_buffer(name, tensor.detach(), persistent=False)
        for name, tensor in script._parameters.items():
            self._buffers.pop(name, None)
            self.register_parameter(name, None if tensor is None else _parameter(tensor, made))
        for name, tensor in script._buffers.items():
            self._buffers.pop(name, None)
            self.register_buffer(name, tensor)
            if tensor is not None and tensor.numel() == 1:
                self.numbers[name] = tensor.detach().reshape(())
        for name, child in script._modules.items():
            self.add_module(name, None if child is None else Mirror(child, made))

    def get(self, name: str) -> Any:
        """Return a parameter, buffer, submodule or attribute."""
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                return table[name]
        return getattr(self.script, name)


def _parameter(tensor: Any, made: dict[int, nn.Parameter]) -> nn.Parameter:
    """Return one parameter for each tensor, wherever it is used: shared weights stay shared."""
    key = tensor.data_ptr() if tensor.numel() else id(tensor)
    if key not in made or made[key].shape != tensor.shape:
        made[key] = nn.Parameter(tensor.detach(), requires_grad=False)
    return made[key]
