"""The page about a run of tuning: its tasks, and the best time over trials."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilewright.autotvm.task.task import task_in_words
from tilewright.autotvm.utils import mean
from tilewright.relay.backend.kernel_task import TEMPLATE
from tilewright.report.page import Section, escape, table, write_page
from tilewright.tuning.compare import Comparison
from tilewright.tuning.network import TaskState, own_share

_WIDTH, _HEIGHT = 360, 90


def write_report(path: Path, title: str, states: Sequence[TaskState], comparison: Comparison | None) -> None:
    """Write the page, which appears whole or not at all."""
    sections = [Section("tasks", "Tasks", _table(states))]
    curves = "".join(f"<h3>{escape(name_of(s))}</h3>{_curve(s)}" for s in states if s.trials)
    note = "<p>The best time so far (ms), over trials; dashed: the untuned choice.</p>"
    sections.append(Section("curves", "Curves", note + curves))
    stories = [story for s in states for story in s.tuner.failures.first.values()]
    if stories:
        shown = "".join(f"<pre>{escape(story)}</pre>" for story in stories)
        sections.append(Section("failures", "Failures", f"<p>The first of each kind.</p>{shown}"))
    write_page(path, title, sections, _summary(states, comparison))


def name_of(state: TaskState) -> str:
    """A task in a few words: its template, or the operators of a kernel, and the shapes of its tensors."""
    words = task_in_words(state.task.name, state.task.args)
    return words if state.task.name == TEMPLATE else f"{state.task.name.removesuffix('.x86')} {words}"


def _summary(states: Sequence[TaskState], comparison: Comparison | None) -> list[str]:
    trials = sum(len(s.trials) for s in states)
    lines = [f"{trials} trials of {len(states)} tasks; the tuners' own time was {own_share(states):.0%} of the whole."]
    if comparison is not None:
        lines.append(
            f"The network: {comparison.untuned * 1e3:.3f} ms untuned, {comparison.tuned * 1e3:.3f} ms tuned "
            f"({comparison.untuned / comparison.tuned:.2f} times as fast), with {len(comparison.records)} records."
        )
        lines += [f"Dropped: {why}" for why in comparison.dropped]
    return lines


def _table(states: Sequence[TaskState]) -> str:
    heads = ("task", "uses", "untuned (ms)", "tuned (ms)", "gain", "of roofline", "trials", "failed", "")
    rows = []
    for s in states:
        tuned = mean(s.record[1].costs) if s.record is not None else s.untuned
        rows.append((
            name_of(s), s.uses, f"{s.untuned * 1e3:.4f}", f"{tuned * 1e3:.4f}", f"{s.untuned / tuned:.2f}",
            f"{s.least / tuned:.0%}" if s.least else "", len(s.trials), s.tuner.failures.failed, s.note.split("\n")[0],
        ))  # fmt: skip
    return table(heads, rows, numbers=lambda column: 0 < column < 8)


def _curve(state: TaskState) -> str:
    """The best time so far over trials, as a picture."""
    best, times = float("inf"), []
    for _, result in state.trials:
        best = min(best, mean(result.costs) if result.error_no == 0 else best)
        times.append(best)
    known = [t for t in times if t < float("inf")]
    if not known:
        return "<p>no trial succeeded</p>"
    top = max([*known, state.untuned if state.untuned < float("inf") else 0.0])
    points = " ".join(
        f"{i * _WIDTH / max(len(times) - 1, 1):.1f},{_HEIGHT * (1 - t / top):.1f}"
        for i, t in enumerate(times)
        if t < float("inf")
    )
    line = _HEIGHT * (1 - state.untuned / top) if state.untuned < float("inf") else 0.0
    return (
        f'<svg class="plot" width="{_WIDTH}" height="{_HEIGHT}"><line x1="0" x2="{_WIDTH}" y1="{line:.1f}" '
        f'y2="{line:.1f}" stroke="#999" stroke-dasharray="4"/><polyline points="{points}" fill="none" stroke="#06c"/>'
        f"</svg>"
        f"<p>{known[-1] * 1e3:.4f} ms after {len(times)} trials</p>"
    )
