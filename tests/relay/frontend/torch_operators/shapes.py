"""Operators that move elements."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.relay.frontend.torch_operators.case import case, x

case(
    "shapes",
    "views",
    lambda a: (a.view(4, -1), a.reshape(-1), a.flatten(1), a.unsqueeze(1), a[None], a.squeeze()),
    x(2, 6, 1),
)
case(
    "shapes", "orders", lambda a: (a.permute(2, 0, 1), a.transpose(0, -1), a.mT, a.movedim(0, 1), a[0].t()), x(2, 3, 4)
)
case("shapes", "expand", lambda a: (a.expand(4, -1, 3), a.expand(2, 1, 2, 3)), x(1, 2, 3))
case("shapes", "repeat", lambda a: (a.repeat(2, 1, 2), a.tile(2), a.repeat_interleave(2, 1)), x(1, 2, 3))
case(
    "shapes",
    "joins",
    lambda a, c: (torch.cat([a, c], 1), torch.stack([a, a], -1), torch.hstack([a, c])),
    x(2, 3),
    x(2, 1),
)
case("shapes", "cat with nothing", lambda a, c: torch.cat([c, a]), x(2, 3), x(0))
case(
    "shapes",
    "splits",
    lambda a: (*a.split(2), *a.split([1, 4], 0), *a.chunk(3), *a.unbind(1), *torch.tensor_split(a, 2, 0)),
    x(5, 3),
)
case(
    "shapes",
    "flip and roll",
    lambda a: (a.flip(0, 1), a.roll(1, 0), a.roll((1, -2), (0, 1)), a.roll(2), a.rot90()),
    x(3, 4),
)
case(
    "shapes",
    "diagonals",
    lambda a: (a.diagonal(), a.diagonal(1), a.diagonal(-1), torch.diag_embed(a[0]), a.trace()),
    x(4, 4),
)
case(
    "shapes",
    "as_strided and unfold",
    lambda a: (a.as_strided((2, 3), (1, 2)), a.unfold(1, 3, 2), a.as_strided((4,), (1,), 2)),
    x(3, 7),
)
case("shapes", "triangles", lambda a: (a.tril(), a.triu(1), a.tril(-1)), x(2, 4, 5))
case(
    "shapes",
    "pads",
    lambda a: (
        F.pad(a, (1, 2)),
        F.pad(a, (1, 0, 2, 1), value=3.5),
        F.pad(a, (-1, 1)),
        F.pad(a, (1, 1, 1, 1), mode="reflect"),
        F.pad(a, (1, 2, 0, 1), mode="replicate"),
        F.pad(a, (1, 1, 1, 1), mode="circular"),
    ),
    x(2, 3, 4, 5),
)
case(
    "shapes",
    "pixels",
    lambda a: (F.pixel_shuffle(a, 2), F.pixel_unshuffle(F.pixel_shuffle(a, 2), 2), F.channel_shuffle(a, 2)),
    x(1, 8, 3, 2),
)
case(
    "shapes",
    "columns",
    lambda a: F.fold(F.unfold(a, (2, 3), padding=1, stride=2), (5, 7), (2, 3), padding=1, stride=2),
    x(1, 2, 5, 7),
)
case("shapes", "meshgrid", lambda a, c: torch.meshgrid(a, c, indexing="ij"), x(3), x(2))
case(
    "shapes", "of nothing", lambda a: (a.reshape(0, 3), a.permute(1, 0), torch.cat([a, a]), a.expand(2, 3, 0)), x(3, 0)
)

case(
    "creation",
    "constants",
    lambda a: (
        torch.zeros(2, 3) + a,
        torch.ones_like(a),
        torch.full((2,), 7),
        torch.arange(5),
        torch.arange(1, 9, 2.5),
        torch.eye(3),
        torch.linspace(0, 1, 5),
        torch.zeros_like(a),
        a.new_full((2,), 3.5),
        torch.empty_like(a) * 0,
        torch.tensor([1, 2, 3]),
        torch.tril_indices(3, 3),
    ),
    x(3),
)
case(
    "shapes",
    "strides of memory",
    lambda a, b: (
        a.t().exp().as_strided((2, 3), (1, 2)),
        a.as_strided_scatter(b, (2, 2), (2, 1), 1),
        a.t().exp().as_strided_scatter(a.exp(), (3, 4), (4, 1)),
    ),
    x(3, 4),
    x(2, 2),
)
