"""``torch.compile(backend="tilewright")`` beside inductor: times of calls, first calls, and whether the answers agree.

    python -m benchmarks.torch_compile --models resnet18,bert --threads 2 --runs 30

Each engine runs each model in a process of its own, with random weights and one input, in evaluation. Weights are
constants for both (``freezing``), and inductor tunes what it generates (``max_autotune_pointwise``). ``--models``
chooses among the names that ``--list`` shows, 18 of torchvision and 12 small ones of transformers
(``pip install --no-deps torchvision; pip install transformers``).
``--processor`` takes processor time with one thread, and the least of the runs, where other programs use the machine
too. ``first s`` is the first call's wall time; ``all s`` the processor time of the process and those it started, from
importing torch to the last run. Both engines begin with empty caches.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

VISION = [
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "maxvit_t", "mnasnet1_0", "mobilenet_v2",
    "mobilenet_v3_large", "regnet_y_400mf", "resnet18", "resnet50", "resnext50_32x4d", "shufflenet_v2_x1_0",
    "squeezenet1_1", "swin_t", "vgg16", "vit_b_16",
]  # fmt: skip
# Transformers of 2 layers, width 256 and 8 heads over 128 positions: the class, and what its configuration calls that.
_LONG = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 1024}
_GROUPED = _LONG | {"num_key_value_heads": 2, "max_position_embeddings": 256}
LANGUAGE: dict[str, tuple[str, dict[str, int]]] = {
    "albert": ("AlbertModel", _LONG | {"embedding_size": 128}),
    "bert": ("BertModel", _LONG),
    "bloom": ("BloomModel", {"hidden_size": 256, "n_layer": 2, "n_head": 8}),
    "distilbert": ("DistilBertModel", {"dim": 256, "n_layers": 2, "n_heads": 8, "hidden_dim": 1024}),
    "gemma": ("GemmaModel", _GROUPED | {"head_dim": 32}),
    "gpt2": ("GPT2Model", {"n_embd": 256, "n_layer": 2, "n_head": 8}),
    "gpt_neox": ("GPTNeoXModel", _LONG),
    "llama": ("LlamaModel", _GROUPED),
    "opt": ("OPTModel", _LONG | {"word_embed_proj_dim": 256, "ffn_dim": 1024}),
    "phi": ("PhiModel", _LONG),
    "qwen2": ("Qwen2Model", _GROUPED),
    "t5": ("T5EncoderModel", {"d_model": 256, "num_layers": 2, "num_heads": 8, "d_ff": 1024, "d_kv": 32}),
}
MODELS = [*VISION, *LANGUAGE]
_WORDS, _POSITIONS = 1000, 128
ENGINES = ("tilewright", "inductor")
_TOLERANCE = 1e-3  # of the largest element, for networks of float32 with random weights


class _Hidden(torch.nn.Module):
    """A model of transformers, without a cache, that returns its last hidden state alone."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return what the last layer makes of words."""
        made: torch.Tensor = self.model(words, return_dict=False)[0]
        return made


def made(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """Return a model of a name and its input, the same in every process."""
    torch.manual_seed(0)
    _declare_operators()
    if name in LANGUAGE:
        import transformers

        kind, sizes = LANGUAGE[name]
        class_ = getattr(transformers, kind)
        model = class_(class_.config_class(vocab_size=_WORDS, pad_token_id=0, use_cache=False, **sizes))
        return _Hidden(model).eval(), torch.randint(1, _WORDS, (1, _POSITIONS))
    import torchvision

    options = {"init_weights": True} if name == "googlenet" else {}
    return torchvision.models.get_model(name, weights=None, **options).eval(), torch.randn(1, 3, 224, 224)


def _declare_operators() -> None:
    """Declare the operators that importing torchvision asks for: PyPI's wheel has them for CUDA's torch alone."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    globals()["_LIBRARY"] = library  # its declarations go when it does


def measured(name: str, engine: str, threads: int, runs: int, processor: bool) -> dict[str, Any]:
    """Return the first call's seconds, the others' milliseconds, and the distance from eager.

    Of several runs the median wall time; of processor time the least.
    """
    clock, typical = (time.process_time, min) if processor else (time.perf_counter, statistics.median)
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
    return {"first_s": first, "ms": typical(times), "error": error}


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
    with tempfile.TemporaryDirectory() as folder:
        caches = {"TILEWRIGHT_CACHE_DIR": f"{folder}/tilewright", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
        before = _children()
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | caches)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"failed": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    result: dict[str, Any] = json.loads(lines[-1])
    return result | {"all_s": _children() - before}


def _children() -> float:
    """Return the processor time of the processes that ended, in seconds."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _line(name: str, results: dict[str, dict[str, Any]]) -> str:
    shown = [f"{name:20}"]
    for engine in ENGINES:
        r = results[engine]
        failed = "failed" in r
        shown.append(f"{'failed':>29}" if failed else f"{r['ms']:10.2f} {r['first_s']:9.1f} {r['all_s']:8.1f}")
    if all("failed" not in r for r in results.values()):
        ours, theirs = (results[engine] for engine in ENGINES)
        wrong = [e for e in ENGINES if not results[e]["error"] <= _TOLERANCE]
        shown.append(f"{theirs['ms'] / ours['ms']:7.2f}" + (f"  wrong: {', '.join(wrong)}" if wrong else ""))
    return " ".join(shown) + "".join(f"\n    {e}: {r['failed'][:160]}" for e, r in results.items() if "failed" in r)


def main() -> None:
    """Measure models; print a line for each, then the geometric mean of inductor's times over ours."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--processor", action="store_true", help="processor time, one thread")
    parser.add_argument("--list", action="store_true", help="print the names of the models")
    parser.add_argument("--worker", choices=ENGINES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = arguments.models.split(",")
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"no model is called {', '.join(unknown)}; --list shows the names")
    if arguments.list:
        print("\n".join(MODELS))
    elif arguments.worker:
        threads = 1 if arguments.processor else arguments.threads
        print(json.dumps(measured(names[0], arguments.worker, threads, arguments.runs, arguments.processor)))
    else:
        _compare(names, arguments)


def _compare(names: list[str], arguments: argparse.Namespace) -> None:
    columns = [f"{engine[:7] + ' ms':>10} {'first s':>9} {'all s':>8}" for engine in ENGINES]
    print(f"{'model':20}", *columns, "  ratio")
    ratios = []
    for name in names:
        results = {engine: _in_process(name, engine, arguments) for engine in ENGINES}
        print(_line(name, results), flush=True)
        if all("failed" not in r for r in results.values()):
            ratios.append(results["inductor"]["ms"] / results["tilewright"]["ms"])
    if ratios:
        print(f"geometric mean of {len(ratios)}: {statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
