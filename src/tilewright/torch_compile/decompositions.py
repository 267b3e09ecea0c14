"""Which of ATen's operators become others before Tilewright sees the graph."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._decomp import get_decompositions

from tilewright.relay.frontend.torch.decompositions import functional_decompositions

_aten = torch.ops.aten

_OF_TRAINING = [
    _aten.native_dropout_backward,
    _aten.nll_loss_forward,
    _aten.nll_loss_backward,
    _aten.nll_loss2d_forward,
    _aten.nll_loss2d_backward,
    _aten.mse_loss,
    _aten.mse_loss_backward,
    _aten.native_batch_norm,
    _aten._native_batch_norm_legit,
    _aten._native_batch_norm_legit_functional,
    _aten._batch_norm_with_update_functional,
    _aten.native_batch_norm_backward,
    _aten.batch_norm_backward,
    _aten.linear_backward,
]


@cache
def decompositions() -> dict[Any, Any]:
    """Return the table: torch's for its core operators where there is no converter, and for losses and gradients."""
    of_training = {_aten.native_dropout.default: _dropout}
    return {**functional_decompositions(), **get_decompositions(_OF_TRAINING), **of_training}


def _dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``native_dropout`` of a mask that torch draws, as its own kernel does, before it has the data.

    So the operators around it are one part: the mask alone comes from PyTorch.
    """
    if not train or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    mask = _aten.bernoulli.p(torch.empty(x.shape, dtype=torch.bool, device=x.device), 1 - p)
    return x * mask * (0 if p == 1 else 1 / (1 - p)), mask
