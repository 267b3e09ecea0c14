"""How many models agree with eager torch: ``python -m tests.frontend_coverage GROUP``.

The groups are ``torchvision`` (``pip install --no-deps torchvision``), ``transformers``, ``pt2e`` (``torchao``), and
``torch``, which needs torch alone. Each model runs in a process of its own. ``--results FILE`` keeps the outcomes, a
line of JSON each, and a run goes on where the last one ended.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import re
import resource
import time
import warnings
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

from tests.frontend_coverage.subject import DIFFERENT, EQUAL, FAILED, Outcome, Subject, outcome_of

GROUPS = ("torch", "torchvision", "transformers", "pt2e")


def subjects_of(group: str) -> list[Subject]:
    """Return the models of a group."""
    module = importlib.import_module(f"tests.frontend_coverage.{group}_models")
    return list(module.subjects())


def in_process(subject: Subject, seconds: float, export_only: bool) -> Outcome:
    """Return what becomes of a model in a process of its own, which is ended after ``seconds``."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_child, args=(subject, theirs, export_only))
    child.start()
    theirs.close()
    try:
        if ours.poll(seconds):
            return ours.recv()  # type: ignore[no-any-return]
        return Outcome(subject.name, FAILED, f"still running after {seconds:.0f} s", seconds)
    except EOFError:
        child.join()
        return Outcome(subject.name, FAILED, f"the process ended with {child.exitcode}")
    finally:
        child.kill()
        child.join()


def _child(subject: Subject, pipe: Connection, export_only: bool) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (24 << 30, 24 << 30))
    begun = time.process_time()
    made = outcome_of(subject, export_only)
    pipe.send(Outcome(made.name, made.kind, made.text, round(time.process_time() - begun, 1)))
    pipe.close()


def recorded(path: Path | None) -> dict[str, Outcome]:
    """Return the outcomes in a file by name, the last of each."""
    if path is None or not path.is_file():
        return {}
    return {made.name: made for made in (Outcome(**json.loads(line)) for line in path.read_text().splitlines())}


def summary(outcomes: dict[str, Outcome]) -> str:
    """Return how many models agree, of those that torch.export takes."""
    counts = Counter(made.kind for made in outcomes.values())
    tried = sum(counts[kind] for kind in (EQUAL, DIFFERENT, FAILED))
    share = f"{counts[EQUAL]} of {tried} that torch.export exports are equal"
    return share + "".join(f"; {count} {kind}" for kind, count in sorted(counts.items()) if kind != EQUAL)


def main() -> None:
    """Run the models of a group."""
    parser = argparse.ArgumentParser(prog="python -m tests.frontend_coverage", description=__doc__)
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--only", default="", help="a regular expression of names")
    parser.add_argument("--shard", default="1/1", help="I/N: the Ith of N parts")
    parser.add_argument("--results", type=Path, help="a file of outcomes, which grows")
    parser.add_argument("--again", default="", help="kinds of outcomes to try again, with commas")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a model")
    parser.add_argument("--export-only", action="store_true", help="go no further than torch.export")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    part, parts = map(int, given.shard.split("/"))
    known = recorded(given.results)
    chosen = [s for s in subjects_of(given.group) if re.search(given.only, s.name)][part - 1 :: parts]
    outcomes = {s.name: known[s.name] for s in chosen if s.name in known}
    for subject in chosen:
        if subject.name in outcomes and outcomes[subject.name].kind not in given.again.split(","):
            continue
        made = outcomes[subject.name] = in_process(subject, given.limit, given.export_only)
        print(f"{made.kind:13}{made.name:40}{made.seconds:6.1f} s  {made.text}", flush=True)
        if given.results:
            with given.results.open("a") as file:
                file.write(made.line() + "\n")
    print(summary(outcomes))


if __name__ == "__main__":
    main()
