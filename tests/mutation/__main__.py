"""``python -m tests.mutation``: whether tests notice that the compiler is wrong.

Mutants are drawn at random (``mutants.py``) and given to their closest tests (``runs.py``). What came of each is
appended to a file, one JSON object a line, from which a later call goes on. ``--tier full`` gives the survivors of
``make test`` to the tests that only ``make test-full`` runs, with all passes verified. ``--report`` prints the table.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.mutation.hook.sitecustomize import install
from tests.mutation.mutants import AREAS, Mutant, draw_mutants
from tests.mutation.patch import Calls, LoadedFunctions
from tests.mutation.runs import NO_OPENCL, TIERS, Task, Verdict, environment, run_cold, run_hot
from tests.selection.closeness import ROOT, TEST_FOLDERS, Closeness
from tests.selection.plugin import CACHE

KILLS = ("killed", "timed out")
NOT_THEIRS = ("tests/benchmarks", "tests/selection", "tests/mutation", "tests/architecture")


def read(file: Path) -> list[dict[str, Any]]:
    """Return the records of a file, none where there is none."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


class Mutation:
    """The plug-in of pytest that gives mutants to tests once all are collected."""

    def __init__(self, options: argparse.Namespace, calls: Calls):
        self.options = options
        self.calls = calls
        self.closeness = Closeness()
        cache = ROOT / ".pytest_cache/v" / CACHE
        self.slow = json.loads(cache.read_text()) if cache.exists() else {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Give mutants to their tests and record what comes of it."""
        self.calls.stop()
        gc.unfreeze()
        self.functions = LoadedFunctions(str(ROOT / "src"))
        gc.collect()
        gc.freeze()
        mutants = self._mutants()
        for cold in (False, True):  # what needs no process of its own is quick
            self._pass(session, mutants, cold)
        return True

    def _pass(self, session: pytest.Session, mutants: Sequence[Mutant], cold: bool) -> None:
        records = read(self.options.results)
        passed = {r["number"] for r in records if r["tier"] == self.options.tier or r["result"] in KILLS}
        for number, mutant in enumerate(mutants):
            if number in passed or (found := self._try(session, mutant, cold)) is None:
                continue
            with self.options.results.open("a") as file:
                record = {"number": number, "tier": self.options.tier, **found, **mutant.record()}
                file.write(json.dumps(record) + "\n")

    def _mutants(self) -> list[Mutant]:
        if self.options.mutants:
            return [Mutant(**m) for m in read(self.options.mutants)]
        return draw_mutants(ROOT, self.options.seed, self.options.count)

    def _try(self, session: pytest.Session, mutant: Mutant, cold: bool) -> dict[str, Any] | None:
        """Return what came of a mutant; None where only a process of its own can tell and ``cold`` is false."""
        file = ROOT / mutant.path
        text = mutant.apply(file.read_text()) if file.exists() else None
        if text is None:
            return {"result": "gone"}
        order = self.closeness.order({mutant.path: {mutant.line}}, self.options.files + 10)
        ranks = dict([f for f in order.items() if not f[0].startswith(NOT_THEIRS)][: self.options.files])
        with tempfile.TemporaryDirectory(prefix="tilewright-mutant-") as folder:
            (Path(folder) / "mutant.py").write_text(text)
            task = Task(ranks, self.options.tier, self.options.seconds, f"{folder}/notes", self.slow)
            verdict = self._cold(task, file, folder) if cold else self._hot(session, task, file, text, folder)
        if verdict is None:
            return None
        found = verdict.by.split("::")[0]
        return {
            **vars(verdict),
            "how": "cold" if cold else "hot",
            "place": list(ranks).index(found) + 1 if found in ranks else None,
        }

    def _hot(self, session: pytest.Session, task: Task, file: Path, text: str, folder: str) -> Verdict | None:
        """Change the functions in a child; None where no function changes, or one survived that had run before."""
        path = str(file.resolve())
        changed = self.functions.find(path, file.read_text(), text)
        if changed is None:
            return None

        def patch() -> None:
            os.environ.update(environment(path, f"{folder}/mutant.py"))
            install(path, f"{folder}/mutant.py")
            for function, code in changed:
                function.__code__ = code

        verdict = run_hot(session, task, patch)
        ran = any(id(function.__code__) in self.calls.codes for function, _ in changed)
        return None if ran and verdict.result not in KILLS else verdict

    def _cold(self, task: Task, file: Path, folder: str) -> Verdict:
        return run_cold(task, environment(str(file.resolve()), f"{folder}/mutant.py"))


def report(records: Sequence[dict[str, Any]]) -> str:
    """Return a table of how many mutants of each area were killed by which tier."""
    lines = [
        "| area | mutants | killed by `make test` | of these timed out | survived | killed by `make test-full` only |"
    ]
    lines.append("|---|---|---|---|---|---|")
    for area in (*AREAS, "src"):
        of = [r for r in records if r["path"].startswith(area + "/") and r["result"] != "gone"]
        test = Counter(r["result"] for r in of if r["tier"] == "test")
        full = [r["result"] in KILLS for r in of if r["tier"] == "full"]
        name = "all" if area == "src" else f"`{area.removeprefix('src/tilewright/')}`"
        killed = test["killed"] + test["timed out"]
        cells = (sum(test.values()), killed, test["timed out"], test["survived"], f"{sum(full)} of {len(full)} tried")
        lines.append(f"| {name} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw mutants and run tests on them, or report."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("build/mutants.jsonl"), help="default: %(default)s")
    parser.add_argument("--report", action="store_true", help="print the table of the results")
    parser.add_argument("--seed", type=int, default=33)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--tier", choices=TIERS, default="test")
    parser.add_argument("--seconds", type=float, default=10, help="of processor time for each mutant (default: 10)")
    parser.add_argument("--files", type=int, default=24, help="of how many files of tests, the closest (default: 24)")
    parser.add_argument("--mutants", type=Path, help="take the mutants of an earlier file of results")
    parser.add_argument("tests", nargs="*", default=TEST_FOLDERS, help="what is collected (default: all tests)")
    options = parser.parse_args(arguments)
    options.results = options.results.absolute()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    if options.report:
        print(report(read(options.results)))
        return 0
    os.environ["OMP_NUM_THREADS"] = "1"  # a fork has no threads of OpenMP, and PyTorch would wait for them
    os.environ["OCL_ICD_VENDORS"] = NO_OPENCL  # nor those of OpenCL's driver, for which its calls would wait
    calls = Calls()
    calls.start()
    command = ["-q", "-m", "not soak", "--timeout=0", "-p", "no:randomly", "-p", "no:cacheprovider", *options.tests]
    return pytest.main(command, plugins=[Mutation(options, calls)])


if __name__ == "__main__":
    sys.exit(main())
