"""A page of what ``tilewright doctor`` found: one HTML file with nothing beside it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from tilewright.doctor.diagnosis import Diagnosis, Finding
from tilewright.tuning.report import write_html

_STYLE = (
    "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:.3em .8em;text-align:left}"
    "td.n{text-align:right}tr:nth-child(even){background:#f4f4f4}.bar{background:#06c;height:.7em}"
)
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
    parts = []
    for count in counts:
        total, lost = diagnosis.total(count), diagnosis.lost(count)
        parts.append(
            f"<p>{count} threads: kernels take {total * 1e3:.3f} ms, {lost * 1e3:.3f} ms beyond the least.</p>"
        )
    most = max((f.lost for f in diagnosis.findings), default=0.0) or 1.0
    head = "".join(f"<th>{name}</th>" for name in ("", *HEADINGS))
    rows = []
    for finding in diagnosis.findings:
        bar = f'<td><div class=bar style="width:{100 * finding.lost / most:.0f}px"></div></td>'
        columns = enumerate(cells(finding))
        rows.append(bar + "".join(f"<td{' class=n' if i < 4 else ''}>{html.escape(cell)}</td>" for i, cell in columns))
    parts.append(f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>")
    write_html(path, title, _STYLE, parts)
