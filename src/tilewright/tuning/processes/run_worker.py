"""The process that runs candidates on this machine: it holds the runtime, and nothing of the compiler.

A request is a :class:`~tilewright.tuning.processes.local.RunRequest` as JSON. Data are the same for equal shapes, so
that results of several candidates can be compared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.runtime.device import Device, device
from tilewright.runtime.module import Module, load_module
from tilewright.runtime.ndarray import NDArray, array, empty
from tilewright.tuning.processes.pinning import PinnedThreads
from tilewright.tuning.processes.process import serve

_AGREE, _AGAIN = 1.25, 2  # most that costs may differ by, and how often they are measured again
FLUSH = "cache_flush_cpu_non_first_arg"


class _Runner:
    """State kept between runs: data by shapes, and the reference kernel."""

    def __init__(self) -> None:
        self._shapes: Any = None
        self._inputs: list[NDArray] = []
        self._reference: tuple[str, Module, list[NDArray]] | None = None
        self._threads = PinnedThreads()

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Measure one candidate."""
        dev = device(request["device"], 0)
        module = load_module(request["library"])
        arrays = self._data(request, dev)
        before = self._reference_seconds(request, dev)
        wrong = self._check(request, module, arrays, dev) if request["compare_to"] or request["save_results"] else None
        if wrong is not None:
            return {"costs": [], "wrong": wrong, "reference": []}
        self._threads.update()
        evaluate = module.time_evaluator(
            request["function"] or module.entry_name, dev, request["number"], request["repeat"],
            request["min_repeat_ms"], FLUSH if request["flush"] else "",
        )  # fmt: skip
        costs = steady(lambda: evaluate(*arrays).results, request["repeat"])
        after = self._reference_seconds(request, dev)
        return {"costs": costs, "wrong": None, "reference": [*before, *after]}

    def _data(self, request: dict[str, Any], dev: Device) -> list[NDArray]:
        """Arguments: of the file ``inputs``, or made up, the same for equal shapes."""
        shapes = request["arguments"], request["inputs"], request["device"]
        if shapes == self._shapes:
            return self._inputs
        self._shapes = None
        given: list[Any] = []
        if request["inputs"]:
            with np.load(request["inputs"]) as file:
                given = [file[name] for name in file.files]
        self._inputs = [
            array(given[i].astype(dtype), dev) if i < len(given) else made_up(shape, dtype, i, dev)
            for i, (shape, dtype) in enumerate(request["arguments"])
        ]
        self._shapes = shapes
        return self._inputs

    def _check(self, request: dict[str, Any], module: Module, arrays: list[NDArray], dev: Device) -> str | None:
        """Run once on results filled with a marker; return their error, or None."""
        outputs = [arrays[i] for i in request["outputs"]]
        for out in outputs:
            fill_strange(out)
        module[request["function"] or module.entry_name](*arrays)
        dev.sync()
        results = [out.numpy() for out in outputs]
        if request["save_results"]:
            np.savez(request["save_results"], *[_plain(r) for r in results])
        if not request["compare_to"]:
            return None
        with np.load(request["compare_to"]) as file:
            expected = [file[name] for name in file.files]
        return difference(results, expected, request["tolerance"])

    def _reference_seconds(self, request: dict[str, Any], dev: Device) -> list[float]:
        """Measure the reference kernel."""
        path = request["reference"]
        if not path:
            return []
        if self._reference is None or self._reference[0] != path:
            kept = [made_up(shape, dtype, i, dev) for i, (shape, dtype) in enumerate(request["reference_arguments"])]
            self._reference = path, load_module(path), kept
        _, module, kept = self._reference
        return list(module.time_evaluator(module.entry_name, dev, 1, 3, 1)(*kept).results)


def steady(measure: Callable[[], Sequence[float]], repeat: int) -> list[float]:
    """Measure until costs agree, and return the lowest: other processes only delay."""
    costs = sorted(measure())
    for _ in range(_AGAIN):
        if costs[repeat - 1] <= _AGREE * costs[0]:
            break
        costs = sorted([*costs, *measure()])
    return costs[:repeat]


def made_up(shape: list[int], dtype: str, seed: int, dev: Device) -> NDArray:
    """An array of numbers between 0 and 1, or of whole numbers from 0 to 15."""
    rng = np.random.default_rng(seed)
    out = empty(tuple(shape), dtype, dev)
    like = out.numpy()
    if like.dtype.kind in "iu":
        values: Any = rng.integers(0, 16, like.shape)
    elif like.dtype.kind == "b":
        values = rng.integers(0, 2, like.shape)
    else:
        values = rng.random(like.shape, np.float32)
    return array(values.astype(like.dtype), dev)


def fill_strange(out: NDArray) -> None:
    """Fill results with values that no kernel computes, so that unwritten elements show."""
    like = out.numpy()
    value = np.nan if like.dtype.kind not in "iub" else 1
    out.copyfrom(np.full(like.shape, value).astype(like.dtype))


def _plain(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Convert the values to a dtype that numpy's files support."""
    return values if values.dtype.kind in "iubf" else values.astype(np.float32)


def difference(results: list[Any], expected: list[Any], tolerance: list[float]) -> str | None:
    """Return the difference of results from expected ones as text, or None; relative to the largest expected value.

    ``tolerance``: of floats, relative to the largest expected value; integers must be equal.
    """
    for i, (found, wanted) in enumerate(zip(results, expected, strict=True)):
        found = _plain(found)
        if found.shape != wanted.shape:
            return f"result {i} has the shape {found.shape}, expected {wanted.shape}"
        if found.dtype.kind in "iub":
            bad = found != wanted
        else:
            limit = tolerance[0] * max(1e-30, float(np.max(np.abs(wanted), initial=0.0)))
            bad = ~(np.abs(found.astype(np.float64) - wanted) <= limit) & ~(np.isnan(found) & np.isnan(wanted))
        if bad.any():
            at = tuple(int(p[0]) for p in np.nonzero(bad))
            where = f"{i}[{', '.join(map(str, at))}]"
            return f"{int(bad.sum())} of {bad.size} results are wrong; result {where} is {found[at]}, not {wanted[at]}"
    return None


def main() -> None:
    """Serve on the descriptors that are the arguments."""
    runner = _Runner()
    reader, writer = int(sys.argv[1]), int(sys.argv[2])
    serve(runner.run, reader, writer)


if __name__ == "__main__":
    main()
