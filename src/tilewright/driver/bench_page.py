"""The page of ``tilewright bench --report``: a compiled model with the times of its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.doctor import peak
from tilewright.driver.board import Here
from tilewright.driver.compile import model_page
from tilewright.driver.library import Library
from tilewright.report.model import Measured, ModelPage

_LIMIT_SECONDS = 0.02  # of a measured run of a loop that shows a limit


def write_bench_page(
    path: Path, library: Library, times: Mapping[str, float], threads: int, rows: Sequence[tuple[str, str]]
) -> None:
    """Write the page; a model that was compiled for this has its kernels, passes and code in it, a library its graph.

    Args:
        path: the file.
        library: what was measured.
        times: seconds of each node of its graph.
        threads: that the run had.
        rows: names and values of the measurement.
    """
    here = type(library.place) is Here
    compiled = library.compiled
    if compiled is None:
        page = ModelPage(library.path.name)
        if library.graph is not None:
            page.add_graph(library.graph, Measured(times, threads))
    else:
        machine = peak.measure((threads,), _LIMIT_SECONDS) if here else None
        page = model_page(compiled, Measured(times, threads, machine))
    page.summary[:0] = rows
    page.write(path)
