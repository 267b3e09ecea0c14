"""Names of files that are being written: who died while writing one leaves it behind, and others remove it."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import threading
from pathlib import Path


def this_thread() -> str:
    """Return a name for this thread by which other processes, also on other machines, can tell whether it is gone."""
    return f"{platform.node()}-{os.getpid()}-{threading.get_ident()}"


_PARTIAL = re.compile(r"\..+\.(?P<machine>[^/]*)-(?P<process>\d+)-\d+\.partial(\.\w+)?")


def remove_abandoned(folder: Path) -> None:
    """Remove unfinished files that processes of this machine, since ended, have left in a folder."""
    with contextlib.suppress(OSError):
        for path in folder.glob(".*.partial*"):
            name = _PARTIAL.fullmatch(path.name)
            # the name ends in the machine's, which may hold dots of its own
            if name and f".{name['machine']}".endswith(f".{platform.node()}") and not is_alive(int(name["process"])):
                path.unlink(missing_ok=True)


def is_alive(process: int) -> bool:
    """Return whether this machine has a process of that number."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
