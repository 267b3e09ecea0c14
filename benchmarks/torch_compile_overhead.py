"""The time of a call of torch.compile's backend beside the executor's: ``python -m benchmarks.torch_compile_overhead``.

The sum of two vectors, compiled once for known sizes (the graph executor) and once for any size (the virtual machine).
The executor's own is what a caller of the same library does in Python: set both inputs where they lie, run, and for the
virtual machine take the result. Processor time of one thread, in turns, medians of 40 rounds of 300 calls.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

import tilewright as tvm
from tilewright import relay
from tilewright.ir.module import IRModule
from tilewright.runtime import ndarray as nd
from tilewright.runtime.device import cpu
from tilewright.runtime.vm import VirtualMachine
from tilewright.torch_compile.compiler import compile_graph
from tilewright.torch_compile.options import Options

ROUNDS, CALLS, SIZE = 40, 300, 8


def _microseconds(call: Callable[[], Any]) -> float:
    begun = time.thread_time()
    for _ in range(CALLS):
        call()
    return (time.thread_time() - begun) / CALLS * 1e6


def _backend(mode: str, given: list[torch.Tensor]) -> Callable[[], Any]:
    """Return a call of the sum as the backend compiles it."""
    graph = make_fx(lambda x, w: [x + w], tracing_mode=mode)(*given)
    compiled = compile_graph(Options(), graph, given)
    torch.testing.assert_close(compiled(list(given))[0], given[0] + given[1])
    return lambda: compiled([*given])


def _executor(mode: str, given: list[torch.Tensor]) -> Callable[[], Any]:
    """Return a call of the executor of the same program, with arrays of the runtime."""
    arrays = [nd.array(value.numpy()) for value in given]
    size = SIZE if mode == "fake" else tvm.tir.Var("n", "int64")
    x, w = (relay.var(name, shape=(size,)) for name in "xw")
    program = IRModule.from_expr(relay.Function([x, w], relay.add(x, w)))
    if mode == "fake":
        module = relay.build(program, "llvm")["default"](cpu())
        give, run, made = module["set_input_zero_copy"], module["run"], nd.empty((SIZE,))
        module["set_output_zero_copy"](0, made)
        return lambda: (give(0, arrays[0]), give(1, arrays[1]), run(), made)
    machine = VirtualMachine(relay.vm.compile(program, "llvm"), cpu()).module
    take, invoke = machine["set_input"], machine["invoke"]
    return lambda: (take("main", *arrays), invoke("main"))


def main() -> None:
    """Print the medians of both and their difference for each kind of executor."""
    torch.set_num_threads(1)
    given = [torch.randn(SIZE), torch.randn(SIZE)]
    for name, mode in (("graph executor", "fake"), ("virtual machine", "symbolic")):
        calls = {"backend": _backend(mode, given), "executor": _executor(mode, given)}
        times: dict[str, list[float]] = {key: [] for key in calls}
        for _ in range(ROUNDS):
            for key, call in calls.items():
                times[key].append(_microseconds(call))
        backend, executor = (statistics.median(times[key]) for key in calls)
        print(f"{name}: {backend:.1f} us, the executor's own {executor:.1f}, overhead {backend - executor:.1f}")


if __name__ == "__main__":
    main()
