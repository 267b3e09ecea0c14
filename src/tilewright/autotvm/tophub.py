"""TVM's name of the default records: here those of the user's folder (``store.py``).

Nothing is downloaded: TVM's hub has records of TVM's schedules.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.autotvm.history import ApplyHistoryBest
from tilewright.autotvm.store import default_records
from tilewright.autotvm.task.dispatcher import DispatchContext, FallbackContext
from tilewright.target.target import Target


def context(target: Any, extra_files: Iterable[str | os.PathLike[str]] | None = None) -> DispatchContext:
    """Return a context of the records in the user's folder for a target, or several, and of ``extra_files``.

    >>> with autotvm.tophub.context("llvm"):
    ...     lib = relay.build(mod, "llvm", params=params)

    Without any record, the context leaves everything untuned.
    """
    targets: Sequence[Any] = target if isinstance(target, (list, tuple)) else [target]
    records = [record for each in targets for record in default_records(Target(each))]
    best = ApplyHistoryBest(records)
    files = list(extra_files or ())
    for file in files:
        best.load(file)
    return best if records or files else FallbackContext()
