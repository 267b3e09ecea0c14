"""Kernels for PTX run on this processor: the LLVM IR that the NVPTX back end gets, with what is NVIDIA's replaced.

Special registers are read from a struct that each thread has, threads of a block are threads of the system that meet in
barriers, a warp exchanges values through memory. What the back end itself does is left to ``ptxas`` and to GPUs.
"""

from __future__ import annotations

import ctypes
import functools
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright.runtime.compilers import find_compiler
from tilewright.target import Target, llvm_compile
from tilewright.target.codegen.nvptx.kernel import kernel_ir
from tilewright.target.device_build import device_part, split_device
from tilewright.target.features import host_features
from tilewright.target.loader import LoadedObjects
from tilewright.tir import IntImm, IterVar, PrimFunc, Var
from tilewright.tir.visitor import StmtVisitor

_EMULATOR = r"""
#include <math.h>
#include <pthread.h>
#include <stdint.h>
typedef struct {
  pthread_barrier_t all, warps[32];
  uint32_t lanes[1024];
  float factors[1024][12];
} Block;
typedef struct {
  int32_t registers[6]; /* tid, ctaid */
  int32_t number;
  Block* block;
  void (*run)(void**, void*);
  void** args;
} Thread;

void emu_barrier(Thread* t) { pthread_barrier_wait(&t->block->all); }
void emu_warp_barrier(Thread* t, int32_t mask) { pthread_barrier_wait(&t->block->warps[t->number / 32]); }
static uint32_t shuffle(Thread* t, uint32_t value, int32_t from, int inside) {
  Block* b = t->block;
  const int first = t->number / 32 * 32;
  b->lanes[t->number] = value;
  emu_warp_barrier(t, -1);
  const uint32_t found = inside ? b->lanes[first + from] : value;
  emu_warp_barrier(t, -1);
  return found;
}
/* PTX ISA, shfl.sync: c holds the segment's mask from bit 8 on, and the limit of lanes. */
uint32_t emu_shfl_idx(Thread* t, uint32_t mask, uint32_t value, int32_t lane, int32_t c) {
  const int me = t->number % 32, segment = c >> 8 & 31, limit = (me & segment) | (c & 31 & ~segment);
  const int from = (me & segment) | (lane & 31 & ~segment);
  return shuffle(t, value, from, from <= limit);
}
uint32_t emu_shfl_up(Thread* t, uint32_t mask, uint32_t value, int32_t delta, int32_t c) {
  const int me = t->number % 32, segment = c >> 8 & 31, limit = (me & segment) | (c & 31 & ~segment);
  return shuffle(t, value, me - delta, me - delta >= limit);
}
uint32_t emu_shfl_down(Thread* t, uint32_t mask, uint32_t value, int32_t delta, int32_t c) {
  const int me = t->number % 32, segment = c >> 8 & 31, limit = (me & segment) | (c & 31 & ~segment);
  return shuffle(t, value, me + delta, me + delta <= limit);
}
static float half_value(uint16_t h) {
  const int e = h >> 10 & 31, m = h & 1023;
  const float size = e == 0 ? m * 0x1p-24f : e == 31 ? (m ? NAN : INFINITY) : ldexpf(1024 + m, e - 25);
  return h >> 15 ? -size : size;
}
/* PTX ISA, "Matrix Fragments for mma.m16n8k8" and "mma.m16n8k16" with .f16: lane 4 * g + t of a warp has of
   a: columns 2t, 2t + 1 of row g, then of row g + 8, then the same of columns + 8; b: rows 2t, 2t + 1 of column g, then
   of rows + 8; c: columns 2t, 2t + 1 of row g, then of row g + 8. */
void emu_mma(Thread* t, int depth, const uint16_t* a, const uint16_t* b, float* c) {
  Block* block = t->block;
  const int first = t->number / 32 * 32, lane = t->number % 32;
  for (int i = 0; i < depth / 2; ++i) block->factors[t->number][i] = half_value(a[i]);
  for (int i = 0; i < depth / 4; ++i) block->factors[t->number][8 + i] = half_value(b[i]);
  emu_warp_barrier(t, -1);
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < depth; ++k) {
      const float* left = block->factors[first + row % 8 * 4 + k % 8 / 2];
      const float* right = block->factors[first + column * 4 + k % 8 / 2];
      c[i] += left[k / 8 * 4 + row / 8 * 2 + k % 2] * right[8 + k / 8 * 2 + k % 2];
    }
  }
  emu_warp_barrier(t, -1);
}
static void* begin(void* thread) {
  Thread* t = thread;
  t->run(t->args, t);
  return 0;
}
void emu_launch(void (*run)(void**, void*), void** args, const int32_t* grid, const int32_t* threads) {
  static Block block;
  static Thread all[1024];
  pthread_t workers[1024];
  const int count = threads[0] * threads[1] * threads[2];
  pthread_barrier_init(&block.all, 0, (unsigned)count);
  for (int w = 0; w * 32 < count; ++w) {
    const int rest = count - w * 32;
    pthread_barrier_init(&block.warps[w], 0, (unsigned)(rest < 32 ? rest : 32));
  }
  for (int b = 0; b < grid[0] * grid[1] * grid[2]; ++b) {
    for (int i = 0; i < count; ++i) {
      all[i] = (Thread){{i % threads[0], i / threads[0] % threads[1], i / threads[0] / threads[1], b % grid[0],
                         b / grid[0] % grid[1], b / grid[0] / grid[1]}, i, &block, run, args};
      if (count == 1) begin(&all[i]);
      else pthread_create(&workers[i], 0, begin, &all[i]);
    }
    for (int i = 0; i < count && count > 1; ++i) pthread_join(workers[i], 0);
  }
}
"""
HALF = Path(llvm_compile.__file__).parent / "codegen/llvm/half.ll"
_REGISTERS = [f"{which}.{axis}" for which in ("tid", "ctaid") for axis in "xyz"]
_HELPERS = """
declare void @emu_barrier(ptr)
declare void @emu_warp_barrier(ptr, i32)
declare i32 @emu_shfl_idx(ptr, i32, i32, i32, i32)
declare i32 @emu_shfl_up(ptr, i32, i32, i32, i32)
declare i32 @emu_shfl_down(ptr, i32, i32, i32, i32)
declare float @llvm.sqrt.f32(float)
define internal float @emu_rsqrt(float %x) alwaysinline {
  %root = call float @llvm.sqrt.f32(float %x)
  %y = fdiv float 1.0, %root
  ret float %y
}
"""


def _mma(depth: int) -> str:
    """``emu_mma`` with the signature of LLVM's intrinsic."""
    halves = [(f"a{i}", "a", i) for i in range(depth // 4)] + [(f"b{i}", "b", i) for i in range(depth // 8)]
    sums, result = [f"c{i}" for i in range(4)], "{ float, float, float, float }"
    lines = ["  %a = alloca [8 x half]\n  %b = alloca [4 x half]\n  %c = alloca [4 x float]"]
    for name, array, i in halves:
        lines += [f"  %p.{name} = getelementptr <2 x half>, ptr %{array}, i32 {i}",
                  f"  store <2 x half> %{name}, ptr %p.{name}, align 2"]  # fmt: skip
    for i, name in enumerate(sums):
        lines += [f"  %p.{name} = getelementptr float, ptr %c, i32 {i}", f"  store float %{name}, ptr %p.{name}"]
    lines.append(f"  call void @emu_mma(ptr %thread, i32 {depth}, ptr %a, ptr %b, ptr %c)")
    made = "poison"
    for i, name in enumerate(sums):
        lines.append(f"  %d.{name} = load float, ptr %p.{name}")
        lines.append(f"  %r{i} = insertvalue {result} {made}, float %d.{name}, {i}")
        made = f"%r{i}"
    params = ", ".join([*(f"<2 x half> %{n}" for n, _, _ in halves), *(f"float %{n}" for n in sums)])
    head = f"define internal {result} @emu_mma_{depth}(ptr %thread, {params}) {{"
    return "\n".join([head, *lines, f"  ret {result} {made}\n}}\n"])


@functools.cache
def _emulator() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "emulator.c", Path(folder) / "emulator.so"
        source.write_text(_EMULATOR)
        subprocess.run(
            [*find_compiler(), "-shared", "-fPIC", "-O1", "-o", library, source, "-lpthread", "-lm"], check=True
        )
        return ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


def for_host(ir: str) -> str:
    """The IR of one kernel for this processor, and ``NAME.run``, which takes its arguments from memory."""
    text = re.sub(r'^target triple = ".*"$', f'target triple = "{host_features().triple}"', ir, flags=re.MULTILINE)
    text = re.sub(r"^declare .*@llvm\.nvvm\..*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"external addrspace\(3\) global \[0 x i8\]", "internal global [65536 x i8] undef", text)
    text = re.sub(r"addrspacecast \(ptr addrspace\(3\) (\S+) to ptr\)", r"\1", text)
    text = re.sub(r"addrspacecast ptr addrspace\(1\) (\S+) to ptr", r"getelementptr i8, ptr \1, i32 0", text)
    text = re.sub(r" addrspace\([13]\)", "", text)
    text = re.sub(r"call i32 @llvm\.nvvm\.read\.ptx\.sreg\.(\w+\.\w)\(\)", r"load i32, ptr %sreg.\1", text)
    text = text.replace("@llvm.nvvm.barrier0()", "@emu_barrier(ptr %thread)")
    text = text.replace("@llvm.nvvm.bar.warp.sync(", "@emu_warp_barrier(ptr %thread, ")
    text = re.sub(r"@llvm\.nvvm\.shfl\.sync\.(\w+)\.i32\(", r"@emu_shfl_\1(ptr %thread, ", text)
    text = text.replace("call i32 @llvm.nvvm.activemask()", "add i32 0, -1")
    text = text.replace("@llvm.nvvm.rsqrt.approx.f(", "@emu_rsqrt(")
    text = re.sub(r"@llvm\.nvvm\.mma\.m16n8k(\d+)\.row\.col\.f32\.f32\(", r"@emu_mma_\1(ptr %thread, ", text)
    head = re.search(r'define ptx_kernel void @"(\S+?)"\((.*?)\)( "nvvm.*?")? \{\nentry:\n', text)
    assert head is not None
    name, params = head[1], [p for p in head[2].split(", ") if p]
    registers = "".join(f"  %sreg.{r} = getelementptr i32, ptr %thread, i32 {i}\n" for i, r in enumerate(_REGISTERS))
    signature = ", ".join([*params, "ptr %thread"])
    text = text.replace(head[0], f'define internal void @"{name}"({signature}) {{\nentry:\n{registers}')
    loads, given = [], []
    for i, param in enumerate(params):
        kind = param.split()[0]
        loads += [f"  %a{i} = getelementptr i64, ptr %args, i32 {i}", f"  %v{i} = load {kind}, ptr %a{i}"]
        given.append(f"{kind} %v{i}")
    call = f'  call void @"{name}"({", ".join([*given, "ptr %thread"])})'
    run = "\n".join([f'define void @"{name}.run"(ptr %args, ptr %thread) {{', *loads, call, "  ret void\n}"])
    root = "declare float @llvm.sqrt.f32(float)\n"
    helpers = _HELPERS.replace(root, "") if root in text else _HELPERS
    if "@emu_mma" in text:
        helpers += "declare void @emu_mma(ptr, i32, ptr, ptr, ptr)\n" + _mma(8) + _mma(16)
    return text + helpers + run


class _Extents(StmtVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, Any] = {}

    def visit_attr(self, s: Any) -> None:
        if s.attr_key == "thread_extent" and isinstance(s.node, IterVar):
            self.found[s.node.thread_tag] = s.value
        super().visit_attr(s)


def _aligned(array: np.ndarray) -> np.ndarray:
    """A copy at an address that a device would give it."""
    room = np.zeros(array.nbytes + 64, "uint8")
    start = -room.ctypes.data % 64
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class OnHost:
    """Functions with thread axes, each of one kernel with extents that are known, called with arrays of the host."""

    def __init__(self, funcs: Sequence[PrimFunc], architecture: str = "sm_75") -> None:
        self.funcs: dict[str, tuple[PrimFunc, PrimFunc, int]] = {}
        host, symbols = host_features(), {}
        # x86 may lack these conversions
        half = f'target triple = "{host.triple}"\n' + HALF.read_text()
        objects = [llvm_compile.compile_ir(half, host.triple, host.cpu, host.feature_string, 1)]
        self.ir: dict[str, str] = {}
        for func in funcs:
            target = Target(f"cuda -arch={architecture}")
            _, kernel = split_device(func.with_attr("target", target), Target("llvm"))
            kernel = device_part(kernel)
            name = str(func.attrs["global_symbol"])
            self.ir[name] = kernel_ir(kernel, architecture)
            text = for_host(self.ir[name])
            objects.append(llvm_compile.compile_ir(text, host.triple, host.cpu, host.feature_string, 2))
            symbols[name] = (func, kernel, f"{kernel.attrs['global_symbol']}.run")
        _emulator()
        self._loaded = LoadedObjects(objects, [symbol for _, _, symbol in symbols.values()])
        for name, (func, kernel, symbol) in symbols.items():
            address = self._loaded.lookup(symbol)
            assert address is not None
            self.funcs[name] = (func, kernel, address)

    def __call__(self, *args: Any) -> None:
        self._call(next(iter(self.funcs)), args)

    def __getitem__(self, name: str) -> Callable[..., None]:
        return lambda *args: self._call(name, args)

    def _call(self, name: str, args: Sequence[Any]) -> None:
        func, kernel, address = self.funcs[name]
        arrays, values = [], {}
        for param, arg in zip(func.params, args, strict=True):
            buffer = func.buffer_map.get(param)
            values[param if buffer is None else buffer.data] = arg
        slots = (ctypes.c_uint64 * max(len(kernel.params), 1))()
        for i, param in enumerate(kernel.params):
            arg = values[param]
            if isinstance(arg, tvm.nd.NDArray):
                arrays.append((arg, _aligned(arg.numpy())))
                slots[i] = arrays[-1][1].ctypes.data
            else:
                data = np.asarray(arg, param.dtype).tobytes().ljust(8, b"\0")
                slots[i] = int.from_bytes(data, "little")
        extents = _Extents()
        extents.visit_stmt(kernel.body)
        sizes = [
            (ctypes.c_int32 * 3)(*[_number(extents.found.get(f"{which}.{axis}", 1), values) for axis in "xyz"])
            for which in ("blockIdx", "threadIdx")
        ]
        _emulator().emu_launch(ctypes.c_void_p(address), slots, *sizes)
        for array, data in arrays:
            array.copyfrom(data)


def _number(extent: Any, values: dict[Var, Any]) -> int:
    if isinstance(extent, IntImm):
        return int(extent.value)
    return extent if isinstance(extent, int) else int(values[extent])
