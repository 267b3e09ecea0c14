"""Lesson 12: tokens from a language model.

A decoder of bytes, written in PyTorch with random weights and exported with its cache; one library for prompt and
steps; tokens for one prompt and for four of different lengths, by Python, by the command line, and by a C program.
"""

import math
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import tilewright
from tilewright import runtime
from tilewright.runtime import Generator

HERE = Path(__file__).parent
LAYERS, WIDTH, HEADS, GROUPS, VOCABULARY, POSITIONS = 2, 64, 4, 2, 256, 256
SIZE = WIDTH // HEADS


class RmsNorm(nn.Module):
    """Normalization by the root mean square, in the operators that ONNX's opset 17 has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, data: Tensor) -> Tensor:
        """Normalize the last axis."""
        return data * torch.rsqrt(data.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Layer(nn.Module):
    """Attention whose heads share keys and values, with rotary embedding, and a gated feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(RmsNorm() for _ in range(2))
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = (nn.Linear(WIDTH, GROUPS * SIZE, bias=False) for _ in range(2))
        self.o = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, data: Tensor, angles: Tensor, mask: Tensor, past: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        """Map data (batch, length, WIDTH) and a cache (batch, GROUPS, before, SIZE); the cache returns longer."""
        found = self.norms[0](data)
        q, k, v = (x(found).unflatten(2, (-1, SIZE)).transpose(1, 2) for x in (self.q, self.k, self.v))
        q, k = (x * angles.cos() + turned(x) * angles.sin() for x in (q, k))
        k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        wide = [x.unsqueeze(2).expand(-1, -1, HEADS // GROUPS, -1, -1).flatten(1, 2) for x in (k, v)]
        scores = q @ wide[0].transpose(2, 3) / math.sqrt(SIZE) + mask
        data = data + self.o((scores.softmax(-1) @ wide[1]).transpose(1, 2).flatten(2))
        found = self.norms[1](data)
        return data + self.down(nn.functional.silu(self.gate(found)) * self.up(found)), k, v


def turned(x: Tensor) -> Tensor:
    """The other feature of each pair, one of them negated."""
    low, high = x[..., : SIZE // 2], x[..., SIZE // 2 :]
    return torch.cat([-high, low], dim=-1)


class Decoder(nn.Module):
    """A Llama-like network over bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = RmsNorm()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: Tensor, kept: Tensor, places: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        """Map ids and places (batch, length), kept (batch, before + length) of 0 and 1, and caches, to logits and
        caches.
        """
        rates = 10000.0 ** (-torch.arange(0, SIZE, 2) / SIZE)
        angles = torch.cat([places[:, None, :, None] * rates] * 2, dim=-1)
        keys = torch.arange(kept.shape[1])
        rows = keys[kept.shape[1] - ids.shape[1] :]
        seen = (keys[None] <= rows[:, None])[None, None] & (kept[:, None, None] != 0)
        mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)
        data, present = self.table(ids), []
        for i, layer in enumerate(self.layers):
            data, k, v = layer(data, angles, mask, (past[2 * i], past[2 * i + 1]))
            present += [k, v]
        return self.head(self.norm(data)), *present


def export(network: nn.Module, path: Path) -> None:
    """Write the network as ONNX, by the names that Hugging Face's exporters use."""
    caches = [f"past_key_values.{i}.{part}" for i in range(LAYERS) for part in ("key", "value")]
    present = [name.replace("past_key_values", "present") for name in caches]
    ids, before = torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, GROUPS, 4, SIZE)
    inputs = (ids, torch.ones(2, 7, dtype=torch.int64), ids, *[before] * len(caches))
    names = ["input_ids", "attention_mask", "position_ids", *caches]
    axes = {name: {0: "batch", 1: "length"} for name in ("input_ids", "position_ids", "logits")}
    axes |= {"attention_mask": {0: "batch", 1: "past + length"}}
    axes |= {name: {0: "batch", 2: "past"} for name in caches}
    axes |= {name: {0: "batch", 2: "past + length"} for name in present}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network, inputs, str(path), input_names=names, output_names=["logits", *present],
                          dynamic_axes=axes, opset_version=17, dynamo=False)  # fmt: skip


def by_torch(network: nn.Module, prompt: list[int], count: int) -> list[int]:
    """The most likely tokens, by all of the text in each step and no cache."""
    text = list(prompt)
    empty = [torch.zeros(1, GROUPS, 0, SIZE)] * (2 * LAYERS)
    for _ in range(count):
        ids = torch.tensor([text])
        with torch.no_grad():
            logits = network(ids, torch.ones_like(ids), torch.arange(len(text))[None], *empty)[0]
        text.append(int(logits[0, -1].argmax()))
    return text[len(prompt) :]


torch.manual_seed(0)
decoder = Decoder().eval()
prompts = [list(text) for text in (b"It was a dark and stormy", b"Once", b"In the beginning", b"a")]
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    library = folder / "decoder.so"

    # 1. One library: a cache of 0 to 255 tokens, and kernels for steps of one token beside those for any number.
    export(decoder, folder / "decoder.onnx")
    tilewright.compile(
        folder / "decoder.onnx", dims={"past": (0, POSITIONS - 1)}, specialize=["length=1"]
    ).save(library)  # fmt: skip

    # 2. Prompt and steps. The cache stays in the machine, and each step appends to it.
    generate = Generator(library)
    tokens = generate(prompts[0], max_tokens=64)
    assert tokens == by_torch(decoder, prompts[0], 64)
    print(f"one prompt: {len(tokens)} tokens, those of PyTorch")

    # 3. Four prompts of different lengths side by side: the shorter ones are padded, and the mask hides that.
    several = generate(prompts, max_tokens=64)
    assert several == [by_torch(decoder, prompt, 64) for prompt in prompts]
    print(f"four prompts: {sum(map(len, several))} tokens, those of PyTorch")

    # 4. Drawn tokens: of the 40 most likely, by a seed; a sequence ends at a byte of 0.
    drawn = generate(prompts, 64, temperature=0.8, top_k=40, seed=1, stop=[0])
    assert drawn == generate(prompts, 64, temperature=0.8, top_k=40, seed=1, stop=[0])
    print("drawn tokens repeat with their seed")

    # 5. The command line, a run for each token: files hold the cache between two runs. Each run opens the library and
    # copies the cache, so this is for looking at a model, not for speed.
    ids, cache = np.array([prompts[0]]), {}
    for i in range(2 * LAYERS):
        cache[f"past_key_values.{i // 2}.{('key', 'value')[i % 2]}"] = np.zeros((1, GROUPS, 0, SIZE), "float32")
    line = []
    for _ in range(2):
        before = next(iter(cache.values())).shape[2]
        end = before + ids.shape[1]
        np.savez(folder / "step.npz", input_ids=ids, attention_mask=np.ones((1, end), "int64"),
                 position_ids=np.arange(before, end)[None], **cache)  # fmt: skip
        command = [sys.executable, "-m", "tilewright", "run", library, "--inputs", folder / "step.npz"]
        subprocess.run([*command, "-o", folder / "out.npz", "-q"], check=True)
        with np.load(folder / "out.npz") as found:
            ids = found["logits"][:, -1:].argmax(-1)
            cache = {name: found[name.replace("past_key_values", "present")] for name in cache}
        line.append(int(ids[0, 0]))
    assert line == tokens[:2]
    print("tilewright run gives the same")

    # 6. A C program of its own: the runtime, this library, and no Python.
    native = Path(runtime.native_dir())
    flags = [f"-I{native / 'include'}", f"-L{native}", "-ltilewright_runtime", f"-Wl,-rpath,{native}"]
    source = HERE / "12_generate.c"
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-O2", "-Wall", source, *flags, "-o", folder / "generate"],
                   check=True)  # fmt: skip
    done = subprocess.run([folder / "generate", library, "64", *map(str, prompts[0])], capture_output=True, check=True)
    assert [int(number) for number in done.stdout.split()] == tokens
    print("the C program gives the same")
