"""GPU limits per block of a kernel: one record for each processor, with the source of its numbers.

Schedules ask ``gpu_limits()`` for the record of the current target; options of the target (``max_num_threads``,
``thread_warp_size``, ``shared_memory_per_block``, ...) override the record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tilewright.ir import dtype as dt
from tilewright.target.target import Target


@dataclass(frozen=True)
class GpuLimits:
    """A processor of ``cores`` multiprocessors, each with memory and registers that its blocks share.

    Sizes are in bytes, rates per second of the whole chip: ``fp32`` in multiply-adds, ``memory_rate`` in bytes.
    ``shared_rate`` is what a multiprocessor reads of shared memory in a clock.
    """

    name: str
    cores: int
    clock: float
    warp: int = 32
    threads_per_block: int = 1024
    threads_per_core: int = 2048
    blocks_per_core: int = 32
    registers_per_core: int = 65536
    registers_per_thread: int = 255
    shared_per_block: int = 48 << 10
    shared_per_core: int = 64 << 10
    shared_rate: int = 128
    fp32_per_clock: int = 64
    tensor_fp16_per_clock: int = 0
    memory_rate: float = 3e11
    l2_bytes: int = 4 << 20

    @property
    def fp32(self) -> float:
        """Multiply-adds of single precision in a second."""
        return self.cores * self.fp32_per_clock * self.clock

    def tensor_per_clock(self, dtype: str) -> int:
        """Return the multiply-adds per clock of a multiprocessor's tensor cores for ``dtype`` (float32 as tf32); 0:
        none.
        """
        return self.tensor_fp16_per_clock * 2 // dt.nbytes(dtype)


# NVIDIA: CUDA C++ Programming Guide 12.6, table "Technical Specifications per Compute Capability"; cores, clocks and
# memory of the data sheets of T4, A100-SXM4-40GB, A10, L4, H100-SXM5 and B200. Static shared memory ends at 48 KiB.
_NVIDIA = {
    75: GpuLimits("sm_75", 40, 1.59e9, threads_per_core=1024, blocks_per_core=16, shared_per_core=64 << 10,
                  tensor_fp16_per_clock=512, memory_rate=3.2e11, l2_bytes=4 << 20),
    80: GpuLimits("sm_80", 108, 1.41e9, shared_per_core=164 << 10, tensor_fp16_per_clock=1024, memory_rate=1.555e12,
                  l2_bytes=40 << 20),
    86: GpuLimits("sm_86", 72, 1.695e9, threads_per_core=1536, blocks_per_core=16, shared_per_core=100 << 10,
                  fp32_per_clock=128, tensor_fp16_per_clock=512, memory_rate=6e11, l2_bytes=6 << 20),
    89: GpuLimits("sm_89", 58, 2.04e9, threads_per_core=1536, blocks_per_core=24, shared_per_core=100 << 10,
                  fp32_per_clock=128, tensor_fp16_per_clock=512, memory_rate=3e11, l2_bytes=48 << 20),
    90: GpuLimits("sm_90", 132, 1.83e9, shared_per_core=228 << 10, fp32_per_clock=128, tensor_fp16_per_clock=2048,
                  memory_rate=3.35e12, l2_bytes=50 << 20),
    100: GpuLimits("sm_100", 148, 1.85e9, shared_per_core=228 << 10, fp32_per_clock=128, tensor_fp16_per_clock=4096,
                   memory_rate=8e12, l2_bytes=126 << 20),
}  # fmt: skip
# What every device of OpenCL 1.2's full profile has (its specification, table 4.3): 32 KiB of local memory. The rest
# are modest numbers that order tiles sensibly.
_GENERIC = GpuLimits("generic", 16, 1e9, threads_per_block=256, threads_per_core=1024, blocks_per_core=16,
                     shared_per_block=32 << 10, memory_rate=1e11)  # fmt: skip


def architecture(target: Target) -> int:
    """Return the least number in ``-arch=sm_80,sm_90`` (75 by default for NVIDIA's), and 0 for other targets."""
    if not target.kind.capabilities.sm_architecture:
        return 0
    name = str(target.attrs.get("arch") or target.attrs.get("mcpu") or "sm_75")
    return min([int(digits) for digits in re.findall(r"sm_(\d+)", name)], default=75)


def limits_of(target: Target) -> GpuLimits:
    """The record of ``target``'s processor, changed by the target's own options."""
    number = architecture(target)
    record = _GENERIC
    if number:
        record = _NVIDIA[max((n for n in _NVIDIA if n <= number), default=min(_NVIDIA))]
    given = target.attrs
    return replace(
        record,
        threads_per_block=min(int(given.get("max_num_threads") or record.threads_per_block), record.threads_per_block)
        if number
        else int(given.get("max_num_threads") or record.threads_per_block),
        warp=int(given.get("thread_warp_size") or record.warp),
        shared_per_block=int(given.get("shared_memory_per_block") or record.shared_per_block),
    )


def gpu_limits() -> GpuLimits:
    """The record of the current target's processor."""
    target = Target.current()
    return limits_of(target) if target is not None else _GENERIC
