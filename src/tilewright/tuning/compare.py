"""The tuned network against the untuned, as a whole: records that make it slower, or wrong, are dropped."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.autotvm.history import ApplyHistoryBest
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay.build_module import build
from tilewright.runtime.device import cpu
from tilewright.runtime.executor.graph import GraphModule
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.target.target import Target
from tilewright.tuning.network import Record

_TURNS = 15
_LEAST_SECONDS = 0.02  # of one turn
_TOLERANCE = 5e-3  # of the largest value of an output: other orders of sums, other tiles of Winograd's method


@dataclass(frozen=True)
class Comparison:
    """Median seconds of both networks, and the records that stand. ``dropped`` says why others do not."""

    untuned: float
    tuned: float
    records: list[Record]
    dropped: list[str]


def compare_best(
    mod: IRModule, params: Mapping[str, Any], target: Target, choices: Sequence[Sequence[tuple[Record, float]]]
) -> Comparison:
    """``compare`` of several choices of records; the one by which the network gains most."""
    found = [compare(mod, params, target, records) for records in choices]
    return min(found, key=lambda c: c.tuned / c.untuned)


def compare(
    mod: IRModule, params: Mapping[str, Any], target: Target, records: Sequence[tuple[Record, float]]
) -> Comparison:
    """Build both networks, run them in turns, and drop records until the tuned one is not slower.

    ``records`` come with the seconds that the network gains by each, as measured alone; those that gain least go first.
    """
    plain = _Network(mod, params, target, [])
    kept = [record for record, _ in sorted(records, key=lambda item: -item[1])]
    dropped: list[str] = []
    while kept:
        tuned = _Network(mod, params, target, kept)
        difference = plain.difference(tuned)
        seconds = _in_turns([plain, tuned])
        if difference <= _TOLERANCE and seconds[1] <= seconds[0]:
            return Comparison(seconds[0], seconds[1], kept, dropped)
        why = f"outputs differ by {difference:.1e}" if difference > _TOLERANCE else "the network was slower with it"
        half = len(kept) // 2
        dropped += [f"{inp.task.name} {inp.task.args}: {why}" for inp, _ in kept[half:]]
        kept = kept[:half]
    seconds = _in_turns([plain])
    return Comparison(seconds[0], seconds[0], [], dropped)


class _Network:
    """A network that is built with some records."""

    def __init__(self, mod: IRModule, params: Mapping[str, Any], target: Target, records: Sequence[Record]) -> None:
        with ApplyHistoryBest(list(records)), PassContext(opt_level=3):
            factory = build(mod, target=target, params=params)
        self.module = GraphModule(factory["default"](cpu(0)))
        rng = np.random.default_rng(0)
        shapes, dtypes = self.module.get_input_info()
        for name, shape in shapes.items():
            values = rng.random(shape) if "float" in dtypes[name] else rng.integers(0, 2, shape)
            self.module.set_input(name, values.astype(numpy_dtype(dtypes[name])))
        self.module.run()
        self.outputs = [self.module.get_output(i).numpy() for i in range(self.module.get_num_outputs())]

    def difference(self, other: _Network) -> float:
        """The largest difference of outputs, relative to the largest value of each."""
        worst = 0.0
        for mine, yours in zip(self.outputs, other.outputs, strict=True):
            scale = max(float(np.abs(mine).max(initial=0)), 1e-30)
            gap = np.abs(mine.astype("float64") - yours)
            worst = max(worst, float(np.where(np.isnan(mine) & np.isnan(yours), 0, gap).max(initial=0)) / scale)
        return worst if worst == worst else float("inf")

    def seconds(self) -> float:
        """Mean time of a run, over some."""
        runs, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < _LEAST_SECONDS or not runs:
            self.module.run()
            runs += 1
        return (time.perf_counter() - began) / runs if runs else elapsed


def _in_turns(networks: Sequence[_Network]) -> list[float]:
    """Median seconds of each."""
    times: list[list[float]] = [[] for _ in networks]
    for _ in range(_TURNS):
        for taken, network in zip(times, networks, strict=True):
            taken.append(network.seconds())
    return [statistics.median(taken) for taken in times]
