"""Records that builds take without being told: files in the folder ``TILEWRIGHT_RECORDS``.

A folder below it is for one processor (``processor_key``); files in it are records (``*.jsonl``). A record is of the
template as it was when it was made: its ``code_hash`` names the version, and one of another version is passed over.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from tilewright.autotvm.history import ApplyHistoryBest
from tilewright.autotvm.lines import load_from_file
from tilewright.autotvm.record import Record, best_records, save_records
from tilewright.autotvm.task.dispatcher import DispatchContext
from tilewright.autotvm.task.task import template_version
from tilewright.runtime.environment import RECORDS
from tilewright.target.features import features
from tilewright.target.target import Target

_FILE = "records.jsonl"


def processor_key(target: Target) -> str:
    """The folder's name for a target's processor: what LLVM calls it, and how many cores are used."""
    cpu = features(target)
    return re.sub(r"[^\w.-]", "_", f"{cpu.arch}-{cpu.cpu or 'generic'}-{cpu.cores}")


def default_records(target: Target) -> list[Record]:
    """The records of the user's folder for a target's processor; none where no folder is set."""
    folder = RECORDS.read()
    if folder is None or "cpu" not in target.keys:
        return []
    files = sorted((folder / processor_key(target)).glob("*.jsonl"))
    return [r for file in files for r in load_from_file(file) if is_current(r)]


def is_current(record: Record) -> bool:
    """Whether the record's template is of the version that this program has."""
    inp, _ = record
    return inp.config.code_hash == template_version(inp.task.name)


def save_default(target: Target, records: list[Record]) -> Path | None:
    """Add records to the user's folder; gives the file, or None where no folder is set."""
    folder = RECORDS.read()
    if folder is None:
        return None
    path = folder / processor_key(target) / _FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    old = list(load_from_file(path)) if path.exists() else []
    save_records(path, best_records([*old, *records]))
    return path


@contextlib.contextmanager
def records_in_force(target: Target) -> Iterator[None]:
    """The user's records, where no others are in force."""
    records = default_records(target) if DispatchContext.current.is_fallback() else []
    if not records:
        yield
        return
    with ApplyHistoryBest(records):
        yield
