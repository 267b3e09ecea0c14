"""Operators of attention, of experts, and of gradients."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.relay.frontend.torch_operators.case import b, case, i, x

case("attention", "plain", F.scaled_dot_product_attention, x(2, 4, 3, 8), x(2, 4, 5, 8), x(2, 4, 5, 8))
case(
    "attention",
    "causal",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    x(2, 4, 5, 8),
    x(2, 4, 5, 8),
    x(2, 4, 5, 8),
)
case(
    "attention",
    "mask",
    lambda q, k, v, m, n: (
        F.scaled_dot_product_attention(q, k, v, m),
        F.scaled_dot_product_attention(q, k, v, n, scale=0.3),
    ),
    x(2, 4, 3, 8),
    x(2, 4, 5, 8),
    x(2, 4, 5, 8),
    b(3, 5) | torch.eye(3, 5).bool(),
    x(2, 1, 3, 5),
)
case(
    "attention",
    "mask of whole rows",
    F.scaled_dot_product_attention,
    x(1, 2, 3, 8),
    x(1, 2, 4, 8),
    x(1, 2, 4, 8),
    torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]]).bool(),
)
case(
    "attention",
    "groups of heads",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    x(2, 4, 3, 8),
    x(2, 2, 5, 8),
    x(2, 2, 5, 8),
)
case("attention", "three dimensions", F.scaled_dot_product_attention, x(4, 3, 8), x(4, 5, 8), x(4, 5, 6))


def _layer_norm_backward(a, g, w):
    _, mean, inverse = torch.native_layer_norm(a, (5,), w, w, 1e-5)
    return torch.ops.aten.native_layer_norm_backward(g, a, (5,), mean, inverse, w, w, [True, True, True])


def _group_norm_backward(a, g, w):
    _, mean, inverse = torch.native_group_norm(a, w, w, 2, 6, 12, 3, 1e-5)
    return torch.ops.aten.native_group_norm_backward(g, a, mean, inverse, w, 2, 6, 12, 3, [True, True, True])


case("gradients", "layer norm", _layer_norm_backward, x(3, 4, 5), x(3, 4, 5), x(5))
case("gradients", "group norm", _group_norm_backward, x(2, 6, 4, 3), x(2, 6, 4, 3), x(6))
case(
    "gradients",
    "embedding",
    lambda g, n: torch.ops.aten.embedding_dense_backward(g, n, 5, 2, False),
    x(2, 3, 4),
    i(2, 3),
)


def _grouped(a, w, n):
    return torch._grouped_mm(a, w, n.to(torch.int32))


for _rows, _ends in ((5, (2, 2, 5)), (9, (0, 4, 9)), (83, (20, 20, 83)), (40, (3, 39, 40)), (64, (0, 16, 64))):
    case(
        "experts",
        f"{_rows} rows to {_ends}",
        _grouped,
        i(_rows, 8, low=-3, dtype=torch.bfloat16),  # sums that are exact
        i(3, 8, 8, low=-3, dtype=torch.bfloat16),
        torch.tensor(_ends),
    )
case("experts", "batches", torch._grouped_mm, *(i(*_s, dtype=torch.bfloat16) for _s in ((3, 5, 8), (3, 8, 8))))
