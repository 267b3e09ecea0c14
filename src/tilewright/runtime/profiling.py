"""Result of a profiling run: the calls of a program with their times, as table, CSV or JSON (TVM 0.8's ``Report``)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Value = str | int | float
_UNITS = {"Duration (us)": "microseconds", "Percent": "percent", "Count": "count"}
_FIRST = ("Name", "Duration (us)", "Percent", "Device", "Count")
_SUMMED = ("Duration (us)", "Percent", "Count")
_IDENTITY = ("Name", "Device", "Hash", "Argument Shapes", "Sources")


@dataclass(frozen=True)
class Report:
    """Times of a run.

    Attributes:
        calls: what was called, in order. Each has "Name", "Duration (us)", "Percent" (of the run's time), "Count" and
            "Device", and may have more, such as "Argument Shapes" and "Sources": the model's nodes that it computes.
        device_metrics: for each device by name the "Duration (us)" and "Percent" of the whole run there.

    ``str(report)`` is ``report.table()``.
    """

    calls: tuple[Mapping[str, Value], ...]
    device_metrics: Mapping[str, Mapping[str, Value]]

    def __str__(self) -> str:
        return self.table()

    def table(self, sort: bool = True, aggregate: bool = True, col_sums: bool = True) -> str:
        """Return a table for people.

        Args:
            sort: whether the longest call comes first, instead of the order of the calls.
            aggregate: whether calls of one function on arguments of the same shapes are one row.
            col_sums: whether sums of the columns and the time of the whole run are added.
        """
        rows = [dict(call) for call in self.calls]
        if aggregate:
            rows = _aggregated(rows)
        if sort:
            rows.sort(key=lambda row: -float(row.get("Duration (us)", 0)))
        totals: list[Mapping[str, Value]] = []
        if col_sums:
            sums = {key: sum(row[key] for row in rows if key in row) for key in _SUMMED}  # type: ignore[misc]
            totals.append({"Name": "Sum", **sums})
            totals += [{"Name": "Total", "Device": name, **found} for name, found in self.device_metrics.items()]
        return _text(_columns([*rows, *totals]), rows, totals)

    def csv(self) -> str:
        """Return the calls as comma-separated values under a line of the columns' names."""
        import csv

        columns = _columns(self.calls)
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.calls)
        return text.getvalue()

    def json(self) -> str:
        """Return all as JSON, each value with its unit: ``{"Duration (us)": {"microseconds": 12.3}, ...}``."""
        calls = [_with_units(call) for call in self.calls]
        devices = {name: _with_units(found) for name, found in self.device_metrics.items()}
        return json.dumps({"calls": calls, "device_metrics": devices})

    @classmethod
    def from_json(cls, s: str) -> Report:
        """Return the report that :meth:`json` wrote."""
        document = json.loads(s)
        devices = {name: _without_units(found) for name, found in document["device_metrics"].items()}
        return cls(tuple(_without_units(call) for call in document["calls"]), devices)


def _aggregated(calls: Iterable[Mapping[str, Value]]) -> list[dict[str, Value]]:
    rows: dict[tuple[Any, ...], dict[str, Value]] = {}
    for call in calls:
        key = tuple(call.get(name) for name in _IDENTITY)
        if key in rows:
            rows[key] |= {name: rows[key][name] + call[name] for name in _SUMMED}  # type: ignore[operator]
        else:
            rows[key] = dict(call)
    return list(rows.values())


def _columns(rows: Iterable[Mapping[str, Value]]) -> list[str]:
    """The names in all rows: those that every report has first, the others in alphabetical order."""
    names = {name for row in rows for name in row}
    return [*(name for name in _FIRST if name in names), *sorted(names - set(_FIRST))]


def _text(columns: Sequence[str], *groups: Sequence[Mapping[str, Value]]) -> str:
    """Aligned columns, numbers to the right; a rule between groups of rows."""
    blocks = [[[_shown(row.get(name, "")) for name in columns] for row in group] for group in groups]
    lines = [list(columns), *(cells for block in blocks for cells in block)]
    widths = [max(len(cells[i]) for cells in lines) for i in range(len(columns))]
    right = [name in _SUMMED for name in columns]
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))

    def line(cells: Sequence[str]) -> str:
        padded = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    text = [line(columns)]
    for block in blocks:
        text += [rule, *map(line, block)] if block else []
    return "\n".join(text) + "\n"


def _shown(value: Value) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def _with_units(row: Mapping[str, Value]) -> dict[str, dict[str, Value]]:
    return {name: {_UNITS.get(name, "string"): value} for name, value in row.items()}


def _without_units(row: Mapping[str, Mapping[str, Value]]) -> dict[str, Value]:
    return {name: next(iter(found.values())) for name, found in row.items()}
