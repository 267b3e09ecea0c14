"""What is said of measured kernels: shares of the machine's limits, a table of all, a digest by kind, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tilewright.doctor import peak
from tilewright.doctor.work import KINDS, Kernel, limit

from .report import described_machine

# What kernels should reach: of the FMA peak on one thread (windows of one element, and larger ones), of the bandwidth
# of DRAM where it limits them, and over one thread on two.
POINTWISE_SHARE, WINDOW_SHARE, COPY_SHARE, SPEEDUP = 0.93, 0.9, 0.85, 1.85


@dataclass(frozen=True)
class Timing:
    """Median seconds of a call with so many threads: from caches, and, where it was measured, from memory.

    `cores`: processor time over time, of the measurement that had less of it. `limits`: the machine's, measured
    beside the kernel; None: those of the whole run hold.
    """

    threads: int
    warm: float
    cold: float | None
    cores: float | None = None
    limits: peak.Machine | None = None

    def beside(self, machine: peak.Machine) -> peak.Machine:
        """The limits to compare with."""
        return self.limits or machine


@dataclass
class KernelResult:
    """A kernel, the models that call it, and its times."""

    kernel: Kernel
    models: list[str]
    timings: list[Timing]

    def speedup(self, timing: Timing) -> float | None:
        """How many times faster than on one thread."""
        if timing.threads == 1:
            return None
        return next((one.warm / timing.warm for one in self.timings if one.threads == 1), None)

    def gflops(self, timing: Timing) -> float | None:
        """Operations of the plain method per nanosecond; None for kernels without multiply-adds."""
        return self.kernel.flops / timing.warm * 1e-9 if self.kernel.flops else None

    def modelled(self, timing: Timing, machine: peak.Machine) -> float | None:
        """The cost model's seconds, for threads that share the work evenly."""
        if self.kernel.cost is None:
            return None
        machine = timing.beside(machine)
        return self.kernel.cost * machine.lanes * 2e-9 / machine.best_gflops(timing.threads)

    def share(self, timing: Timing, machine: peak.Machine) -> float | None:
        """Of the FMA peak; None for kernels without multiply-adds."""
        gflops = self.gflops(timing)
        return None if gflops is None else gflops / timing.beside(machine).best_gflops(timing.threads)

    def meets_target(self, timing: Timing, machine: peak.Machine) -> bool | None:
        """Whether the kernel reaches the limits that it should; None where none is set, as for what caches hold."""
        if not self.kernel.reuses_arguments:
            if timing.cold is None:
                return None
            rate = limit(self.kernel, timing.threads, timing.beside(machine), cold=True)[1]
            return self.kernel.bytes / timing.cold * 1e-9 >= COPY_SHARE * rate
        reached, speedup = self.share(timing, machine), self.speedup(timing)
        assert reached is not None
        if speedup is not None:
            return speedup >= SPEEDUP
        return reached >= (WINDOW_SHARE if self.kernel.window > 1 else POINTWISE_SHARE)


def memory_bound(kernel: Kernel, machine: peak.Machine) -> bool:
    """Whether memory, not arithmetic, limits the kernel when its arrays are in no cache."""
    balance = machine.best_gflops(1) / machine.copy_gbps["DRAM"][1]
    return kernel.flops < balance * kernel.bytes


HEADINGS = (
    *("kind", "operators", "shape", "calls", "models", "threads", "cores", "µs", "GFLOP/s", "GB/s", "cold GB/s"),
    *("speed-up", "model µs", "implementation", "schedule"),
)
LEFT = (0, 1, 2, 4, 13, 14)
LEGEND = (
    "GFLOP/s: of the plain method, and share of the FMA peak. GB/s: arguments and results, and share of the measured "
    "bandwidth of the level that holds them; cold: of arrays in no cache, and share of DRAM's.",
    "cores: processor time over time; below the threads, work ran on one of them only, or others ran on this machine. "
    "calls: in a run of the first model. speed-up: over one thread. model: what the cost model says, and its error.",
)


def rows(result: KernelResult, machine: peak.Machine) -> list[tuple[str, ...]]:
    """What the tables say of one kernel: a row of cells for each number of threads, under `HEADINGS`."""
    kernel, made = result.kernel, []
    models = result.models[0] + (f" +{len(result.models) - 1}" if len(result.models) > 1 else "")
    for timing in result.timings:
        gflops, reached, speedup = result.gflops(timing), result.share(timing, machine), result.speedup(timing)
        modelled = result.modelled(timing, machine)
        share = "" if gflops is None else f"{gflops:.0f} ({reached:.0%})"
        error = "" if modelled is None else f"{_microseconds(modelled)} ({modelled / timing.warm - 1:+.0%})"
        made.append(
            (
                kernel.kind,
                kernel.operators,
                kernel.shape,
                str(kernel.calls),
                models,
                str(timing.threads),
                "" if timing.cores is None else f"{timing.cores:.2f}",
                _microseconds(timing.warm),
                share,
                _bandwidth(kernel, timing.warm, timing.threads, timing.beside(machine), cold=False),
                _bandwidth(kernel, timing.cold, timing.threads, timing.beside(machine), cold=True),
                "" if speedup is None else f"{speedup:.2f}",
                error,
                kernel.implementation,
                kernel.schedule,
            )
        )
    return made


def _microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:.{0 if seconds > 1e-4 else 1 if seconds > 1e-5 else 2}f}"


def _bandwidth(kernel: Kernel, seconds: float | None, threads: int, machine: peak.Machine, cold: bool) -> str:
    if seconds is None or kernel.kind == "gather":
        return ""
    level, most = limit(kernel, threads, machine, cold)
    gbps = kernel.bytes / seconds * 1e-9
    return f"{gbps:.0f} ({gbps / most:.0%}{'' if cold else f' {level}'})"


DIGEST = ("kind", "threads", "kernels", "ms", "peak", "cold", "speed-up", "model", "at target")
DIGEST_LEGEND = (
    "ms: in all kernels, as often as the first model calls them. peak: of the FMA peak, and cold: of DRAM's bandwidth, "
    "over all together. model: median of the cost model's errors. at target: kernels that reach what they should."
)


def digest(results: Sequence[KernelResult], machine: peak.Machine) -> list[list[tuple[str, ...]]]:
    """All kernels of a kind together: for each kind, a row of cells for each number of threads, under `DIGEST`."""
    groups = []
    for kind in KINDS:
        members = [r for r in results if r.kernel.kind == kind]
        counts = [timing.threads for timing in members[0].timings] if members else []
        groups.append([_digest_row(kind, members, index, machine) for index in range(len(counts))])
    return groups


def _digest_row(kind: str, members: Sequence[KernelResult], index: int, machine: peak.Machine) -> tuple[str, ...]:
    timed = [(r, r.timings[index]) for r in members]
    threads = timed[0][1].threads
    seconds = sum(r.kernel.calls * t.warm for r, t in timed)
    fastest = sum(r.kernel.calls * t.warm * (r.share(t, machine) or 0.0) for r, t in timed)
    cold = [
        (r.kernel.bytes, t.cold, limit(r.kernel, threads, t.beside(machine), cold=True)[1]) for r, t in timed if t.cold
    ]
    ideal = sum(size / rate * 1e-9 for size, _, rate in cold)
    single = sum(r.kernel.calls * r.timings[0].warm for r in members)
    errors = [m / t.warm - 1 for r, t in timed if (m := r.modelled(t, machine)) is not None]
    reached = [met for r, t in timed if (met := r.meets_target(t, machine)) is not None]
    return (
        kind,
        str(threads),
        str(len(members)),
        f"{1e3 * seconds:.3f}",
        f"{fastest / seconds:.0%}" if fastest else "",
        f"{ideal / sum(time for _, time, _ in cold):.0%}" if cold else "",
        f"{single / seconds:.2f}" if threads > 1 and members[0].timings[0].threads == 1 else "",
        f"{np.median(np.abs(errors)):.0%}" if errors else "",
        f"{sum(reached)} of {len(reached)}" if reached else "",
    )


def as_json(results: Sequence[KernelResult], machine: peak.Machine, settings: dict[str, Any]) -> dict[str, Any]:
    """Everything measured, as what `json.dump` takes."""
    kernels = []
    for result in results:
        entry = asdict(result.kernel)
        for key in ("inputs", "outputs"):
            entry[key] = [[list(t.concrete_shape), t.dtype] for t in getattr(result.kernel, key)]
        entry["models"] = result.models
        entry["timings"] = [
            asdict(timing)
            | {
                "share_of_fma_peak": result.share(timing, machine),
                "level": limit(result.kernel, timing.threads, machine, cold=False)[0],
                "modelled": result.modelled(timing, machine),
                "speedup": result.speedup(timing),
            }
            for timing in result.timings
        ]
        kernels.append(entry)
    return {"machine": described_machine(machine), "settings": settings, "kernels": kernels}
