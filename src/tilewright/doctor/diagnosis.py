"""The kernels of a network, each with what it loses against the machine's limits, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.doctor import peak
from tilewright.doctor.alternatives import USUAL, Build, common_groups, other_builds, threads
from tilewright.doctor.work import EFFORTS, Kernel, kernels_of, limit
from tilewright.ir.module import IRModule
from tilewright.target.features import features
from tilewright.target.target import Target

_LAUNCH = 1e-6  # seconds below which a kernel is too small for its work to count
_WELL = 0.85  # of the roofline, from which a kernel is said to be good
_BETTER = 0.9  # of the usual time, below which an alternative is named: measurements differ by less
_GAIN = 1e-6  # seconds, the least that is worth naming
_LIMIT_SECONDS = 0.02  # of a measured run of a loop that shows a limit


@dataclass
class Finding:
    """A node of the graph: seconds of a run on so many threads, the least that the machine needs, and why it loses.

    ``sources``: the model's nodes that it computes. ``alternative``: how another build computes these, and in how many
    seconds, where that is faster.
    """

    node: str
    threads: int
    seconds: float
    least: float
    bound: str
    kernel: Kernel | None
    sources: Sequence[str]
    alternative: tuple[str, float] | None = None

    @property
    def lost(self) -> float:
        """Seconds beyond the least, or beyond the alternative where that shows more to gain."""
        by_other = self.seconds - self.alternative[1] if self.alternative else 0.0
        return max(0.0, self.seconds - self.least, by_other)

    @property
    def share(self) -> float:
        """The share of the roofline that the kernel reaches."""
        return min(1.0, self.least / self.seconds) if self.seconds else 1.0

    @property
    def reason(self) -> str:
        """A sentence on why the kernel takes longer than the machine needs."""
        if self.alternative:
            name, seconds = self.alternative
            return f"{name} it takes {seconds * 1e3:.4f} ms: the compiler chose badly here"
        if self.share >= _WELL:
            return f"near what {self.bound} allows"
        if self.seconds < 2 * _LAUNCH:
            return "a launch, hardly any work: it could be part of a neighbour"
        if self.kernel is None or not self.kernel.flops:
            moved = f"moves {_amount(self.kernel)} at {self.share:.0%} of the rate of {self.bound}"
            return f"{moved}: {_movement(self.kernel)}"
        return f"computes at {self.share:.0%} of {self.bound}{_shape_reason(self.kernel)}"


@dataclass
class Diagnosis:
    """The findings, those that lose most first, and the limits of the machine."""

    machine: peak.Machine
    findings: list[Finding] = field(default_factory=list)

    def total(self, count: int) -> float:
        """Return the seconds of a run on ``count`` threads."""
        return sum(f.seconds for f in self.findings if f.threads == count)

    def lost(self, count: int) -> float:
        """Return the seconds of it beyond the least."""
        return sum(f.lost for f in self.findings if f.threads == count)


def diagnose(
    mod: IRModule, params: Mapping[str, Any], target: str | Target = "llvm", counts: Sequence[int] = (1,),
    alternatives: bool = True, machine: peak.Machine | None = None, seconds: float = 0.3, processor: bool = False,
    search: int = 0,
) -> Diagnosis:  # fmt: skip
    """Measure each kernel of a network beside the machine's limits and beside other builds of the network.

    Args:
        mod: the network; shapes are known.
        params: arrays of its parameters by name.
        target: the processor of this machine, or an older one that it can run the code of.
        counts: numbers of threads, one after another.
        alternatives: whether to build the network in other ways too, which takes as long as building it for each.
        machine: its limits; measured, in a few seconds, where None.
        seconds: about as long as each build is measured on each number of threads.
        search: among the other builds, one by the auto-scheduler's best of so many programs for each kernel; minutes.
        processor: on one thread, take its processor time instead of the wall's: other programs use the machine.

    Returns:
        What each node of the graph loses, most first.
    """
    target = Target(target)
    machine = machine or peak.measure(tuple(sorted(set(counts))), _LIMIT_SECONDS, features(target).lanes())
    usual = Build(mod, params, target, USUAL)
    kernels = {kernel.name: kernel for kernel in kernels_of(usual.factory)}
    found: dict[tuple[str, int], Finding] = {}
    for count in counts:
        with threads(count):
            for node, spent in usual.times(seconds, processor and count == 1).items():
                kernel = kernels.get(usual.function[node])
                least, bound = least_seconds(kernel, count, machine)
                sources = sorted(usual.of_model(node))
                found[node, count] = Finding(node, count, spent, least, bound, kernel, sources)
    if alternatives:
        for way, other in other_builds(mod, params, target, search):
            for count in counts:
                with threads(count):
                    times = other.times(seconds, processor and count == 1)
                    _compare(found, count, usual, other, times, way.name)
    return Diagnosis(machine, sorted(found.values(), key=lambda f: -f.lost))


def _compare(
    found: dict[tuple[str, int], Finding], count: int, usual: Build, other: Build, times: Mapping[str, float], name: str
) -> None:
    """Note where another build computes the same nodes of the model in less time."""
    for ours, theirs in common_groups(usual, other):
        mine = [found[node, count] for node in ours if (node, count) in found]
        seconds, whole = sum(times.get(node, 0.0) for node in theirs), sum(f.seconds for f in mine)
        if not mine or not seconds or seconds > min(_BETTER * whole, whole - _GAIN):
            continue
        worst = max(mine, key=lambda f: f.seconds)
        rest = whole - worst.seconds
        if worst.alternative is None or seconds - rest < worst.alternative[1]:
            worst.alternative = name, max(0.0, seconds - rest)


def least_seconds(kernel: Kernel | None, count: int, machine: peak.Machine) -> tuple[float, str]:
    """Return the least time of a kernel on ``count`` threads, and the limit that sets it.

    The multiply-adds at the measured peak, or the arguments and results at the measured bandwidth of the memory that
    holds them, whichever takes longer. Winograd's and Strassen's methods multiply less, so they can be faster.
    """
    if kernel is None:
        return 0.0, "memory"
    level, rate = limit(kernel, count, machine, cold=False)
    moving = kernel.bytes / rate * 1e-9
    whole = any("int8" in t.dtype for t in kernel.inputs) and machine.byte_gops
    fastest = max(by[count] for by in machine.byte_gops.values()) if whole else machine.best_gflops(count)
    computing = kernel.flops / fastest * 1e-9
    return (computing, "the multiply-add peak") if computing >= moving else (moving, level)


def _amount(kernel: Kernel | None) -> str:
    size = kernel.bytes if kernel else 0
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def _movement(kernel: Kernel | None) -> str:
    traits = kernel.traits if kernel else ()
    return EFFORTS[traits[0]] if traits else "rows are short, or work is on few threads"


def _shape_reason(kernel: Kernel) -> str:
    rows = kernel.outputs[0].concrete_shape if kernel.outputs else ()
    if kernel.kind == "depthwise":
        return ": few multiply-adds for each element that is loaded"
    if rows and math.prod(rows) < 4096:
        return ": a small result, of which vectors and threads have little to share"
    if kernel.kind in ("attention", "softmax", "norm"):
        return ": exponentials and sums beside the products"
    return ""
