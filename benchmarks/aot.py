"""Ahead-of-time programs: the time of a call beside that of its kernels, and many libraries in one process.

    python -m benchmarks.aot [model.onnx] [--libraries 240]

Times are of the processor, one thread, the least of several; loops run in C.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tilewright as tvm
from tilewright import relay
from tilewright.runtime._ffi import LIB

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"
CALLS, TURNS = 3000, 20
LOOPS = """
#include <stdint.h>
#include <time.h>
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
double kernels(int32_t (*f)(void*, void*, void*, void*), void* a, void* b, void* c, void* d, int n) {
  const double start = now();
  for (int i = 0; i < n; ++i) f(a, b, c, d);
  return (now() - start) / n;
}
double calls(int (*call)(void*, void*, void*, int, void*, void*), void* f, int n) {
  int64_t value[2];
  int code;
  const double start = now();
  for (int i = 0; i < n; ++i) call(f, 0, 0, 0, value, &code);
  return (now() - start) / n;
}
"""


def c_loops(folder: Path) -> ctypes.CDLL:
    """Return the loops, compiled."""
    (folder / "loops.c").write_text(LOOPS)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", folder / "loops.so", folder / "loops.c"], check=True)
    loops = ctypes.CDLL(str(folder / "loops.so"))
    loops.kernels.restype = loops.calls.restype = ctypes.c_double
    return loops


def block(nbytes: int, data: bytes = b"") -> np.ndarray[Any, Any]:
    """Return aligned bytes."""
    whole = np.zeros(nbytes + 64, np.uint8)
    start = -whole.ctypes.data % 64
    whole[start : start + len(data)] = np.frombuffer(data, np.uint8)
    return whole[start : start + nbytes]


def call_times(mod: tvm.IRModule, loops: ctypes.CDLL) -> dict[str, float]:
    """Return seconds of the program's kernels in order, of a call of its library, and of the graph executor's."""
    program, graph = (relay.build(mod, "llvm", executor=name) for name in ("aot", "graph"))
    layout = program.layout
    address = program.get_lib().compiled_code.lookup(layout.symbol)
    (given,), (result,) = layout.inputs, layout.outputs
    sizes = (given.nbytes, result.nbytes, layout.constant_bytes, layout.workspace_bytes)
    data = [block(n, layout.constant_block() if i == 2 else b"") for i, n in enumerate(sizes)]
    pointers = [ctypes.c_void_p(d.ctypes.data) for d in data]
    executors = [tvm.contrib.graph_executor.GraphModule(f["default"](tvm.cpu())) for f in (program, graph)]
    for executor in executors:
        executor.run(**{given.name: np.zeros(given.shape, given.dtype)})
    functions = [e.module["run"] for e in executors]
    call = ctypes.cast(LIB.TVMFuncCall, ctypes.c_void_p)
    kernels: list[float] = []
    found: list[list[float]] = [[] for _ in functions]
    for _ in range(TURNS):
        kernels.append(loops.kernels(ctypes.c_void_p(address), *pointers, CALLS))
        for times, function in zip(found, functions, strict=True):
            times.append(loops.calls(call, ctypes.c_void_p(function.handle), CALLS))
    return {"kernels": min(kernels), "program": min(found[0]), "graph": min(found[1])}


def many_libraries(mod: tvm.IRModule, count: int, folder: Path) -> float:
    """Return the seconds in which as many libraries are opened and run once."""
    first = folder / "first.so"
    factory = relay.build(mod, "llvm", executor="aot")
    factory.export_library(first)
    (given,) = factory.layout.inputs
    paths = [folder / f"{i}.so" for i in range(count)]
    for path in paths:
        shutil.copy(first, path)
    data = np.zeros(given.shape, given.dtype)
    start, models = time.perf_counter(), []
    for path in paths:
        models.append(tvm.load(path))
        models[-1](data)
    return time.perf_counter() - start


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=DIGITS, type=Path)
    parser.add_argument("--libraries", type=int, default=240)
    options = parser.parse_args()
    mod, _ = relay.frontend.from_onnx(onnx.load(options.model), freeze_params=True)
    with tempfile.TemporaryDirectory() as name, tvm.transform.PassContext(opt_level=3):
        times = call_times(mod, c_loops(Path(name)))
        print(", ".join(f"{what} {seconds * 1e6:.2f} us" for what, seconds in times.items()))
        seconds = many_libraries(mod, options.libraries, Path(name))
    print(f"{options.libraries} libraries opened and run once in {seconds:.2f} s")


if __name__ == "__main__":
    main()
