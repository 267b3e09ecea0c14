"""Small modules of what torchvision and transformers do not have: recommenders, sound, volumes, points, generators."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

Built = tuple[nn.Module, tuple[Tensor, ...]]


class _Of(nn.Module):
    """A module whose ``forward`` is a function of its parts and its inputs."""

    def __init__(self, compute: Callable[..., Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(parts)
        self.compute = compute

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return what the function computes."""
        return self.compute(self.parts, *inputs)


class _Residual(nn.Sequential):
    """Layers whose result is added to their input."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        result: Tensor = super().forward(x)
        return x + result


def _perceptron(*widths: int) -> nn.Sequential:
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def _conv(inputs: int, outputs: int, window: int = 3, stride: int = 1, **options: int) -> nn.Sequential:
    """A convolution that keeps the extent (divided by the stride), its batch norm and an activation."""
    layer = nn.Conv2d(inputs, outputs, window, stride, window // 2, bias=False, **options)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.SiLU())


def _dlrm(batch: int) -> Built:
    """DLRM (Naumov et al. 2019): 26 tables of 1,000 rows, products of all pairs of vectors."""
    tables = nn.ModuleList(nn.Embedding(1000, 64) for _ in range(26))
    upper = torch.tril_indices(27, 27, offset=-1)
    pairs = upper[0] * 27 + upper[1]

    def compute(parts: nn.ModuleDict, dense: Tensor, sparse: Tensor) -> Tensor:
        bottom = parts["bottom"](dense)
        rows = [table(sparse[:, i]) for i, table in enumerate(parts["tables"])]  # type: ignore[arg-type]
        vectors = torch.stack([bottom, *rows], 1)
        products = (vectors @ vectors.transpose(1, 2)).flatten(1)[:, pairs]
        return torch.sigmoid(parts["top"](torch.cat([bottom, products], 1)))

    network = _Of(compute, tables=tables, bottom=_perceptron(13, 512, 256, 64), top=_perceptron(64 + 351, 512, 256, 1))
    return network, (torch.randn(batch, 13), torch.randint(1000, (batch, 26)))


def _wide_and_deep() -> Built:
    def compute(parts: nn.ModuleDict, wide: Tensor, words: Tensor) -> Tensor:
        deep = parts["deep"](parts["table"](words).flatten(1))
        return parts["wide"](wide) + deep

    parts = {"table": nn.Embedding(5000, 32), "wide": nn.Linear(777, 1), "deep": _perceptron(320, 400, 400, 1)}
    return _Of(compute, **parts), (torch.randn(16, 777), torch.randint(5000, (16, 10)))


def _temporal() -> Built:
    """Dilated causal convolutions (Bai et al. 2018)."""
    blocks = [
        _Residual(nn.ConstantPad1d((2 * d, 0), 0.0), nn.Conv1d(64, 64, 3, dilation=d), nn.ReLU())
        for d in (1, 2, 4, 8, 16, 32)
    ]
    return nn.Sequential(nn.Conv1d(10, 64, 1), *blocks, nn.Conv1d(64, 5, 1)), (torch.randn(2, 10, 1000),)


def _keywords() -> Built:
    """Depthwise separable convolutions over a spectrogram (Zhang et al. 2017)."""
    blocks = [nn.Sequential(_conv(64, 64, groups=64), _conv(64, 64, 1)) for _ in range(4)]
    first = nn.Sequential(nn.Conv2d(1, 64, (10, 4), (2, 2), (4, 1)), nn.BatchNorm2d(64), nn.ReLU())
    return nn.Sequential(first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12)), (
        torch.randn(1, 1, 49, 10),
    )


def _super_resolution() -> Built:
    """Sub-pixel convolution (Shi et al. 2016)."""
    layers = [nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh()]
    return nn.Sequential(*layers, nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3)), (torch.randn(1, 1, 128, 128),)


def _fast_super_resolution() -> Built:
    """FSRCNN (Dong et al. 2016): a transposed convolution at the end."""
    middle = [layer for _ in range(4) for layer in (nn.Conv2d(12, 12, 3, padding=1), nn.PReLU(12))]
    ends = [nn.Conv2d(1, 56, 5, padding=2), nn.PReLU(56), nn.Conv2d(56, 12, 1), nn.PReLU(12)]
    last = [nn.Conv2d(12, 56, 1), nn.PReLU(56), nn.ConvTranspose2d(56, 1, 9, 3, 4, output_padding=2)]
    return nn.Sequential(*ends, *middle, *last), (torch.randn(1, 1, 100, 75),)


def _generator() -> Built:
    """DCGAN's generator (Radford et al. 2015)."""
    layers: list[nn.Module] = [nn.ConvTranspose2d(100, 512, 4), nn.BatchNorm2d(512), nn.ReLU()]
    for inputs, outputs in ((512, 256), (256, 128), (128, 64)):
        layers += [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()), (torch.randn(4, 100, 1, 1),)


def _style_transfer() -> Built:
    """Johnson et al. 2016 with instance norms: reflected borders, nearest neighbours."""

    def layer(inputs: int, outputs: int, window: int, stride: int = 1) -> nn.Sequential:
        padded = nn.ReflectionPad2d(window // 2), nn.Conv2d(inputs, outputs, window, stride)
        return nn.Sequential(*padded, nn.InstanceNorm2d(outputs, affine=True), nn.ReLU())

    down = [layer(3, 16, 9), layer(16, 32, 3, 2), layer(32, 64, 3, 2)]
    middle = [_Residual(layer(64, 64, 3), layer(64, 64, 3)) for _ in range(3)]
    up = [nn.Upsample(scale_factor=2), layer(64, 32, 3), nn.Upsample(scale_factor=2), layer(32, 16, 3)]
    return nn.Sequential(*down, *middle, *up, layer(16, 3, 9)), (torch.randn(1, 3, 160, 160),)


def _u_net(layer: Callable[[int, int], nn.Module], pool: nn.Module, mode: str, shape: tuple[int, ...]) -> Built:
    """Three levels (Ronneberger et al. 2015) of odd numbers of channels."""
    widths = 13, 27, 51

    def compute(parts: nn.ModuleDict, x: Tensor) -> Tensor:
        kept = []
        for level in range(len(widths)):
            x = parts[f"down{level}"](x)
            kept.append(x)
            x = pool(x)
        for level in reversed(range(len(widths))):
            x = functional.interpolate(x, scale_factor=2.0, mode=mode, align_corners=False)
            x = parts[f"up{level}"](torch.cat([x, kept[level]], 1))
        return x

    parts: dict[str, nn.Module] = {}
    for level, width in enumerate(widths):
        parts[f"down{level}"] = layer(widths[level - 1] if level else shape[1], width)
        parts[f"up{level}"] = layer(width + widths[min(level + 1, len(widths) - 1)], width)
    return _Of(compute, **parts), (torch.randn(shape),)


def _u_net_2d() -> Built:
    return _u_net(lambda i, o: nn.Sequential(_conv(i, o), _conv(o, o)), nn.MaxPool2d(2), "bilinear", (1, 3, 96, 104))


def _u_net_3d() -> Built:
    def layer(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv3d(inputs, outputs, 3, padding=1), nn.ReLU())

    return _u_net(layer, nn.MaxPool3d(2), "trilinear", (1, 1, 16, 40, 40))


def _diffusion() -> Built:
    """Group norms, SiLU and self-attention over 16 x 16 positions, as in Rombach et al. 2022."""

    def block(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(nn.GroupNorm(32, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))

    def compute(parts: nn.ModuleDict, x: Tensor, text: Tensor) -> Tensor:
        x = x + parts["second"](parts["first"](x))
        rows = parts["norm"](x).flatten(2).transpose(1, 2)
        for name, others in (("own", rows), ("text", text)):
            query, key, value = parts[f"{name}_q"](rows), *parts[f"{name}_kv"](others).chunk(2, -1)
            heads = [t.unflatten(-1, (8, 40)).transpose(1, 2) for t in (query, key, value)]
            rows = rows + functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        return x + rows.transpose(1, 2).unflatten(2, (16, 16))

    parts: dict[str, nn.Module] = {"first": block(320, 320), "second": block(320, 320), "norm": nn.GroupNorm(32, 320)}
    for name, width in (("own", 320), ("text", 768)):
        parts |= {f"{name}_q": nn.Linear(320, 320), f"{name}_kv": nn.Linear(width, 640)}
    return _Of(compute, **parts), (torch.randn(1, 320, 16, 16), torch.randn(1, 77, 768))


def _mixer() -> Built:
    """MLP-Mixer (Tolstikhin et al. 2021): products over positions and over channels."""

    class Turned(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = super().forward(x.transpose(1, 2))
            return result.transpose(1, 2)

    def block() -> nn.Sequential:
        positions = Turned(nn.Linear(196, 128), nn.GELU(), nn.Linear(128, 196))
        channels = nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)
        return nn.Sequential(_Residual(nn.LayerNorm(256), positions), _Residual(nn.LayerNorm(256), *channels))

    return nn.Sequential(*(block() for _ in range(4))), (torch.randn(1, 196, 256),)


def _conformer() -> Built:
    """A block of Gulati et al. 2020: attention, gates, depthwise windows of 31 over 131 positions."""

    def compute(parts: nn.ModuleDict, x: Tensor) -> Tensor:
        x = x + 0.5 * parts["before"](x)
        query, key, value = parts["qkv"](parts["norm"](x)).chunk(3, -1)
        heads = [t.unflatten(-1, (4, 36)).transpose(1, 2) for t in (query, key, value)]
        x = x + parts["out"](functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))
        x = x + parts["window"](parts["norm"](x).transpose(1, 2)).transpose(1, 2)
        return x + 0.5 * parts["after"](x)

    def feed() -> nn.Sequential:
        return nn.Sequential(nn.LayerNorm(144), nn.Linear(144, 576), nn.SiLU(), nn.Linear(576, 144))

    window = nn.Sequential(
        nn.Conv1d(144, 288, 1), nn.GLU(1), nn.Conv1d(144, 144, 31, padding=15, groups=144), nn.BatchNorm1d(144),
        nn.SiLU(), nn.Conv1d(144, 144, 1),
    )  # fmt: skip
    parts = {"before": feed(), "after": feed(), "norm": nn.LayerNorm(144), "window": window}
    return _Of(compute, **parts, qkv=nn.Linear(144, 432), out=nn.Linear(144, 144)), (torch.randn(2, 131, 144),)


def _points() -> Built:
    """PointNet (Qi et al. 2017): layers of each point, then the largest of all."""

    def compute(parts: nn.ModuleDict, points: Tensor) -> Tensor:
        return parts["head"](parts["each"](points).amax(2))

    widths = 3, 64, 64, 128, 1024
    each = [m for a, b in pairwise(widths) for m in (nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())]
    return _Of(compute, each=nn.Sequential(*each), head=_perceptron(1024, 512, 40)), (torch.randn(4, 3, 512),)


def _radiance() -> Built:
    """Sines of positions and eight layers (Mildenhall et al. 2020)."""

    def compute(parts: nn.ModuleDict, x: Tensor) -> Tensor:
        waves = [f(x * 2.0**k) for k in range(10) for f in (torch.sin, torch.cos)]
        return parts["layers"](torch.cat([x, *waves], 1))

    return _Of(compute, layers=_perceptron(63, *([256] * 4), 4)), (torch.randn(1000, 3),)


def _separation() -> Built:
    """Conv-TasNet (Luo and Mesgarani 2019): 1-D depthwise windows and norms of a whole signal."""
    blocks = [
        _Residual(
            nn.Conv1d(64, 128, 1), nn.PReLU(), nn.GroupNorm(1, 128), nn.Conv1d(128, 128, 3, 1, d, d, 128), nn.PReLU(),
            nn.GroupNorm(1, 128), nn.Conv1d(128, 64, 1),
        )
        for d in (1, 2, 4, 8)
    ]  # fmt: skip
    return nn.Sequential(nn.Conv1d(1, 64, 16, 8), *blocks, nn.ConvTranspose1d(64, 1, 16, 8)), (torch.randn(1, 1, 8000),)


def _detector() -> Built:
    """Partial residual stages, a pyramid with resizing and concatenation, as YOLOv5's."""

    def stage(width: int) -> nn.Sequential:
        return nn.Sequential(
            _conv(width, 2 * width, 3, 2), _Residual(_conv(2 * width, width, 1), _conv(width, 2 * width))
        )

    def compute(parts: nn.ModuleDict, x: Tensor) -> Tensor:
        fine = parts["fine"](x)
        middle = parts["middle"](fine)
        deep = parts["deep"](middle)
        for window in (5, 5):
            deep = torch.cat([deep, functional.max_pool2d(deep, window, 1, window // 2)[:, :64]], 1)
        up = functional.interpolate(parts["narrow"](deep), scale_factor=2.0)
        joined = parts["joined"](torch.cat([up, middle], 1))
        scores = [parts[f"head{i}"](y).flatten(2) for i, y in enumerate((deep, joined))]
        return torch.cat(scores, 2).transpose(1, 2).sigmoid()

    fine = nn.Sequential(_conv(3, 16, 6 - 1, 2), stage(16), stage(32))
    parts = {"fine": fine, "middle": stage(64), "deep": stage(128), "narrow": _conv(384, 128, 1)}
    heads = {"joined": _conv(256, 128, 1), "head0": nn.Conv2d(384, 85, 1), "head1": nn.Conv2d(128, 85, 1)}
    return _Of(compute, **parts, **heads), (torch.randn(1, 3, 256, 256),)


def _softmax(rows: int, columns: int) -> Built:
    return nn.Sequential(nn.Linear(64, columns, bias=False), nn.Softmax(-1)), (torch.randn(rows, 64),)


def _recurrent(kind: type[nn.RNNBase], **options: bool) -> Built:
    def compute(parts: nn.ModuleDict, x: Tensor) -> Tensor:
        result: Tensor = parts["cell"](x)[0]
        return result

    return _Of(compute, cell=kind(80, 128, **options)), (torch.randn(64, 1, 80),)


def _odd_channels() -> Built:
    """Residual blocks of 37 and 53 channels, batch 3, 29 x 31 pixels."""
    blocks = [_Residual(_conv(53, 37, 1), _conv(37, 53)) for _ in range(3)]
    return nn.Sequential(_conv(3, 53), *blocks, _conv(53, 71, 3, 2)), (torch.randn(3, 3, 29, 31),)


def _graph() -> Built:
    """Graph convolutions (Kipf and Welling 2017) over a dense adjacency matrix of 301 nodes."""

    def compute(parts: nn.ModuleDict, adjacency: Tensor, x: Tensor) -> Tensor:
        hidden = torch.relu(adjacency @ parts["first"](x))
        return torch.log_softmax(adjacency @ parts["second"](hidden), 1)

    return _Of(compute, first=nn.Linear(143, 64), second=nn.Linear(64, 7)), (
        torch.rand(301, 301),
        torch.randn(301, 143),
    )


def _decoding_step() -> Built:
    """A word's attention to the 300 before it, in two layers of width 512, keys and values given."""

    def compute(parts: nn.ModuleDict, x: Tensor, past: Tensor) -> Tensor:
        for i in range(2):
            query, *rest = (t.unflatten(-1, (8, 64)).transpose(1, 2) for t in parts[f"qkv{i}"](x).chunk(3, -1))
            key, value = (torch.cat([past[i, j], new], 2) for j, new in enumerate(rest))
            attended = functional.scaled_dot_product_attention(query, key, value)
            x = x + parts[f"out{i}"](attended.transpose(1, 2).flatten(2))
            x = x + parts[f"feed{i}"](x)
        return x

    parts: dict[str, nn.Module] = {}
    for i in range(2):
        parts |= {
            f"qkv{i}": nn.Linear(512, 1536),
            f"out{i}": nn.Linear(512, 512),
            f"feed{i}": _perceptron(512, 2048, 512),
        }
    return _Of(compute, **parts), (torch.randn(1, 1, 512), torch.randn(2, 2, 1, 8, 300, 64))


NETWORKS: dict[str, Callable[[], Built]] = {
    "dlrm_1": lambda: _dlrm(1),
    "dlrm_64": lambda: _dlrm(64),
    "wide_and_deep_16": _wide_and_deep,
    "temporal": _temporal,
    "keywords": _keywords,
    "super_resolution": _super_resolution,
    "fsrcnn": _fast_super_resolution,
    "dcgan_4": _generator,
    "style_transfer": _style_transfer,
    "u_net_2d": _u_net_2d,
    "u_net_3d": _u_net_3d,
    "diffusion": _diffusion,
    "mixer": _mixer,
    "conformer": _conformer,
    "pointnet_4": _points,
    "radiance": _radiance,
    "conv_tasnet": _separation,
    "detector": _detector,
    "softmax_4096": lambda: _softmax(16, 4096),
    "softmax_50257": lambda: _softmax(8, 50257),
    "lstm": lambda: _recurrent(nn.LSTM, bidirectional=True),
    "gru": lambda: _recurrent(nn.GRU),
    "perceptron_16": lambda: (_perceptron(333, 777, 777, 101), (torch.randn(16, 333),)),
    "odd_channels_3": _odd_channels,
    "graph_301": _graph,
    "decoding_step": _decoding_step,
}


def build(name: str) -> Built:
    """Return a module and its inputs."""
    return NETWORKS[name]()
