"""Failures in tuning a task, by kind; the first of each kind is reported in full."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable

from tilewright.autotvm.measurement import MeasureErrorNo, MeasureInput, MeasureResult
from tilewright.ir.errors import TilewrightError

logger = logging.getLogger("autotvm")

ALL_FAIL = 32  # trials; where as many fail and none does not, something else than the configurations is wrong
_SHOWN = 200  # lines of a program
_WORDS = {
    MeasureErrorNo.INSTANTIATION_ERROR: "refused by the template",
    MeasureErrorNo.COMPILE_HOST: "not compiled",
    MeasureErrorNo.COMPILE_DEVICE: "not compiled for the device",
    MeasureErrorNo.RUNTIME_DEVICE: "failed when run",
    MeasureErrorNo.WRONG_ANSWER: "wrong results",
    MeasureErrorNo.BUILD_TIMEOUT: "built too long",
    MeasureErrorNo.RUN_TIMEOUT: "ran too long",
    MeasureErrorNo.UNKNOWN_ERROR: "unknown error",
}


class NothingWorks(TilewrightError):
    """All of the first trials of a task failed."""


def kind_of(result: MeasureResult) -> str:
    """Return the kind of a failure: its error, and its message without numbers."""
    number = MeasureErrorNo(result.error_no)
    message = str(result.costs[0]) if result.costs else ""
    first = re.sub(r"\d+", "#", message.strip().splitlines()[0] if message.strip() else "")
    return f"{_WORDS.get(number, number.name)}: {first[:80]}"


class Failures:
    """Counts failures by kind. ``describe`` returns the program of an input."""

    def __init__(self, describe: Callable[[MeasureInput], str] | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self.trials = self.failed = 0
        self._describe = describe

    def add(self, inp: MeasureInput, result: MeasureResult) -> str | None:
        """Note a trial. Returns the whole story of a failure that is the first of its kind."""
        self.trials += 1
        if result.error_no == MeasureErrorNo.NO_ERROR:
            return None
        self.failed += 1
        kind = kind_of(result)
        self.counts[kind] += 1
        if kind in self.first:
            return None
        self.first[kind] = story = self._story(kind, inp, result)
        logger.info("%s", story)
        return story

    def _story(self, kind: str, inp: MeasureInput, result: MeasureResult) -> str:
        error = result.costs[0] if result.costs else ""
        parts = [f"first failure of the kind {kind!r}", f"task {inp.task.name} {inp.task.args}", f"choice {inp.config}"]
        parts += [str(error), str(getattr(error, "traceback", "")).strip()]
        if self._describe is not None:
            lines = self._describe(inp).splitlines()
            more = [f"... {len(lines) - _SHOWN} lines more"] if len(lines) > _SHOWN else []
            parts.append("\n".join([*lines[:_SHOWN], *more]))
        return "\n".join(p for p in parts if p)

    def check(self) -> None:
        """Raises NothingWorks when the first trials all failed."""
        if self.failed == self.trials >= ALL_FAIL:
            stories = "\n\n".join(self.first.values())
            raise NothingWorks(f"all of the first {self.trials} trials failed: {self.summary()}\n\n{stories}")

    def summary(self) -> str:
        """The counts on one line."""
        return ", ".join(f"{count} {kind}" for kind, count in self.counts.most_common())
