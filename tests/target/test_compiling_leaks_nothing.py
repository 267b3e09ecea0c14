"""Memory of LLVM's, which Python does not count: what a kernel takes is given back."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

import pytest

from tilewright.target import llvm_compile, loader
from tilewright.target.features import host_triple

IR = "define i32 @twice(i32 %x) {\n  %y = add i32 %x, %x\n  ret i32 %y\n}\n"


class _MallocInfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "used", "free", "keepcost")
    ]


def kept_for_each(action: Callable[[], object], times: int) -> float:
    """Bytes of C's heap that one run of ``action`` leaves allocated, after some runs to warm up."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("the C library does not say what is allocated (glibc 2.33 does)")
    libc.mallinfo2.restype = _MallocInfo
    for _ in range(4):
        action()
    gc.collect()
    before = libc.mallinfo2().used
    for _ in range(times):
        action()
    gc.collect()
    return (libc.mallinfo2().used - before) / times


def compiled() -> bytes:
    return llvm_compile.compile_ir(IR, host_triple(), "", "", level=2)


def test_compiling_gives_its_memory_back() -> None:
    assert kept_for_each(compiled, 30) < 500, "bytes for each kernel: llvmlite frees no pass manager by itself"


def test_code_that_is_gone_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "_LIBRARIES_PER_JIT", 4)
    monkeypatch.setattr(loader, "_jits", loader._Jits())
    code = compiled()
    assert kept_for_each(lambda: loader.LoadedObjects([code], ["twice"]), 40) < 2_000, "bytes for each library"


def test_code_outlives_the_jit_of_later_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "_LIBRARIES_PER_JIT", 1)
    code = compiled()
    first = loader.LoadedObjects([code], ["twice"])
    loader.LoadedObjects([code], ["twice"])
    gc.collect()
    twice = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(first.lookup("twice") or 0)
    assert twice(21) == 42
