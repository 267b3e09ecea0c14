"""The C tests of the native runtime, under the sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.native_objects import NATIVE, SANITIZED, WARNINGS, run_sanitized, runtime_objects
from tests.runtime.gpu_sources import compile_cuda_double
from tests.runtime.kernels import compile_kernels
from tests.tiers import full

from tilewright import runtime

TESTS = [str(source) for source in sorted((NATIVE / "tests").glob("*.c")) if source.name != "kernels.c"]
OPTIONS = {
    "ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # the test of fork() goes on in a child of a process with threads
    "TSAN_OPTIONS": "allocator_may_return_null=1:die_after_fork=0:halt_on_error=1",
}


def build(target: Path, *options: str) -> Path:
    objects = runtime_objects("gcc", *options)
    command = ["gcc", "-std=c11", *WARNINGS, f"-I{NATIVE / 'include'}", *options, *TESTS, *objects]
    subprocess.run([*command, "-o", str(target), "-lpthread", "-ldl"], check=True)
    return target


def check(command: list[str], environment: dict[str, str]) -> None:
    done = run_sanitized(command, environment)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.endswith("ok\n")


@pytest.mark.parametrize("sanitizer", ["address,undefined", *full("thread")])
def test_c_tests_are_clean_under(sanitizer: str, golden: Path, tmp_path: Path) -> None:
    library = compile_kernels(tmp_path / "kernels.so", "-shared")
    options = [option.replace("address,undefined", sanitizer) for option in SANITIZED]
    program = build(tmp_path / "tests", *options)
    cuda = compile_cuda_double(tmp_path / "libcuda.so.1", *options)
    command = [str(program), str(golden), str(library)]
    check(command, OPTIONS | {"TILEWRIGHT_CUDA": str(cuda)})
    if sanitizer != "thread" and runtime.opencl(0).exist:  # drivers keep memory, and lock in ways of their own
        check([*command, "opencl"], OPTIONS | {"ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=0"})


@pytest.mark.full
def test_c_tests_pass_optimized(golden: Path, tmp_path: Path) -> None:
    library = compile_kernels(tmp_path / "kernels.so", "-shared")
    program = build(tmp_path / "tests", "-O2")
    done = subprocess.run([str(program), str(golden), str(library)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_only_the_api_is_exported() -> None:
    from tilewright.runtime import _ffi

    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(_ffi.find_library())], check=True, capture_output=True, text=True
    ).stdout
    names = [line.split()[-1] for line in listing.splitlines()]
    assert names
    assert [name for name in names if not name.startswith(("TVM", "Tilewright", "_"))] == []
