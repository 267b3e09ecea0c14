"""Callbacks of a tuner: functions of (tuner, inputs, results), called after every batch."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, TextIO

import numpy as np

from tilewright.autotvm.lines import encode
from tilewright.autotvm.measurement import MeasureInput, MeasureResult
from tilewright.autotvm.utils import format_si_prefix
from tilewright.ir import progress_bar as bars
from tilewright.tuning.tuner.tuner import Callback, Tuner, speed

logger = logging.getLogger("autotvm")


def log_to_file(file_out: str | os.PathLike[str] | TextIO, protocol: str = "json") -> Callback:
    """Append a record line of each trial to a file, passed by name or open."""

    def write(_: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        lines = "".join(encode(inp, result, protocol) + "\n" for inp, result in zip(inputs, results, strict=True))
        if isinstance(file_out, (str, os.PathLike)):
            with open(file_out, "a") as file:
                file.write(lines)
        else:
            file_out.write(lines)
            file_out.flush()

    return write


def log_to_database(db: Any) -> Callback:
    """Save each trial to a database (``autotvm.database``)."""

    def save(_: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, result in zip(inputs, results, strict=True):
            db.save(inp, result)

    return save


class Monitor:
    """Collects FLOPS and times of all trials."""

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.timestamps: list[float] = []

    def __call__(self, tuner: Tuner, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        self.scores += [speed(inp, result) for inp, result in zip(inputs, results, strict=True)]
        self.timestamps += [result.timestamp for result in results]

    def reset(self) -> None:
        """Forget all scores and times."""
        self.scores, self.timestamps = [], []

    def trial_scores(self) -> np.ndarray:
        """FLOPS of each trial; 0 of failed ones."""
        return np.array(self.scores)

    def trial_timestamps(self) -> np.ndarray:
        """Return the time of each trial."""
        return np.array(self.timestamps)


class _Progress:
    """A bar that shows the speeds of trials; it ends when it goes away."""

    def __init__(self, total: int, prefix: str, si_prefix: str) -> None:
        self._prefix, self._count = si_prefix, 0
        self._bar = None if logger.isEnabledFor(logging.DEBUG) else bars.progress_bar(prefix, total)
        self._show(0.0, 0.0)

    def __call__(self, tuner: Tuner, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        self._count += len(inputs)
        speeds = [speed(inp, result) for inp, result in zip(inputs, results, strict=True) if result.error_no == 0]
        self._show(speeds[-1] if speeds else 0.0, tuner.best_flops)

    def _show(self, current: float, best: float) -> None:
        if self._bar is not None:
            now, top = (format_si_prefix(x, self._prefix) for x in (current, best))
            self._bar.update(self._count, f"Current/Best: {now:7.2f}/{top:7.2f} {self._prefix}FLOPS")

    def __del__(self) -> None:
        bar: bars.ProgressBar | None = getattr(self, "_bar", None)
        if bar is not None:
            bar.close()


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G") -> Callback:
    """Show the last and the best speed and how many of ``total`` trials are done: a line, or in Jupyter a widget."""
    format_si_prefix(0, si_prefix)
    return _Progress(total, prefix, si_prefix)


def progress_callback(total: int, prefix: str = "", si_prefix: str = "G") -> Callback:
    """Another name of :func:`progress_bar`."""
    return progress_bar(total, prefix, si_prefix)
