"""The process that holds one engine: it loads a model, then obeys commands, one JSON object a line.

Started by `client` as ``python -m benchmarks.worker ENGINE MODEL INPUTS.npz FOLDER THREADS``. Commands on
standard input, each answered by one line on what was standard output (which is led elsewhere first: engines
print):

    {"do": "prepare"}                   -> {"seconds", "path", "peak_mib"} {"do": "load", "path": ...}
    -> {"seconds", "version", "peak_mib"} {"do": "run", "count": n}           -> {"times": [seconds of each
    run], "cpu": CPU seconds over wall seconds} {"do": "outputs", "path": x.npz}    -> {"names": [...]},
    arrays written to x.npz as o0, o1, ... {"do": "quit"}                      -> {"peak_mib"}

A command that fails is answered by {"error": message}.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from .engines import ENGINES, Engine


def peak_mib() -> float:
    """The largest resident memory of this process so far, MiB (Linux; 0 elsewhere)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0
    for line in status.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Worker:
    """One engine with one model; the methods are the commands."""

    def __init__(self, engine: str, model: Path, inputs: Path, folder: Path, threads: int) -> None:
        self.engine: Engine = ENGINES[engine]()
        self.model, self.folder, self.threads = model, folder, threads
        with np.load(inputs) as stored:
            self.inputs = {name: stored[name] for name in stored.files}

    def prepare(self) -> dict[str, Any]:
        """Compile ahead of time, where the engine does."""
        start = time.perf_counter()
        path = self.engine.prepare(self.model, self.inputs, self.folder)
        return {"seconds": time.perf_counter() - start, "path": str(path), "peak_mib": peak_mib()}

    def load(self, path: str) -> dict[str, Any]:
        """Load what `prepare` gave, and run once."""
        start = time.perf_counter()
        self.engine.load(Path(path), self.inputs, self.threads)
        seconds = time.perf_counter() - start
        self.engine.run()
        return {"seconds": seconds, "version": self.engine.version(), "peak_mib": peak_mib()}

    def run(self, count: int, processor: bool = False) -> dict[str, Any]:
        """`count` inferences, each timed: wall time, or the process's own processor time."""
        run, clock = self.engine.run, time.process_time if processor else time.perf_counter
        ticks = [0.0] * (count + 1)
        start, cpu = time.perf_counter(), time.process_time()
        ticks[0] = clock()
        for index in range(count):
            run()
            ticks[index + 1] = clock()
        cpu, elapsed = time.process_time() - cpu, time.perf_counter() - start
        times = [after - before for before, after in itertools.pairwise(ticks)]
        return {"times": times, "cpu": cpu / elapsed}

    def outputs(self, path: str) -> dict[str, Any]:
        """Write the last run's results to the .npz file `path`."""
        results = self.engine.outputs()
        arrays: dict[str, Any] = {f"o{index}": value for index, value in enumerate(results.values())}
        np.savez(path, **arrays)
        return {"names": list(results)}

    def quit(self) -> dict[str, Any]:
        """Last words."""
        return {"peak_mib": peak_mib()}


def serve(worker: Worker, commands: TextIO, answers: TextIO) -> None:
    """Obey commands until one is to quit, or their end."""
    methods = {name: getattr(worker, name) for name in ("prepare", "load", "run", "outputs", "quit")}
    for line in commands:
        command = json.loads(line)
        name = command.pop("do")
        try:
            answer = methods[name](**command)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
        if name == "quit":
            return


def main() -> None:
    """Serve on the pipes that `client` made."""
    engine, model, inputs, folder, threads = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(Worker(engine, Path(model), Path(inputs), Path(folder), int(threads)), sys.stdin, answers)


if __name__ == "__main__":
    main()
