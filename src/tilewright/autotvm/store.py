"""Records used by default: those shipped with the package, and the user's.

The package has a file for each processor (``shipped/KEY.jsonl.gz``, by ``processor_key``); the user's are in the folder
``TILEWRIGHT_RECORDS``, in a folder for each processor, and take precedence. A record holds for the version of its
template, which its ``code_hash`` names; records of other versions are ignored.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import re
from collections.abc import Iterator
from pathlib import Path

from tilewright.autotvm.history import ApplyHistoryBest
from tilewright.autotvm.lines import load_from_buffer, load_from_file, write_records
from tilewright.autotvm.record import Record, best_records, save_records
from tilewright.autotvm.task.dispatcher import DispatchContext
from tilewright.autotvm.task.task import template_version
from tilewright.runtime.environment import RECORDS, SHIPPED_RECORDS
from tilewright.runtime.partial_files import write_whole
from tilewright.target.features import features
from tilewright.target.target import Target

_FILE = "records.jsonl"
_SHIPPED = Path(__file__).with_name("shipped")


def processor_key(target: Target) -> str:
    """Return the folder's name for a target's processor: LLVM's name, and the number of cores used."""
    cpu = features(target)
    return re.sub(r"[^\w.-]", "_", f"{cpu.arch}-{cpu.cpu or 'generic'}-{cpu.cores}")


def default_records(target: Target) -> list[Record]:
    """The records for a target's processor: the user's, and of other workloads the package's."""
    if "cpu" not in target.keys:
        return []
    own = _own_records(target)
    known = {inp.task.workload for inp, _ in own}
    shipped = shipped_records(target) if SHIPPED_RECORDS.read() else []
    return [*own, *(record for record in shipped if record[0].task.workload not in known)]


def _own_records(target: Target) -> list[Record]:
    """Return the user's records; none if no folder is set."""
    folder = RECORDS.read()
    if folder is None:
        return []
    files = sorted((folder / processor_key(target)).glob("*.jsonl"))
    return [r for file in files for r in load_from_file(file) if is_current(r)]


def shipped_file(target: Target) -> Path:
    """Return the shipped file of records for a target's processor; it may not exist."""
    return _SHIPPED / f"{processor_key(target)}.jsonl.gz"


def shipped_records(target: Target) -> list[Record]:
    """The package's records for a target's processor."""
    path = shipped_file(target)
    return _read_shipped(path, path.stat().st_mtime_ns) if path.exists() else []


@functools.lru_cache(maxsize=8)
def _read_shipped(path: Path, _: int) -> list[Record]:
    with gzip.open(path, "rt") as file:
        return [record for record in load_from_buffer(file) if is_current(record)]


def save_shipped(target: Target, records: list[Record]) -> Path:
    """Add records to the package's for a target's processor, dropping those of other versions; return the file.

    The file is the same, byte for byte, for the same records.
    """
    path = shipped_file(target)
    text = io.StringIO()
    write_records(text, best_records([*shipped_records(target), *(r for r in records if is_current(r))]))
    write_whole(path, gzip.compress(text.getvalue().encode(), mtime=0))
    return path


def is_current(record: Record) -> bool:
    """Return whether the record's template is of the version that this program has."""
    inp, _ = record
    return inp.config.code_hash == template_version(inp.task.name)


def save_default(target: Target, records: list[Record]) -> Path | None:
    """Add records to the user's folder; return the file, or None if no folder is set."""
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
    """Apply the records for a target's processor, unless others are already applied."""
    records = default_records(target) if DispatchContext.current.is_fallback() else []
    if not records:
        yield
        return
    with ApplyHistoryBest(records):
        yield
