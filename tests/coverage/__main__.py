"""``python -m tests.coverage [pytest's arguments]``: how much of compiler and runtime the tests run (`make coverage`).

Branches of Python are counted by coverage.py, in the processes that tests start, too; lines of C by gcov, in a runtime
that is built for it in ``build/coverage``. ``--report`` prints the table of the last run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.selection.closeness import ROOT

FOLDER = ROOT / "build" / "coverage"
NATIVE = FOLDER / "native"


def build_native() -> Path:
    """Build the runtime so that it counts the lines that run, from zero; return the library."""
    configure = ["cmake", "-S", ROOT, "-B", NATIVE, "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS=--coverage"]
    for command in (configure, ["cmake", "--build", NATIVE, "--parallel", "--target", "tilewright_runtime"]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    for counts in NATIVE.rglob("*.gcda"):
        counts.unlink()
    return NATIVE / "libtilewright_runtime.so"


def run(arguments: Sequence[str]) -> int:
    """Run pytest and gather what its processes wrote; return its status."""
    for data in FOLDER.glob("data*"):
        data.unlink()
    variables = os.environ | {"TILEWRIGHT_RUNTIME_LIBRARY": str(build_native())}
    coverage = [sys.executable, "-m", "coverage"]
    status = subprocess.run([*coverage, "run", "-m", "pytest", "-q", *arguments], cwd=ROOT, env=variables).returncode
    subprocess.run([*coverage, "combine", "--quiet"], cwd=ROOT, check=True)
    subprocess.run([*coverage, "json", "--quiet", "-o", FOLDER / "python.json"], cwd=ROOT, check=True)
    return status


def python_counts(report: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return of each package how many branches were taken, of how many."""
    counts: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for path, file in report["files"].items():
        inner = Path(path).parts[2:]  # src/tilewright/...
        taken, all_ = counts[name := inner[0] if len(inner) > 1 else "tilewright"]
        summary = file["summary"]
        counts[name] = taken + summary["covered_branches"], all_ + summary["num_branches"]
    return dict(counts)


def native_counts(reports: Iterable[Mapping[str, Any]], root: str) -> dict[str, tuple[int, int]]:
    """Return of each folder of ``native/src`` how many lines ran, of how many, from what gcov says of each object."""
    lines: dict[str, dict[int, bool]] = defaultdict(lambda: defaultdict(bool))
    for file in (file for report in reports for file in report["files"]):
        if file["file"].startswith(root):
            for line in file["lines"]:
                lines[file["file"][len(root) :]][line["line_number"]] |= line["count"] > 0
    counts: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for path, ran in lines.items():
        name = path.lstrip("/").split("/")[0]
        counts[name] = counts[name][0] + sum(ran.values()), counts[name][1] + len(ran)
    return dict(counts)


def gcov() -> list[dict[str, Any]]:
    """Return what gcov says of each object of the runtime, also of those that never ran."""
    notes = sorted(NATIVE.rglob("*.gcno"))
    said = subprocess.run(["gcov", "--stdout", "--json-format", *notes], cwd=NATIVE, check=True, capture_output=True)
    return [json.loads(line) for line in said.stdout.splitlines() if line]


def table(title: str, counts: Mapping[str, tuple[int, int]]) -> str:
    """Return the shares of each package and of all, in percent."""
    total = tuple(map(sum, zip(*counts.values(), strict=True)))
    rows = [(name, *counts[name]) for name in sorted(counts) if counts[name][1]] + [("all", *total)]
    lines = [f"| `{name}` | {covered} of {all_} | {100 * covered / all_:.1f} |" for name, covered, all_ in rows]
    return "\n".join([f"| {title} | | % |", "|---|---|---|", *lines])


def main() -> int:
    """Run tests and print the table, or that of the last run."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--report", action="store_true", help="print the table of the last run")
    options, rest = parser.parse_known_args()
    status = 0 if options.report else run(rest)
    print(table("branches of `src/tilewright`", python_counts(json.loads((FOLDER / "python.json").read_text()))))
    print(table("lines of `native/src`", native_counts(gcov(), str(ROOT / "native" / "src"))))
    return status


if __name__ == "__main__":
    sys.exit(main())
