"""Measures what a processor's record holds, on the machine at hand, and prints it as a record to paste.

    python -m benchmarks.calibrate                    # half a minute
    python -m benchmarks.calibrate --cpu znver4       # compare with the record of another processor

Caches, bandwidths and prefetches are measured by loops of known work (`tilewright.doctor.peak`), on one thread, since
the other cores of a machine that is lent are others'. What they say of a record (`tilewright.target.processors`) is
told beside what the chosen record says. Values that a loop cannot measure, such as the model of register tiles, stay as
they are in it: only whole networks tell.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from tilewright.doctor import peak
from tilewright.doctor.peak import KIB, MIB, Prefetch
from tilewright.target import Target
from tilewright.target.features import CpuFeatures, features
from tilewright.target.processors import Caches, Processor

DISTANCES = (1024, 2048, 3072, 4096, 6144, 8192)  # bytes ahead of their use that lines are fetched
MOST_BYTES = 512 * MIB  # of a buffer that no cache holds
CLEAR = 1.03  # of two rates, above which one is the better
TRIES = 7
BUSY = 0.9  # of a core that the measurements should have
SAME_LEVEL = 1.25  # of memory's rate, below which a cache is no faster than memory

Rate = Callable[[int, Prefetch | None], float]


@dataclass(frozen=True)
class Measurements:
    """What was measured on one core.

    `caches`: bytes of each level, as the system tells them. `reads`: GB/s by bytes of the buffer that is read again and
    again, smallest first; the largest is in no cache. `prefetches`: GB/s from memory by prefetch, None without.
    `gflops`: of multiply-adds, two operations each, in vectors of `lanes` floats. `cores`: processor time over time of
    all this, which is less than 1 where others use the machine.
    """

    caches: tuple[int, int, int]
    reads: Mapping[int, float]
    prefetches: Mapping[Prefetch | None, float]
    gflops: float
    lanes: int
    cores: float = 1.0

    @property
    def memory(self) -> float:
        """GB/s from memory without prefetches of the program's own."""
        return self.reads[max(self.reads)]

    def held(self, level: int) -> float:
        """GB/s of the largest buffer that the cache of `level` holds, and the one before it does not."""
        below = self.caches[level - 2] if level > 1 else 0
        sizes = [size for size in self.reads if below < size <= self.caches[level - 1]]
        return max((self.reads[size] for size in sizes), default=self.memory)

    def per_multiply_add(self, gbps: float) -> float:
        """Bytes that come during a vector multiply-add."""
        return gbps * 2 * self.lanes / self.gflops

    def best(self, streams: bool) -> tuple[int, float]:
        """The distance at which prefetches of a kind read fastest, and the GB/s."""
        rates = {p.bytes_ahead: rate for p, rate in self.prefetches.items() if p is not None and p.streams == streams}
        distance = max(rates, key=lambda ahead: rates[ahead])
        # of distances that are as good, the least: short rows are fetched in time, too
        return next((d, rate) for d, rate in rates.items() if rate * CLEAR >= rates[distance])


def sizes(caches: Sequence[int]) -> list[int]:
    """Buffers to read: half of each cache, twice the second level's, and one that no cache holds."""
    first, second, third = caches
    return sorted({first // 2, second // 2, min(8 * second, max(third // 2, second)), _from_memory(third)})


def _from_memory(third: int) -> int:
    return min(MOST_BYTES, max(4 * third, 64 * MIB))


def rate_of(work: Callable[[int], float], seconds: float, clock: Callable[[], float] = time.thread_time) -> float:
    """The best rate of `work`, which does so many repeats and returns their size, in units per nanosecond of `clock`.

    The processor's time, not the wall's: a machine that others use takes cores away in the middle of a run.
    """
    repeats, elapsed, size = 1, 0.0, work(1)
    while elapsed < seconds:
        start = clock()
        size = work(repeats)
        elapsed = clock() - start
        repeats = repeats if elapsed >= seconds else repeats * 2
    best = size / elapsed
    for _ in range(TRIES):
        start = clock()
        size = work(repeats)
        best = max(best, size / max(clock() - start, 1e-9))
    return best * 1e-9


def measure(caches: tuple[int, int, int], rate: Rate, gflops: float, lanes: int) -> Measurements:
    """Read buffers of all sizes, and one from memory with each prefetch; `rate` gives GB/s."""
    large = _from_memory(caches[2])
    reads = {size: rate(size, None) for size in sizes(caches)}
    prefetches: dict[Prefetch | None, float] = {None: reads[large]}
    for streams in (False, True):
        for ahead in DISTANCES:
            prefetches[Prefetch(ahead, streams)] = rate(large, Prefetch(ahead, streams))
    return Measurements(caches, reads, prefetches, gflops, lanes)


@dataclass(frozen=True)
class Finding:
    """A value of a record: its place there, such as ``memory.row_bytes_ahead``, and how it was found."""

    place: str
    value: Any
    unit: str
    how: str


def findings(found: Measurements) -> Iterator[Finding]:
    """What the measurements say of a record."""
    for level, name in enumerate(("l1_bytes", "l2_bytes", "l3_bytes"), 1):
        yield Finding(f"caches.{name}", found.caches[level - 1], "bytes", f"{found.held(level):.1f} GB/s a core")
    (ahead, into), (_, past) = found.best(False), found.best(True)
    plain = found.prefetches[None]
    rates = f"GB/s from memory: {past:.1f} past the caches, {into:.1f} into them, {plain:.1f} without"
    yield Finding("memory.streams_past_caches", past > into * CLEAR, "", rates)
    if into > plain or plain > max(into, past) * CLEAR:
        best = ahead if into > plain else 0
        yield Finding("memory.row_bytes_ahead", best, "bytes", f"{into:.1f} GB/s, without {plain:.1f}")
    for name, gbps in (("cache_bytes", found.held(3)), ("memory_bytes", max(plain, into))):
        value = round(found.per_multiply_add(gbps), 2)
        how = f"{gbps:.1f} GB/s beside {found.gflops:.0f} GFLOP/s"
        yield Finding(f"winograd.{name}", value, "bytes a multiply-add", how)


def remarks(found: Measurements) -> Iterator[str]:
    """What no value of a record tells."""
    if found.cores < BUSY:
        yield (
            f"others used this machine, and the measurements had {found.cores:.2f} of a core: caches and memory that "
            "are shared are slower than they can be; measure again before you change a record"
        )
    if found.held(3) < SAME_LEVEL * found.memory:
        yield (
            f"the third level gives a core {found.held(3):.1f} GB/s, memory {found.memory:.1f}: what leaves the second "
            "level has to be fetched ahead"
        )
    if found.caches[2] > _from_memory(found.caches[2]):
        yield f"the third level is larger than the buffer of {_size(max(found.reads))} that was read as from memory"


def record(name: str, base: Processor, found: Measurements) -> Processor:
    """`base` with all that was found."""
    result = replace(base, name=name, caches=Caches(*found.caches))
    for finding in findings(found):
        part, _, value = finding.place.partition(".")
        if part != "caches":
            result = replace(result, **{part: replace(getattr(result, part), **{value: finding.value})})
    return result


@dataclass
class Difference:
    """A value of two records that is not the same."""

    place: str
    chosen: Any
    measured: Any


def differences(chosen: Any, measured: Any, place: str = "") -> list[Difference]:
    """Where two records differ, apart from their names."""
    if not is_dataclass(chosen) or not is_dataclass(measured):
        return [] if chosen == measured else [Difference(place, chosen, measured)]
    result = []
    for each in fields(measured):
        if each.name != "name":
            below = f"{place}.{each.name}" if place else each.name
            result += differences(getattr(chosen, each.name), getattr(measured, each.name), below)
    return result


def as_source(processor: Processor, default: Processor) -> str:
    """The record as it stands in `families.py`: what the default has as well is left out."""
    parts = [repr(processor.name)]
    for each in fields(processor):
        value, usual = getattr(processor, each.name), getattr(default, each.name)
        if each.name == "caches" and value is not None:
            parts.append(f"Caches({', '.join(_size_source(size) for size in vars(value).values())})")
        elif is_dataclass(value) and value != usual:
            changed = [f"{f.name}={getattr(value, f.name)!r}" for f in fields(value) if not _same(f.name, value, usual)]
            parts.append(f"{each.name}={type(value).__name__}({', '.join(changed)})")
    return f"Processor({', '.join(parts)})"


def _same(name: str, a: Any, b: Any) -> bool:
    return bool(getattr(a, name) == getattr(b, name))


def _size_source(size: int) -> str:
    for shift in (20, 10):
        if size % (1 << shift) == 0:
            return f"{size >> shift} << {shift}"
    return str(size)


def _size(size: Any) -> str:
    if isinstance(size, bool) or not isinstance(size, int) or size % KIB:
        return str(size)
    return f"{size // MIB} MiB" if size % MIB == 0 else f"{size // KIB} KiB"


def _tables(found: Measurements, chosen: Processor) -> Iterator[Table]:
    read = Table("read again and again", "GB/s a core", title="Reading", box=None)
    for size, gbps in found.reads.items():
        read.add_row(_size(size), f"{gbps:.1f}")
    yield read
    fetched = Table("bytes ahead", "into the caches", "past them", title="From memory, GB/s", box=None)
    for ahead in DISTANCES:
        fetched.add_row(str(ahead), *(f"{found.prefetches[Prefetch(ahead, s)]:.1f}" for s in (False, True)))
    yield fetched
    values = Table("value", "measured", "unit", f"{chosen.name} has", "by", title="The record", box=None)
    for finding in findings(found):
        part, _, name = finding.place.partition(".")
        own = getattr(getattr(chosen, part), name, None)
        shown = [finding.value if finding.unit != "bytes" else _size(finding.value)]
        shown += [finding.unit, "its architecture's" if own is None else own if finding.unit != "bytes" else _size(own)]
        values.add_row(finding.place, *map(str, shown), finding.how)
    yield values


@dataclass(frozen=True)
class Calibration:
    """A record, what it was made from, and the record that schedules choose by so far."""

    processor: Processor
    found: Measurements
    chosen: Processor
    different: list[Difference] = field(default_factory=list)


def calibrate(cpu: CpuFeatures, seconds: float) -> Calibration:
    """Measure this machine, and compare with the record of `cpu`."""
    caches = (peak.cache_bytes(1), peak.cache_bytes(2), peak.cache_bytes(3))
    width = max(peak.vector_widths().values())

    used, start = time.process_time(), time.perf_counter()

    def rate(size: int, prefetch: Prefetch | None) -> float:
        return rate_of(peak.reading_work(size, prefetch), seconds)

    found = measure(caches, rate, rate_of(peak.fma_work(width), seconds), width)
    found = replace(found, cores=(time.process_time() - used) / (time.perf_counter() - start))
    measured = record(cpu.cpu, cpu.processor, found)
    return Calibration(measured, found, cpu.processor, differences(cpu.processor, measured))


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.calibrate", description=(__doc__ or "").split("\n")[0])
    options.add_argument("--cpu", help="LLVM's name of the processor to compare with; this machine's by default")
    options.add_argument("--seconds", type=float, default=0.02, help="length of one measured run")
    chosen = options.parse_args(arguments)
    cpu = features(Target(f"llvm -mcpu={chosen.cpu}") if chosen.cpu else Target("llvm"))
    result = calibrate(cpu, chosen.seconds)
    console = Console(width=None if sys.stdout.isatty() else 150, markup=False, highlight=False)
    for table in _tables(result.found, result.chosen):
        console.print(table)
        console.print()
    for remark in remarks(result.found):
        console.print(f"Note: {remark}.")
    for each in result.different:
        own = "none" if each.chosen is None else _size(each.chosen)
        console.print(f"{each.place}: measured {_size(each.measured)}, in the record of {result.chosen.name} {own}")
    console.print("\nAs a record (target/processors/families.py):\n")
    console.print(as_source(result.processor, Processor("default")), soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
