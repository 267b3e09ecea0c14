"""What compiling a model in this process costs: processor time, memory, with an empty kernel cache and with a full one.

    python -m benchmarks.build_time --models resnet50 bert_base

Each build is a process of its own that calls ``tilewright.compile(path)``. *self*: its processor time after Python has
started; *workers*: that of the processes which run LLVM. Processor time is what a busy machine blurs least. *MiB*: the
largest resident set of the process, beside one and a half times the file and 300 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.testing import zoo

_PROGRAM = """
import json, resource, sys, time
import tilewright
from tilewright.target import workers
begin = time.perf_counter()
model = tilewright.compile(sys.argv[1])
wall = time.perf_counter() - begin
workers.pool().close()
own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps({
    "self": time.process_time(), "workers": others.ru_utime + others.ru_stime, "wall": wall,
    "mib": own.ru_maxrss / 1024,
}))
"""


def build(path: Path, cache: Path) -> dict[str, Any]:
    """Return what one build took, with the kernel cache in a folder."""
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else every process compiles the compiler's own source
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(path)], env=environment, check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["resnet50", "bert_base"], choices=list(zoo.names()))
    options = parser.parse_args(arguments)
    print("| network | cache | self s | workers s | wall s | MiB | limit MiB |\n|---|---|" + "---:|" * 5)
    for name in options.models:
        path = zoo.export(name)
        limit = 1.5 * path.stat().st_size / 2**20 + 300e6 / 2**20
        with tempfile.TemporaryDirectory() as folder:
            for cache in ("empty", "full"):
                took = build(path, Path(folder))
                seconds = " | ".join(f"{took[key]:.2f}" for key in ("self", "workers", "wall"))
                print(f"| {name} | {cache} | {seconds} | {took['mib']:.0f} | {limit:.0f} |", flush=True)


if __name__ == "__main__":
    main()
