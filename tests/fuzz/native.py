"""The fuzz targets of the C runtime (``native/fuzz/``): libFuzzer with its sanitizers of addresses and behaviour."""

from __future__ import annotations

import os
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FUZZ = Path(__file__).resolve().parents[2] / "native" / "fuzz"
NATIVE = FUZZ.parent
TARGETS = ("graph", "blob", "params", "library", "region", "rpc")
CORPUS, FINDINGS = FUZZ / "corpus", FUZZ / "findings"

_OPTIONS = ["-std=c11", "-g", "-O1", "-D_GNU_SOURCE", f"-I{NATIVE / 'include'}", "-fno-sanitize-recover=all"]
# A graph may ask for any amount of memory; there are 64 MiB, and then none.
_ENVIRONMENT = {"ASAN_OPTIONS": "allocator_may_return_null=1:max_allocation_size_mb=64:detect_leaks=1"}


def _compile(source: Path, folder: Path, sanitizers: str) -> str:
    target = folder / f"{source.parent.name}_{source.stem}.o"
    subprocess.run(["clang", *_OPTIONS, f"-fsanitize={sanitizers}", "-c", str(source), "-o", str(target)], check=True)
    return str(target)


def build(folder: Path, jobs: int = 2) -> dict[str, Path]:
    """Compile the runtime and link each target with it; returns the programs by name."""
    sources = [*sorted((NATIVE / "src").glob("*/*.c")), *sorted(FUZZ.glob("*.c"))]
    with ThreadPoolExecutor(jobs) as pool:
        objects = list(pool.map(lambda s: _compile(s, folder, "fuzzer-no-link,address,undefined"), sources))
    own = {name: str(folder / f"fuzz_{name}.o") for name in TARGETS}
    shared = [path for path in objects if path not in own.values()]
    programs = {name: folder / name for name in TARGETS}
    for name, program in programs.items():
        link = ["clang", "-fsanitize=fuzzer,address,undefined", *shared, own[name], "-lpthread", "-ldl"]
        subprocess.run([*link, "-o", str(program)], check=True)
    return programs


def run(program: Path, seconds: int, folder: Path, findings: Path = FINDINGS, seed: int = 1) -> str:
    """Fuzz a target from the corpus in the repository; returns its last line.

    Args:
        program: what :func:`build` gave.
        seconds: for how long.
        folder: where new inputs that reach new code go.
        findings: where an input goes that is not answered as it should be; what has been found before is tried first.
        seed: of the random numbers.

    Raises:
        AssertionError: there is such an input; with the report.
    """
    name = program.name
    new, old, own = folder / "new", folder / "old", findings / name
    for place in (new, old, own):
        place.mkdir(parents=True, exist_ok=True)
    with tarfile.open(CORPUS / f"{name}.tar.gz") as archive:
        archive.extractall(old, filter="data")
    dictionary = FUZZ / f"{name}.dict"
    limits = [f"-max_total_time={seconds}", "-timeout=60", "-rss_limit_mb=2048", "-max_len=4096", f"-seed={seed}"]
    options = [*limits, f"-artifact_prefix={own}/", *([f"-dict={dictionary}"] if dictionary.exists() else [])]
    found = sorted(map(str, (FINDINGS / name).glob("*")))
    if found:
        _started(program, [*options, *found])
    report = _started(program, [*options, str(new), str(old)])
    return report.strip().splitlines()[-1]


def _started(program: Path, arguments: list[str]) -> str:
    """What a target reports."""
    done = subprocess.run(
        [str(program), *arguments], env=os.environ | _ENVIRONMENT, capture_output=True, text=True, errors="replace"
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stderr
