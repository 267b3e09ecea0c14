"""The passes of a build: how long each took, and what it changed in the module's text."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.ir.instrument import PassInstrument
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassInfo

_CONTEXT = 3  # lines around a change
_EXACT_LINES = 400  # up to which every line counts as an anchor; longer texts leave frequent lines out
_MOST_LINES = 400  # of the changes of one pass that are kept
_NUMBER = re.compile(r"%\d+")


@dataclass(frozen=True)
class PassRecord:
    """A pass that ran: its name, seconds, lines added and removed, and the changes.

    ``hunks`` are lists of lines, each with its sign before it: " ", "-" or "+". ``dropped`` lines of changes are left
    out. ``depth`` is the number of passes around it. ``unread``: texts were not compared, so it may have changed some.
    """

    name: str
    seconds: float
    added: int = 0
    removed: int = 0
    hunks: tuple[tuple[str, ...], ...] = ()
    dropped: int = 0
    depth: int = 0
    unread: bool = False


class PassRecorder(PassInstrument):
    """Records each pass of a build, with the difference of the module's text where the pass returns another module.

    ``spent`` are the processor's seconds that recording takes; ``limit`` bounds them: later passes are unread.
    """

    def __init__(self, limit: float = 1.0) -> None:
        self.records: list[PassRecord] = []
        self.limit, self.spent = limit, 0.0
        self._waited = 0.0  # of the passes' time, what recording took
        self._open: list[tuple[IRModule, float, float, int]] = []
        self._known: tuple[IRModule | None, list[str]] = None, []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Note the module and the time."""
        self._open.append((mod, time.perf_counter(), self._waited, len(self.records)))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Record the pass; one with passes of its own is their heading, and has no changes of its own."""
        before, start, waited, inner = self._open.pop()
        now, busy = time.perf_counter(), time.thread_time()
        seconds = now - start - (self._waited - waited)
        differs = mod is not before and len(self.records) == inner
        record = PassRecord(info.name, seconds, depth=len(self._open), unread=differs)
        if differs and self.spent < self.limit:
            hunks, added, removed = changes(self._text(before), self._text(mod))
            kept, dropped = _first(hunks, _MOST_LINES)
            record = replace(record, added=added, removed=removed, hunks=kept, dropped=dropped, unread=False)
        self.records.insert(inner, record)
        self.spent += time.thread_time() - busy
        self._waited += time.perf_counter() - now

    def _text(self, mod: IRModule) -> list[str]:
        if self._known[0] is not mod:
            self._known = mod, mod.astext(show_meta_data=False).splitlines()
        return self._known[1]


def changes(old: Sequence[str], new: Sequence[str]) -> tuple[tuple[tuple[str, ...], ...], int, int]:
    """Return the hunks between two texts, and how many lines are added and removed.

    Lines that differ in the numbers of values alone (``%12``) count as equal: a line that comes or goes renumbers all
    below it.
    """
    before, after = ([_NUMBER.sub("%", line) for line in text] for text in (old, new))
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    head, tail = max(0, head - _CONTEXT), max(0, tail - _CONTEXT)
    a, b = before[head : len(before) - tail], after[head : len(after) - tail]
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=max(len(a), len(b)) > _EXACT_LINES)
    hunks, added, removed = [], 0, 0
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        if all(tag == "equal" for tag, *_ in group):
            continue
        hunk = tuple(_signed(group, old[head:], new[head:]))
        added += sum(line[0] == "+" for line in hunk)
        removed += sum(line[0] == "-" for line in hunk)
        hunks.append(hunk)
    return tuple(hunks), added, removed


def _signed(group: Sequence[tuple[str, int, int, int, int]], old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    for tag, i, i_end, j, j_end in group:
        if tag == "equal":
            yield from (f" {line}" for line in new[j:j_end])
        else:
            yield from (f"-{line}" for line in old[i:i_end])
            yield from (f"+{line}" for line in new[j:j_end])


def _first(hunks: Sequence[tuple[str, ...]], most: int) -> tuple[tuple[tuple[str, ...], ...], int]:
    """Return the hunks up to ``most`` lines, and how many lines are left out."""
    kept, left = [], most
    for hunk in hunks:
        if left > 0:
            kept.append(hunk[:left])
        left -= len(hunk)
    return tuple(kept), max(0, -left)
