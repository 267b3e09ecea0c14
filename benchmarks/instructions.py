"""Instructions that a few kernels take, counted, against recorded counts: what a noisy machine cannot blur.

    python -m benchmarks.instructions             # compare with benchmarks/instructions.json
    python -m benchmarks.instructions --record    # take today's counts as the new ones

Each kernel is compiled for AVX2 (valgrind knows no AVX-512), exported, and run on one thread by the C program
`native/tools/run.c` under `valgrind --tool=callgrind`, which counts inside `TilewrightGraphRun` only. The counts are
the same on every x86-64 machine and run; another version of LLVM may change them a little.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import tilewright as tvm
from tilewright import relay
from tilewright.runtime import native_dir
from tilewright.runtime.compilers import find_compiler

TARGET = "llvm -mcpu=haswell"
RECORD = Path(__file__).with_suffix(".json")
TOLERANCE = 0.03
OTHER_LLVM_TOLERANCE = 0.25  # register allocation and unrolling differ from version to version
NATIVE = Path(__file__).resolve().parents[1] / "native"


def _weight(*shape: int) -> Any:
    return relay.const(np.random.default_rng(0).uniform(-1, 1, shape).astype("float32"))


def _convolution(channels: int, extent: int, window: int, groups: int = 1) -> relay.Function:
    x = relay.var("x", shape=(1, channels, extent, extent))
    weight, half = _weight(channels, channels // groups, window, window), window // 2
    sizes = {"channels": channels, "kernel_size": (window, window), "groups": groups}
    out = relay.nn.conv2d(x, weight, padding=(half, half), **sizes)
    return relay.Function([x], relay.nn.relu(relay.nn.bias_add(out, _weight(channels))))


def _dense(rows: int, columns: int, depth: int) -> relay.Function:
    x = relay.var("x", shape=(rows, depth))
    return relay.Function([x], relay.nn.bias_add(relay.nn.dense(x, _weight(columns, depth)), _weight(columns)))


def _products(batch: int, rows: int, columns: int, depth: int) -> relay.Function:
    x, y = relay.var("x", shape=(batch, rows, depth)), relay.var("y", shape=(batch, columns, depth))
    return relay.Function([x, y], relay.nn.batch_matmul(x, y))


def _attention(heads: int, rows: int, depth: int) -> relay.Function:
    q, k, v = (relay.var(name, shape=(heads, rows, depth)) for name in "qkv")
    scores = relay.nn.batch_matmul(q, k) * relay.const(np.float32(depth**-0.5))
    return relay.Function([q, k, v], relay.nn.batch_matmul(relay.nn.softmax(scores), v, transpose_b=False))


def _map(function: Callable[[Any], Any], *shape: int) -> relay.Function:
    x = relay.var("x", shape=shape)
    return relay.Function([x], function(x))


def _layer_norm(x: Any) -> Any:
    return relay.nn.layer_norm(x, _weight(256), _weight(256))


def _packed_pool(x: Any) -> Any:
    return relay.nn.avg_pool2d(x, (3, 3), (1, 1), padding=(1, 1), layout="NCHW8c")


# What each kernel computes, and the options of its compilation.
KERNELS: Mapping[str, tuple[Callable[[], relay.Function], Mapping[str, str]]] = {
    "gemm": (lambda: _dense(128, 256, 256), {}),
    "gemm, one row": (lambda: _dense(1, 1024, 512), {}),
    "batch_matmul": (lambda: _products(4, 64, 64, 64), {}),
    "attention": (lambda: _attention(4, 64, 32), {}),
    "conv 1x1": (lambda: _convolution(64, 28, 1), {}),
    "conv 3x3": (lambda: _convolution(64, 14, 3), {"relay.conv2d.winograd": "off"}),
    "conv 3x3, winograd": (lambda: _convolution(64, 28, 3), {"relay.conv2d.winograd": "4"}),
    "conv 3x3, depthwise": (lambda: _convolution(96, 28, 3, 96), {}),
    "max_pool2d": (lambda: _map(lambda x: relay.nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1)), 1, 32, 56, 56), {}),
    "avg_pool2d, packed": (lambda: _map(_packed_pool, 1, 4, 35, 35, 8), {}),
    "softmax": (lambda: _map(relay.nn.softmax, 128, 197), {}),
    "layer_norm": (lambda: _map(_layer_norm, 128, 256), {}),
    "gelu": (lambda: _map(lambda x: x * relay.const(0.5) * (relay.erf(x) + relay.const(1.0)), 64, 1024), {}),
    "add": (lambda: _map(lambda x: relay.add(x, _weight(1024)), 64, 1024), {}),
    "transpose": (lambda: _map(lambda x: relay.transpose(x, (0, 2, 1)), 4, 96, 112), {}),
}


@dataclass(frozen=True)
class Record:
    """Counts, and the version of LLVM that made the code."""

    llvm: str
    counts: Mapping[str, int]

    @staticmethod
    def read(path: Path = RECORD) -> Record:
        """The recorded counts."""
        stored = json.loads(path.read_text())
        return Record(stored["llvm"], stored["instructions"])

    def write(self, path: Path = RECORD) -> None:
        """Keep these counts."""
        path.write_text(json.dumps({"llvm": self.llvm, "instructions": dict(self.counts)}, indent=2) + "\n")


def llvm_version() -> str:
    """LLVM's version, such as 20.1."""
    import llvmlite.binding as llvm

    return ".".join(map(str, llvm.llvm_version_info[:2]))


def compile_runner(folder: Path) -> Path:
    """`tilewright-run` with the installed runtime, for this machine; raises CalledProcessError where gcc fails."""
    program = folder / "tilewright-run"
    sources = [NATIVE / "tools" / "run.c", native_dir() / "libtilewright_runtime.a"]
    command = [*find_compiler(), "-std=c11", "-O2", f"-I{NATIVE / 'include'}", *map(str, sources)]
    subprocess.run([*command, "-lm", "-lpthread", "-ldl", "-o", str(program)], check=True)
    return program


def count(name: str, runner: Path, folder: Path) -> int:
    """Instructions of one run of kernel `name`; raises RuntimeError with valgrind's words where it fails."""
    make, config = KERNELS[name]
    with tvm.transform.PassContext(opt_level=3, config=dict(config)):
        factory = relay.build(tvm.IRModule.from_expr(make()), TARGET)
    library, result = folder / "kernel.so", folder / "callgrind.out"
    factory.export_library(str(library))
    tool = ["valgrind", "--tool=callgrind", "--toggle-collect=TilewrightGraphRun", f"--callgrind-out-file={result}"]
    try:
        done = subprocess.run(
            [*tool, str(runner), str(library), "-z"],
            env=os.environ | {"TVM_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise RuntimeError("valgrind is not installed: make system-packages, or apt install valgrind") from None
    found = re.search(r"^(?:summary|totals): (\d+)", result.read_text() if result.exists() else "", re.MULTILINE)
    if done.returncode != 0 or found is None:
        raise RuntimeError(f"{name} did not run under valgrind: {(done.stderr or done.stdout)[-1000:]}")
    return int(found[1])


def count_all(names: Iterable[str] = KERNELS) -> Iterator[tuple[str, int]]:
    """Each kernel with its instructions."""
    with tempfile.TemporaryDirectory(prefix="tilewright-instructions-") as temporary:
        folder = Path(temporary)
        runner = compile_runner(folder)
        for name in names:
            yield name, count(name, runner, folder)


def complaints(recorded: Record, now: Record) -> list[str]:
    """A line for each kernel whose count left the tolerance, in either direction, or is recorded for one side only."""
    tolerance = TOLERANCE if recorded.llvm == now.llvm else OTHER_LLVM_TOLERANCE
    lines = []
    for name in dict.fromkeys([*recorded.counts, *now.counts]):
        before, after = recorded.counts.get(name), now.counts.get(name)
        if before is None or after is None:
            lines.append(f"{name}: {'not recorded' if before is None else 'recorded, but there is no such kernel'}")
        elif abs(after / before - 1) > tolerance:
            word = "more" if after > before else "fewer"
            lines.append(
                f"{name}: {after:,} instructions, {abs(after / before - 1):.1%} {word} than {before:,} recorded"
            )
    if lines and recorded.llvm != now.llvm:
        lines.append(f"the record was made with LLVM {recorded.llvm}, this is {now.llvm}")
    if lines:
        lines.append("if that is meant: python -m benchmarks.instructions --record, and commit the file")
    return lines


def _print(recorded: Mapping[str, int], counts: Mapping[str, int]) -> None:
    table = Table("kernel", *(("recorded", "now", "change") if recorded else ("instructions",)), box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, number in counts.items():
        before = recorded.get(name)
        change = [f"{before:,}" if before else "", f"{number:,}", f"{number / before - 1:+.1%}" if before else "new"]
        table.add_row(name, *(change if recorded else [f"{number:,}"]))
    Console().print(table)


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns its exit status."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__.split("\n")[0])
    options.add_argument("--record", action="store_true", help="write the counts to benchmarks/instructions.json")
    record = options.parse_args(arguments).record
    try:
        now = Record(llvm_version(), dict(count_all()))
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    recorded = Record.read() if RECORD.exists() else Record(now.llvm, {})
    _print(recorded.counts, now.counts)
    if record:
        now.write()
        return 0
    lines = complaints(recorded, now)
    print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
