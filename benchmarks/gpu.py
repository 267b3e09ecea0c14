"""Kernels of GPUs: beside PyTorch's where there is one, and else what they should reach: ``python -m benchmarks.gpu``.

With a CUDA device each shape is run and timed by the device's events, and ``torch.matmul`` or ``conv2d`` beside it if
PyTorch has CUDA. Without one, each kernel's PTX goes through ``ptxas -v`` (of the package nvidia-cuda-nvcc, or of an
installed toolkit), and the table says registers, spills, shared memory, how many blocks a multiprocessor takes, and by
a roofline of the chip the time that is the least possible, and what the model that chose the tile expects.
"""

from __future__ import annotations

import argparse
import math
import re
import shutil
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir import dtype as dt
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.target.gpu import GpuLimits, limits_of
from tilewright.target.target import Target
from tilewright.tir.stmt import AttrStmt
from tilewright.tir.visitor import post_order_visit
from tilewright.topi import cuda

ARCHITECTURES = (75, 80, 90, 100)


@dataclass(frozen=True)
class Case:
    """A kernel: its inputs, how it is computed and scheduled, and the multiply-adds that it takes."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    compute: Callable[..., te.Tensor]
    schedule: Callable[..., te.Schedule]
    multiply_adds: int
    options: str = ""

    def target(self, number: int) -> Target:
        """For architecture ``number``."""
        return Target(f"cuda -arch=sm_{number}{self.options}")

    def bytes(self) -> int:
        """That are read, at least."""
        return sum(math.prod(s) for s in self.shapes) * dt.nbytes(self.dtype)


def _sums(dtype: str) -> str:
    return {"int8": "int32", "uint8": "int32"}.get(dtype, dtype)


def gemm(m: int, n: int, k: int, dtype: str) -> Case:
    """A dense layer; of dtype "tf32" one of float32 with 19 bits."""
    name, options = f"gemm {m}x{n}x{k}", ""
    if dtype == "tf32":
        name, dtype, options = f"{name} tf32", "float32", " -tf32=1"

    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return cuda.dense_large_batch(a, b, None, _sums(dtype))

    schedule = cuda.schedule_dense_large_batch
    return Case(name, ((m, k), (n, k)), dtype, compute, schedule, m * n * k, options)


def conv(n: int, c: int, size: int, o: int, window: int, stride: int, dtype: str) -> Case:
    """A convolution in NCHW, padded by half a window."""

    def compute(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        return topi.nn.relu(cuda.conv2d_nchw(x, w, stride, window // 2, 1, _sums(dtype)))

    out = (size + 2 * (window // 2) - window) // stride + 1
    shapes = ((n, c, size, size), (o, c, window, window))
    name = f"conv {n}x{c}x{size}x{size} {o}x{window}x{window}/{stride}"
    return Case(name, shapes, dtype, compute, cuda.schedule_conv2d_nchw, n * o * out * out * c * window * window)


def attention(batch: int, heads: int, rows: int, depth: int, dtype: str) -> Case:
    """Attention of as many keys as rows."""
    shape = (batch, heads, rows, depth)

    def compute(q: te.Tensor, k: te.Tensor, v: te.Tensor) -> te.Tensor:
        return topi.gpu.attention(q, k, v, None, depth**-0.5)

    work = 2 * batch * heads * rows * rows * depth
    return Case(f"attention {batch}x{heads}x{rows}x{depth}", (shape,) * 3, dtype, compute,
                topi.gpu.schedule_attention, work)  # fmt: skip


def cases() -> list[Case]:
    """Products of BERT, GPT-2 and ResNet-50."""
    found = []
    for dtype in ("float32", "float16"):
        found += [gemm(4096, 4096, 4096, dtype), gemm(1024, 768, 768, dtype), gemm(128, 3072, 768, dtype)]
        found += [gemm(1, 2304, 768, dtype)]
        found += [conv(32, 64, 56, 64, 3, 1, dtype), conv(32, 256, 14, 256, 3, 1, dtype)]
        found += [conv(1, 256, 56, 128, 1, 2, dtype), attention(8, 12, 128, 64, dtype)]
        found += [attention(1, 16, 2048, 128, dtype)]
    found += [gemm(4096, 4096, 4096, dtype) for dtype in ("bfloat16", "int8", "tf32")]
    return [*found, gemm(1024, 768, 768, "int8"), conv(32, 256, 14, 256, 3, 1, "int8")]


def lowered(case: Case, target: Target) -> tuple[Any, list[te.Tensor], te.Schedule]:
    """The kernel before code generation, its arguments and its schedule."""
    with target:
        inputs = [te.placeholder(s, case.dtype, f"in{k}") for k, s in enumerate(case.shapes)]
        out = case.compute(*inputs)
        schedule = case.schedule([out])
        return tvm.lower(schedule, [*inputs, out]), [*inputs, out], schedule


def find_ptxas() -> str | None:
    """NVIDIA's assembler; None where there is none."""
    try:
        import nvidia
    except ImportError:
        return shutil.which("ptxas")
    for folder in nvidia.__path__:
        for path in Path(folder).glob("*/bin/ptxas"):
            return str(path)
    return shutil.which("ptxas")


@dataclass(frozen=True)
class Assembled:
    """What ptxas says of a kernel, and its launch."""

    registers: int
    spills: int
    shared: int
    threads: int
    blocks: int

    def occupancy(self, limits: GpuLimits) -> int:
        """Blocks that a multiprocessor runs at once."""
        warps = -(-self.threads // limits.warp)
        per_warp = -(-self.registers * limits.warp // 256) * 256
        return min(
            limits.blocks_per_core,
            limits.threads_per_core // (warps * limits.warp),
            limits.registers_per_core // (per_warp * warps),
            limits.shared_per_core // (self.shared + 1024),
        )


def assembled(case: Case, number: int, ptxas: str) -> Assembled:
    """Build a case for one architecture and assemble its PTX."""
    target = case.target(number)
    mod, _, _ = lowered(case, target)
    extents: dict[str, int] = {}

    def visit(node: Any) -> None:
        if isinstance(node, AttrStmt) and node.attr_key == "thread_extent":
            extents[node.node.thread_tag] = int(node.value)  # type: ignore[call-overload, union-attr]

    post_order_visit(mod["main"].body, visit)
    with target:
        text = str(tvm.build(mod, target=target).imported_modules[0].get_source("ptx"))
    done = subprocess.run(
        [ptxas, "-v", f"-arch=sm_{number}", "-o", "/dev/null", "-"], input=text, text=True, capture_output=True
    )
    if done.returncode:
        raise RuntimeError(f"{case.name}: ptxas refuses the PTX for sm_{number}: {done.stderr[:500]}")

    def largest(pattern: str) -> int:
        return max((int(x) for x in re.findall(pattern, done.stderr)), default=0)

    def count(which: str) -> int:
        return math.prod(n for tag, n in extents.items() if tag.startswith(which))

    spills = largest(r"(\d+) bytes spill stores") + largest(r"(\d+) bytes stack frame")
    return Assembled(
        largest(r"Used (\d+) registers"), spills, largest(r"(\d+) bytes smem"), count("threadIdx"), count("blockIdx")
    )


def roofline(case: Case, limits: GpuLimits) -> float:
    """The least seconds that the chip takes: arithmetic or memory, whichever is longer."""
    per_clock = limits.tensor_per_clock(case.dtype) if case.dtype != "float32" or case.options else 0
    rate = limits.cores * limits.clock * per_clock or limits.fp32
    return max(case.multiply_adds / rate, case.bytes() / limits.memory_rate)


def expected(case: Case, made: Assembled, limits: GpuLimits) -> float:
    """Seconds by whole waves of blocks, and by how many warps hide what they wait for (8 a scheduler do)."""
    together = max(1, made.occupancy(limits))
    waves = -(-made.blocks // (limits.cores * together))
    used = made.blocks / (waves * limits.cores * together)
    warps = together * -(-made.threads // limits.warp)
    hidden = min(1.0, (warps / 16) ** 0.5)
    return roofline(case, limits) / max(1e-6, min(1.0, used) ** 0.5 * hidden * 0.8) + 3e-6


def paper_table(numbers: tuple[int, ...]) -> None:
    """Print what ptxas, occupancy and the roofline say."""
    ptxas = find_ptxas()
    if ptxas is None:
        print("no ptxas: pip install nvidia-cuda-nvcc, or put an installed toolkit's on the PATH")
        return
    print("| kernel | dtype | sm | registers | spilled bytes | shared | threads | blocks | on a core | roofline us | "
          "expected us |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")  # fmt: skip
    for case in cases():
        for number in numbers:
            if (case.options or case.dtype == "bfloat16") and number < 80:
                continue  # tensor cores take these from sm_80 on
            limits = limits_of(case.target(number))
            made = assembled(case, number, ptxas)
            print(
                f"| {case.name} | {case.dtype} | {number} | {made.registers} | {made.spills} | {made.shared} | "
                f"{made.threads} | {made.blocks} | {made.occupancy(limits)} | {roofline(case, limits) * 1e6:.1f} | "
                f"{expected(case, made, limits) * 1e6:.1f} |",
                flush=True,
            )


def measured_table() -> None:
    """Run each kernel on the device beside PyTorch's, whose result is the oracle where it has the operator."""
    device = tvm.cuda(0)
    number = int(str(device.compute_version).replace(".", ""))
    print(f"{device.device_name}\n")
    print(
        "| kernel | dtype | us | TFLOP/s | share of roofline | PyTorch us | error |\n|---|---|---:|---:|---:|---:|---:|"
    )
    for case in cases():
        try:
            print(measured(case, case.target(number), device), flush=True)
        except tvm.TVMError as error:
            print(f"| {case.name} | {case.dtype} | failed: {str(error).splitlines()[-1]} |", flush=True)


def measured(case: Case, target: Target, device: tvm.runtime.Device) -> str:
    """Return the row of a kernel: its time by the device's clock, PyTorch's, and how far the two results differ."""
    mod, arguments, _ = lowered(case, target)
    with target:
        built = tvm.build(mod, target=target)
    rng = np.random.default_rng(0)
    values = [random_values(rng, s, case.dtype) for s in case.shapes]
    out = arguments[-1]
    arrays = [tvm.nd.array(v, device) for v in values]
    arrays.append(tvm.nd.empty([int(d) for d in out.shape], out.dtype, device))
    seconds = built.time_evaluator("main", device, number=20, repeat=5)(*arrays).median
    other = torch_seconds(case, values)
    row = f"| {case.name} | {case.dtype} | {seconds * 1e6:.1f} | {2e-12 * case.multiply_adds / seconds:.1f} | "
    row += f"{roofline(case, limits_of(target)) / seconds:.2f} | "
    if other is None:
        return f"{row}- | - |"
    theirs, result = other
    error = np.abs(arrays[-1].numpy().astype("float64") - result).max() / max(1e-30, np.abs(result).max())
    return f"{row}{theirs * 1e6:.1f} | {error:.1e} |"


def random_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return an array of a kernel's operand."""
    if dtype == "int8":
        return rng.integers(-128, 128, shape).astype("int8")
    return rng.uniform(-1, 1, shape).astype(numpy_dtype(dtype))


def torch_seconds(case: Case, values: list[np.ndarray]) -> tuple[float, np.ndarray] | None:
    """Return the time in PyTorch, by its events, and its result; None where it has no CUDA or no such operator."""
    try:
        import torch
    except ImportError:
        return None
    dtype = getattr(torch, case.dtype)
    if not torch.cuda.is_available() or not dtype.is_floating_point:
        return None
    torch.backends.cuda.matmul.allow_tf32 = "-tf32" in case.options
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    inputs = [torch.from_numpy(v.astype("float32")).to("cuda", dtype) for v in values]
    if case.name.startswith("gemm"):
        run: Callable[[], Any] = lambda: torch.nn.functional.linear(*inputs)  # noqa: E731
    elif case.name.startswith("conv"):
        stride = int(case.name.rpartition("/")[2])
        padding = case.shapes[1][2] // 2
        run = lambda: torch.relu_(torch.nn.functional.conv2d(*inputs, stride=stride, padding=padding))  # noqa: E731
    else:
        run = lambda: torch.nn.functional.scaled_dot_product_attention(*inputs).transpose(1, 2)  # noqa: E731
    return torch_time(torch, run), run().double().cpu().numpy()


def torch_time(torch: Any, run: Callable[[], Any], repeat: int = 5, number: int = 20) -> float:
    """Return the median seconds of a call, by events around ``number`` of them."""
    for _ in range(5):
        run()
    found = []
    for _ in range(repeat):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(number):
            run()
        end.record()
        torch.cuda.synchronize()
        found.append(float(start.elapsed_time(end)) / number / 1e3)
    return statistics.median(found)


def main() -> None:
    """The table that this machine can make."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", type=int, nargs="*", default=ARCHITECTURES, help="for ptxas, where there is no GPU")
    parser.add_argument("--networks", action="store_true", help="also whole networks, beside PyTorch's")
    args = parser.parse_args()
    if tvm.cuda(0).exist:
        measured_table()
        if args.networks:
            from benchmarks import gpu_networks

            gpu_networks.table()
    else:
        paper_table(tuple(args.arch))


if __name__ == "__main__":
    main()
