"""Run the tests that are closest to a change until their time is over: ``make check``.

What differs from HEAD (where nothing does, the last commit) is the change. ``closeness.py`` ranks the tests' files and
functions, and the plug-in of pytest in ``plugin.py`` puts the cases in that order and stops in time. Arguments that are
not this command's are pytest's.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from tests.selection.closeness import ROOT, Changes, Closeness


def git(*arguments: str) -> str:
    """Return what git says about the checkout."""
    return subprocess.run(["git", "-C", ROOT, *arguments], check=True, capture_output=True, text=True).stdout


def parse_diff(text: str) -> dict[str, set[int]]:
    """Return the lines of each file that a diff without context changes; where lines went, those beside them."""
    changes: dict[str, set[int]] = {}
    old = path = ""
    for line in text.splitlines():
        if line.startswith("--- "):
            old = line[4:].removeprefix("a/")
        elif line.startswith("+++ "):
            path = line[4:].removeprefix("b/") if line != "+++ /dev/null" else old
            changes[path] = set()
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            changes[path] |= set(range(first, first + count)) or {first, first + 1}
    return changes


def changes_since(revision: str | None) -> Changes:
    """Return what differs from a revision, files included that git does not know."""
    if revision is None:
        revision = "HEAD" if git("status", "--porcelain") else "HEAD~1"
    new = git("ls-files", "--others", "--exclude-standard").splitlines()
    diff = git("diff", "-U0", "--no-color", "--no-ext-diff", "--no-renames", revision)
    return {**parse_diff(diff), **dict.fromkeys(new)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the closest tests; return pytest's status."""
    parser = argparse.ArgumentParser(prog="python -m tests.selection", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--since", help="the revision to compare with (default: HEAD; HEAD~1 where nothing differs)")
    parser.add_argument("--seconds", type=float, default=45, help="start no test later than this (default: 45)")
    parser.add_argument("--files", type=int, default=16, help="of how many files (default: 16)")
    options, rest = parser.parse_known_args(arguments)
    until = time.time() + options.seconds
    changes = changes_since(options.since)
    ranks = Closeness().order(changes, options.files)
    print(f"{len(changes)} changed files; tests of {len(ranks)}, the closest:", *list(ranks)[:3], flush=True)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(ranks, file)
        file.flush()
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.selection.plugin", f"--order={file.name}"]
        return subprocess.run([*command, f"--until={until}", *rest, *ranks], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
