"""Features of many configurations of a task at once.

Loops' numbers are products of lengths, each of which one choice decides, so their logarithms are sums over choices.
A configuration's features are then those of a base configuration and, for each choice, what its value changes: a
program is lowered for every value of every choice, not for every configuration. Choices that change how many loops
there are get a base for each of their values; those that a base never asks for, being of another algorithm, change
nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.autotvm.task.space import ConfigEntity
from tilewright.autotvm.task.task import Task
from tilewright.ir.errors import TilewrightError
from tilewright.target.features import core_count
from tilewright.tuning.processes import Pool, fork_worker
from tilewright.tuning.tuner import feature
from tilewright.tuning.tuner.points import knob2point, point2knob, points_to_knobs

KINDS = ("itervar", "knob", "curve")
_MOST_BASES = 16
_TIMEOUT = 60.0


def knob_values(task: Task) -> list[np.ndarray]:
    """Return a matrix for each choice: a row of numbers for each of its values."""
    assert task.config_space is not None
    tables = []
    for name, space in task.config_space.space_map.items():
        rows = [ConfigEntity(None, None, _only(name, e)).get_flatten_feature() for e in space.entities]
        if len({len(row) for row in rows}) != 1 or not rows[0]:
            rows = [[float(i)] for i in range(len(rows))]
        positive = [[math.log2(1 + v) if v > 0 else v for v in row] for row in rows]
        tables.append(np.array(positive, np.float32))
    return tables


def _only(name: str, entity: Any) -> Any:
    return {name: entity}


def exact_features(task: Task, config: Any, kind: str) -> list[float] | None:
    """Return the features of the loops of one configuration; None if it cannot be lowered."""
    assert task.target is not None
    try:
        with task.target:
            schedule, arguments = task.instantiate(config)
            if not config.valid():
                return None
            if kind == "curve":
                return feature.get_buffer_curve_sample_flatten(schedule, arguments, 20).tolist()
            return feature.get_itervar_feature_flatten(schedule, arguments, take_log=True).tolist()
    except (TilewrightError, RuntimeError, ValueError, ArithmeticError):
        return None


class TaskFeatures:
    """Features of a task's configurations, by configuration number.

    ``kind``: "knob", the choices' values; "itervar" and "curve" (``autotvm.feature``), and these values beside them.
    """

    def __init__(self, task: Task, kind: str) -> None:
        if kind not in KINDS:
            raise ValueError(f"feature_type is one of {', '.join(KINDS)}, found {kind!r}")
        assert task.config_space is not None
        self.task, self.kind = task, kind
        self.dims = task.config_space.dims
        self.lowered = 0
        self._knobs = knob_values(task)
        self._sums: _Sums | None = None

    def __call__(self, points: Sequence[int] | np.ndarray) -> np.ndarray:
        """A row of features for each configuration."""
        knobs = points_to_knobs(np.asarray(points), self.dims)
        parts = [table[knobs[:, i]] for i, table in enumerate(self._knobs)]
        if self.kind != "knob":
            if self._sums is None:
                self._sums = _Sums(self.task, self.kind)
                self.lowered = self._sums.lowered
            parts.append(self._sums(knobs))
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(knobs), 1), np.float32)


class _Sums:
    """Loops' features as sums: see the head of this file."""

    def __init__(self, task: Task, kind: str) -> None:
        assert task.config_space is not None
        self.dims = task.config_space.dims
        self.task, self.kind = task, kind
        self.lowered = 0
        self._names = list(task.config_space.space_map)
        self._known: dict[tuple[int, ...], np.ndarray | None] = {}
        self._asked: dict[tuple[int, ...], frozenset[str]] = {}
        self._pool = Pool(lambda: fork_worker(self._work), core_count(), _TIMEOUT)
        try:
            self._learn()
        finally:
            self._pool.close()

    def _work(self, point: int) -> tuple[list[float] | None, list[str]]:
        assert self.task.config_space is not None
        config = self.task.config_space.get(point)
        return exact_features(self.task, config, self.kind), list(config.asked)

    def _lower(self, rows: Sequence[tuple[int, ...]]) -> None:
        """Features of configurations, in several processes."""
        new = list(dict.fromkeys(row for row in rows if row not in self._known))
        outcomes = self._pool.map([knob2point(row, self.dims) for row in new])
        for row, outcome in zip(new, outcomes, strict=True):
            value, asked = outcome.value if outcome.status == "done" else (None, self._names)
            self._known[row] = None if value is None else np.array(value, np.float32)
            self._asked[row] = frozenset(asked)
        self.lowered += len(new)

    def _around(self, base: tuple[int, ...], without: Sequence[int] = ()) -> list[tuple[int, ...]]:
        """Return the configurations that differ in one choice that ``base`` uses."""
        asked = self._asked.get(base, frozenset(self._names))
        places = [k for k, name in enumerate(self._names) if name in asked and k not in without]
        return [_changed(base, k, v) for k in places for v in range(self.dims[k])]

    def _without_what_is_not_asked(self, row: tuple[int, ...], base: tuple[int, ...]) -> tuple[int, ...]:
        """Return the same program as a configuration that differs from ``base`` only in choices that it uses."""
        asked = self._asked[row]
        return tuple(v if name in asked else b for v, b, name in zip(row, base, self._names, strict=True))

    def _learn(self) -> None:
        base = self._find_base()
        self._lower(self._around(base))
        length = len(self._feature(base))
        self.structural = [
            k
            for k, dim in enumerate(self.dims)
            if any(len(f) != length for v in range(dim) if len(f := self._feature(_changed(base, k, v))))
        ]
        while math.prod(self.dims[k] for k in self.structural) > _MOST_BASES:
            self.structural.pop()
        bases = [_merged(base, self.structural, values) for values in self._structures()]
        self._lower(bases)
        bases = [self._without_what_is_not_asked(b, base) for b in bases]
        self._lower(bases)
        self._lower([row for b in bases for row in self._around(b, self.structural)])
        self.width = max(length, *(len(self._feature(b)) for b in bases))
        self.bases = np.stack([self._padded(b) for b in bases])
        self.changes = [
            np.stack([[self._change(b, k, v) for v in range(dim)] for b in bases]) for k, dim in enumerate(self.dims)
        ]

    def _structures(self) -> list[tuple[int, ...]]:
        """The values of the structural choices, the last fastest."""
        return list(itertools.product(*(range(self.dims[k]) for k in self.structural)))

    def _find_base(self) -> tuple[int, ...]:
        """A configuration that can be lowered, one of the middle if that can be."""
        size = math.prod(self.dims)
        for point in [knob2point([d // 2 for d in self.dims], self.dims), *range(0, size, max(1, size // 20))]:
            row = tuple(point2knob(point, self.dims))
            self._lower([row])
            if self._known[row] is not None:
                return row
        self._known[row] = np.zeros(1, np.float32)
        return row

    def _feature(self, row: tuple[int, ...]) -> np.ndarray:
        found = self._known.get(row)
        return np.zeros(0, np.float32) if found is None else found

    def _padded(self, row: tuple[int, ...]) -> np.ndarray:
        padded = np.zeros(self.width, np.float32)
        found = self._feature(row)[: self.width]
        padded[: len(found)] = found
        return padded

    def _change(self, base: tuple[int, ...], k: int, v: int) -> np.ndarray:
        """Return the effect of value ``v`` of choice ``k``; empty when it is unknown."""
        changed = _changed(base, k, v)
        if k in self.structural or len(self._feature(changed)) != len(self._feature(base)):
            return np.zeros(self.width, np.float32)
        return self._padded(changed) - self._padded(base)

    def __call__(self, knobs: np.ndarray) -> np.ndarray:
        """A row of features for each row of values."""
        which = np.zeros(len(knobs), np.int64)
        for k in self.structural:
            which = which * self.dims[k] + knobs[:, k]
        found = self.bases[which]
        for k, change in enumerate(self.changes):
            if k not in self.structural:
                found = found + change[which, knobs[:, k]]
        return found


def _changed(row: tuple[int, ...], k: int, value: int) -> tuple[int, ...]:
    return (*row[:k], value, *row[k + 1 :])


def _merged(row: tuple[int, ...], places: Sequence[int], values: Sequence[int]) -> tuple[int, ...]:
    new = list(row)
    for k, value in zip(places, values, strict=True):
        new[k] = value
    return tuple(new)
