"""Every kernel of compiled models on its own: its time, and its share of what the machine can do.

    python -m benchmarks.kernels --models resnet50 bert_base --kinds conv dense --threads 1 2

Models are those of `benchmarks.latency`, compiled untuned. Each distinct kernel becomes a graph of nothing but calls
of it, so that threads, argument passing and memory are as in a model. Warm, all calls work on the same arrays, which
stay in whatever cache they fit. Where memory would limit the kernel (its operations per byte are below the machine's),
it is also measured cold, in turns with copies: so many calls with arrays of their own that no cache holds them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.doctor import peak
from tilewright.doctor.inputs import made_up
from tilewright.doctor.work import KINDS, Kernel, kernels_of, nbytes
from tilewright.relay.transform.memory.graph_plan import aligned
from tilewright.runtime.module import set_num_threads
from tilewright.target.features import features
from tilewright.testing import zoo

from . import kernel_report as report
from .kernel_report import KernelResult, Timing, memory_bound
from .latency import find_model
from .report import as_markdown, as_table, write_json

WARM_CALLS = 8  # in one run of a graph: enough to make the cost of starting the run small
MOST_COLD_CALLS = 1024  # a kernel that would need more is too small to be limited by memory
TRIES = 5  # measurements for one during which each thread has a core
REPORT_COLUMNS = 250  # of a table that is not printed to a terminal


@dataclass(frozen=True)
class Plan:
    """How long to measure: the median of `repeats` times of about `milliseconds`."""

    repeats: int
    milliseconds: int


THOROUGH = Plan(repeats=15, milliseconds=15)
QUICK = Plan(repeats=5, milliseconds=4)


def graph_of_calls(kernel: Kernel, calls: int, shared: bool) -> str:
    """The graph JSON of so many calls of a kernel, on the same arrays if `shared`, else on arrays of their own.

    All arrays lie in one storage, as those of a model do: what pages the system gives to small arrays of their own
    would be measured instead.
    """
    nodes: list[dict[str, Any]] = []
    types: list[Any] = []
    offsets: list[int] = []
    row_ptr = [0]
    sizes = [aligned(nbytes(type_)) for type_ in (*kernel.inputs, *kernel.outputs)]
    starts = list(accumulate(sizes, initial=0))

    def add(node: dict[str, Any], results: Sequence[Any], index: int, first: int) -> int:
        nodes.append(node)
        types.extend(results)
        offsets.extend(index * starts[-1] + at for at in starts[first : first + len(results)])
        row_ptr.append(len(types))
        return len(nodes) - 1

    attrs = {"num_outputs": str(len(kernel.outputs)), "num_inputs": str(len(kernel.inputs))}
    attrs |= {"flatten_data": "0", "func_name": kernel.name}
    sets = 1 if shared else calls
    arguments = [
        [add({"op": "null", "name": f"x{s}_{i}", "inputs": []}, [type_], s, i) for i, type_ in enumerate(kernel.inputs)]
        for s in range(sets)
    ]
    for call in range(calls):
        index = call % sets
        inputs = [[argument, 0, 0] for argument in arguments[index]]
        node = {"op": "tvm_op", "name": f"call{call}", "attrs": attrs, "inputs": inputs}
        last = add(node, kernel.outputs, index, len(kernel.inputs))
    shapes = [list(t.concrete_shape) for t in types]
    return json.dumps(
        {
            "nodes": nodes,
            "arg_nodes": [i for i, node in enumerate(nodes) if node["op"] == "null"],
            "heads": [[last, i, 0] for i in range(len(kernel.outputs))],
            "attrs": {
                "dltype": ["list_str", [t.dtype for t in types]],
                "device_index": ["list_int", [1] * len(types)],
                "storage_id": ["list_int", [0] * len(types)],
                "storage_offset": ["list_int64", offsets],
                "shape": ["list_shape", shapes],
            },
            "node_row_ptr": row_ptr,
        }
    )


def time_calls(library: Any, kernel: Kernel, calls: int, shared: bool, plan: Plan) -> Iterator[float]:
    """Median seconds of a call, measured anew (with the threads then set) each time the next one is asked for."""
    module = graph_executor.create(graph_of_calls(kernel, calls, shared), library, tvm.cpu())
    generator = np.random.default_rng(0)
    for index in range(module.get_num_inputs()):
        array = module.get_input(index)
        array.copyfrom(made_up(array.shape, array.dtype, generator))
    while True:
        module.run()
        yield module.benchmark(tvm.cpu(), repeat=plan.repeats, number=1, min_repeat_ms=plan.milliseconds).median / calls


def undisturbed(times: Iterator[float], threads: int) -> tuple[float, float]:
    """The next time during which every thread had a core, of a few tries the one with most; and how many cores it had.

    A thread whose core does something else keeps the others waiting: a kernel on two threads then seems to reach half
    of the bandwidth that the best of several runs, as `tilewright.doctor.peak` takes it, has shown.
    """
    found = []
    for _ in range(TRIES):
        start, used = time.perf_counter(), time.process_time()
        seconds = next(times)
        cores = (time.process_time() - used) / (time.perf_counter() - start)
        found.append((cores, seconds))
        if cores >= peak.BUSY * threads:
            break
    cores, seconds = max(found)
    return seconds, cores


def beside_copies(cold: Iterator[float], threads: int, rounds: int) -> tuple[float, float, list[tuple[float, float]]]:
    """The median of ``rounds`` times of a kernel, and the bandwidth of DRAM measured after each of them.

    In turns, for the machine's memory has moods: the median of a kernel's times against the best of the copies' would
    be the kernel's share only where nothing changes. With the cores that the kernel had at least.
    """
    measured = [(*undisturbed(cold, threads), peak.memory_now(threads)) for _ in range(rounds)]
    seconds, cores, rates = zip(*measured, strict=True)
    return statistics.median(seconds), min(cores), list(rates)


def measure_kernel(
    library: Any, kernel: Kernel, model: str, threads: Sequence[int], machine: peak.Machine, plan: Plan
) -> KernelResult:
    """Time one kernel with each number of threads, and the machine's limits beside it."""
    warm = time_calls(library, kernel, WARM_CALLS, True, plan)
    calls = math.ceil(4 * peak.cache_bytes(3) / max(1, kernel.bytes))
    from_memory = memory_bound(kernel, machine) and kernel.kind != "gather" and calls <= MOST_COLD_CALLS
    cold = time_calls(library, kernel, calls, False, replace(plan, repeats=1)) if from_memory else None
    timings = []
    for count in threads:
        set_num_threads(count)
        seconds, cores = undisturbed(warm, count)
        limits = peak.measure_again(machine, count)
        from_dram = None
        if cold is not None:
            from_dram, dram_cores, rates = beside_copies(cold, count, plan.repeats)
            cores, limits = min(cores, dram_cores), peak.with_memory(limits, count, rates)
        timings.append(Timing(count, seconds, from_dram, cores, limits))
    set_num_threads(0)
    return KernelResult(kernel, [model], timings)


def measure_models(
    models: Sequence[str],
    target: str,
    kinds: Sequence[str],
    threads: Sequence[int],
    machine: peak.Machine,
    plan: Plan,
) -> list[KernelResult]:
    """Compile the models for ``target`` and time their kernels; one that several models call is measured once.

    Sorted by kind, and then by the time that a run of the first model spends in them.
    """
    results: dict[str, KernelResult] = {}
    for model in models:
        path, inputs = find_model(model)
        module, params = relay.frontend.from_onnx(onnx.load(str(path)), {n: v.shape for n, v in inputs.items()})
        with tvm.transform.PassContext(opt_level=3):
            factory = relay.build(module, target=target, params=params)
        for kernel in kernels_of(factory):
            if kernel.kind not in kinds:
                continue
            if kernel.digest in results:
                results[kernel.digest].models.append(model)
            else:
                found = measure_kernel(factory.get_lib(), kernel, model, threads, machine, plan)
                results[kernel.digest] = found
    return sorted(results.values(), key=lambda r: (KINDS.index(r.kernel.kind), -r.kernel.calls * r.timings[0].warm))


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels", description="Time of each kernel of models, and its share of the peak."
    )
    options.add_argument("--models", nargs="+", default=list(zoo.names()), help="zoo names or ONNX files")
    options.add_argument("--target", default="llvm", help="llvm, or with -mcpu another processor's code on this one")
    options.add_argument(
        "--kinds", nargs="+", default=list(KINDS), choices=KINDS, metavar="KIND", help=", ".join(KINDS)
    )
    options.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options.add_argument("--quick", action="store_true", help="fewer and shorter measurements, for a first look")
    options.add_argument("--markdown", type=Path, help="write the table as Markdown")
    options.add_argument("--json", type=Path, default=Path("build") / "benchmarks" / "kernels.json")
    return options.parse_args(arguments)


def main() -> None:
    """Measure, print the table, write the JSON."""
    arguments = parse_arguments()
    plan = QUICK if arguments.quick else THOROUGH
    console = Console()
    if not console.is_terminal:
        console = Console(width=REPORT_COLUMNS)
    with console.status("Measuring"):
        machine = peak.measure(tuple(sorted({1, *arguments.threads})), most_lanes=features(arguments.target).lanes())
        results = measure_models(arguments.models, arguments.target, arguments.kinds, arguments.threads, machine, plan)
    groups = [
        [line for result in results if result.kernel.kind == kind for line in report.rows(result, machine)]
        for kind in KINDS
    ]
    console.print(
        as_table("Kernels of compiled models, fp32", report.HEADINGS, groups, report.LEFT, "\n".join(report.LEGEND))
    )
    digest = report.digest(results, machine)
    console.print(as_table("By kind", report.DIGEST, digest, (0,), report.DIGEST_LEGEND))
    settings = {"plan": asdict(plan), "models": arguments.models, "target": arguments.target, "kinds": arguments.kinds}
    write_json(arguments.json, report.as_json(results, machine, settings))
    console.print(f"Written: {arguments.json}")
    if arguments.markdown:
        kernels = as_markdown(report.HEADINGS, list(chain(*groups)), report.LEFT)
        by_kind = as_markdown(report.DIGEST, list(chain(*digest)), (0,))
        arguments.markdown.write_text(f"{by_kind}\n{kernels}")
        console.print(f"Written: {arguments.markdown}")


if __name__ == "__main__":
    main()
