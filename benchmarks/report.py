"""Statistics of measured blocks, and the table and JSON made of them."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from tilewright.doctor.peak import Machine

from .flops import Work

OURS = "tilewright"
OURS_IN_FLOAT32 = "float32"  # the same network before it was quantized, for which nobody is a peer


@dataclass(frozen=True)
class Build:
    """What compiling a model took: seconds with an empty kernel cache and with a full one, peak memory, file size."""

    seconds: float
    again_seconds: float
    peak_mib: float
    library_bytes: int


@dataclass
class EngineResult:
    """What was measured of one engine on one model.

    `blocks` are the run times in seconds, a list for each block; `difference` is the largest relative
    difference from ONNX Runtime's outputs (None where ONNX Runtime was not measured); memory is the process's
    peak; `cpu` is the CPU time of each block over its wall time, below the number of threads where the engine
    idles or other programs ran beside it.
    """

    version: str
    load_seconds: float
    load_mib: float
    build: Build | None = None
    blocks: list[list[float]] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak_mib: float = 0.0
    difference: float | None = None

    @property
    def ready_seconds(self) -> float:
        """Seconds from the ONNX file to the first answer: building, where the engine does, and loading."""
        return self.load_seconds + (self.build.seconds if self.build else 0.0)

    @property
    def median(self) -> float:
        """Median run time in seconds over all blocks."""
        return float(np.median(np.concatenate([np.array(block) for block in self.blocks])))

    @property
    def block_medians(self) -> list[float]:
        """Median run time in seconds of each block."""
        return [float(np.median(block)) for block in self.blocks]

    @property
    def spread(self) -> float:
        """Median absolute deviation of the run times from their median, relative to it."""
        times = np.concatenate([np.array(block) for block in self.blocks])
        return float(np.median(np.abs(times - self.median))) / self.median


@dataclass
class ModelResult:
    """All engines on one model with one number of threads; engines that failed are in `errors` with their
    message.
    """

    model: str
    threads: int
    work: Work
    engines: dict[str, EngineResult]
    errors: dict[str, str]

    def fastest_peer(self) -> str | None:
        """The engine other than Tilewright with the lowest median."""
        peers = {name: result.median for name, result in self.engines.items() if name not in (OURS, OURS_IN_FLOAT32)}
        return min(peers, key=lambda name: peers[name]) if peers else None

    def ratio(self) -> float | None:
        """The fastest peer's median over ours: above 1 where Tilewright is faster."""
        peer = self.fastest_peer()
        if peer is None or OURS not in self.engines:
            return None
        return self.engines[peer].median / self.engines[OURS].median

    def gain_of_integers(self) -> float | None:
        """Our float32 network's median over that of the quantized one, where both were measured."""
        if OURS not in self.engines or OURS_IN_FLOAT32 not in self.engines:
            return None
        return self.engines[OURS_IN_FLOAT32].median / self.engines[OURS].median

    def ratio_in_turns(self) -> float | None:
        """The median over the turns of the then fastest peer's median over ours.

        Where the machine gets slower or faster between turns, engines of one turn still met the same machine.
        """
        ours = (OURS, OURS_IN_FLOAT32)
        peers = [result.block_medians for name, result in self.engines.items() if name not in ours]
        if not peers or OURS not in self.engines:
            return None
        turns = zip(self.engines[OURS].block_medians, *peers, strict=False)
        return float(np.median([min(others) / ours for ours, *others in turns]))

    def compute_share(self, engine: str, machine: Machine) -> float | None:
        """Useful operations per second over the FMA peak; Winograd, which does fewer, may pass 1."""
        if self.work.flops is None:
            return None
        gflops = self.work.flops / self.engines[engine].median * 1e-9
        return gflops / machine.best_gflops(self.threads)

    def bandwidth_share(self, engine: str, machine: Machine) -> float:
        """Weights read once a run over the DRAM read bandwidth; weights that stay in a cache may pass 1."""
        gbps = self.work.weight_bytes / self.engines[engine].median * 1e-9
        return gbps / machine.read_gbps["DRAM"][self.threads]


def geometric_mean(ratios: Sequence[float]) -> float:
    """The geometric mean of positive numbers."""
    return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))


HEADINGS = (
    *("model", "threads", "engine", "median ms", "± MAD", "ratio", "in turns", "difference"),
    *("build s", "MiB", "cores", "peak", "weights"),
)
LEFT = (0, 2)  # columns of text
LEGEND = (
    "ratio: fastest peer over tilewright, of all runs; in turns: of each turn, then the median of these.",
    "difference: from ONNX Runtime, of its largest value. build: until ready.",
    "MiB: largest resident memory. cores: busy ones. peak: of the FMA peak. weights: of the DRAM read bandwidth.",
)


def rows(result: ModelResult, machine: Machine) -> list[tuple[str, ...]]:
    """What the tables say of one model: a row of cells for each engine, under `HEADINGS`."""
    made: list[tuple[str, ...]] = []
    for name, engine in result.engines.items():
        ratios = (result.ratio(), result.ratio_in_turns()) if name == OURS else (None, None)
        share = result.compute_share(name, machine)
        cells = (
            result.model,
            str(result.threads),
            name,
            f"{1e3 * engine.median:.3f}" if engine.median < 0.1 else f"{1e3 * engine.median:.1f}",
            f"{100 * engine.spread:.1f} %",
            *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
            "" if engine.difference is None else f"{engine.difference:.1e}",
            f"{engine.ready_seconds:.1f}",
            f"{engine.peak_mib:.0f}",
            f"{np.mean(engine.cpu):.2f}",
            "" if share is None else f"{100 * share:.0f} %",
            f"{100 * result.bandwidth_share(name, machine):.0f} %",
        )
        made.append(cells)
    made += [(result.model, str(result.threads), name, "failed") for name in result.errors]
    return made


def as_table(
    title: str, headings: Sequence[str], groups: Sequence[Sequence[tuple[str, ...]]], left: Sequence[int], caption: str
) -> Table:
    """Groups of rows for a terminal; columns are aligned to the right but for those numbered in `left`.

    Cells that repeat those of the row above in the group's leading columns are left blank.
    """
    made = Table(title=title, caption=caption)
    for index, heading in enumerate(headings):
        made.add_column(heading, justify="left" if index in left else "right")
    for group in groups:
        for index, cells in enumerate(group):
            same = next((k for k, cell in enumerate(cells) if not index or cell != group[index - 1][k]), len(cells))
            style = "bold" if OURS in cells else None
            made.add_row(*[""] * same, *map(escape, cells[same:]), style=style)
        made.add_section()
    return made


def as_markdown(headings: Sequence[str], lines: Sequence[tuple[str, ...]], left: Sequence[int]) -> str:
    """A table for a document; columns are aligned to the right but for those numbered in `left`."""
    alignment = ["---" if index in left else "---:" for index in range(len(headings))]
    padded = [(*cells, *[""] * (len(headings) - len(cells))) for cells in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in (headings, alignment, *padded))


def table(results: Sequence[ModelResult], machine: Machine) -> Table:
    """A line for each model and engine, for a terminal."""
    groups = [rows(result, machine) for result in results]
    return as_table("Latency of one run", HEADINGS, groups, LEFT, "\n".join(LEGEND))


def markdown(results: Sequence[ModelResult], machine: Machine) -> str:
    """The same table for a document."""
    return as_markdown(HEADINGS, [line for result in results for line in rows(result, machine)], LEFT)


def as_json(results: Sequence[ModelResult], machine: Machine, settings: dict[str, Any]) -> dict[str, Any]:
    """Everything measured, as what `json.dump` takes."""
    models = []
    for result in results:
        entry = asdict(result)
        entry["fastest_peer"], entry["ratio"] = result.fastest_peer(), result.ratio()
        entry["ratio_in_turns"] = result.ratio_in_turns()
        for name, engine in result.engines.items():
            entry["engines"][name].update(
                blocks=[[round(seconds, 9) for seconds in block] for block in engine.blocks],
                median_seconds=engine.median,
                relative_mad=engine.spread,
                block_medians=engine.block_medians,
                share_of_fma_peak=result.compute_share(name, machine),
                share_of_read_bandwidth=result.bandwidth_share(name, machine),
            )
        models.append(entry)
    return {"machine": described_machine(machine), "settings": settings, "models": models}


def described_machine(machine: Machine) -> dict[str, Any]:
    """What the JSON files say of the machine."""
    described = {"cpu": cpu_name(), "system": platform.platform(), "python": platform.python_version()}
    return {**described, **asdict(machine)}


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `content` to `path`, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def cpu_name() -> str:
    """The CPU's name as the kernel tells it, or the architecture."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()
