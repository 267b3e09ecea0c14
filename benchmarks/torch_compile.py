"""``torch.compile(backend="tilewright")`` beside inductor: medians, first calls, and whether the answers agree.

    python -m benchmarks.torch_compile --models resnet18,encoder --threads 2 --runs 30

Each engine runs each model in a process of its own, with random weights and one input, in evaluation. Weights are
constants for both (``freezing``), and inductor tunes what it generates (``max_autotune_pointwise``). ``--models``
chooses among the names that ``--list`` shows; torchvision's models need torchvision
(``pip install --no-deps torchvision``).
``--processor`` takes processor time, with one thread, where other programs use the machine too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

VISION = [
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "inception_v3", "mnasnet1_0",
    "mobilenet_v2", "mobilenet_v3_large", "regnet_y_400mf", "resnet18", "resnet50", "resnext50_32x4d",
    "shufflenet_v2_x1_0", "squeezenet1_1", "swin_t", "vgg16", "vit_b_16", "wide_resnet50_2", "maxvit_t",
]  # fmt: skip
ENGINES = ("tilewright", "inductor")
_TOLERANCE = 1e-3  # of the largest element, for networks of float32 with random weights


class Attention(torch.nn.Module):
    """Attention of several heads over itself, by torch's one operator for it."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.inward, self.outward = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what each position reads of the others."""
        batch, length, width = x.shape
        parts = self.inward(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        read = torch.nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=self.causal)
        mixed: torch.Tensor = self.outward(read.transpose(1, 2).reshape(batch, length, width))
        return mixed


class Block(torch.nn.Module):
    """A layer of a transformer: attention and two dense layers, each after a normalization."""

    def __init__(self, width: int, heads: int, causal: bool = False, gated: bool = False) -> None:
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attention, self.gated = Attention(width, heads, causal), gated
        self.up, self.down = (
            torch.nn.Linear(width, 8 * width if gated else 4 * width),
            torch.nn.Linear(4 * width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's result."""
        x = x + self.attention(self.first(x))
        wide = self.up(self.second(x))
        if self.gated:
            left, right = wide.chunk(2, -1)
            wide = torch.nn.functional.silu(left) * right
        else:
            wide = torch.nn.functional.gelu(wide)
        made: torch.Tensor = x + self.down(wide)
        return made


def _layers(count: int, width: int, heads: int, **options: bool) -> Callable[[], torch.nn.Module]:
    return lambda: torch.nn.Sequential(*(Block(width, heads, **options) for _ in range(count)))


def _mlp(*widths: int) -> Callable[[], torch.nn.Module]:
    def make() -> torch.nn.Module:
        layers: list[torch.nn.Module] = []
        for a, b in pairwise(widths):
            layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers)

    return make


BLOCKS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...]]] = {
    "encoder": (_layers(2, 256, 8), (1, 128, 256)),
    "encoder_long": (_layers(1, 256, 8), (1, 1024, 256)),
    "encoder_batch": (_layers(2, 256, 8), (8, 64, 256)),
    "encoder_wide": (_layers(1, 768, 12), (1, 128, 768)),
    "decoder": (_layers(2, 256, 8, causal=True), (1, 128, 256)),
    "decoder_wide": (_layers(1, 768, 12, causal=True), (1, 256, 768)),
    "gated": (_layers(2, 256, 8, causal=True, gated=True), (1, 128, 256)),
    "gated_one": (_layers(2, 512, 8, causal=True, gated=True), (1, 1, 512)),
    "mlp": (_mlp(256, 1024, 1024, 256), (32, 256)),
    "mlp_one": (_mlp(512, 2048, 512), (1, 512)),
}


def made(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """Return a model of a name and its input, the same in every process."""
    torch.manual_seed(0)
    if name in BLOCKS:
        build, shape = BLOCKS[name]
        return build().eval(), torch.randn(shape)
    _declare_operators()
    import torchvision

    options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    model = torchvision.models.get_model(name, weights=None, **options)
    size = 299 if name == "inception_v3" else 224
    return model.eval(), torch.randn(1, 3, size, size)


def _declare_operators() -> None:
    """Declare the operators that torchvision's import asks for: PyPI's wheel has them for CUDA's torch alone."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    globals()["_LIBRARY"] = library  # its declarations go when it does


def measured(name: str, engine: str, threads: int, runs: int, clock: Callable[[], float]) -> dict[str, Any]:
    """Return the first call's seconds, the median of the others' milliseconds, and the distance from eager."""
    torch.set_num_threads(threads)
    model, x = made(name)
    with torch.inference_mode(False), torch.no_grad():
        expected = model(x)
        start = time.perf_counter()
        run = _compiled(model, engine, threads)
        found = run(x)
        first = time.perf_counter() - start
        for _ in range(3):
            run(x)
        times = []
        for _ in range(runs):
            start = clock()
            run(x)
            times.append(1e3 * (clock() - start))
    error = ((found - expected).abs().max() / expected.abs().max().clamp(min=1e-30)).item()
    return {"first_s": first, "median_ms": statistics.median(times), "error": error}


def _compiled(model: torch.nn.Module, engine: str, threads: int) -> Callable[..., Any]:
    if engine == "tilewright":
        from tilewright.torch_compile import tilewright

        return torch.compile(model, backend=tilewright, options={"freezing": True, "threads": threads})
    import torch._inductor.config as config

    config.freezing = config.max_autotune_pointwise = True
    return torch.compile(model)


def _in_process(name: str, engine: str, arguments: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.torch_compile", "--worker", engine, "--models", name]
    command += ["--threads", str(arguments.threads), "--runs", str(arguments.runs)]
    command += ["--processor"] if arguments.processor else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"failed": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def _line(name: str, results: dict[str, dict[str, Any]]) -> str:
    shown = [f"{name:20}"]
    for engine in ENGINES:
        r = results[engine]
        failed = "failed" in r
        shown.append(f"{'failed':>20}" if failed else f"{r['median_ms']:10.2f} {r['first_s']:9.1f}")
    if all("failed" not in r for r in results.values()):
        ours, theirs = (results[engine] for engine in ENGINES)
        wrong = [e for e in ENGINES if not results[e]["error"] <= _TOLERANCE]
        shown.append(
            f"{theirs['median_ms'] / ours['median_ms']:7.2f}" + (f"  wrong: {', '.join(wrong)}" if wrong else "")
        )
    return " ".join(shown) + "".join(f"\n    {e}: {r['failed'][:160]}" for e, r in results.items() if "failed" in r)


def main() -> None:
    """Measure models; print a line for each, then the geometric mean of inductor's medians over ours."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join([*VISION, *BLOCKS]))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--processor", action="store_true", help="processor time, one thread")
    parser.add_argument("--list", action="store_true", help="print the names of the models")
    parser.add_argument("--worker", choices=ENGINES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = arguments.models.split(",")
    if unknown := [name for name in names if name not in (*VISION, *BLOCKS)]:
        parser.error(f"no model is called {', '.join(unknown)}; --list shows the names")
    if arguments.list:
        print("\n".join([*VISION, *BLOCKS]))
    elif arguments.worker:
        clock, threads = (time.process_time, 1) if arguments.processor else (time.perf_counter, arguments.threads)
        print(json.dumps(measured(names[0], arguments.worker, threads, arguments.runs, clock)))
    else:
        _compare(names, arguments)


def _compare(names: list[str], arguments: argparse.Namespace) -> None:
    print(f"{'model':20} " + " ".join(f"{engine + ' ms':>10} {'first s':>9}" for engine in ENGINES) + "   ratio")
    ratios = []
    for name in names:
        results = {engine: _in_process(name, engine, arguments) for engine in ENGINES}
        print(_line(name, results), flush=True)
        if all("failed" not in r for r in results.values()):
            ratios.append(results["inductor"]["median_ms"] / results["tilewright"]["median_ms"])
    if ratios:
        print(f"geometric mean of {len(ratios)}: {statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
