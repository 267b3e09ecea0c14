"""``tilewright doctor``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.doctor.diagnosis import Diagnosis, diagnose
from tilewright.driver.report import print_json, print_table, print_text
from tilewright.relay.frontend.door import import_model
from tilewright.report.doctor import HEADINGS, cells, write_page


def examine(
    model: Path, shapes: dict[str, tuple[Any, ...]] | None, target: str, counts: Sequence[int], html: Path | None,
    most: int, alternatives: bool, search: int, processor: bool, as_json: bool,
) -> None:  # fmt: skip
    """Measure the kernels of a model and print where they lose time."""
    mod, params = import_model(str(model), shape=shapes)
    diagnosis = diagnose(mod, params, target, counts, alternatives, processor=processor, search=search)
    if html is not None:
        write_page(html, f"{model.name}: where time is lost", diagnosis, counts)
    if as_json:
        print_json({"model": str(model), "kernels": kernels_as_json(diagnosis)})
        return
    for count in counts:
        total, lost = diagnosis.total(count), diagnosis.lost(count)
        print_text(f"{count} threads: kernels take {total * 1e3:.3f} ms, {lost * 1e3:.3f} ms beyond the least")
    print_table(HEADINGS, [cells(f) for f in diagnosis.findings[:most]])


def kernels_as_json(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Return what is said of each kernel, as ``json.dump`` takes it."""
    return [
        {
            "node": f.node, "threads": f.threads, "ms": f.seconds * 1e3, "least_ms": f.least * 1e3,
            "lost_ms": f.lost * 1e3, "bound": f.bound, "reason": f.reason, "sources": list(f.sources),
            "operators": f.kernel.operators if f.kernel else "", "shape": f.kernel.shape if f.kernel else "",
            "alternative": None if f.alternative is None else
                {"way": f.alternative[0], "ms": f.alternative[1] * 1e3},
        }
        for f in diagnosis.findings
    ]  # fmt: skip
