"""``torch.compile(backend="tilewright")`` beside inductor: times of calls, first calls, and whether the answers agree.

    python -m benchmarks.torch_compile --models resnet18,bert --threads 2 --runs 30

Each engine runs each model in a process of its own, with random weights and one input, in evaluation. Weights are
constants for both (``freezing``), and inductor tunes what it generates (``max_autotune_pointwise``). ``--models``
chooses among the names of ``structures``, which ``--list`` shows; those of torchvision and transformers by default
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

from . import structures

ENGINES = ("tilewright", "inductor")
_TOLERANCE = 1e-3  # of the largest element, for networks of float32 with random weights


def measured(name: str, engine: str, threads: int, runs: int, processor: bool) -> dict[str, Any]:
    """Return the first call's seconds, the others' milliseconds, and the distance from eager.

    Of several runs the median wall time; of processor time the least.
    """
    clock, typical = (time.process_time, min) if processor else (time.perf_counter, statistics.median)
    torch.set_num_threads(threads)
    structure = structures.made(name)
    model, inputs = structure.module, structure.inputs
    with torch.inference_mode(False), torch.no_grad():
        expected = model(*inputs)
        start = time.perf_counter()
        run = _compiled(model, engine, threads)
        found = run(*inputs)
        first = time.perf_counter() - start
        for _ in range(3):
            run(*inputs)
        times = []
        for _ in range(runs):
            start = clock()
            run(*inputs)
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
    parser.add_argument("--models", help="by default those of torchvision and transformers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--processor", action="store_true", help="processor time, one thread")
    parser.add_argument("--list", action="store_true", help="print the names of the models")
    parser.add_argument("--worker", choices=ENGINES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    usual = [*structures.vision.NETWORKS, *structures.language.NETWORKS]
    names = arguments.models.split(",") if arguments.models else usual
    if unknown := [name for name in names if name not in structures.names()]:
        parser.error(f"no model is called {', '.join(unknown)}; --list shows the names")
    if arguments.list:
        print("\n".join(structures.names()))
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
