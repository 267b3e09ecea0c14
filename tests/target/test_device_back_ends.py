"""Thread axes, storage scopes and kernel signatures on the shared emitter, by two small back ends for devices."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.target.codegen_helpers import build, function
from tests.target.device_back_ends import opencl, ptx_ir

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.type import PointerType, PrimType
from tilewright.runtime.compilers import find_compiler
from tilewright.target import llvm_compile
from tilewright.tir import (
    Allocate,
    AttrStmt,
    Evaluate,
    For,
    ForKind,
    IterVar,
    Load,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
    Store,
    StringImm,
    Var,
    const,
    decl_buffer,
    if_then_else,
    rsqrt,
)  # fmt: skip
from tilewright.tir import op as T

BLOCKS, THREADS = 3, 8


def pointer(name: str, scope: str = "global") -> Var:
    return Var(name, PointerType(PrimType("float32"), scope))


def thread(name: str, tag: str, extent: int) -> IterVar:
    return IterVar(Range(0, extent), Var(name, "int32"), 1, tag)


def turned_over(scope: str = "shared") -> PrimFunc:
    """B = each block of A turned over, through memory that the threads of a block share, plus rsqrt(n)."""
    a, b, tile, n = pointer("A"), pointer("B"), pointer("tile", scope), Var("n", "int32")
    block, lane = thread("block", "blockIdx.x", BLOCKS), thread("lane", "threadIdx.x", THREADS)
    at = block.var * THREADS + lane.var
    body: Stmt = SeqStmt(
        [
            Store(tile, Load("float32", a, at), lane.var),
            Evaluate(T.call_intrin("int32", "tir.tvm_storage_sync", "shared")),
            Store(
                b,
                if_then_else(
                    lane.var < n, Load("float32", tile, THREADS - 1 - lane.var), rsqrt(Load("float32", a, at))
                ),
                at,
            ),
        ]
    )
    body = Allocate(tile, "float32", [THREADS], const(True, "bool"), body)
    for axis in (lane, block):
        body = AttrStmt(axis, "thread_extent", axis.dom.extent, body)
    return PrimFunc([a, b, n], body, None, {}, {"global_symbol": "turn"})


# One operating-system thread for each thread of a block.
_EMULATOR = """
#include <math.h>
#include <pthread.h>
#define __kernel
#define __global
#define __private
#define __local static
#define CLK_LOCAL_MEM_FENCE
#define barrier(x) pthread_barrier_wait(&meet)
static __thread int local_id; static int group_id; static pthread_barrier_t meet;
#define get_local_id(axis) local_id
#define get_group_id(axis) group_id
@KERNEL@
static float *A, *B; static int n;
static void* run(void* id) { local_id = (int)(long)id; turn(A, B, n); return 0; }
void launch(float* a, float* b, int count, int blocks, int threads) {
  pthread_t workers[64];
  A = a, B = b, n = count;
  pthread_barrier_init(&meet, 0, (unsigned)threads);
  for (group_id = 0; group_id < blocks; ++group_id) {
    for (long i = 0; i < threads; ++i) pthread_create(&workers[i], 0, run, (void*)i);
    for (int i = 0; i < threads; ++i) pthread_join(workers[i], 0);
  }
}
"""


def expected(a: np.ndarray, n: int) -> np.ndarray:
    tiles = a.reshape(BLOCKS, THREADS)
    return np.where(np.arange(THREADS) < n, tiles[:, ::-1], 1 / np.sqrt(tiles)).reshape(-1)


def test_an_opencl_kernel_does_what_its_threads_say(tmp_path: Path) -> None:
    text = opencl(turned_over())
    assert text.startswith("__kernel void turn(__global float* A, __global float* B, int n) {")
    assert "  const int block = (int)get_group_id(0);\n  const int lane = (int)get_local_id(0);\n" in text
    assert "  __local float tile[8];\n" in text
    source, library = tmp_path / "kernel.c", tmp_path / "kernel.so"
    source.write_text(_EMULATOR.replace("@KERNEL@", text))
    subprocess.run([*find_compiler(), "-shared", "-fPIC", "-O1", "-o", library, source, "-lm", "-lpthread"], check=True)
    launch = ctypes.CDLL(str(library)).launch
    a, b = np.arange(1, 25, dtype="float32"), np.zeros(24, "float32")
    for n in (0, 3, 8):
        launch(*(x.ctypes.data_as(ctypes.c_void_p) for x in (a, b)), n, BLOCKS, THREADS)
        np.testing.assert_allclose(b, expected(a, n), rtol=1e-6)


def test_a_ptx_kernel_assembles_from_llvm_ir() -> None:
    ir = ptx_ir(turned_over())
    assert 'define ptx_kernel void @"turn"(ptr %p0, ptr %p1, i32 %p2)' in ir
    assert "addrspace(3) global [8 x float]" in ir
    text = llvm_compile.compile_ir(ir, "nvptx64-nvidia-cuda", "sm_75", "", 3, "asm").decode()
    for wanted in (".entry turn(", ".target sm_75", ".shared", "%tid.x", "%ctaid.x", "bar.sync", "rsqrt.approx"):
        assert wanted in text


@pytest.mark.parametrize("generate", [opencl, ptx_ir])
def test_a_scope_that_the_device_lacks_is_named(generate) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UnsupportedError, match=r"turn: tile is in storage scope 'texture'; .* global, shared, local"):
        generate(turned_over("texture"))


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_processor_has_no_threads_to_bind(target: str) -> None:
    out = decl_buffer((8,), "int32", "OUT")
    axis = thread("t", "threadIdx.x", 8)
    store = Store(out.data, axis.var, axis.var)
    bodies = [
        AttrStmt(axis, "thread_extent", axis.dom.extent, store),
        For(axis.var, 0, 8, ForKind.THREAD_BINDING, store, axis),
    ]
    for body in bodies:
        with pytest.raises(UnsupportedError, match=r"threadIdx\.x.* use parallel\(\)"):
            build(target, function("f", [out], body))


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_call_with_an_effect_happens_as_often_as_it_stands_there(target: str) -> None:
    out = decl_buffer((2,), "int32", "OUT")
    code = "static int calls; int next_number(void) { return ++calls; }\n"
    ir = (
        "@calls = internal global i32 0\ndefine i32 @next_number() {\n  %a = load i32, ptr @calls\n"
        "  %b = add i32 %a, 1\n  store i32 %b, ptr @calls\n  ret i32 %b\n}\n"
    )
    call = T.call_extern("int32", "next_number")
    alone = Evaluate(call)
    body: Stmt = SeqStmt([alone, alone, Evaluate(call), Store(out.data, call, 0), Store(out.data, call, 1)])
    key, text = ("pragma_import_llvm", ir) if target == "llvm" else ("pragma_import_c", code)
    built = build(target, function("f", [out], AttrStmt(StringImm("x"), key, StringImm(text), body)))
    import tilewright as tvm

    found = tvm.nd.array(np.zeros(2, "int32"))
    built(found)
    assert found.numpy().tolist() == [4, 5]
