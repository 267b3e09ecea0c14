"""Traces of a run for Perfetto (ui.perfetto.dev) and chrome://tracing, in the Trace Event Format.

Google, "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.runtime.partial_files import write_whole

_PREFIX = "tvmgen_default_"


def trace_events(
    name: str, times: Sequence[tuple[str, float]], sources: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """Return the events of one run: its kernels one after the other, each as long as in the mean.

    Args:
        name: of the model.
        times: names of nodes and their seconds, in the order in which they run.
        sources: by node the names of the model's nodes that it computes.
    """
    at = 0.0
    events: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": name}}]
    events.append({"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "kernels, mean of all runs"}})
    for node, seconds in times:
        events.append({
            "name": node.removeprefix(_PREFIX), "cat": "kernel", "ph": "X", "pid": 1, "tid": 1, "ts": 1e6 * at,
            "dur": 1e6 * seconds, "args": {"nodes of the model": ", ".join(sources.get(node, ()))},
        })  # fmt: skip
        at += seconds
    return events


def write_trace(
    path: Path, name: str, times: Sequence[tuple[str, float]], sources: Mapping[str, Sequence[str]]
) -> None:
    """Write the events of :func:`trace_events` to a file; it appears whole or not at all."""
    document = {"traceEvents": trace_events(name, times, sources), "displayTimeUnit": "ms"}
    write_whole(path, json.dumps(document, indent=1))
