"""The chip, its driver and its device under the sanitizers, from C (native/tests)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.native_objects import NATIVE as RUNTIME
from tests.native_objects import SANITIZED, WARNINGS, run_sanitized, runtime_objects
from tests.tiers import full

NATIVE = Path(__file__).parents[1] / "native"
DRIVER = [*sorted((NATIVE / "src" / "chip").glob("*.c")), *sorted((NATIVE / "src" / "driver").glob("*.c"))]
PROGRAMS = {
    "driver": [*DRIVER, NATIVE / "tests" / "driver.c"],
    "device": [*DRIVER, NATIVE / "src" / "device" / "device.c", NATIVE / "tests" / "device.c"],
}
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=1", "TSAN_OPTIONS": "halt_on_error=1"}


@pytest.mark.parametrize("program", ["device", *full("driver")])
@pytest.mark.parametrize("sanitizer", ["address,undefined", *full("thread")])
def test_c_programs_are_clean_under(sanitizer: str, program: str, tmp_path: Path) -> None:
    checks = [flag.replace("address,undefined", sanitizer) for flag in SANITIZED]
    command = ["gcc", "-std=c11", "-D_GNU_SOURCE", "-ffp-contract=off", *WARNINGS, *checks]
    include = [f"-I{NATIVE / 'include'}", f"-I{RUNTIME / 'include'}"]
    runtime = runtime_objects("gcc", *checks) if program == "device" else []
    libraries = ["-o", str(tmp_path / program), "-lm", "-lpthread", "-ldl"]
    subprocess.run([*command, *include, *map(str, PROGRAMS[program]), *runtime, *libraries], check=True)
    done = run_sanitized([str(tmp_path / program)], OPTIONS)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout == "ok\n"


def test_the_driver_exports_its_api_alone() -> None:
    from tilewright_npu import chip

    command = ["nm", "-D", "--defined-only", str(chip.LIBRARY)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True)
    names = {line.split()[-1] for line in listing.stdout.splitlines()}
    header = (NATIVE / "include" / "npu_driver.h").read_text()
    assert names and all(f"{name}(" in header for name in names if not name.startswith("_"))


def test_a_device_that_was_built_for_another_driver_is_refused(tmp_path: Path) -> None:
    from tilewright import runtime
    from tilewright_npu import chip

    plugin, prefix, folder = tmp_path / "old.so", runtime.native_dir(), chip.LIBRARY.parent
    include = [f"-I{NATIVE / 'include'}", f"-I{prefix / 'include'}"]
    libraries = [f"-L{folder}", "-lnpu_driver", f"-Wl,-rpath,{folder}", f"-L{prefix}", "-ltilewright_runtime"]
    source = str(NATIVE / "src" / "device" / "device.c")
    flags = ["-std=c11", "-shared", "-fPIC", "-DNPU_DRIVER_VERSION=0x00020000u"]
    subprocess.run(["gcc", *flags, *include, source, "-o", str(plugin), *libraries], check=True)
    load = f"from tilewright import runtime; runtime.load_device_plugin({str(plugin)!r})"
    done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "built for version 2.0 of the NPU's driver, but version 1.0 is installed: install the" in done.stderr
