"""Where memory ends, the runtime says so and goes on: each of its allocations fails once, in all C tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.native_objects import NATIVE
from tests.runtime.kernels import compile_kernels
from tests.runtime.test_native import TESTS

from tilewright.runtime._ffi import find_library

# Not "threads" and "fork": they come to the same places in another order each time. "cuda" needs a library of its own.
AREAS = ["arrays", "devices", "functions", "modules", "graph", "placement", "serving", "rpc"]
FAILING = Path(__file__).with_name("failing_allocator.c")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tests, which use the installed runtime, and the allocator."""
    folder, native = tmp_path_factory.mktemp("memory"), find_library().parent
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", str(FAILING), "-o", str(folder / "failing.so")], check=True)
    link = [f"-L{native}", "-ltilewright_runtime", f"-Wl,-rpath,{native}", "-lpthread", "-ldl"]
    command = ["gcc", "-std=c11", "-g", f"-I{NATIVE / 'include'}", *TESTS, "-o", str(folder / "tests"), *link]
    subprocess.run(command, check=True)
    compile_kernels(folder / "kernels.so", "-shared")
    return folder


def run(programs: Path, golden: Path, area: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [str(programs / "tests"), str(golden), str(programs / "kernels.so"), area]
    environment = {**os.environ, "LD_PRELOAD": str(programs / "failing.so"), **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", timeout=120)


@pytest.mark.full
@pytest.mark.parametrize("area", AREAS)
def test_a_failing_allocation_is_an_error(programs: Path, golden: Path, area: str) -> None:
    count = programs / f"count-{area}"
    assert run(programs, golden, area, FAIL_COUNT=str(count)).returncode == 0
    wrong = []
    for place in range(int(count.read_text())):
        done = run(programs, golden, area, FAIL_SITE=str(place))
        # a test may find that what it expected failed: no signal ends it
        if done.returncode not in (0, 1):
            wrong.append(f"place {place} ends with {done.returncode}: {done.stderr[-2000:]}")
    assert not wrong, "\n".join(wrong)
