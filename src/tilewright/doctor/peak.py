"""The limits of this machine: fused multiply-adds per second, and bytes copied or read per second.

Every loop is LLVM IR written here and compiled by llvmlite without any optimization pass, so that nothing
removes or rewrites it: twelve independent chains of vector FMAs (enough for two pipes of latency four to
five, few enough for sixteen registers), and copies and sums of vectors over buffers that fit a cache level or
none. Figures are the best of several short runs: what disturbs a run can only make it slower.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from rich.console import Console
from rich.table import Table

CHAINS = 12
UNROLLED_VECTORS = 8
READ_BYTES = 1 << 28  # more than caches hold
LINE_BYTES = 64  # of a cache
KIB, MIB = 1024, 1024 * 1024
BUSY = 0.95  # of a core that each thread has in a run that counts


@dataclass(frozen=True)
class Machine:
    """The measured limits.

    `gflops[isa][threads]`: fp32 operations per nanosecond, a multiply-add counting two; `byte_gops` likewise of
    int8, where the processor sums products of bytes.
    `copy_gbps[level][threads]`: bytes read plus bytes written per nanosecond; `read_gbps` likewise for
    reading alone. Levels are L2, L3, DRAM; at L2 and DRAM every thread has buffers of its own.
    """

    gflops: dict[str, dict[int, float]]
    copy_gbps: dict[str, dict[int, float]]
    read_gbps: dict[str, dict[int, float]]
    byte_gops: dict[str, dict[int, float]] = field(default_factory=dict)

    @property
    def lanes(self) -> int:
        """Of the widest vectors that were measured."""
        return max(vector_widths()[isa] for isa in self.gflops)

    def best_gflops(self, threads: int) -> float:
        """The peak of the widest instruction set with so many threads."""
        return max(by_threads[threads] for by_threads in self.gflops.values())


def vector_widths() -> dict[str, int]:
    """Float32 lanes of each vector instruction set of this CPU, narrowest first."""
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return {"128-bit": 4}
    features = llvm.get_host_cpu_features()
    widths = {"128-bit": 4}
    if features.get("avx2") and features.get("fma"):
        widths["AVX2"] = 8
    if features.get("avx512f"):
        widths["AVX-512"] = 16
    return widths


@cache
def _target_machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3)


@cache
def _engine() -> llvm.ExecutionEngine:
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())


def compile_function(name: str, text: str) -> int:
    """The address of function `name` of the LLVM module `text`, compiled for this CPU as it stands."""
    module = llvm.parse_assembly(text)
    module.verify()
    _engine().add_module(module)
    _engine().finalize_object()
    return int(_engine().get_function_address(name))


def _attributes(width: int) -> str:
    bits = 32 * width
    return f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" nounwind'


def _chains(signature: str, start: str, step: str, begin: str, join: str, width: int) -> str:
    """LLVM IR of a function (i64 count) that carries `CHAINS` vectors through a loop and adds them up in the end.

    Args:
        signature: the result's type and the name, such as ``float @f``.
        start: the first value of chain ``{i}``; `begin` are instructions before the loop, which define what it needs.
        step: the instruction for its next value, from ``%x{i}``.
        join: the instruction that adds two vectors.
    """
    element = signature.split()[0]
    vector, lanes = f"<{width} x {element}>", range(CHAINS)
    phis = "\n".join(f"  %x{i} = phi {vector} [ {start.format(i=i)}, %entry ], [ %y{i}, %loop ]" for i in lanes)
    steps = "\n".join(f"  %y{i} = {step.format(i=i)}" for i in lanes)
    sums = "\n".join(f"  %s{i} = {join} {vector} %y{i}, " + (f"%s{i - 1}" if i else "zeroinitializer") for i in lanes)
    return f"""
define {signature}(i64 %count) {_attributes(width)} {{
entry:
{begin}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{steps}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %done
done:
{sums}
  %result = extractelement {vector} %s{CHAINS - 1}, i32 0
  ret {element} %result
}}
"""


def fma_loop(width: int) -> str:
    """LLVM IR of ``float fma_<width>(i64 count)``: `CHAINS` vectors of `width` floats, x = x * a + b each."""
    vector = f"<{width} x float>"
    fma = f"{vector} @llvm.fmuladd.v{width}f32"
    starts = "\n".join(
        f"  %c{i} = add i64 %count, {i}\n  %f{i} = uitofp i64 %c{i} to float\n"
        f"  %start{i} = insertelement {vector} zeroinitializer, float %f{i}, i32 0"
        for i in range(CHAINS)
    )
    # the operands come from the argument, so that the code generator cannot know them
    begin = f"""{starts}
  %a = fmul {vector} %start1, {_splat(width, 1e-30)}
  %b = fmul {vector} %start2, {_splat(width, 1e-30)}"""
    step = f"call {fma}({vector} %x{{i}}, {vector} %a, {vector} %b)"
    text = _chains(f"float @fma_{width}", "%start{i}", step, begin, "fadd", width)
    return f"declare {fma}({vector}, {vector}, {vector})\n{text}"


def _splat(width: int, value: float) -> str:
    (bits,) = np.array([np.float32(value)], "float64").view("uint64")
    return f"<{', '.join([f'float 0x{int(bits):016X}'] * width)}>"


def byte_widths() -> dict[str, int]:
    """Lanes of int32 of each instruction of this CPU that sums four products of bytes, narrowest first."""
    features = llvm.get_host_cpu_features() if platform.machine().lower() in {"x86_64", "amd64"} else {}
    widths = {"AVX-VNNI": 8} if features.get("avxvnni") else {}
    return widths | ({"AVX512-VNNI": 16} if features.get("avx512vnni") else {})


def byte_loop(width: int) -> str:
    """LLVM IR of ``i32 bytes_<width>(i64 count)``: `CHAINS` sums of `width` int32, four products of bytes each."""
    vector, operands = f"<{width} x i32>", f"<{4 * width} x i8>"
    multiply = f"{vector} @llvm.x86.avx512.vpdpbusd.{32 * width}"
    begin = f"""  %c = trunc i64 %count to i8
  %one = insertelement {operands} zeroinitializer, i8 %c, i32 0
  %a = shufflevector {operands} %one, {operands} poison, <{4 * width} x i32> zeroinitializer
  %b = add {operands} %a, %one"""
    step = f"call {multiply}({vector} %x{{i}}, {operands} %a, {operands} %b)"
    text = _chains(f"i32 @bytes_{width}", "zeroinitializer", step, begin, "add", width)
    return f"declare {multiply}({vector}, {operands}, {operands})\n{text}"


@dataclass(frozen=True)
class Prefetch:
    """Each cache line is fetched `bytes_ahead` of its use: into all caches, or past the outer ones (`streams`)."""

    bytes_ahead: int
    streams: bool = False


def memory_loop(name: str, width: int, writes: bool, prefetch: Prefetch | None = None) -> str:
    """LLVM IR of ``float name(src, dst, i64 blocks, i64 repeats)``: passes over `blocks` blocks of vectors.

    A block is `UNROLLED_VECTORS` vectors of `width` floats; with `writes` it is copied to dst, else summed.
    """
    vector = f"<{width} x float>"
    block = f"[{UNROLLED_VECTORS} x {vector}]"
    body, phis = [], []
    if prefetch:
        locality = 0 if prefetch.streams else 3
        for at in range(0, UNROLLED_VECTORS * width * 4, LINE_BYTES):
            body.append(f"  %b{at} = getelementptr {block}, ptr %src, i64 %i")
            body.append(f"  %a{at} = getelementptr i8, ptr %b{at}, i64 {prefetch.bytes_ahead + at}")
            body.append(f"  call void @llvm.prefetch.p0(ptr %a{at}, i32 0, i32 {locality}, i32 1)")
    for i in range(UNROLLED_VECTORS):
        place = f"i64 %i, i64 {i}"
        body.append(f"  %p{i} = getelementptr {block}, ptr %src, {place}")
        body.append(f"  %v{i} = load {vector}, ptr %p{i}, align 64")
        if writes:
            body.append(f"  %q{i} = getelementptr {block}, ptr %dst, {place}")
            body.append(f"  store {vector} %v{i}, ptr %q{i}, align 64")
        else:
            phis.append(f"  %x{i} = phi {vector} [ %o{i}, %outer ], [ %y{i}, %loop ]")
            body.append(f"  %y{i} = fadd {vector} %x{i}, %v{i}")
    carried = range(0 if writes else UNROLLED_VECTORS)
    outer = "\n".join(f"  %o{i} = phi {vector} [ zeroinitializer, %entry ], [ %y{i}, %next ]" for i in carried)
    sums = "\n".join(f"  %s{i} = fadd {vector} %y{i}, " + (f"%s{i - 1}" if i else "zeroinitializer") for i in carried)
    result = "%v0" if writes else f"%s{UNROLLED_VECTORS - 1}"
    newline = "\n"
    return f"""
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
define float @{name}(ptr noalias %src, ptr noalias %dst, i64 %blocks, i64 %repeats) {_attributes(width)} {{
entry:
  br label %outer
outer:
  %r = phi i64 [ 0, %entry ], [ %r1, %next ]
{outer}
  br label %loop
loop:
  %i = phi i64 [ 0, %outer ], [ %i1, %loop ]
{newline.join(phis)}
{newline.join(body)}
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %blocks
  br i1 %more, label %loop, label %next
next:
  %r1 = add i64 %r, 1
  %again = icmp ult i64 %r1, %repeats
  br i1 %again, label %outer, label %done
done:
{sums}
  %result = extractelement {vector} {result}, i32 0
  ret float %result
}}
"""


def best_rate(work: Callable[[int, int], float], threads: int, seconds: float, tries: int = 7) -> float:
    """The best rate of `work` on `threads` threads at once.

    `work(thread, repeats)` does `repeats` units (releasing Python's lock) and returns their size; the rate is
    the total size over the time from the common start to the last end, in units per nanosecond, for runs of
    `seconds`. Runs in which a thread had no core of its own count as no try, up to twice as many.
    """
    repeats, elapsed, size = 1, 0.0, 0.0
    while elapsed < seconds / 4:
        repeats *= 2
        size, elapsed = _run_together(work, threads, repeats)
    repeats = max(1, int(repeats * seconds / elapsed))
    best, undisturbed = 0.0, 0
    for _ in range(3 * tries):
        used = time.process_time()
        size, elapsed = _run_together(work, threads, repeats)
        best = max(best, size / elapsed * 1e-9)
        undisturbed += time.process_time() - used >= BUSY * threads * elapsed
        if undisturbed == tries:
            break
    return best


def _run_together(work: Callable[[int, int], float], threads: int, repeats: int) -> tuple[float, float]:
    """Total size and seconds of `work` started on all threads together."""
    barrier = threading.Barrier(threads)
    sizes, starts, ends = [0.0] * threads, [0.0] * threads, [0.0] * threads

    def body(thread: int) -> None:
        barrier.wait()
        starts[thread] = time.perf_counter()
        sizes[thread] = work(thread, repeats)
        ends[thread] = time.perf_counter()

    others = [threading.Thread(target=body, args=(thread,)) for thread in range(1, threads)]
    for other in others:
        other.start()
    body(0)
    for other in others:
        other.join()
    return sum(sizes), max(ends) - min(starts)


def fma_peak(width: int, threads: int, seconds: float = 0.05) -> float:
    """Measured GFLOP/s of FMAs on vectors of `width` floats."""
    once = fma_work(width)
    return best_rate(lambda _, repeats: once(repeats), threads, seconds)


def byte_peak(width: int, threads: int, seconds: float = 0.05) -> float:
    """Measured operations per nanosecond of sums of products of bytes in `width` lanes; a multiply-add counts two."""
    address = compile_function(f"bytes_{width}", byte_loop(width))
    kernel = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)(address)

    def work(_: int, repeats: int) -> float:
        kernel(1000 * repeats)
        return 1000.0 * repeats * CHAINS * width * 4 * 2

    return best_rate(work, threads, seconds)


@cache
def _fma_kernel(width: int) -> Callable[[int], float]:
    address = compile_function(f"fma_{width}", fma_loop(width))
    return ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(address)


@cache
def _memory_kernel(width: int, writes: bool, prefetch: Prefetch | None = None) -> Callable[[int, int, int, int], float]:
    name = f"{'copy' if writes else 'read'}_{width}"
    if prefetch:
        name += f"_{'past' if prefetch.streams else 'into'}_{prefetch.bytes_ahead}"
    address = compile_function(name, memory_loop(name, width, writes, prefetch))
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    return ctypes.CFUNCTYPE(ctypes.c_float, pointer, pointer, count, count)(address)


@lru_cache(maxsize=2)
def _buffers(size: int, count: int) -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
    return [np.ones(size, np.uint8) for _ in range(count)]


def bandwidth(bytes_per_thread: int, threads: int, writes: bool, seconds: float = 0.05, tries: int = 7) -> float:
    """The best measured GB/s over buffers of `bytes_per_thread` (source and destination together) for each thread."""
    width = max(vector_widths().values())
    kernel = _memory_kernel(width, writes)
    block = UNROLLED_VECTORS * width * 4
    blocks = max(1, bytes_per_thread // (2 if writes else 1) // block)
    size = blocks * block
    # one page and a cache line apart, so that source and destination do not compete for the same cache sets
    buffers = _buffers(2 * size + 3 * 4096, threads)

    def work(thread: int, repeats: int) -> float:
        source = -(-buffers[thread].ctypes.data // 4096) * 4096
        kernel(source, source + size + 4096 + 128, blocks, repeats)
        return float(repeats) * size * (2 if writes else 1)

    return best_rate(work, threads, seconds, tries)


def reading_work(nbytes: int, prefetch: Prefetch | None = None, threads: int = 1) -> Callable[[int], float]:
    """Return a function that sums up `nbytes` so many times, each thread its part, and returns the bytes read."""
    width = max(vector_widths().values())
    kernel = _memory_kernel(width, False, prefetch)
    block = UNROLLED_VECTORS * width * 4
    blocks = max(1, nbytes // block // threads)
    (buffer,) = _buffers(blocks * block * threads + LINE_BYTES, 1)
    source = -(-buffer.ctypes.data // LINE_BYTES) * LINE_BYTES
    parts = [source + i * blocks * block for i in range(threads)]
    pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def work(repeats: int) -> float:
        others = [pool.submit(kernel, part, part, blocks, repeats) for part in parts[1:]] if pool else []
        kernel(source, source, blocks, repeats)
        for other in others:
            other.result()
        return float(repeats) * blocks * block * threads

    return work


def read_seconds(nbytes: float, threads: int = 1) -> float:
    """Return the least of a few times that reading so much takes: of the clock where threads are several."""
    clock = time.process_time_ns if threads == 1 else time.perf_counter_ns
    work, best = reading_work(READ_BYTES, threads=threads), float("inf")
    for _ in range(4):
        began = clock()
        read = work(1)
        best = min(best, (clock() - began) * 1e-9 / read)
    return best * nbytes


def fma_work(width: int) -> Callable[[int], float]:
    """Return a function of 1000 rounds of multiply-adds on vectors of `width` floats, so many times."""
    kernel = _fma_kernel(width)

    def work(repeats: int) -> float:
        kernel(1000 * repeats)
        return 1000.0 * repeats * CHAINS * width * 2

    return work


def cache_bytes(level: int) -> int:
    """Size of the first CPU's cache at `level` as the kernel tells it; typical sizes where it does not."""
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = (index / "type").read_text().strip()
        if kind != "Instruction" and int((index / "level").read_text()) == level:
            return int((index / "size").read_text().strip().removesuffix("K")) * KIB
    return {1: 32 * KIB, 2: MIB, 3: 16 * MIB}[level]


def measure(thread_counts: tuple[int, ...] = (1, 2), seconds: float = 0.05, most_lanes: int = 16) -> Machine:
    """Measure all limits, of vectors of up to ``most_lanes``; some ten seconds with the default run length."""
    available = os.cpu_count() or 1
    counts = [threads for threads in thread_counts if threads <= available]
    widths = {isa: lanes for isa, lanes in vector_widths().items() if lanes <= most_lanes}
    gflops: dict[str, dict[int, float]] = {}
    for isa, width in widths.items():
        gflops[isa] = {threads: fma_peak(width, threads, seconds) for threads in counts}
    l2, l3 = cache_bytes(2), cache_bytes(3)

    def sweep(writes: bool) -> dict[str, dict[int, float]]:
        rates: dict[str, dict[int, float]] = {"L2": {}, "L3": {}, "DRAM": {}}
        for threads in counts:
            sizes = {"L2": l2 // 2, "L3": max(l3 // 2 // threads, l2 * 2), "DRAM": _from_memory(threads)}
            for level, size in sizes.items():
                rates[level][threads] = bandwidth(size, threads, writes, seconds)
        return rates

    of_bytes = {isa: lanes for isa, lanes in byte_widths().items() if lanes <= most_lanes}
    gops = {isa: {threads: byte_peak(lanes, threads, seconds) for threads in counts} for isa, lanes in of_bytes.items()}
    return Machine(gflops, sweep(writes=True), sweep(writes=False), gops)


def _from_memory(threads: int) -> int:
    """Bytes of each thread that no cache holds."""
    return 8 * cache_bytes(3) // threads


def measure_again(machine: Machine, threads: int, seconds: float = 0.01) -> Machine:
    """`machine` with the FMA peak of its widest vectors as it is at this moment: clocks change within seconds."""
    width = machine.lanes
    isa = next(isa for isa in machine.gflops if vector_widths()[isa] == width)
    return replace(machine, gflops={isa: machine.gflops[isa] | {threads: fma_peak(width, threads, seconds)}})


def memory_now(threads: int, seconds: float = 0.01) -> tuple[float, float]:
    """GB/s of DRAM in one run each of copies and of reads: what others leave of it changes within seconds."""
    copy, read = (bandwidth(_from_memory(threads), threads, writes, seconds, tries=1) for writes in (True, False))
    return copy, read


def with_memory(machine: Machine, threads: int, rates: Sequence[tuple[float, float]]) -> Machine:
    """`machine` with the medians of `rates` (`memory_now`) as the bandwidths of DRAM."""
    copy, read = (statistics.median(column) for column in zip(*rates, strict=True))
    return replace(
        machine,
        copy_gbps=machine.copy_gbps | {"DRAM": machine.copy_gbps["DRAM"] | {threads: copy}},
        read_gbps=machine.read_gbps | {"DRAM": machine.read_gbps["DRAM"] | {threads: read}},
    )


def table(machine: Machine) -> Table:
    """The limits as a table, a column for each number of threads."""
    counts = sorted(next(iter(machine.gflops.values())))
    result = Table(title="What this machine can do at best")
    result.add_column("")
    for threads in counts:
        result.add_column(f"{threads} thread{'s' if threads > 1 else ''}", justify="right")
    for isa, by_threads in machine.gflops.items():
        result.add_row(f"FMA, fp32, {isa}", *(f"{by_threads[threads]:.1f} GFLOP/s" for threads in counts))
    for isa, by_threads in machine.byte_gops.items():
        result.add_row(f"products, int8, {isa}", *(f"{by_threads[threads]:.1f} GOP/s" for threads in counts))
    for kind, levels in (("copy", machine.copy_gbps), ("read", machine.read_gbps)):
        for level, by_threads in levels.items():
            result.add_row(f"{kind}, {level}", *(f"{by_threads[threads]:.1f} GB/s" for threads in counts))
    return result


def main() -> None:
    """Measure and print; with ``--json`` also write."""
    options = argparse.ArgumentParser("python -m tilewright.doctor.peak", description="Measure this machine's limits.")
    options.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options.add_argument("--seconds", type=float, default=0.05, help="length of one measured run")
    options.add_argument("--json", type=Path)
    arguments = options.parse_args()
    machine = measure(tuple(arguments.threads), arguments.seconds)
    Console().print(table(machine))
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(machine), indent=2) + "\n")


if __name__ == "__main__":
    main()
