"""Measurements on a worker's disk, so that a scheduler or a tuner that goes away loses none.

A run of tuning has a name; its measurements on this machine are the lines of the files ``NAME.HOST.PID.jsonl``.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import threading
import time
from pathlib import Path
from typing import Any

_KEPT_SECONDS = 14 * 24 * 3600.0


def folder() -> Path:
    """Return the folder of journals, in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilewright" / "measured"


class Journal:
    """This machine's measurements for a run."""

    def __init__(self, run: str, where: Path | None = None) -> None:
        if not re.fullmatch(r"[\w-]+", run):
            raise ValueError(f"the name of a run is of letters, digits, - and _, found {run!r}")
        self.run, self._folder = run, where or folder()
        self._file = self._folder / f"{run}.{platform.node()}.{os.getpid()}.jsonl"
        self._entries: dict[str, dict[str, Any]] = {}
        self._read_to: dict[Path, int] = {}
        self._lock = threading.Lock()

    def add(self, entry: dict[str, Any]) -> None:
        """Write an entry, which has an ``id``; it is on disk when this returns."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with open(self._file, "a") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def entries(self) -> dict[str, dict[str, Any]]:
        """All of this machine's entries by their ids; a line that a dying process left unfinished is none."""
        with self._lock:
            for path in sorted(self._folder.glob(f"{self.run}.*.jsonl")):
                self._read(path)
            return dict(self._entries)

    def _read(self, path: Path) -> None:
        """Read the new lines of a file."""
        with contextlib.suppress(OSError), open(path, "rb") as file:
            file.seek(self._read_to.get(path, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read_to[path] = self._read_to.get(path, 0) + len(line)
                with contextlib.suppress(ValueError):
                    entry = json.loads(line)
                    if isinstance(entry, dict) and "id" in entry:
                        self._entries.setdefault(str(entry["id"]), entry)


def remove_old(where: Path | None = None) -> None:
    """Remove journals that are too old to be needed."""
    for path in (where or folder()).glob("*.jsonl"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _KEPT_SECONDS:
                path.unlink()
