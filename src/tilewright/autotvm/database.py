"""Databases of measurement results by input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.autotvm.lines import decode, encode, measure_str_key
from tilewright.autotvm.measurement import MeasureInput, MeasureResult


class Database:
    """Base of databases."""

    def load(self, inp: MeasureInput, get_all: bool = False) -> Any:
        """Return the latest result of an input, or all of them; None when there is none."""
        raise NotImplementedError

    def save(self, inp: MeasureInput, res: MeasureResult, extend: bool = False) -> None:
        """Store a result, replacing earlier ones or (``extend``) in addition."""
        raise NotImplementedError


class DummyDatabase(Database):
    """A database in memory."""

    def __init__(self) -> None:
        self.db: dict[str, list[str]] = {}

    def load(self, inp: MeasureInput, get_all: bool = False) -> Any:
        """Return the latest result of an input, or all of them; None when there is none."""
        lines = self.db.get(measure_str_key(inp))
        if lines is None:
            return None
        results = [found[1] for line in lines if (found := decode(line)) is not None]
        return results if get_all else max(results, key=lambda r: r.timestamp)

    def save(self, inp: MeasureInput, res: MeasureResult, extend: bool = False) -> None:
        """Keep a result."""
        key = measure_str_key(inp)
        self.db[key] = [*(self.db.get(key, []) if extend else []), encode(inp, res)]

    def filter(self, func: Callable[[MeasureInput, Sequence[MeasureResult]], bool]) -> list[Any]:
        """Return (input, latest result) pairs for which ``func(input, results)`` is true."""
        found = []
        for lines in self.db.values():
            records = [r for line in lines if (r := decode(line)) is not None]
            inp, results = records[0][0], [result for _, result in records]
            if func(inp, results):
                found.append((inp, max(results, key=lambda r: r.timestamp)))
        return found

    def flush(self) -> None:
        """Forget all records."""
        self.db = {}


def filter_inputs(
    db: Database, measure_inputs: Sequence[MeasureInput], retry: bool = False
) -> tuple[list[MeasureResult | None], list[MeasureInput]]:
    """The saved result of each input (None without one), and the inputs to measure.

    ``retry``: failures are measured again.
    """
    results: list[MeasureResult | None] = []
    unsaved = []
    for inp in measure_inputs:
        found = db.load(inp)
        if found is None or (retry and found.error_no != 0):
            unsaved.append(inp)
            found = None
        results.append(found)
    return results, unsaved
