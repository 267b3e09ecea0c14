"""The tuned network against the untuned, as a whole: records that make it slower, or wrong, are dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.autotvm.history import ApplyHistoryBest
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay.build_module import build
from tilewright.target.target import Target
from tilewright.tuning.network import Record
from tilewright.tuning.places import Place, here
from tilewright.tuning.processes.networks import NetworkRun

_TOLERANCE = 5e-3  # of the largest value of an output: other orders of sums, other tiles of Winograd's method


@dataclass(frozen=True)
class Comparison:
    """Median seconds of both networks, and the records kept. ``dropped`` has the reasons for the others."""

    untuned: float
    tuned: float
    records: list[Record]
    dropped: list[str]


def compare_best(
    mod: IRModule,
    params: Mapping[str, Any],
    target: Target,
    choices: Sequence[Sequence[tuple[Record, float]]],
    place: Place = here,
) -> Comparison:
    """Compare several choices of records; return the one by which the network gains most."""
    found = [compare(mod, params, target, records, place) for records in choices]
    return min(found, key=lambda c: c.tuned / c.untuned)


def compare(
    mod: IRModule,
    params: Mapping[str, Any],
    target: Target,
    records: Sequence[tuple[Record, float]],
    place: Place = here,
) -> Comparison:
    """Build both networks, run them in turns at ``place``, and drop records until the tuned one is not slower.

    ``records`` come with the seconds that the network gains by each, as measured alone; those that gain least go first.
    """
    plain = _built(mod, params, target, [])
    kept = [record for record, _ in sorted(records, key=lambda item: -item[1])]
    dropped: list[str] = []
    while kept:
        untuned, tuned = place([plain, _built(mod, params, target, kept)])
        difference = _difference(untuned, tuned)
        if difference <= _TOLERANCE and tuned.seconds <= untuned.seconds:
            return Comparison(untuned.seconds, tuned.seconds, kept, dropped)
        why = f"outputs differ by {difference:.1e}" if difference > _TOLERANCE else "the network was slower with it"
        half = len(kept) // 2
        dropped += [f"{inp.task.name} {inp.task.args}: {why}" for inp, _ in kept[half:]]
        kept = kept[:half]
    (untuned,) = place([plain])
    return Comparison(untuned.seconds, untuned.seconds, [], dropped)


def _built(mod: IRModule, params: Mapping[str, Any], target: Target, records: Sequence[Record]) -> Any:
    """A network that is built with some records."""
    with ApplyHistoryBest(list(records), silent=True), PassContext(opt_level=3):
        return build(mod, target=target, params=params)


def _difference(one: NetworkRun, other: NetworkRun) -> float:
    """The largest difference of outputs, relative to the largest value of each."""
    worst = 0.0
    for mine, yours in zip(one.outputs, other.outputs, strict=True):
        scale = max(float(np.abs(mine).max(initial=0)), 1e-30)
        gap = np.abs(mine.astype("float64") - yours)
        worst = max(worst, float(np.where(np.isnan(mine) & np.isnan(yours), 0, gap).max(initial=0)) / scale)
    return worst if worst == worst else float("inf")
