"""The tuned network against the untuned, as a whole: records that make it slower, or wrong, are dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.autotvm.utils import mean
from tilewright.tuning.extraction import UntunedNetwork
from tilewright.tuning.layouts import choose_layouts
from tilewright.tuning.network import Record, TaskState
from tilewright.tuning.places import Place, here
from tilewright.tuning.processes.networks import NetworkRun

_TOLERANCE = 5e-3  # of the largest value of an output: other orders of sums, other tiles of Winograd's method


Build = Callable[[Sequence[Record]], Any]


@dataclass(frozen=True)
class Comparison:
    """Median seconds of both networks, and the records kept. ``dropped`` has the reasons for the others."""

    untuned: float
    tuned: float
    records: list[Record]
    dropped: list[str]


def compare_tuned(
    network: UntunedNetwork, states: Sequence[TaskState], place: Place = here, choose_together: bool = True
) -> Comparison:
    """Compare the network that is built with the records of tasks with the untuned one; drop records that do not help.

    Parameters
    ----------
    place : where both networks run, in turns
    choose_together : whether layouts are chosen together, too; conversions between them are measured on this machine

    Returns
    -------
    The comparison of the records that are fastest together, or of the fastest of each task: the one that gains more.
    """
    alone = [state.record for state in states]
    choices = [alone]
    if choose_together:
        layouts = choose_layouts(network.main, network.target, states)
        together = [layouts.get(i, record) for i, record in enumerate(alone)]
        choices = [together, alone] if together != alone else [alone]
    found = [compare(network.library, _gains(records, states), network.build, place) for records in choices]
    return min(found, key=lambda c: c.tuned / c.untuned)


def _gains(records: Sequence[Record | None], states: Sequence[TaskState]) -> list[tuple[Record, float]]:
    """Return the records, and what the network gains by each in seconds."""
    return [(r, s.uses * (s.untuned - mean(r[1].costs))) for r, s in zip(records, states, strict=True) if r is not None]


def compare(
    untuned_library: Any, records: Sequence[tuple[Record, float]], build: Build, place: Place = here
) -> Comparison:
    """Run both networks in turns at ``place``, and drop records until the tuned one is not slower.

    ``records`` come with the seconds that the network gains by each, as measured alone; those that gain least go first.
    """
    kept = [record for record, _ in sorted(records, key=lambda item: -item[1])]
    dropped: list[str] = []
    while kept:
        untuned, tuned = place([untuned_library, build(kept)])
        difference = _difference(untuned, tuned)
        if difference <= _TOLERANCE and tuned.seconds <= untuned.seconds:
            return Comparison(untuned.seconds, tuned.seconds, kept, dropped)
        why = f"outputs differ by {difference:.1e}" if difference > _TOLERANCE else "the network was slower with it"
        half = len(kept) // 2
        dropped += [f"{inp.task.name} {inp.task.args}: {why}" for inp, _ in kept[half:]]
        kept = kept[:half]
    (untuned,) = place([untuned_library])
    return Comparison(untuned.seconds, untuned.seconds, [], dropped)


def _difference(one: NetworkRun, other: NetworkRun) -> float:
    """The largest difference of outputs, relative to the largest value of each."""
    worst = 0.0
    for mine, yours in zip(one.outputs, other.outputs, strict=True):
        scale = max(float(np.abs(mine).max(initial=0)), 1e-30)
        gap = np.abs(mine.astype("float64") - yours)
        worst = max(worst, float(np.where(np.isnan(mine) & np.isnan(yours), 0, gap).max(initial=0)) / scale)
    return worst if worst == worst else float("inf")
