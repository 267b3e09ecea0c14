"""Requests from several threads at once: throughput, and how long the slowest wait; beside ONNX Runtime and OpenVINO.

    python -m benchmarks.concurrent --model mobilenet_v2 --callers 8 --seconds 5

Each engine has a process of its own, whose callers send one request after another; engines go in turns. OpenVINO runs
as it does for throughput, and one session or compiled model of each engine serves all callers. The numbers are of all
turns together; of 100 requests 99 take no longer than `99 %`, and `served` compares the caller with the fewest requests
to the one with the most.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from .latency import find_model

Call = Callable[[], object]
WARM_UP = 3  # requests of each caller that do not count


def _tilewright(path: Path, inputs: dict[str, np.ndarray], threads: int) -> Call:
    import tilewright

    model = tilewright.compile(path, threads=threads)
    return lambda: model.run(inputs)


def _onnxruntime(path: Path, inputs: dict[str, np.ndarray], threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


def _openvino(path: Path, inputs: dict[str, np.ndarray], threads: int) -> Call:
    import openvino

    config = {
        "PERFORMANCE_HINT": "THROUGHPUT",
        "INFERENCE_NUM_THREADS": str(threads),
        "INFERENCE_PRECISION_HINT": "f32",
    }
    model = openvino.Core().compile_model(str(path), "CPU", config)
    own = threading.local()

    def call() -> object:
        if not hasattr(own, "request"):
            own.request = model.create_infer_request()
        return own.request.infer(inputs)

    return call


ENGINES: dict[str, Callable[[Path, dict[str, np.ndarray], int], Call]] = {
    "tilewright": _tilewright,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}


def measure(call: Call, callers: int, seconds: float) -> list[list[float]]:
    """Return the seconds of each request that each caller sent."""
    taken: list[list[float]] = [[] for _ in range(callers)]
    ready = threading.Barrier(callers)

    def send(own: list[float]) -> None:
        for _ in range(WARM_UP):
            call()
        ready.wait()
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            call()
            own.append(time.perf_counter() - start)

    threads = [threading.Thread(target=send, args=(own,)) for own in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken


def _serve(engine: str, path: Path, inputs: Path, threads: int) -> None:
    """Load a model; then each line of the input asks for a turn of so many callers and seconds."""
    with np.load(inputs) as arrays:
        call = ENGINES[engine](path, dict(arrays), threads)
    call()
    print("ready", flush=True)
    for line in sys.stdin:
        callers, seconds = line.split()
        print(json.dumps(measure(call, int(callers), float(seconds))), flush=True)


def row(engine: str, turns: Sequence[Sequence[Sequence[float]]], seconds: float) -> list[str]:
    """Return an engine's cells: requests a second, their times in ms, and how evenly callers are served."""
    all_taken = np.array([one for turn in turns for own in turn for one in own])
    counts = [sum(len(turn[i]) for turn in turns) for i in range(len(turns[0]))]
    middle, late = np.percentile(all_taken, [50, 99]) * 1e3
    return [
        engine, f"{len(all_taken) / seconds / len(turns):.1f}", f"{middle:.1f}", f"{late:.1f}",
        f"{max(all_taken) * 1e3:.1f}", f"{min(counts) / max(counts):.2f}",
    ]  # fmt: skip


def main() -> None:
    """Measure the engines in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mobilenet_v2", help="a network of the zoo, or an ONNX file")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--serve", nargs=3, metavar=("ENGINE", "MODEL", "INPUTS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        engine, path, stored = options.serve
        return _serve(engine, Path(path), Path(stored), options.threads)
    path, inputs = find_model(options.model)
    table = Table("engine", "requests/s", "median (ms)", "99 % (ms)", "slowest (ms)", "served")
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "inputs.npz"
        np.savez(stored, **inputs)
        command = [sys.executable, "-m", "benchmarks.concurrent", "--threads", str(options.threads), "--serve"]
        served = {
            engine: subprocess.Popen(
                [*command, engine, str(path), str(stored)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for engine in options.engines
        }
        turns: dict[str, list[list[list[float]]]] = {engine: [] for engine in served}
        for process in served.values():
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for _ in range(options.turns):
            for engine, process in served.items():
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write(f"{options.callers} {options.seconds}\n")
                process.stdin.flush()
                turns[engine].append(json.loads(process.stdout.readline()))
        for engine, process in served.items():
            process.communicate()
            table.add_row(*row(engine, turns[engine], options.seconds))
    Console().print(table)
    return None


if __name__ == "__main__":
    main()
