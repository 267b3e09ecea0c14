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
    return {**functional_decompositions(), **get_decompositions(_OF_TRAINING)}
