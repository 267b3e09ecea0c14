"""Running the closest cases on one mutant.

A process that has collected all tests is forked, and the mutated function gets its new code in the child: this takes
hardly more than the tests do. Where the mutant is no change of a function, or the function ran before the fork and the
mutant survived, a new process loads the mutant's text in place of the module's (``hook/sitecustomize.py``).
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.selection.closeness import ROOT
from tests.selection.plugin import ordered

HOOK = str(Path(__file__).parent / "hook")
TEST_SECONDS = {"test": 25, "full": 100}  # of processor time: a case that takes more does not end
WALL_SECONDS = 600  # a process that takes more waits for something
MEMORY = 12 << 30
COLD_FILES = 10
NO_OPENCL = "/nonexistent"  # the folder of OpenCL's vendors for processes that fork
NOT_LOADED = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR)  # Tilewright does not load
TIERS = ("test", "full")
Ranks = Mapping[str, Mapping[str, float]]


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usage)


@dataclass
class Task:
    """What a process is to run: cases of ``ranks`` that belong to a tier, ``slow`` ones last, and where it notes."""

    ranks: Ranks
    tier: str
    seconds: float
    notes: str
    slow: Mapping[str, float]


@dataclass
class Verdict:
    """What came of a run: the case that failed, or of the last one that ran, and what it took."""

    result: str = "survived"
    by: str = ""
    cases: int = 0
    seconds: float = 0.0


class Watch:
    """Runs cases until one fails or the time is over, and keeps notes for the process that waits."""

    def __init__(self, task: Task):
        self.task = task
        self.start = processor_seconds()
        self.verdict = Verdict()

    def note(self, **changes: Any) -> None:
        """Write down what is known so far."""
        vars(self.verdict).update(changes, seconds=round(processor_seconds() - self.start, 2))
        Path(self.task.notes).write_text(json.dumps(asdict(self.verdict)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.verdict.result == "survived":
            self.note(result="killed", by=report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.note(result="killed", by=f"collecting {report.nodeid}")

    def _phases(self, items: Sequence[pytest.Item]) -> list[tuple[str, list[pytest.Item]]]:
        """The cases and which passes are verified; what only the full tier runs comes first there."""
        cases = ordered(
            [i for i in items if i.nodeid.split("::")[0] in self.task.ranks], self.task.ranks, self.task.slow
        )
        of_tier: dict[str, list[pytest.Item]] = {tier: [] for tier in TIERS}
        for case in cases:
            of_tier["full" if case.get_closest_marker("full") else "test"].append(case)
        return (
            [("sample", of_tier["test"])]
            if self.task.tier == "test"
            else [("all", of_tier["full"]), ("all", of_tier["test"])]
        )

    def run(self, config: pytest.Config, items: Sequence[pytest.Item]) -> None:
        """Give each phase its time."""
        for verify, cases in self._phases(items):
            config.option.verify = verify
            until = processor_seconds() + self.task.seconds
            for case, following in zip(cases, [*cases[1:], None], strict=False):
                self._limit()
                self.note(by=case.nodeid, cases=self.verdict.cases + 1)
                config.hook.pytest_runtest_protocol(item=case, nextitem=following)
                if self.verdict.result != "survived":
                    return
                if processor_seconds() > until:
                    case.session._setupstate.teardown_exact(None)  # the next phase starts in another module
                    break
        self.note(by="")

    def _limit(self) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + TEST_SECONDS[self.task.tier]
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def _wait(poll: Callable[[], int | None], leader: int) -> int:
    """Return the status that ``poll`` gives at last; a process that takes too long is ended with all its children."""
    end = time.monotonic() + WALL_SECONDS
    while (status := poll()) is None and time.monotonic() < end:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    if status is None:
        while poll() is None:
            time.sleep(0.05)
        status = -signal.SIGXCPU
    return status


def _verdict(task: Task, status: int) -> Verdict:
    notes = Path(task.notes)
    if not notes.exists():
        if status in NOT_LOADED:
            return Verdict("killed", "loading")
        raise RuntimeError(f"no case was tried: {Path(task.notes + '.log').read_text()[-2000:]}")
    verdict = Verdict(**json.loads(notes.read_text()))
    if status and verdict.result == "survived":
        verdict.result = "timed out" if status == -signal.SIGXCPU else "killed"
    return verdict


def environment(path: str, mutant: str) -> dict[str, str]:
    """Return the variables with which Python loads ``mutant`` for the module at ``path``."""
    folders = [HOOK, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"TILEWRIGHT_MUTANT": f"{path}:{mutant}", "PYTHONPATH": os.pathsep.join(folders)}


def run_hot(session: pytest.Session, task: Task, patch: Callable[[], None]) -> Verdict:
    """Run cases of a session in a child of this process after ``patch``."""
    if child := os.fork():

        def poll() -> int | None:
            done, status = os.waitpid(child, os.WNOHANG)
            return os.waitstatus_to_exitcode(status) if done else None

        return _verdict(task, _wait(poll, child))
    status = 1
    with contextlib.suppress(BaseException):
        os.setsid()
        output = os.open(task.notes + ".log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        patch()
        watch = Watch(task)
        session.config.pluginmanager.register(watch)
        watch.run(session.config, session.items)
        status = 0
    os._exit(status)


def _with_opencl(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if value != NO_OPENCL}


def run_cold(task: Task, variables: Mapping[str, str]) -> Verdict:
    """Run cases in a new process."""
    asked = asdict(task) | {"ranks": dict(list(task.ranks.items())[:COLD_FILES])}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not soak", "--timeout=0", "-p", "no:randomly"]
    command += ["-p", "tests.mutation.cold", *asked["ranks"]]
    with open(task.notes + ".log", "w") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**_with_opencl(os.environ), **variables, "TILEWRIGHT_MUTATION_TASK": json.dumps(asked)},
        )
        return _verdict(task, _wait(process.poll, process.pid))
