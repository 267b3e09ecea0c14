"""``tilewright bench``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.driver.board import Board
from tilewright.driver.dims import combinations, parse_dim_numbers
from tilewright.driver.images import ImageOptions
from tilewright.driver.inputs import make_inputs
from tilewright.driver.library import Library, open_library, timer
from tilewright.driver.options import check_writable, recorder_for
from tilewright.driver.report import print_json, print_table, print_text

_STATISTICS = ("median", "mean", "min", "max", "std")
_MOST_SINGLE_RUNS = 100_000


@dataclass(frozen=True)
class BenchOptions:
    """Options of a measurement: what, on which device, and how long.

    ``threads`` are the thread counts to measure with, in turn; empty: the default. A measurement is the mean of the
    runs that fit in ``seconds``, and is repeated ``repeat`` times. With ``percentiles``, every run is a measurement, in
    the same total time.
    """

    file: Path
    sources: list[str] | None
    image: ImageOptions
    threads: tuple[int, ...]
    warmup: int
    repeat: int
    seconds: float
    percentiles: tuple[float, ...]
    profile: bool
    compile_first: bool
    input_shape: list[str] | None
    board: Board | None
    dims: list[str] | None = None
    max_steps: int | None = None
    report: Path | None = None
    trace: Path | None = None


@dataclass(frozen=True)
class Latency:
    """Milliseconds of a run with a number of threads, by the name of the statistic; ``measured`` measurements.

    ``dims`` are the numbers of named dimensions.
    """

    threads: int
    measured: int
    milliseconds: dict[str, float]
    dims: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeTime:
    """Mean milliseconds of one operator (one kernel call) of a run, its share of them all, and what it computes."""

    operator: str
    milliseconds: float
    share: float
    sources: list[str]  # names of the model's nodes


def bench_library(options: BenchOptions, quiet: bool, verbose: bool, as_json: bool) -> None:
    """Measure and print the latency, and with ``profile`` the time of each operator."""
    for output in (options.report, options.trace):
        if output is not None:
            check_writable(output)
    recorder = recorder_for(options.report)
    opened = open_library(options.file, options.compile_first, options.input_shape, options.board, recorder=recorder)
    with opened as library:
        results, profiles, times = [], [], None
        library.limit_steps(options.max_steps)
        for numbers in combinations(parse_dim_numbers(options.dims)):
            at = library.at(numbers)
            # made-up values for the inputs that no file gives: a model's speed hardly depends on them
            for name, array in make_inputs(at, options.sources, "random", options.image).items():
                at.executor.set_input(name, array)
            for threads in options.threads or (0,):
                library.place.function("runtime.config_threadpool")(0, threads)
                results.append(replace(_measure(at, options), dims=numbers))
                if options.profile:
                    times = at.executor.time_nodes(_runs(results[-1], options))
                    profiles.append(_profile(at, times))
        if options.report is not None or options.trace is not None:
            _write_pages(at, results[-1], times or at.executor.time_nodes(_runs(results[-1], options)), options)
    if as_json:
        print_json(_json_report(options, results, profiles))
    elif quiet:
        for result in results:
            print_text(f"{result.milliseconds['median']:.3f}")
    else:
        _print_results(results, verbose or len(options.threads) > 1)
        for result, profile in zip(results, profiles, strict=False):
            _print_profile(result.threads, profile)


def _measure(library: Library, options: BenchOptions) -> Latency:
    executor, device = library.executor, library.device
    for _ in range(options.warmup):
        executor.run()
    if not options.percentiles:
        taken = timer(executor, device, options.repeat, int(options.seconds * 1000))()
    else:
        once = timer(executor, device, 3)().median
        runs = math.ceil(options.repeat * options.seconds / max(once, 1e-9))
        taken = timer(executor, device, min(max(runs, options.repeat), _MOST_SINGLE_RUNS))()
    found = {name: getattr(taken, name) * 1e3 for name in _STATISTICS}
    for percentile in options.percentiles:
        found[f"p{percentile:g}"] = float(np.percentile(taken.results, percentile)) * 1e3
    return Latency(library.place.function("runtime.NumThreads")(), len(taken.results), found)


def _runs(latency: Latency, options: BenchOptions) -> int:
    """Return how many runs take as long as the measurements."""
    runs = math.ceil(options.repeat * options.seconds * 1e3 / max(latency.milliseconds["median"], 1e-6))
    return min(max(runs, 10), _MOST_SINGLE_RUNS)


def _profile(library: Library, times: list[tuple[str, float]]) -> list[NodeTime]:
    """The operators, the slowest first."""
    total = sum(seconds for _, seconds in times)
    nodes = [
        NodeTime(name.removeprefix("tvmgen_default_"), s * 1e3, s / total, list(library.sources.get(name, [])))
        for name, s in times
    ]
    return sorted(nodes, key=lambda node: -node.milliseconds)


def _write_pages(library: Library, latency: Latency, times: list[tuple[str, float]], options: BenchOptions) -> None:
    """Write the page and the trace that are asked for, of the last measurement."""
    if options.trace is not None:
        from tilewright.report.trace import write_trace

        write_trace(options.trace, options.file.name, times, library.sources)
    if options.report is not None:
        from tilewright.driver.bench_page import write_bench_page

        rows = [("measured", f"{latency.milliseconds['median']:.3f} ms in the median, {latency.threads} threads")]
        write_bench_page(options.report, library, dict(times), latency.threads, rows)


def _print_results(results: list[Latency], detailed: bool) -> None:
    headings = [f"{name} (ms)" for name in results[0].milliseconds]
    rows = [[f"{value:.3f}" for value in result.milliseconds.values()] for result in results]
    if detailed:
        headings = ["threads", *headings, "measurements"]
        rows = [[str(r.threads), *row, str(r.measured)] for r, row in zip(results, rows, strict=True)]
    if results[0].dims:
        headings = [*results[0].dims, *headings]
        rows = [[*map(str, r.dims.values()), *row] for r, row in zip(results, rows, strict=True)]
    print_table(headings, rows)


def _print_profile(threads: int, nodes: list[NodeTime]) -> None:
    print_text(f"\noperators of a run with {threads} threads")
    rows = [[f"{n.milliseconds:.4f}", f"{n.share:.1%}", n.operator, ", ".join(n.sources)] for n in nodes]
    print_table(["mean (ms)", "share", "operator", "nodes of the model"], rows)


def _json_report(options: BenchOptions, results: list[Latency], profiles: list[list[NodeTime]]) -> dict[str, Any]:
    report: dict[str, Any] = {"library": str(options.file), "results": []}
    for index, result in enumerate(results):
        entry: dict[str, Any] = {"threads": result.threads, "measurements": result.measured}
        if result.dims:
            entry["dims"] = result.dims
        entry |= {f"{name}_ms": value for name, value in result.milliseconds.items()}
        if profiles:
            entry["operators"] = [
                {"operator": n.operator, "mean_ms": n.milliseconds, "share": n.share, "sources": n.sources}
                for n in profiles[index]
            ]
        report["results"].append(entry)
    return report
