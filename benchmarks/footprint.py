"""Room and time that engines take before they are fast: size, import, first inference, memory; beside each other.

    python -m benchmarks.footprint --models resnet50 bert_base

Tilewright runs a library that was compiled before; ONNX Runtime and OpenVINO read the ONNX file. Each figure is of a
process of its own, the median of several; engines go in turns. Seconds are processor time, which other programs disturb
least, of one thread where an engine lets one choose. Memory is proportional (``Pss``): pages of files that several
processes share count once. Of the size, numpy is no part: all need it.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from .engines import Engine, Loaded, OnnxRuntime, OpenVino

ENGINES: dict[str, tuple[str, type[Engine]]] = {
    "tilewright": ("tilewright.runtime", Loaded),
    "onnxruntime": ("onnxruntime", OnnxRuntime),
    "openvino": ("openvino", OpenVino),
}


def pss() -> float:
    """Return this process's proportional memory in MB."""
    text = Path("/proc/self/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


def observe(engine: str, path: Path, stored: Path) -> dict[str, float]:
    """Return what one process sees: seconds of import and until the first answer, and MB; numpy is there before."""
    module, kind = ENGINES[engine]
    with np.load(stored) as arrays:
        inputs = dict(arrays)
    before, start = pss(), time.process_time()
    __import__(module)
    found = {"import": time.process_time() - start, "idle": pss() - before}
    instances: list[Engine] = []

    def one_more() -> None:
        instances.append(kind())
        instances[-1].load(path, inputs, threads=1)
        instances[-1].run()

    one_more()
    found["first"] = time.process_time() - start
    found["one"] = pss() - before
    for _ in range(3):
        one_more()
    found["four"] = pss() - before
    return found


def installed_bytes(name: str) -> int:
    """Return the bytes of the files of a distribution and of all that it requires, without numpy."""
    seen: dict[str, Distribution] = {}
    waiting = [name]
    while waiting:
        each = re.split(r"[^\w.-]", waiting.pop(), maxsplit=1)[0].lower().replace("_", "-")
        if each == "numpy" or each in seen:
            continue
        try:
            seen[each] = distribution(each)
        except PackageNotFoundError:  # of another system
            continue
        waiting += [line for line in seen[each].requires or [] if "extra ==" not in line]
    files = {Path(str(file.locate())) for found in seen.values() for file in found.files or []}
    return sum(file.stat().st_size for file in files if "__pycache__" not in file.parts and file.is_file())


def main() -> None:
    """Measure the engines in turns, and print a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["resnet50", "bert_base"], help="of the zoo, or ONNX files")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--observe", nargs=3, metavar=("ENGINE", "FILE", "INPUTS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.observe is not None:
        engine, path, stored = options.observe
        print(json.dumps(observe(engine, Path(path), Path(stored))))
        return
    for engine in options.engines:
        if engine != "tilewright":
            print(f"{engine}: {installed_bytes(engine) / 1e6:.0f} MB of files, numpy apart")
    for name in options.models:
        Console().print(compare(name, options.engines, options.turns))


def compare(name: str, engines: list[str], turns: int) -> Table:
    """Return the table of a model."""
    from .latency import find_model

    path, inputs = find_model(name)
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "inputs.npz"
        np.savez(stored, **inputs)  # type: ignore[arg-type]
        files = {engine: ENGINES[engine][1].prepare(path, inputs, Path(folder)) for engine in engines}
        found: dict[str, list[dict[str, Any]]] = {engine: [] for engine in engines}
        for _ in range(turns):
            for engine in engines:
                command = [sys.executable, "-m", "benchmarks.footprint", "--observe", engine, files[engine], stored]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                found[engine].append(json.loads(done.stdout.splitlines()[-1]))
    table = Table("engine", "import (s)", "first answer (s)", "idle (MB)", "one (MB)", "four (MB)", title=name)
    for engine, seen in found.items():
        middle = {key: statistics.median(each[key] for each in seen) for key in seen[0]}
        cells = (
            f"{middle['import']:.3f}",
            f"{middle['first']:.2f}",
            *(f"{middle[k]:.0f}" for k in ("idle", "one", "four")),
        )
        table.add_row(engine, *cells)
    return table


if __name__ == "__main__":
    main()
