"""The page of what ``tilewright doctor`` found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilewright.doctor.diagnosis import Diagnosis, Finding
from tilewright.report import page
from tilewright.report.page import Section

HEADINGS = ("threads", "lost (ms)", "takes (ms)", "of roofline", "kernel", "shapes", "why", "nodes of the model")


def cells(finding: Finding) -> tuple[str, ...]:
    """Return what is said of one kernel, under ``HEADINGS``."""
    kernel = finding.kernel
    return (
        str(finding.threads), f"{finding.lost * 1e3:.4f}", f"{finding.seconds * 1e3:.4f}", f"{finding.share:.0%}",
        kernel.operators if kernel else finding.node, kernel.shape if kernel else "", finding.reason,
        ", ".join(finding.sources),
    )  # fmt: skip


def write_page(path: Path, title: str, diagnosis: Diagnosis, counts: Sequence[int]) -> None:
    """Write the page, which appears whole or not at all."""
    lines = []
    for count in counts:
        total, lost = diagnosis.total(count), diagnosis.lost(count)
        lines.append(f"{count} threads: kernels take {total * 1e3:.3f} ms, {lost * 1e3:.3f} ms beyond the least.")
    most = max((f.lost for f in diagnosis.findings), default=0.0) or 1.0
    rows, bars = [cells(f) for f in diagnosis.findings], [f.lost / most for f in diagnosis.findings]
    kernels = page.table(HEADINGS, rows, bars, numbers=lambda column: column < 4)
    page.write_page(path, title, [Section("kernels", "Kernels", kernels)], lines)
