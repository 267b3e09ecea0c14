"""The structures of well-known networks, a few layers of each, by torch alone; most with dimensions that vary."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from tests.frontend_coverage.subject import Example, Subject
from torch import nn

BATCH = torch.export.Dim("batch", min=1, max=16)
LENGTH = torch.export.Dim("length", min=2, max=64)


class Inverted(nn.Module):
    """A block of MobileNetV3: wider channels, a depthwise convolution, squeeze and excitation, a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Sequential(nn.Conv2d(8, 24, 1, bias=False), nn.BatchNorm2d(24), nn.Hardswish())
        self.depthwise = nn.Sequential(nn.Conv2d(24, 24, 5, padding=2, groups=24), nn.BatchNorm2d(24), nn.Hardswish())
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(24, 6, 1), nn.ReLU(), nn.Conv2d(6, 24, 1), nn.Hardsigmoid()
        )
        self.narrow = nn.Sequential(nn.Conv2d(24, 8, 1, bias=False), nn.BatchNorm2d(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depthwise(self.wide(x))
        return x + self.narrow(y * self.squeeze(y))


class UNet(nn.Module):
    """One level down and up, joined, by a transposed convolution and by resizing."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.inner = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 8, 2, stride=2), nn.Conv2d(24, 2, 1)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = F.silu(self.norm(self.down(x)))
        b = F.relu(self.inner(F.max_pool2d(a, 2)))
        larger = F.interpolate(b, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.out(torch.cat([a, self.up(b), larger], 1))


class ConvNext(nn.Module):
    """A block of ConvNeXt: normalization of channels that are last, and a learned scale."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(8, 8, 7, padding=3, groups=8), nn.LayerNorm(8)
        self.inner = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
        self.scale = nn.Parameter(torch.full((8,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.inner(y)).permute(0, 3, 1, 2)


class VisionTransformer(nn.Module):
    """Patches, a class token, positions, and a layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 16, 4, stride=4), nn.Linear(16, 5)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 16)), nn.Parameter(torch.randn(1, 10, 16))
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True, norm_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.patches(x).flatten(2).transpose(1, 2)
        rows = torch.cat([self.token.expand(x.shape[0], -1, -1), rows], 1) + self.places
        return self.head(self.layer(rows)[:, 0])


class Decoder(nn.Module):
    """A layer of Llama: rotary positions, fewer heads of keys, a causal mask, a gated product."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 32)
        self.first, self.second = nn.RMSNorm(32), nn.RMSNorm(32)
        self.query, self.pair, self.out = (nn.Linear(32, n, bias=False) for n in (32, 32, 32))
        self.gate, self.up, self.down = nn.Linear(32, 48), nn.Linear(32, 48), nn.Linear(48, 32)

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        angle = torch.arange(x.shape[2])[:, None] * 100.0 ** -(torch.arange(0, 4) / 4)
        low, high = x.chunk(2, -1)
        return torch.cat([low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()], -1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        rows = self.first(x)
        query, pair = (p(rows).unflatten(-1, (-1, 8)).transpose(1, 2) for p in (self.query, self.pair))
        key, value = pair.chunk(2, 1)
        heads = F.scaled_dot_product_attention(
            self.rotated(query), self.rotated(key), value, is_causal=True, enable_gqa=True
        )
        x = x + self.out(heads.transpose(1, 2).flatten(2))
        rows = self.second(x)
        return F.linear(x + self.down(F.silu(self.gate(rows)) * self.up(rows)), self.words.weight)


class RelativeAttention(nn.Module):
    """Attention of T5: a bias by the bucket of the distance, and a mask of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.bias = nn.Linear(16, 48), nn.Embedding(8, 2)

    def forward(self, x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        query, key, value = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.inner(x).chunk(3, -1))
        places = torch.arange(x.shape[1])
        far = (places[None] - places[:, None]).clamp(-4, 3) + 4
        scores = query @ key.mT + self.bias(far).permute(2, 0, 1)
        scores = scores.masked_fill(~kept[:, None, None], torch.finfo(scores.dtype).min)
        return (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)


class Tagger(nn.Module):
    """Words through an LSTM of both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(20, 8, padding_idx=0), nn.Linear(12, 4)
        self.recurrent = nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.recurrent(self.words(ids))[0]).log_softmax(-1)


class Recommender(nn.Module):
    """Bags of embeddings and their products, as of DLRM."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(30, 8, mode=mode) for mode in ("sum", "mean"))
        self.dense, self.out = nn.Linear(5, 8), nn.Linear(11, 1)

    def forward(self, x: torch.Tensor, ids: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        rows = torch.stack([F.relu(self.dense(x)), *(bag(ids, starts) for bag in self.bags)], 1)
        low = torch.tril_indices(3, 3, -1)
        return self.out(torch.cat([rows[:, 0], torch.bmm(rows, rows.mT)[:, low[0], low[1]]], 1)).sigmoid()


class Dilated(nn.Module):
    """Gated convolutions of WaveNet along time."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=d) for d in (1, 2, 4))
        self.out = nn.Conv1d(8, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            signal, gate = layer(F.pad(x, (layer.dilation[0], 0))).chunk(2, 1)
            x = x + self.out(signal.tanh() * gate.sigmoid())
        return x


class Experts(nn.Module):
    """Two experts of four for each row, every one of them computed."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.weight = nn.Linear(8, 4), nn.Parameter(torch.randn(4, 8, 8) * 0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares, chosen = self.router(x).softmax(-1).topk(2)
        mixed = torch.zeros_like(x).new_zeros(x.shape[0], 4).scatter(1, chosen, shares)
        return torch.einsum("re,rd,edo->ro", mixed, x, self.weight)


class Graph(nn.Module):
    """Messages along edges, added up at nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.out = nn.Linear(12, 8), nn.GRUCell(8, 6)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        sent = F.elu(self.message(torch.cat([x[edges[0]], x[edges[1]]], 1)))
        return self.out(torch.zeros(x.shape[0], 8).index_add(0, edges[1], sent), x)


class Sampler(nn.Module):
    """A spatial transformer: where to look is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Sequential(nn.Conv2d(1, 4, 5), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grid = F.affine_grid(self.place(x).view(-1, 2, 3), list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)


def _pictures(module: nn.Module, channels: int, size: int, batch: bool = True) -> Example:
    others = [(torch.randn(n, channels, size, size),) for n in (1, 5)] if batch else []
    return Example(module, (torch.randn(2, channels, size, size),), ({0: BATCH},) if batch else None, others)


def _words(module: nn.Module, most: int) -> Example:
    shapes = ((2, 6), (1, 2), (3, 17))
    first, *others = [(torch.randint(1, most, shape),) for shape in shapes]
    return Example(module, first, ({0: BATCH, 1: LENGTH},), others)


def _relative() -> Example:
    shapes = ((2, 6), (1, 3), (3, 11))
    first, *others = [(torch.randn(*s, 16), torch.arange(s[1]).expand(s) < s[1] - 1) for s in shapes]
    return Example(RelativeAttention(), first, ({0: BATCH, 1: LENGTH}, {0: BATCH, 1: LENGTH}), others)


def _recommender() -> Example:
    starts = torch.tensor([0, 2, 2, 5])
    return Example(Recommender(), (torch.randn(4, 5), torch.randint(30, (9,)), starts))


def _graph() -> Example:
    sizes = ((5, 8), (3, 4), (9, 20))
    first, *others = [(torch.randn(n, 6), torch.randint(n, (2, e))) for n, e in sizes]
    nodes, edges = torch.export.Dim("nodes", min=2, max=64), torch.export.Dim("edges", min=2, max=256)
    return Example(Graph(), first, ({0: nodes}, {1: edges}), others)


STRUCTURES: dict[str, Callable[[], Example]] = {
    "inverted_residual": lambda: _pictures(Inverted(), 8, 9),
    "unet": lambda: _pictures(UNet(), 3, 8),
    "convnext": lambda: _pictures(ConvNext(), 8, 7),
    "vision_transformer": lambda: _pictures(VisionTransformer(), 3, 12),
    "spatial_transformer": lambda: _pictures(Sampler(), 1, 12),
    "llama": lambda: _words(Decoder(), 50),
    "lstm_tagger": lambda: Example(Tagger(), (torch.randint(1, 20, (2, 6)),)),
    "t5_attention": _relative,
    "dlrm": _recommender,
    "wavenet": lambda: Example(Dilated(), (torch.randn(2, 8, 20),)),
    "experts": lambda: Example(Experts(), (torch.randn(5, 8),), ({0: BATCH},), [(torch.randn(1, 8),)]),
    "graph": _graph,
}


def subjects() -> list[Subject]:
    """Return a subject for each structure."""
    return [Subject(name, lambda make=make: _made(make)) for name, make in STRUCTURES.items()]


def _made(make: Callable[[], Example]) -> Example:
    torch.manual_seed(0)
    example = make()
    example.module.eval()
    return example
