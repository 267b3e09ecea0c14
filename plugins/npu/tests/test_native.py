"""The chip and its driver under the sanitizers, from C (native/tests/driver.c)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[1] / "native"
SOURCES = [*sorted((NATIVE / "src" / "chip").glob("*.c")), *sorted((NATIVE / "src" / "driver").glob("*.c"))]
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=1", "TSAN_OPTIONS": "halt_on_error=1"}


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_the_driver_is_clean_under(sanitizer: str, tmp_path: Path) -> None:
    warnings = ["-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Werror", "-pedantic"]
    checks = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    command = ["gcc", "-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-ffp-contract=off", *warnings, *checks]
    sources = [*map(str, SOURCES), str(NATIVE / "tests" / "driver.c")]
    subprocess.run(
        [*command, f"-I{NATIVE / 'include'}", *sources, "-o", str(tmp_path / "driver"), "-lm", "-lpthread"], check=True
    )
    done = subprocess.run(
        [str(tmp_path / "driver")], env=os.environ | OPTIONS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout == "ok\n"


def test_the_driver_exports_its_api_alone() -> None:
    from tilewright_npu import chip

    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(chip.LIBRARY)], check=True, capture_output=True, text=True
    )
    names = {line.split()[-1] for line in listing.stdout.splitlines()}
    header = (NATIVE / "include" / "npu_driver.h").read_text()
    assert names and all(f"{name}(" in header for name in names if not name.startswith("_"))
